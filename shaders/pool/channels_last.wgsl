// [image][x][channel]
fn place_of(i: u32, extent: vec3<u32>) -> Place {
    let position = quotient(i, p.channels);
    let line = quotient(position, extent.z);
    let plane = quotient(line, extent.y);
    let image = quotient(plane, extent.x);
    let x = vec3<u32>(plane - image * extent.x, line - plane * extent.y,
        position - line * extent.z);
    return Place(image, i - position * p.channels, x);
}

fn element_at(image: u32, channel: u32, x: vec3<u32>, extent: vec3<u32>) -> u32 {
    return (((image * extent.x + x.x) * extent.y + x.y) * extent.z + x.z) * p.channels + channel;
}
