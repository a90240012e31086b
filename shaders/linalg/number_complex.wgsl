// Complex numbers, under the names that number_real.wgsl has for real ones. Sums, and products with
// real factors, are vector operations.

alias real = {{REAL}};
alias number = vec2<{{REAL}}>;

fn number_of(x: real) -> number {
    return number(x, real(0.0));
}

fn real_of(z: number) -> real {
    return z.x;
}

fn conjugate(z: number) -> number {
    return number(z.x, -z.y);
}

// The factor that brings z near 1 where the reciprocal of its larger part would not be exact or
// finite.
fn scale_of(size: real) -> real {
    return select(select(real(1.0), real(5.421010862427522e-20), size > real(1e18)),
        real(18446744073709551616.0), size < real(1e-18));
}

// The absolute value, without overflow or underflow in between.
fn modulus(z: number) -> real {
    let larger = max(abs(z.x), abs(z.y));
    let smaller = min(abs(z.x), abs(z.y));
    let scale = scale_of(larger);
    let ratio = (smaller * scale) / (larger * scale);
    return select(larger * sqrt(real(1.0) + ratio * ratio), larger + smaller,
        smaller == real(0.0));
}

fn times(x: number, y: number) -> number {
    return number(x.x * y.x - x.y * y.y, x.x * y.y + x.y * y.x);
}

// x / y with a divisor near 1, so that its square neither overflows nor underflows.
fn over(x: number, y: number) -> number {
    let size = max(abs(y.x), abs(y.y));
    let scale = scale_of(size);
    let unit = (y * scale) / (size * scale);
    let quotient = times(x, conjugate(unit)) / (unit.x * unit.x + unit.y * unit.y);
    return (quotient / (size * scale)) * scale;
}
