// Sorts segments of up to 1,024 elements of each row and keeps the first p.keep of each: a round of
// a tournament. Grid: one workgroup per 1,024 / p.size segments, where p.size is the power of two
// that holds a segment.
//
// A row's elements are its p.n candidates, positions within the row of p.length elements:
// candidates[row * p.n + j], or j itself in the first round. NONE is no candidate. Kept positions
// go to kept[segment * p.keep + j], lesser keys first, lower positions first among equals. p.mask
// inverts keys, so that the greatest come first.
//
// The sort is bitonic. An invocation holds eight elements whose indices differ in three
// neighbouring bits, and takes the up to three steps that compare along these bits before the
// elements go back to workgroup memory.

const NONE = 0xffffffffu;
const CAPACITY = 1024u;
const PER_INVOCATION = CAPACITY / WORKGROUP;

// Key, position, and the key's high word where there is one.
alias Element = {{ELEMENT}};

var<workgroup> elements: array<Element, CAPACITY>;

fn before(a: Element, b: Element) -> bool {
    return {{BEFORE}};
}

// Exchanges two elements unless the lesser one comes first (last, if not ascending).
fn order(a: ptr<function, Element>, b: ptr<function, Element>, ascending: bool) {
    let first = *a;
    let second = *b;
    let exchanged = before(second, first) == ascending;
    *a = select(first, second, exchanged);
    *b = select(second, first, exchanged);
}

{{ENTRY}} {
    let t = local_index;
    let group = workgroup_id.y * num_workgroups.x + workgroup_id.x;
    let per_group = CAPACITY / p.size;
    // The loop is not unrolled: with eight-byte keys it would spill.
    for (var k = 0u; k < rounds(PER_INVOCATION); k += 1u) {
        let slot = k * WORKGROUP + t;
        let segment = group * per_group + slot / p.size;
        let j = slot % p.size;
        var at = NONE;
        var key = vec2(NONE);
        if segment < p.segments {
            let row = segment / p.per_row;
            let candidate = (segment % p.per_row) * CAPACITY + j;
            if candidate < p.n {
                at = candidate;
                if p.listed != 0u {
                    at = load_candidates(row * p.n + candidate);
                }
                if at != NONE {
                    key = order_key(row * p.length + at) ^ vec2(p.mask);
                }
            }
        }
        elements[slot] = {{NEW}};
    }
    workgroupBarrier();
    // Runs of 2 to 8 elements, then longer ones, three steps at a time; p.size and thus the
    // barriers are the same for all. A run of p.size ascends everywhere, also where several
    // segments share the slots.
    for (var run = 8u; run <= max(p.size, 8u); run *= 2u) {
        for (var high = run / 2u; high > 0u; high = select(high / 8u, 0u, run == 8u)) {
            // The lowest of these steps.
            let low = max(high / 4u, 1u);
            let first = (t & ~(low - 1u)) * 8u + (t & (low - 1u));
            var e0 = elements[first];
            var e1 = elements[first + low];
            var e2 = elements[first + 2u * low];
            var e3 = elements[first + 3u * low];
            var e4 = elements[first + 4u * low];
            var e5 = elements[first + 5u * low];
            var e6 = elements[first + 6u * low];
            var e7 = elements[first + 7u * low];
            if run == 8u {
                if p.size >= 2u {
                    let up = p.size == 2u;
                    order(&e0, &e1, true);
                    order(&e2, &e3, up);
                    order(&e4, &e5, true);
                    order(&e6, &e7, up);
                }
                if p.size >= 4u {
                    let up = p.size == 4u;
                    order(&e0, &e2, true);
                    order(&e1, &e3, true);
                    order(&e4, &e6, up);
                    order(&e5, &e7, up);
                    order(&e0, &e1, true);
                    order(&e2, &e3, true);
                    order(&e4, &e5, up);
                    order(&e6, &e7, up);
                }
            }
            let ascending = (first & (p.size - 1u) & run) == 0u;
            if high == 4u * low && p.size >= 8u {
                order(&e0, &e4, ascending);
                order(&e1, &e5, ascending);
                order(&e2, &e6, ascending);
                order(&e3, &e7, ascending);
            }
            if high >= 2u * low && p.size >= 8u {
                order(&e0, &e2, ascending);
                order(&e1, &e3, ascending);
                order(&e4, &e6, ascending);
                order(&e5, &e7, ascending);
            }
            if p.size >= 8u {
                order(&e0, &e1, ascending);
                order(&e2, &e3, ascending);
                order(&e4, &e5, ascending);
                order(&e6, &e7, ascending);
            }
            elements[first] = e0;
            elements[first + low] = e1;
            elements[first + 2u * low] = e2;
            elements[first + 3u * low] = e3;
            elements[first + 4u * low] = e4;
            elements[first + 5u * low] = e5;
            elements[first + 6u * low] = e6;
            elements[first + 7u * low] = e7;
            workgroupBarrier();
        }
    }
    for (var k = 0u; k < PER_INVOCATION; k += 1u) {
        let slot = k * WORKGROUP + t;
        let segment = group * per_group + slot / p.size;
        let j = slot % p.size;
        if segment < p.segments && j < p.keep {
            store_kept(segment * p.keep + j, elements[slot].y);
        }
    }
}
