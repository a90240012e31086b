// [image][channel][x]
fn place_of(i: u32, extent: vec3<u32>) -> Place {
    let line = quotient(i, extent.z);
    let plane = quotient(line, extent.y);
    let volume = quotient(plane, extent.x);
    let image = quotient(volume, p.channels);
    let x = vec3<u32>(plane - volume * extent.x, line - plane * extent.y, i - line * extent.z);
    return Place(image, volume - image * p.channels, x);
}

fn element_at(image: u32, channel: u32, x: vec3<u32>, extent: vec3<u32>) -> u32 {
    return (((image * p.channels + channel) * extent.x + x.x) * extent.y + x.y) * extent.z + x.z;
}
