// y = x * scale ^ -beta.
// Grid: one invocation per element. Bindings: x, scale, y.

fn value(i: u32) -> f32 {
    return load_x(i) * pow_f32(load_scale(i), -p.beta);
}
