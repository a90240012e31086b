// The work of an invocation: four neighbouring channels from `c` of the row that begins at element
// `start`, whose windows have all but a few terms in common. The body that includes this defines
// `fn term(i: u32) -> f32`, the term of element i in windows.

// Zero outside of the row; a channel before the first one is a large number.
fn term_at(start: u32, c: u32) -> f32 {
    return select(0.0, term(start + min(c, p.depth - 1u)), c < p.depth);
}

fn windows(start: u32, c: u32) -> vec4<f32> {
    let r = p.radius;
    if r == 0u {
        return vec4(term_at(start, c), term_at(start, c + 1u), term_at(start, c + 2u),
            term_at(start, c + 3u));
    }
    var middle = 0.0;
    let end = start + min(c + r + 1u, p.depth);
    for (var j = start + max(c + 3u, r) - r; j < end; j += 1u) {
        middle += term(j);
    }
    let before = vec3(term_at(start, c - r), term_at(start, c + 1u - r), term_at(start,
        c + 2u - r));
    let behind = vec3(term_at(start, c + 1u + r), term_at(start, c + 2u + r), term_at(start,
        c + 3u + r));
    let late = before.y + before.z;
    let early = behind.x + behind.y;
    return middle + vec4(before.x + late, late + behind.x, before.z + early, early + behind.z);
}

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    let c = t % p.runs * 4u;
    let start = t / p.runs * p.depth;
    let values = results(start, c);
    store_{{OUTPUT}}(start + c, values.x);
    if c + 1u < p.depth {
        store_{{OUTPUT}}(start + c + 1u, values.y);
    }
    if c + 2u < p.depth {
        store_{{OUTPUT}}(start + c + 2u, values.z);
    }
    if c + 3u < p.depth {
        store_{{OUTPUT}}(start + c + 3u, values.w);
    }
}
