// Reduces the rows of [outer, p.extent] to [outer, p.segments]: LANES neighbouring invocations share a segment and merge their
// states through workgroup memory, as a tree. They compute one stored unit: one state, or a word of packed outputs.
// Grid: LANES invocations for each UNIT of p.count, in one dimension spread over x and y. Offsets count elements.

const LANES = {{LANES}}u;
const UNIT = {{UNIT}}u;

var<workgroup> partials: array<State, WORKGROUP>;

fn merge_lanes(own: State, lane: u32, local_index: u32) -> State {
    partials[local_index] = own;
    workgroupBarrier();
    for (var step = LANES / 2u; step > 0u; step = step / 2u) {
        if lane < step {
            partials[local_index] = merge(partials[local_index], partials[local_index + step]);
        }
        workgroupBarrier();
    }
    let all = partials[local_index - lane];
    workgroupBarrier();
    return all;
}

@compute @workgroup_size({{WORKGROUP_SIZE}})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let unit = linear_id(workgroup_id, num_workgroups, local_index) / LANES;
    let lane = local_index % LANES;
    let stride = p.segments * LANES;
    {{WORDS}}
    for (var u = 0u; u < UNIT; u += 1u) {
        let i = unit * UNIT + u;
        var own = identity();
        if i < p.count {
            let first = (i % p.segments) * LANES + lane;
            if first < p.extent {
                own = reduce_run(i / p.segments, first, 0u, stride, (p.extent + stride - 1u - first) / stride);
            }
        }
        let all = merge_lanes(own, lane, local_index);
        if lane == 0u && i < p.count {
            {{EMIT}}
        }
    }
    if lane == 0u && unit * UNIT < p.count {
        {{EMIT_WORDS}}
    }
}
