// Keeps the first p.keep of each segment of WORKGROUP * p.each elements (p.each is 1 << p.shift) of
// each row: a round of a tournament for a small p.keep. Grid: one workgroup per segment. p.keep <=
// WORKGROUP, p.keep * p.each <= CAPACITY.
//
// Each invocation finds the first of its own p.each elements. Among these firsts, the p.keep-th
// bounds the elements that can be kept, and only the invocations whose firsts are within the bound
// have such elements: these few are gathered and ranked by counting. Elements are ordered by key
// and then by position, so no two are equal and the bound holds for any input.
//
// A row's elements are its p.n candidates, positions within the row of p.length elements:
// candidates[row * p.n + j], or j itself in the first round. NONE is no candidate. Kept positions
// go to kept[segment * p.keep + j], lesser keys first, lower positions first among equals. p.mask
// inverts keys, so that the greatest come first.

const NONE = 0xffffffffu;
const CAPACITY = 1024u;

var<workgroup> low: array<u32, CAPACITY>;
{{HIGH}}
var<workgroup> position: array<u32, CAPACITY>;
// The invocations whose firsts are within the bound.
var<workgroup> chosen: array<u32, WORKGROUP>;
var<workgroup> chosen_count: atomic<u32>;
var<workgroup> found: atomic<u32>;
var<workgroup> bound: array<u32, 3>;

struct Element {
    key: vec2<u32>,
    at: u32,
}

fn before(a: Element, b: Element) -> bool {
{{BEFORE}}
}

fn element(slot: u32) -> Element {
    return Element(vec2(low[slot], {{HIGH_AT}}), position[slot]);
}

// Candidate j of the row.
fn candidate(row: u32, j: u32) -> Element {
    if j >= p.n {
        return Element(vec2(NONE), NONE);
    }
    var at = j;
    if p.listed != 0u {
        at = load_candidates(row * p.n + j);
        if at == NONE {
            return Element(vec2(NONE), NONE);
        }
    }
    return Element(order_key(row * p.length + at) ^ vec2(p.mask), at);
}

fn put(slot: u32, e: Element) {
    low[slot] = e.key.x;
    position[slot] = e.at;
{{PUT}}
}

{{ENTRY}} {
    let t = local_index;
    let segment = workgroup_id.y * num_workgroups.x + workgroup_id.x;
    let row = segment / p.per_row;
    let first = (segment - row * p.per_row) * (WORKGROUP * p.each);
    if t == 0u {
        atomicStore(&chosen_count, 0u);
        atomicStore(&found, 0u);
        bound[0] = NONE;
        bound[1] = NONE;
        bound[2] = NONE;
    }
    var best = Element(vec2(NONE), NONE);
    if segment < p.segments {
        for (var e = 0u; e < p.each; e += 1u) {
            let next = candidate(row, first + e * WORKGROUP + t);
            if before(next, best) {
                best = next;
            }
        }
    }
    put(t, best);
    workgroupBarrier();
    var rank = 0u;
{{RANK}}
    if rank + 1u == p.keep {
        bound[0] = best.key.x;
        bound[1] = best.key.y;
        bound[2] = best.at;
    }
    if rank < p.keep && best.at != NONE {
        chosen[atomicAdd(&chosen_count, 1u)] = t;
    }
    workgroupBarrier();
    let limit = Element(vec2(bound[0], bound[1]), bound[2]);
    let examined = atomicLoad(&chosen_count) * p.each;
    for (var c = t; c < examined; c += WORKGROUP) {
        let invocation = chosen[c >> p.shift];
        let next = candidate(row, first + (c & (p.each - 1u)) * WORKGROUP + invocation);
        if next.at != NONE && !before(limit, next) {
            put(atomicAdd(&found, 1u), next);
        }
    }
    workgroupBarrier();
    let count = atomicLoad(&found);
    if segment < p.segments {
        for (var c = t; c < count; c += WORKGROUP) {
            let own = element(c);
            var place = 0u;
            for (var j = 0u; j < count; j += 1u) {
                place += select(0u, 1u, before(element(j), own));
            }
            if place < p.keep {
                store_kept(segment * p.keep + place, own.at);
            }
        }
        for (var c = count + t; c < p.keep; c += WORKGROUP) {
            store_kept(segment * p.keep + c, NONE);
        }
    }
}
