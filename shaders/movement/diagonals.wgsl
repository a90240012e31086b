// Diagonals of batches of matrices, in TensorFlow's packed layout: `p.band` diagonals from the
// highest (p.high) down, each padded to p.longest elements, at its left or its right end. The
// program moves bits without computing. Grid: one invocation per stored unit of dst.

struct Place {
    diagonal: i32,
    index: u32,
    inside: bool,
}

fn length_of(diagonal: i32) -> i32 {
    return min(i32(p.rows) + min(diagonal, 0), i32(p.columns) - max(diagonal, 0));
}

// Bit 0 of p.align: superdiagonals are aligned left; bit 1: subdiagonals are. The main diagonal
// counts as a superdiagonal.
fn padding_of(diagonal: i32) -> i32 {
    let left = select((p.align >> 1u) & 1u, p.align & 1u, diagonal >= 0) == 1u;
    return select(i32(p.longest) - length_of(diagonal), 0, left);
}

// Where element (row, column) of a matrix lies in the packed diagonals.
fn packed_place(row: u32, column: u32) -> Place {
    let diagonal = i32(column) - i32(row);
    let inside = diagonal <= p.high && diagonal >= p.low;
    let along = i32(min(row, column)) + padding_of(diagonal);
    return Place(diagonal, u32(p.high - diagonal) * p.longest + u32(along), inside);
}

fn background() -> {{ELEMENT}} {
    return {{BACKGROUND}};
}

{{VALUE}}
