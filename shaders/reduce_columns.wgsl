// Reduces the middle of x[outer, p.extent, p.inner] to y[outer, p.segments, p.inner], where p.inner
// counts vec4s of neighbours. Segment s combines the s-th of p.segments runs of neighbouring rows.
// Grid: one invocation for each vec4 of the result, p.count in all. Offsets count vec4s.

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    let run = t / p.inner;
    let column = t - run * p.inner;
    let length = (p.extent + p.segments - 1u) / p.segments;
    let first = min(run % p.segments * length, p.extent);
    let end = min(first + length, p.extent);
    let n = end - first;
    let at = (run / p.segments * p.extent + first) * p.inner + column;
    write_y(t, finish_four(reduce_vec4s(at, p.inner, n)), 4u);
}
