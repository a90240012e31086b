// y = mean + (x - mean) * factor, with the mean of each image and channel, in f32; p.bounded tells
// whether low and high bound it. Grid: one invocation per stored unit of y. Bindings: x, mean,
// factor, low, high, y.

fn value(i: u32) -> f32 {
    let mean = load_mean((i / p.image) * p.channels + i % p.channels);
    let v = (f32(load_x(i)) - mean) * load_factor(0u) + mean;
    if p.bounded == 1u {
        return min(max(v, load_low(0u)), load_high(0u));
    }
    return v;
}
