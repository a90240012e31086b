// Combines the values of a row's lanes as a tree; every lane gets the result.
fn {{OP}}_of_lanes_{{TYPE}}(own: {{TYPE}}, lane: u32, local_index: u32) -> {{TYPE}} {
    partials_{{TYPE}}[local_index] = own;
    workgroupBarrier();
    for (var step = LANES / 2u; step > 0u; step = step / 2u) {
        if lane < step {
            partials_{{TYPE}}[local_index] = {{OP}}_{{TYPE}}(partials_{{TYPE}}[local_index],
                partials_{{TYPE}}[local_index + step]);
        }
        workgroupBarrier();
    }
    let all = partials_{{TYPE}}[local_index - lane];
    workgroupBarrier();
    return all;
}

