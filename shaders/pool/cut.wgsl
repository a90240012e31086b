// One of several dispatches, which follow each other: each takes a part of a window, or of the
// windows that contain a position, and goes on from the values that the previous one stored.

fn part_of(all: Range) -> Range {
    let low = vec3<u32>(p.low0, p.low1, p.low2);
    let high = vec3<u32>(p.high0, p.high1, p.high2);
    return Range(min(all.first + low, all.end), min(all.first + high, all.end));
}

// The start of a value.
fn so_far(i: u32, start: Result) -> Result {
    if p.is_first == 1u {
        return start;
    }
    return load_result(i);
}

fn is_last() -> bool {
    return p.is_last == 1u;
}
