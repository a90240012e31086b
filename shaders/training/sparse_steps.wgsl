// The steps of element `at` of the variables, in order: they take column k of those rows of the
// gradient, from index `n` on, whose index names the element's row. A chain visits no index twice,
// so it ends within p.indexed steps; the bound tells the compiler so.
fn steps(at: u32, n: u32, k: u32, c: Scalars) -> State {
    var s = load_state(at);
    var m = n;
    for (var i = 0u; i < p.indexed && m != NONE; i += 1u) {
        s = step(s, load_g(m * p.inner + k), c);
        m = next[p.off_next + m];
    }
    return s;
}
