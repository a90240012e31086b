// The counter-based generator Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", 2011).

// The upper 32 bits of the product; WGSL has only the lower ones.
fn mul_hi(a: u32, b: u32) -> u32 {
    let a_low = a & 0xffffu;
    let a_high = a >> 16u;
    let b_low = b & 0xffffu;
    let b_high = b >> 16u;
    let cross = a_low * b_high;
    let middle = ((a_low * b_low) >> 16u) + (cross & 0xffffu) + a_high * b_low;
    return a_high * b_high + (cross >> 16u) + (middle >> 16u);
}

// 128 random bits for one counter.
fn philox(counter: vec4<u32>, key: vec2<u32>) -> vec4<u32> {
    var c = counter;
    var k = key;
    for (var round = 0u; round < 10u; round += 1u) {
        c = vec4<u32>(
            mul_hi(0xcd9e8d57u, c.z) ^ c.y ^ k.x,
            0xcd9e8d57u * c.z,
            mul_hi(0xd2511f53u, c.x) ^ c.w ^ k.y,
            0xd2511f53u * c.x,
        );
        k += vec2<u32>(0x9e3779b9u, 0xbb67ae85u);
    }
    return c;
}

// The 128-bit counter plus the 64-bit number n; the least significant word comes first in both.
fn philox_skip(counter: vec4<u32>, n: vec2<u32>) -> vec4<u32> {
    let x = counter.x + n.x;
    let x_carry = select(0u, 1u, x < n.x);
    let y_sum = counter.y + n.y;
    let y = y_sum + x_carry;
    // At most one of the two additions overflows.
    let y_carry = select(0u, 1u, y_sum < n.y || y < x_carry);
    let z = counter.z + y_carry;
    let w = counter.w + select(0u, 1u, z < y_carry);
    return vec4<u32>(x, y, z, w);
}
