// result[b, y, x, c] is images[b] at the position to which the transform of image b maps (x, y), in
// f32 for every type. Grid: one invocation per stored unit of result. Bindings: images, transforms
// (8 numbers each), result. p.mode: 0 constant, 1 nearest, 2 reflect, 3 wrap; p.stride is 0 where
// all images share one transform.

fn convert(v: f32) -> {{VALUE}} {
    return {{CONVERT}};
}

// A coordinate beyond the image, brought inside by the fill mode.
fn inside(at: f32, extent: u32) -> f32 {
    let n = f32(extent);
    let last = n - 1.0;
    if p.mode == 0u {
        return at;
    }
    var v = at;
    if p.mode == 2u {
        // dcba|abcd|dcba
        let period = 2.0 * n;
        if extent <= 1u {
            v = 0.0;
        } else if v < 0.0 {
            if v < period {
                v = period * trunc(-v / period) + v;
            }
            v = select(-v - 1.0, v + period, v < -n);
        } else if v > last {
            v -= period * trunc(v / period);
            if v >= n {
                v = period - v - 1.0;
            }
        }
    } else if p.mode == 3u {
        // abcd|abcd|abcd
        if extent <= 1u {
            v = 0.0;
        } else if v < 0.0 {
            v += n * (trunc(-v / last) + 1.0);
        } else if v > last {
            v -= n * trunc(v / last);
        }
    }
    return clamp(v, 0.0, last);
}

// The element of image `b` at (y, x), or the fill value beyond the image, also for coordinates that
// are not numbers.
fn read(b: u32, y: f32, x: f32, c: u32) -> {{VALUE}} {
    if !(y >= 0.0 && y < f32(p.height) && x >= 0.0 && x < f32(p.width)) {
        return convert(p.fill);
    }
    return load_images(((b * p.height + u32(y)) * p.width + u32(x)) * p.channels + c);
}

// Ties go away from zero.
fn rounded(v: f32) -> f32 {
    let below = floor(abs(v));
    let magnitude = select(below, below + 1.0, abs(v) - below >= 0.5);
    return select(magnitude, -magnitude, v < 0.0);
}

fn value(i: u32) -> {{VALUE}} {
    let c = i % p.channels;
    let pixel = i / p.channels;
    let column = f32(pixel % p.columns);
    let line = pixel / p.columns;
    let row = f32(line % p.rows);
    let b = line / p.rows;
    let t = b * p.stride;
    let projection = load_transforms(t + 6u) * column + load_transforms(t + 7u) * row + 1.0;
    if projection == 0.0 {
        return convert(p.fill);
    }
    var at_x = load_transforms(t) * column + load_transforms(t + 1u) * row + load_transforms(t
        + 2u);
    var at_y = load_transforms(t + 3u) * column + load_transforms(t + 4u) * row + load_transforms(t
        + 5u);
    // Divisions need not be exact on a GPU; an affine transform takes none.
    if projection != 1.0 {
        at_x /= projection;
        at_y /= projection;
    }
    let x = inside(at_x, p.width);
    let y = inside(at_y, p.height);
    if p.bilinear == 0u {
        return read(b, rounded(y), rounded(x), c);
    }
    let y0 = floor(y);
    let x0 = floor(x);
    let y1 = y0 + 1.0;
    let x1 = x0 + 1.0;
    let above = (x1 - x) * f32(read(b, y0, x0, c)) + (x - x0) * f32(read(b, y0, x1, c));
    let below = (x1 - x) * f32(read(b, y1, x0, c)) + (x - x0) * f32(read(b, y1, x1, c));
    return convert((y1 - y) * above + (y - y0) * below);
}
