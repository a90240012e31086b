// The words of four columns, each with the bytes of four rows. The bytes lie in rows: byte `i` is
// that of the first column in the first row. Integers are signed, four to a word.

fn load4_b(i: u32) -> vec4<i32> {
    let at = p.off_b + (i >> 2u);
    // Words between rows: p.b_step is the bytes of four rows.
    let row = p.b_step >> 4u;
    let r = vec4<u32>(b[at], b[at + row], b[at + 2u * row], b[at + 3u * row]);
    // The bytes of even and of odd columns, of two rows in turn.
    let even = (r.xz & vec2<u32>(0x00ff00ffu)) | ((r.yw & vec2<u32>(0x00ff00ffu)) << vec2<u32>(8u));
    let odd = ((r.xz >> vec2<u32>(8u)) & vec2<u32>(0x00ff00ffu)) | (r.yw & vec2<u32>(0xff00ff00u));
    return bitcast<vec4<i32>>(vec4<u32>(
        (even.x & 0xffffu) | (even.y << 16u),
        (odd.x & 0xffffu) | (odd.y << 16u),
        (even.x >> 16u) | (even.y & 0xffff0000u),
        (odd.x >> 16u) | (odd.y & 0xffff0000u),
    ));
}
