// Real numbers, under the names that number_complex.wgsl has for complex ones.

alias real = {{REAL}};
alias number = real;

fn number_of(x: real) -> number {
    return x;
}

fn real_of(z: number) -> real {
    return z;
}

fn conjugate(z: number) -> number {
    return z;
}

fn modulus(z: number) -> real {
    return abs(z);
}

fn times(x: number, y: number) -> number {
    return x * y;
}

// x / y. Compilers with fast mathematics multiply by the reciprocal of y, which is infinite where y
// is subnormal, so both are scaled before. Where x overflows then, the quotient does, too.
fn over(x: number, y: number) -> number {
    let scale = select(real(1.0), real(4294967296.0), abs(y) < real(1e-30));
    return (x * scale) / opaque_{{REAL}}(y * scale);
}
