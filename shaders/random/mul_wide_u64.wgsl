// The lower and the upper 32 bits of a product, on adapters with 64-bit integers: often one
// instruction.
fn mul_wide(a: u32, b: u32) -> vec2<u32> {
    // The masks keep drivers from extending a sign.
    let product = (u64(a) & 0xfffffffflu) * (u64(b) & 0xfffffffflu);
    return vec2<u32>(u32(product & 0xfffffffflu), u32(product >> 32u));
}
