// dst[b, o, n, k] = src[b, o, row_of(b, n), k], with zeros where an index is out of range. Grid:
// one invocation per stored unit of dst. src holds the rows from p.first_row on, p.rows of them, of
// p.all_rows; elements of other rows are left unchanged, so that a table larger than a binding is
// gathered in several passes.

fn value(i: u32) -> {{ELEMENT}} {
    let place = quotient(i, p.inner);
    let k = i - place * p.inner;
    let slice = quotient(place, p.count_indices);
    let n = place - slice * p.count_indices;
    let row = row_of(quotient(slice, p.outer) * p.count_indices + n);
    if row == NONE {
        return {{ELEMENT}}();
    }
{{OUTSIDE}}
    return load_src((slice * p.all_rows + row - p.first_row) * p.inner + k);
}
