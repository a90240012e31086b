// Blocks with the extents of the strides: one for each window and, behind the last one, blocks for
// the rest of the input.
fn blocks() -> vec3<u32> {
    return vec3<u32>(p.blocks0, p.blocks1, p.blocks2);
}

// The elements of block `b`, without padding.
fn block_of(b: vec3<u32>) -> Range {
    let start = b * stride();
    return Range(max(start, pad()) - pad(), max(min(start + stride(), pad() + in_extent()),
        pad()) - pad());
}
