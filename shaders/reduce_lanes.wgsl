// Reduces the middle of [outer, p.extent, p.inner] to [outer, p.segments, p.inner]: LANES
// invocations of a workgroup share a segment and merge their states through workgroup memory, as a
// tree. They compute one stored unit: one state, a word of packed outputs, or a vec4 of columns.
// Neighbouring invocations read neighbouring elements, which belong to one segment if p.inner is 1,
// else to neighbouring segments. MERGE merges two states. Grid: LANES invocations for each UNIT of
// p.count, in one dimension spread over x and y.

const LANES = {{LANES}}u;
// The distance from one lane of a segment to the next.
const LANE_STRIDE = {{LANE_STRIDE}}u;
const UNIT = {{UNIT}}u;

var<workgroup> partials: array<{{PARTIAL}}, WORKGROUP>;

fn merge_lanes(own: {{PARTIAL}}, lane: u32, local_index: u32) -> {{PARTIAL}} {
    partials[local_index] = own;
    workgroupBarrier();
    for (var step = LANES / 2u; step > 0u; step = step / 2u) {
        if lane < step {
            partials[local_index] = {{MERGE}}(partials[local_index],
                partials[local_index + step * LANE_STRIDE]);
        }
        workgroupBarrier();
    }
    let all = partials[local_index - lane * LANE_STRIDE];
    workgroupBarrier();
    return all;
}

{{ENTRY}} {
    let lane = local_index / LANE_STRIDE % LANES;
    let first_unit = linear_id(workgroup_id, num_workgroups, 0u) / LANES;
    let unit = first_unit + local_index / (LANES * LANE_STRIDE) + local_index % LANE_STRIDE;
    // Segments are runs of neighbours; each lane takes every LANES-th element of them.
    let length = (p.extent + p.segments - 1u) / p.segments;
    {{WORDS}}
    for (var u = 0u; u < UNIT; u += 1u) {
        let i = unit * UNIT + u;
        var own = {{START}};
        if i < p.count {
            let k = i % p.inner;
            let rest = i / p.inner;
            let o = rest / p.segments;
            let begin = rest % p.segments * length;
            let end = min(begin + length, p.extent);
            let first = begin + lane;
            if first < end {
                let n = (end - first + LANES - 1u) / LANES;
                own = reduce_run(o, first, k, LANES, n);
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
