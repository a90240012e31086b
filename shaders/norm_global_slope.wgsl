// The factor of a difference in channel `c`.
fn inverse_deviation(c: u32) -> f32 {
    return 1.0 / sqrt(load_variance(c) + p.epsilon);
}

fn slope(c: u32) -> f32 {
    if p.scaled == 1u {
        return inverse_deviation(c) * load_gamma(c);
    }
    return inverse_deviation(c);
}
