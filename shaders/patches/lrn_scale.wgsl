// scale = bias + alpha * the sum of the squares of the neighbours.
// Grid: one invocation per element. Bindings: x, scale.

fn value(i: u32) -> f32 {
    let window = neighbours(i);
    var sum = 0.0;
    for (var j = window.x; j < window.y; j += 1u) {
        let v = load_x(j);
        sum += v * v;
    }
    return p.bias + p.alpha * sum;
}
