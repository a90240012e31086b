// The lower and the upper 32 bits of a product; WGSL has only the lower ones.
fn mul_wide(a: u32, b: u32) -> vec2<u32> {
    let a_low = a & 0xffffu;
    let a_high = a >> 16u;
    let b_low = b & 0xffffu;
    let b_high = b >> 16u;
    let cross = a_low * b_high;
    let middle = ((a_low * b_low) >> 16u) + (cross & 0xffffu) + a_high * b_low;
    return vec2<u32>(a * b, a_high * b_high + (cross >> 16u) + (middle >> 16u));
}
