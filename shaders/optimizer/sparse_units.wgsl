// Grid: one invocation per index and unit of four columns; the first index that names a row does all of the row's steps. The variables
// hold the rows from p.first_row on, p.rows of them, of p.inner units each.
// A chain visits no index twice, so it ends within p.indexed steps; the bound says so to the compiler.

@compute @workgroup_size({{WORKGROUP_SIZE}})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    let n = t / p.inner;
    if n >= p.indexed {
        return;
    }
    let row = row_of(n);
    if row == NONE || row - p.first_row >= p.rows {
        return;
    }
    if firsts[p.off_firsts + row] != n {
        return;
    }
    let k = t % p.inner;
    let at = (row - p.first_row) * p.inner + k;
    let c = scalars();
{{LOAD}}
    var m = n;
    for (var i = 0u; i < p.indexed && m != NONE; i += 1u) {
        let g_v = read_g(m * p.inner + k);
    {{STEP}}
        m = next[p.off_next + m];
    }
{{STORE}}}
