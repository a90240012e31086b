// Rows of the left operands of a sum of products: row m of each starts at m * a_row. An outer step
// is a term; the next loads are from its operands.

struct Row {
    at: u32,
}

struct Line {
    at: u32,
}

fn a_row(m: u32) -> Row {
    return Row(m * p.a_row);
}

fn a_line(row: Row, o: u32) -> Line {
    part = o;
    return Line(row.at);
}
