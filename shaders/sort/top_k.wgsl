// Sorts segments of up to 1,024 elements of each row and keeps the first p.keep of each: a round of a tournament.
// Grid: one workgroup per 1,024 / p.size segments, where p.size is the power of two that holds a segment.
//
// A row's elements are its p.n candidates, positions within the row of p.length elements: candidates[row * p.n + j], or j itself in
// the first round. NONE is no candidate. Kept positions go to kept[segment * p.keep + j], lesser keys first, lower positions first
// among equals. p.mask inverts keys, so that the greatest come first.

const NONE = 0xffffffffu;
const CAPACITY = 1024u;
const PER_INVOCATION = CAPACITY / WORKGROUP;

var<workgroup> low: array<u32, CAPACITY>;
{{HIGH}}
var<workgroup> position: array<u32, CAPACITY>;

// Whether the element at b comes before the one at a.
fn swapped(a: u32, b: u32) -> bool {
{{COMPARE}}
    if low[a] != low[b] {
        return low[a] > low[b];
    }
    return position[a] > position[b];
}

fn exchange(a: u32, b: u32) {
    let l = low[a];
    low[a] = low[b];
    low[b] = l;
    let n = position[a];
    position[a] = position[b];
    position[b] = n;
{{EXCHANGE}}
}

@compute @workgroup_size({{WORKGROUP_SIZE}})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) t: u32,
) {
    let group = workgroup_id.y * num_workgroups.x + workgroup_id.x;
    let per_group = CAPACITY / p.size;
    for (var k = 0u; k < PER_INVOCATION; k += 1u) {
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
        low[slot] = key.x;
        position[slot] = at;
{{FILL}}
    }
    workgroupBarrier();
    // Bitonic sort of each p.size slots; p.size and thus the barriers are the same for all.
    for (var run = 2u; run <= p.size; run *= 2u) {
        for (var step = run / 2u; step > 0u; step /= 2u) {
            for (var k = 0u; k < PER_INVOCATION / 2u; k += 1u) {
                let pair = k * WORKGROUP + t;
                let a = (pair / step) * 2u * step + pair % step;
                let b = a + step;
                // The last merge must ascend everywhere, also where several segments share the slots.
                let ascending = ((a % p.size) & run) == 0u;
                if ascending == swapped(a, b) {
                    exchange(a, b);
                }
            }
            workgroupBarrier();
        }
    }
    for (var k = 0u; k < PER_INVOCATION; k += 1u) {
        let slot = k * WORKGROUP + t;
        let segment = group * per_group + slot / p.size;
        let j = slot % p.size;
        if segment < p.segments && j < p.keep {
            store_kept(segment * p.keep + j, position[slot]);
        }
    }
}
