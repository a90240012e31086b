// The first p.kept elements of the lines of x[outer, p.stride, p.inner], each times the conjugate
// filter. Grid: one invocation for each kept element, p.count of them, in one dimension spread over
// x and y. Offsets count elements.

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    let c = t % p.inner;
    let k = (t / p.inner) % p.kept;
    let o = t / (p.inner * p.kept);
    let w = load_chirp(k);
    let z = load_x((o * p.stride + k) * p.inner + c);
    keep(o, k, c, product(z, Complex(w.x, -w.y)));
}
