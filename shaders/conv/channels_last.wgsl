// [image][x1][x2][channel]
fn place_of(i: u32, channels: u32, height: u32, width: u32) -> Place {
    let pixel = i / channels;
    let line = pixel / width;
    return Place(line / height, i % channels, line % height, pixel % width);
}

fn element_of(at: Place, channels: u32, height: u32, width: u32) -> u32 {
    return ((at.image * height + at.x1) * width + at.x2) * channels + at.channel;
}
