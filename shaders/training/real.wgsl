// Arithmetic of real elements under the names that the steps of optimizers use.

const ONE = T(1.0);

fn mul(a: T, b: T) -> T {
    return a * b;
}

fn div(a: T, b: T) -> T {
    return a / b;
}

fn root(a: T) -> T {
    return sqrt(a);
}

fn square(a: T) -> T {
    return a * a;
}

// -1, 0 or 1.
fn sign_of(a: T) -> T {
    return select(select(T(0.0), T(-1.0), a < T(0.0)), T(1.0), a > T(0.0));
}
