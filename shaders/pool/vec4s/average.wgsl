// The mean of each window's elements; padding does not count. Summed in f32.
// Units: the output's. Bindings: x, result.

fn unit(t: u32) {
    let at = place_of(t, out_extent());
    let window = elements_of(at.x);
    var sum = vec4<f32>();
    for (var x0 = window.first.x; x0 < window.end.x; x0 += 1u) {
        for (var x1 = window.first.y; x1 < window.end.y; x1 += 1u) {
            var i = element_at(at.image, at.channel, vec3<u32>(x0, x1, window.first.z),
                in_extent());
            for (var x2 = window.first.z; x2 < window.end.z; x2 += 1u) {
                let four = read_x(i);
                sum += four;
                i += p.channels;
            }
        }
    }
    let extent = window.end - window.first;
    let count = f32(extent.x * extent.y * extent.z);
    let i = element_at(at.image, at.channel, at.x, out_extent());
    write_result(i, sum / count, 4u);
}
