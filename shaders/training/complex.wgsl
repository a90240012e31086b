// Arithmetic of complex elements under the names that the steps of optimizers use. T is a vector of
// two Ps.

const ONE = T(P(1.0), P(0.0));

fn mul(a: T, b: T) -> T {
    return T(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

fn div(a: T, b: T) -> T {
    return T(a.x * b.x + a.y * b.y, a.y * b.x - a.x * b.y) / (b.x * b.x + b.y * b.y);
}

fn square(a: T) -> T {
    return mul(a, a);
}

// The root with the positive real part. The larger of its parts is computed from a sum of positive
// numbers, the other one by division.
fn root(a: T) -> T {
    let big = max(abs(a.x), abs(a.y));
    if big == P(0.0) {
        return T(P(0.0), P(0.0));
    }
    let x = a.x / big;
    let y = a.y / big;
    let larger = sqrt(big) * sqrt((sqrt(x * x + y * y) + abs(x)) * P(0.5));
    let other = a.y / (P(2.0) * larger);
    if a.x >= P(0.0) {
        return T(larger, other);
    }
    return T(abs(other), select(larger, -larger, a.y < P(0.0)));
}
