// For packed types, whose words may hold elements of several rows.
// Grid: one invocation per word of dst, which holds the rows from p.first_row on.

fn value(i: u32) -> {{VALUE}} {
    let row = quotient(i, p.inner);
    let head = heads[p.off_heads + p.first_row + row];
    if head == NONE {
        return load_dst(i);
    }
    return fold(i, head, i - row * p.inner);
}
