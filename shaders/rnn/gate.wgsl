// Gate k of cell j: the parts from the input and from the previous output, and its bias.
fn gate(row4: u32, j: u32, k: u32) -> f32 {
    let at = k * p.cells;
    return load_gx(row4 + at) + load_gh(row4 + at) + load_consts(at + j);
}
