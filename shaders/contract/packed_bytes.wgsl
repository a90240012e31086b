// The products of four steps of the contracted index: `Scalar` is a word of four signed bytes in
// operands, and a sum in results.

fn mac(a: Scalar, b: Vec4, c: Vec4) -> Vec4 {
    let x = bitcast<u32>(a);
    let y = bitcast<vec4<u32>>(b);
    return c + Vec4(
        dot4I8Packed(x, y.x),
        dot4I8Packed(x, y.y),
        dot4I8Packed(x, y.z),
        dot4I8Packed(x, y.w),
    );
}
