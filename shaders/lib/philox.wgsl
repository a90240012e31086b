// The counter-based generator Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers:
// as easy as 1, 2, 3", 2011).

fn philox_round(c: vec4<u32>, k: vec2<u32>) -> vec4<u32> {
    let a = mul_wide(0xcd9e8d57u, c.z);
    let b = mul_wide(0xd2511f53u, c.x);
    return vec4<u32>(a.y ^ c.y ^ k.x, a.x, b.y ^ c.w ^ k.y, b.x);
}

// The key of a round.
fn philox_key(key: vec2<u32>, round: u32) -> vec2<u32> {
    return key + round * vec2<u32>(0x9e3779b9u, 0xbb67ae85u);
}

// 128 random bits for one counter. There is no loop, since a loop makes it half as slow again on
// software adapters.
fn philox(counter: vec4<u32>, key: vec2<u32>) -> vec4<u32> {
    var c = philox_round(counter, key);
    c = philox_round(c, philox_key(key, 1u));
    c = philox_round(c, philox_key(key, 2u));
    c = philox_round(c, philox_key(key, 3u));
    c = philox_round(c, philox_key(key, 4u));
    c = philox_round(c, philox_key(key, 5u));
    c = philox_round(c, philox_key(key, 6u));
    c = philox_round(c, philox_key(key, 7u));
    c = philox_round(c, philox_key(key, 8u));
    return philox_round(c, philox_key(key, 9u));
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
