// [image][channel][x]
fn place_of(i: u32, extent: vec3<u32>) -> Place {
    let line = i / extent.z;
    let plane = line / extent.y;
    let volume = plane / extent.x;
    let x = vec3<u32>(plane % extent.x, line % extent.y, i % extent.z);
    return Place(volume / p.channels, volume % p.channels, x);
}

fn element_at(image: u32, channel: u32, x: vec3<u32>, extent: vec3<u32>) -> u32 {
    return (((image * p.channels + channel) * extent.x + x.x) * extent.y + x.y) * extent.z + x.z;
}
