// The positions that crops read. A box is (y1, x1, y2, x2) in units of the image's extents less
// one.

struct Box {
    low: vec2<f32>,
    high: vec2<f32>,
}

// The positions that a position of a crop reads along one axis; inside is false beyond the image
// and for boxes that are not finite.
struct Tap {
    low: u32,
    high: u32,
    lerp: f32,
    at: f32,
    inside: bool,
}

// x is for the rows, y for the columns.
fn box_of(b: u32) -> Box {
    return Box(vec2<f32>(load_boxes(4u * b), load_boxes(4u * b + 1u)),
        vec2<f32>(load_boxes(4u * b + 2u), load_boxes(4u * b + 3u)));
}

// The step in the image for one position of the crop.
fn crop_scale(low: f32, high: f32, extent: u32, crop: u32) -> f32 {
    if crop < 2u {
        return 0.0;
    }
    return (high - low) * f32(extent - 1u) / f32(crop - 1u);
}

fn tap(i: u32, low: f32, high: f32, extent: u32, crop: u32) -> Tap {
    let last = f32(extent - 1u);
    var at = 0.5 * (low + high) * last;
    if crop > 1u {
        at = low * last + f32(i) * crop_scale(low, high, extent, crop);
    }
    if !(at >= 0.0 && at <= last) {
        return Tap(0u, 0u, 0.0, 0.0, false);
    }
    let below = floor(at);
    return Tap(u32(below), min(u32(ceil(at)), extent - 1u), at - below, at, true);
}

// The position nearest to a tap; ties go up.
fn nearest(t: Tap) -> u32 {
    return select(t.low, t.high, t.lerp >= 0.5);
}
