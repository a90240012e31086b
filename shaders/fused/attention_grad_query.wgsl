// The side of attention's query: own rows are rows of the query and of the result's gradient,
// positions are keys with their values.

fn own_depth_quad(b: u32, h: u32, t: u32, quad: u32) -> vec4<f32> {
    return quad_query(own_depth_at(b, h, t), quad);
}

fn own_width_quad(b: u32, h: u32, t: u32, quad: u32) -> vec4<f32> {
    return quad_gradient(result_row(b, h, t) * p.width, quad);
}

fn depth_quad(b: u32, h: u32, s: u32, quad: u32) -> vec4<f32> {
    return quad_key(b * p.k_b + h * p.k_h + s * p.k_t, quad);
}

fn width_quad(b: u32, h: u32, s: u32, quad: u32) -> vec4<f32> {
    return quad_value(b * p.v_b + h * p.v_h + s * p.v_t, quad);
}

fn own_depth_at(b: u32, h: u32, t: u32) -> u32 {
    return b * p.q_b + h * p.q_h + t * p.q_t;
}

// Rows of the workgroup's own side, and the positions that they need: from the first one to the
// last one. Keys behind a causal row are not among them.
fn own_count() -> u32 {
    return p.queries;
}

fn first_position(first_row: u32) -> u32 {
    return 0u;
}

fn end_of_positions(first_row: u32) -> u32 {
    return select(p.keys, min(p.keys, first_row + ROWS), (p.flags & SKIP) != 0u);
}

fn pair_of(product: f32, change: f32, row: u32, slot: u32, position: u32, at: u32, end: u32)
    -> vec2<f32> {
    return gradient_and_weight(product, change, row, min(position, p.keys - 1u), numbers[slot],
        position < end);
}
