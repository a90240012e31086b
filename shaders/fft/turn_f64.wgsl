// exp(-2 pi i k / n) for k <= n < 2^28 in float64: the angle is reduced to an eighth of a turn in
// integers.
fn turn(k: u32, n: u32) -> Complex {
    let quarter = (4u * k + n / 2u) / n;
    let x = Real(i32(4u * k) - i32(quarter * n)) / Real(n) * 1.5707963267948966lf;
    let z = x * x;
    var s = -7.647163731819816e-13lf + z * 2.8114572543455206e-15lf;
    s = 1.6059043836821613e-10lf + z * s;
    s = -2.505210838544172e-8lf + z * s;
    s = 2.7557319223985893e-6lf + z * s;
    s = -1.984126984126984e-4lf + z * s;
    s = 8.333333333333333e-3lf + z * s;
    s = -1.6666666666666666e-1lf + z * s;
    s = x + x * z * s;
    var c = 4.779477332387385e-14lf - z * 1.5619206968586225e-16lf;
    c = -1.1470745597729725e-11lf + z * c;
    c = 2.08767569878681e-9lf + z * c;
    c = -2.755731922398589e-7lf + z * c;
    c = 2.48015873015873e-5lf + z * c;
    c = -1.388888888888889e-3lf + z * c;
    c = 4.1666666666666664e-2lf + z * c;
    c = -0.5lf + z * c;
    c = 1.0lf + z * c;
    switch quarter & 3u {
        case 0u: { return Complex(c, -s); }
        case 1u: { return Complex(-s, -c); }
        case 2u: { return Complex(-c, s); }
        default: { return Complex(s, c); }
    }
}
