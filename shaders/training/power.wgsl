// a to the power e, where e is nearly always one half.
fn power_of(a: T, e: T) -> T {
    if e == T(0.5) {
        return sqrt(a);
    }
    return pow_{{SUFFIX}}(a, e);
}
