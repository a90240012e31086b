// Gate k of cell j: what the input and the output before add to it, and its bias.
fn gate(row4: u32, j: u32, k: u32) -> f32 {
    let at = k * p.cells;
    return load_gx(row4 + at) + load_gh(row4 + at) + load_consts(at + j);
}
