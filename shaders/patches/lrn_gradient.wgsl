// The gradient: an element's own share, less the terms through its neighbours.
// Grid: one invocation per four channels. Bindings: x, scale, y, dy, dx.

fn term(i: u32) -> f32 {
    return load_dy(i) * load_y(i) / load_scale(i);
}

fn results(start: u32, c: u32) -> vec4<f32> {
    let i = start + c;
    // Channels behind the last are not stored.
    let x = vec4(load_x(i), load_x(i + 1u), load_x(i + 2u), load_x(i + 3u));
    let dy = vec4(load_dy(i), load_dy(i + 1u), load_dy(i + 2u), load_dy(i + 3u));
    let scale = vec4(load_scale(i), load_scale(i + 1u), load_scale(i + 2u), load_scale(i + 3u));
    return dy * power(scale) - 2.0 * p.alpha * p.beta * x * windows(start, c);
}
