// Element i of the window that begins with element p.first: position s of its sequence comes from
// position length - 1 - s while s is below the length of the batch entry's sequence. Lengths are
// clamped to [0, p.extent]. Grid: Shader::map.

fn value(i: u32) -> {{VALUE}} {
    let at = p.first + i;
    let s = at / p.stride % p.extent;
    let length = clamp(i32(load_lengths(at / p.batch_stride % p.batch)), 0, i32(p.extent));
    if s >= u32(length) {
        return load_x(i);
    }
    return load_x(i - s * p.stride + (u32(length) - 1u - s) * p.stride);
}
