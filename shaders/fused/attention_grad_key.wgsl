// The side of attention's key and value: own rows are keys with their values, positions are rows of
// the query and of the result's gradient.

fn own_depth_quad(b: u32, h: u32, s: u32, quad: u32) -> vec4<f32> {
    return quad_key(own_depth_at(b, h, s), quad);
}

fn own_width_quad(b: u32, h: u32, s: u32, quad: u32) -> vec4<f32> {
    return quad_value(own_width_at(b, h, s), quad);
}

fn depth_quad(b: u32, h: u32, t: u32, quad: u32) -> vec4<f32> {
    return quad_query(b * p.q_b + h * p.q_h + t * p.q_t, quad);
}

fn width_quad(b: u32, h: u32, t: u32, quad: u32) -> vec4<f32> {
    return quad_gradient(result_row(b, h, t) * p.width, quad);
}

fn own_depth_at(b: u32, h: u32, s: u32) -> u32 {
    return b * p.k_b + h * p.k_h + s * p.k_t;
}

fn own_width_at(b: u32, h: u32, s: u32) -> u32 {
    return b * p.v_b + h * p.v_h + s * p.v_t;
}

// Rows of the workgroup's own side, and the positions that they need: from the first one to the
// last one. Queries before a causal tile's first key are not among them.
fn own_count() -> u32 {
    return p.keys;
}

fn first_position(first_row: u32) -> u32 {
    return select(0u, first_row / POSITIONS * POSITIONS, (p.flags & SKIP) != 0u);
}

fn end_of_positions(first_row: u32) -> u32 {
    return p.queries;
}

fn pair_of(product: f32, change: f32, row: u32, slot: u32, position: u32, at: u32, end: u32)
    -> vec2<f32> {
    return gradient_and_weight(product, change, min(position, p.queries - 1u), row, numbers[at],
        position < end);
}
