// Reduces the rows of x[outer, p.extent] to y[outer, p.segments]: LANES neighbouring invocations share a segment and combine
// their values through workgroup memory, as a tree. They compute one stored unit: one output, or a word of packed ones.
// Grid: LANES invocations for each stored unit of p.count outputs, in one dimension spread over x and y. Offsets count elements.

const LANES = {{LANES}}u;
const UNIT = {{UNIT}}u;

var<workgroup> partials: array<Accumulator, WORKGROUP>;

fn combine_lanes(own: Accumulator, lane: u32, local_index: u32) -> Accumulator {
    partials[local_index] = own;
    workgroupBarrier();
    for (var step = LANES / 2u; step > 0u; step = step / 2u) {
        if lane < step {
            partials[local_index] = combine(partials[local_index], partials[local_index + step]);
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
    var bits = 0u;
    for (var u = 0u; u < UNIT; u += 1u) {
        let i = unit * UNIT + u;
        var own = identity();
        if i < p.count {
            let first = (i % p.segments) * LANES + lane;
            if first < p.extent {
                own = reduce_run((i / p.segments) * p.extent + first, stride, (p.extent + stride - 1u - first) / stride);
            }
        }
        let all = combine_lanes(own, lane, local_index);
        if lane == 0u && i < p.count {
            {{EMIT}}
        }
    }
    {{EMIT_WORD}}
}
