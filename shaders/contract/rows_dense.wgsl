// Rows of a matrix: row m starts at m * a_row. One outer step.

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
    return Line(row.at);
}
