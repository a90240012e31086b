// Rounds to one of the two nearest integers, to each with a probability that grows with its
// nearness; NaN becomes 0, and a value out of range becomes the nearest integer of the type.
// Element i has its own random bits: word i of the stream, or the words 2 i and 2 i + 1. Grid: map.
// Computed in {{F}}.

fn value(i: u32) -> i32 {
    let x = load_x(i);
    if is_nan_{{F}}(x) {
        return 0;
    }
    if x >= {{F}}({{MAX}}) {
        return {{MAX}};
    }
    if x <= {{F}}({{MIN}}) {
        return {{MIN}};
    }
    let down = floor(x);
    if down == x {
        return i32(x);
    }
    let g = generator();
    let sample = i / {{PER_SAMPLE}}u;
    let bits = philox(philox_skip(g.counter, vec2<u32>(sample, 0u)), g.key);
    let u = {{UNIFORM}};
    // Rounds away from zero if the fraction exceeds u.
    let up = select(x - down > u, x - down >= {{F}}(1) - u, x < {{F}}(0));
    return i32(down) + select(0, 1, up);
}
