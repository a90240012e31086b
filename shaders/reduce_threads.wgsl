// Reduces the middle of [outer, p.extent, p.inner] to [outer, p.segments, p.inner], one invocation
// for each state, for each word of packed outputs, or for each vec4 of columns. Segment s merges
// the s-th of p.segments runs of neighbours. Grid: one invocation for each UNIT of p.count, in one
// dimension spread over x and y.

const UNIT = {{UNIT}}u;

fn segment(i: u32) -> {{PARTIAL}} {
    let k = i % p.inner;
    let rest = i / p.inner;
    let s = rest % p.segments;
    let length = (p.extent + p.segments - 1u) / p.segments;
    let first = min(s * length, p.extent);
    return reduce_run(rest / p.segments, first, k, 1u, min(length, p.extent - first));
}

{{ENTRY}} {
    let unit = linear_id(workgroup_id, num_workgroups, local_index);
    if unit * UNIT >= p.count {
        return;
    }
    {{WORDS}}
    for (var u = 0u; u < UNIT; u += 1u) {
        let i = unit * UNIT + u;
        if i < p.count {
            let all = segment(i);
            {{EMIT}}
        }
    }
    {{EMIT_WORDS}}
}
