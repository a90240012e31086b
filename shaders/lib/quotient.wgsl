// Unsigned division through float32, for divisors above 0. Adapters that divide integers lane by
// lane or by long routines take several times as long for `/`; results are the same.

// Each estimate is at most 2^-19 too small and never too large, so that the second is at most one
// too small.
fn quotient(n: u32, d: u32) -> u32 {
    let inverse = 0.999999f / f32(d);
    let first = u32(f32(n) * inverse);
    let rest = n - first * d;
    let second = u32(f32(rest) * inverse);
    return first + second + select(0u, 1u, rest - second * d >= d);
}

fn quotients(n: vec3<u32>, d: vec3<u32>) -> vec3<u32> {
    return vec3<u32>(quotient(n.x, d.x), quotient(n.y, d.y), quotient(n.z, d.z));
}
