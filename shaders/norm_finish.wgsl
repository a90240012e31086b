// Adds the segments of sums[2, p.segments, p.channels] and turns each channel's two sums into the
// values that the op needs. Grid: LANES invocations for each channel. p.total is the number of
// elements in a channel.

const LANES = {{LANES}}u;

var<workgroup> partials: array<vec2<f32>, WORKGROUP>;

fn sum_of_lanes(own: vec2<f32>, lane: u32, local_index: u32) -> vec2<f32> {
    if LANES == 1u {
        return own;
    }
    partials[local_index] = own;
    workgroupBarrier();
    for (var step = LANES / 2u; step > 0u; step = step / 2u) {
        if lane < step {
            partials[local_index] += partials[local_index + step];
        }
        workgroupBarrier();
    }
    return partials[local_index - lane];
}

fn finish(c: u32, sums: vec2<f32>) {
    let total = f32(p.total);
    {{FINISH}}
}

{{ENTRY}} {
    let c = linear_id(workgroup_id, num_workgroups, local_index) / LANES;
    let lane = local_index % LANES;
    var own = vec2<f32>();
    if c < p.channels {
        for (var s = lane; s < p.segments; s += LANES) {
            let at = s * p.channels + c;
            own += vec2<f32>(load_sums(at), load_sums(p.segments * p.channels + at));
        }
    }
    let sums = sum_of_lanes(own, lane, local_index);
    if lane == 0u && c < p.channels {
        finish(c, sums);
    }
}
