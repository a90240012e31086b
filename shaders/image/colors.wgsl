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

fn hsv_to_rgb(c: Triple) -> Triple {
    let sixths = c.x * Number(6.0);
    let red = share(abs(sixths - Number(3.0)) - Number(1.0));
    let green = share(Number(2.0) - abs(sixths - Number(2.0)));
    let blue = share(Number(2.0) - abs(sixths - Number(4.0)));
    let gray = Number(1.0) - c.y;
    return Triple((gray + c.y * red) * c.z, (gray + c.y * green) * c.z, (gray + c.y * blue) * c.z);
}

// The hue, turned by `delta`.
fn turned(c: Triple, delta: f32) -> Triple {
    let hue = c.x + Number(delta);
    return Triple(hue - floor(hue), c.y, c.z);
}

// The saturation times `scale`, within its range.
fn saturated(c: Triple, scale: f32) -> Triple {
    return Triple(c.x, share(c.y * Number(scale)), c.z);
}
