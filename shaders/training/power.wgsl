// Raises two numbers to the power e, where e is nearly always one half.
fn powers_of(numbers: vec2<T>, e: T) -> vec2<T> {
    if e == T(0.5) {
        return sqrt(numbers);
    }
    var powers = numbers;
    for (var k = 0u; k < rounds(2u); k += 1u) {
        powers = vec2<T>(powers.y, pow_{{SUFFIX}}(powers.x, e));
    }
    return powers;
}
