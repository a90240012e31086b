// [image][x][channel], where channels count vec4s.
fn place_of(t: u32, extent: vec3<u32>) -> Place {
    let position = quotient(t, p.channels);
    let line = quotient(position, extent.z);
    let plane = quotient(line, extent.y);
    let image = quotient(plane, extent.x);
    let x = vec3<u32>(plane - image * extent.x, line - plane * extent.y,
        position - line * extent.z);
    return Place(image, t - position * p.channels, x);
}

fn element_at(image: u32, channel: u32, x: vec3<u32>, extent: vec3<u32>) -> u32 {
    return (((image * extent.x + x.x) * extent.y + x.y) * extent.z + x.z) * p.channels + channel;
}

// Floors of n / d for n below 2^20: the rounding errors add up to less than the half.
fn small_quotients(n: vec3<u32>, d: vec3<u32>) -> vec3<u32> {
    return vec3<u32>(vec3<i32>((vec3<f32>(vec3<i32>(n)) + vec3(0.5)) / vec3<f32>(vec3<i32>(d))));
}
