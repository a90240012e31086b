// The element of the input that was selected from window `o`: the first element, in row-major
// order, that equals the output `best`. NO_MATCH: `best` is not an element of the window, or of the
// part of it.
const NO_MATCH = 0xffffffffu;

fn first_match(image: u32, channel: u32, o: vec3<u32>, best: Value) -> u32 {
    let window = part_of(elements_of(o));
    for (var x0 = window.first.x; x0 < window.end.x; x0 += 1u) {
        for (var x1 = window.first.y; x1 < window.end.y; x1 += 1u) {
            for (var x2 = window.first.z; x2 < window.end.z; x2 += 1u) {
                let i = element_at(image, channel, vec3<u32>(x0, x1, x2), in_extent());
                let v = load_x(i);
                if v == best || (is_nan_{{VALUE}}(v) && is_nan_{{VALUE}}(best)) {
                    return i;
                }
            }
        }
    }
    return NO_MATCH;
}
