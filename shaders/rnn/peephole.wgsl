// Peephole k (input, forget, output) of cell j.
fn peephole(j: u32, k: u32) -> f32 {
    return load_consts((4u + k) * p.cells + j);
}
