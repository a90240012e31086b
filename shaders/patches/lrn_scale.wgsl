// scale = bias + alpha * the sum of the squares of the neighbours.
// Grid: one invocation per four channels. Bindings: x, scale.

fn term(i: u32) -> f32 {
    let v = load_x(i);
    return v * v;
}

fn results(start: u32, c: u32) -> vec4<f32> {
    return p.bias + p.alpha * windows(start, c);
}
