// Colours: red, green and blue in [0, 1]; hue in turns, saturation, value.

fn rgb_to_hsv(c: Triple) -> Triple {
    let high = max(c.x, max(c.y, c.z));
    let range = high - min(c.x, min(c.y, c.z));
    var saturation = Number(0.0);
    if high > Number(0.0) {
        saturation = range / high;
    }
    var hue = Number(0.0);
    if range > Number(0.0) {
        let sixth = Number(1.0) / (range * Number(6.0));
        if c.x == high {
            hue = sixth * (c.y - c.z);
        } else if c.y == high {
            hue = sixth * (c.z - c.x) + Number(2.0) / Number(6.0);
        } else {
            hue = sixth * (c.x - c.y) + Number(4.0) / Number(6.0);
        }
    }
    if hue < Number(0.0) {
        hue += Number(1.0);
    }
    return Triple(hue, saturation, high);
}

fn share(v: Number) -> Number {
    return clamp(v, Number(0.0), Number(1.0));
}

// The share of each component in the range from the smallest component to the largest one.
fn shares(hue: Number) -> Triple {
    let sixths = hue * Number(6.0);
    let red = share(abs(sixths - Number(3.0)) - Number(1.0));
    let green = share(Number(2.0) - abs(sixths - Number(2.0)));
    let blue = share(Number(2.0) - abs(sixths - Number(4.0)));
    return Triple(red, green, blue);
}

fn hsv_to_rgb(c: Triple) -> Triple {
    return (Triple(Number(1.0) - c.y) + c.y * shares(c.x)) * c.z;
}

// The colour with its hue turned by `delta`. It is computed from the range, not from saturation and
// value, which colours without a positive component lack: TensorFlow's CPU kernel turns those
// colours too.
fn turned(c: Triple, delta: f32) -> Triple {
    let low = min(c.x, min(c.y, c.z));
    let range = max(c.x, max(c.y, c.z)) - low;
    let hue = rgb_to_hsv(c).x + Number(delta);
    return Triple(low) + range * shares(hue - floor(hue));
}

// The saturation times `scale`, within its range.
fn saturated(c: Triple, scale: f32) -> Triple {
    return Triple(c.x, share(c.y * Number(scale)), c.z);
}
