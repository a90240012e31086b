// y = x * scale ^ -beta, where scale = bias + alpha * the sum of the squares of the neighbours.
// Grid: one invocation per four channels. Bindings: x, y.

fn term(i: u32) -> f32 {
    let v = load_x(i);
    return v * v;
}

fn results(start: u32, c: u32) -> vec4<f32> {
    let i = start + c;
    // Channels behind the last are not stored.
    let x = vec4(load_x(i), load_x(i + 1u), load_x(i + 2u), load_x(i + 3u));
    return x * power(p.bias + p.alpha * windows(start, c));
}
