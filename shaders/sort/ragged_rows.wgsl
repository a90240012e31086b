// EMPTY: empty[r] is 1 where row r has no values. bounds[r] is where the values of row r start in
// the order of rows. Grid: one invocation per row.

fn value(r: u32) -> u32 {
    return select(0u, 1u, load_bounds(r) == load_bounds(r + 1u));
}
