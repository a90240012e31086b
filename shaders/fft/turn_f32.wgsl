// exp(-2 pi i k / n) for k <= n < 2^28, within 2 ulp of 1: the angle is reduced to an eighth of a
// turn in integers.
fn turn(k: u32, n: u32) -> Complex {
    let quarter = (4u * k + n / 2u) / n;
    let x = Real(i32(4u * k) - i32(quarter * n)) / Real(n) * 1.57079633;
    let z = x * x;
    let s = x + x * z * (((2.75573192e-6 * z - 1.98412698e-4) * z + 8.33333333e-3) * z
        - 1.66666667e-1);
    let c = 1.0 + z * ((((-2.75573192e-7 * z + 2.48015873e-5) * z - 1.38888889e-3) * z
        + 4.16666667e-2) * z - 0.5);
    switch quarter & 3u {
        case 0u: { return Complex(c, -s); }
        case 1u: { return Complex(-s, -c); }
        case 2u: { return Complex(-c, s); }
        default: { return Complex(s, c); }
    }
}
