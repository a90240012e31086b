// The gradient: an element's own share, less what it takes from its neighbours.
// Grid: one invocation per element. Bindings: x, scale, y, dy, dx.

fn value(i: u32) -> f32 {
    let window = neighbours(i);
    var sum = 0.0;
    for (var j = window.x; j < window.y; j += 1u) {
        sum += load_dy(j) * load_y(j) / load_scale(j);
    }
    return load_dy(i) * pow_f32(load_scale(i), -p.beta) - 2.0 * p.alpha * p.beta * load_x(i) * sum;
}
