// For packed types, whose words may hold elements of several rows. Grid: one invocation per word of
// the variables, which hold the rows from p.first_row on, p.count elements.

fn element(i: u32, c: Scalars) -> State {
    let n = firsts[p.off_firsts + p.first_row + i / p.inner];
    if n == NONE {
        return load_state(i);
    }
    return steps(i, n, i % p.inner, c);
}
