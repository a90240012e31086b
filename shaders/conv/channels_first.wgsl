// [image][channel][x1][x2]
fn place_of(i: u32, channels: u32, height: u32, width: u32) -> Place {
    let line = i / width;
    let plane = line / height;
    return Place(plane / channels, plane % channels, line % height, i % width);
}

fn element_of(at: Place, channels: u32, height: u32, width: u32) -> u32 {
    return ((at.image * channels + at.channel) * height + at.x1) * width + at.x2;
}
