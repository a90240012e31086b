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

fn over(x: number, y: number) -> number {
    return x / y;
}
