// Index of the best value along the middle of [outer, p.extent, p.inner], of which four neighbours
// are computed at once, to y[outer, p.segments, p.inner]. Segment s looks at the elements, or vec4s
// of a row, s, s + segments, …. The smallest index of equal values wins; NaN never does; without
// any winner the index is 0. p.worst is the value that every number beats or equals. Extent and
// inner count vec4s where they are innermost. Offsets of inputs count vec4s, other offsets count
// elements.

const NONE = 0xffffffffu;

// The four values at an index.
fn values(at: u32) -> vec4<f32> {
{{READ}}
}

// The elements of `v` that win over the best ones so far; a first one may equal p.worst.
fn winners(v: vec4<f32>, best: vec4<f32>, index: vec4<u32>) -> vec4<bool> {
    let is_number = (bitcast<vec4<u32>>(v) & vec4(0x7fffffffu)) <= vec4(0x7f800000u);
    return is_number & (({{BEATS}}) | ((index == vec4(NONE)) & (v == best)));
}

fn finish(i: u32, best: f32, index: u32) {
    let found = index != NONE;
    {{KEEP_BEST}}
    store_y(i, {{OUTPUT}}(select(0u, index, found)));
}

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
{{MAIN}}
}
