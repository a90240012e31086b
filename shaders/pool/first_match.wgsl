// The element of the input that window `o` took: the first, in row-major order, that equals the
// output `best`.
fn first_match(image: u32, channel: u32, o: vec3<u32>, best: Value) -> u32 {
    let window = elements_of(o);
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
    // `best` is no element of the window: the caller's output belongs to another input.
    return 0xffffffffu;
}
