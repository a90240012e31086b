// The steps of vec4 `at` of the variables: they take vec4 k of the columns of those rows of the
// gradient, from index `n` on, whose index names the vec4's row. A chain visits no index twice, so
// it ends within p.indexed steps; the bound tells the compiler so.
fn apply(at: u32, n: u32, k: u32) {
    let c = scalars();
{{LOAD}}
    var m = n;
    for (var i = 0u; i < p.indexed && m != NONE; i += 1u) {
        let g_v = read_g(m * p.inner + k);
    {{STEP}}
        m = next[p.off_next + m];
    }
{{STORE}}}
