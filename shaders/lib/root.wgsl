// The square root of an integer without its fraction, as C computes it in double.

fn root_u32(a: u32) -> u32 {
    // A float's root is off by less than one.
    var root = min(u32(sqrt(f32(a))), 0xffffu);
    root -= select(0u, 1u, root * root > a);
    let next = root + 1u;
    return select(root, next, root < 0xffffu && next * next <= a);
}

fn root_i32(a: i32) -> i32 {
    return i32(root_u32(u32(max(a, 0))));
}
