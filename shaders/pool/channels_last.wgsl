// [image][x][channel]
fn place_of(i: u32, extent: vec3<u32>) -> Place {
    let position = i / p.channels;
    let line = position / extent.z;
    let plane = line / extent.y;
    return Place(plane / extent.x, i % p.channels, vec3<u32>(plane % extent.x, line % extent.y, position % extent.z));
}

fn element_at(image: u32, channel: u32, x: vec3<u32>, extent: vec3<u32>) -> u32 {
    return (((image * extent.x + x.x) * extent.y + x.y) * extent.z + x.z) * p.channels + channel;
}
