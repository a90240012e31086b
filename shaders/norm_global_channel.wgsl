// The gradient of mean (1), variance (2), beta (3) or gamma (4) from the sums over the channel.
fn channel_gradient(c: u32) -> f32 {
    let sum = load_sums(c);
    let products = load_sums(p.channels + c);
    switch p.which {
        case 1u: {
            return -sum * slope(c);
        }
        case 2u: {
            return products * slope(c) * -0.5 / (load_variance(c) + p.epsilon);
        }
        case 3u: {
            return sum;
        }
        default: {
            return select(0.0, products * inverse_deviation(c), p.scaled == 1u);
        }
    }
}
