// Element i = (part, k1, k2, channel) of the parts of the gradient of the filter: the sum over
// `chunk` of the `lines` lines of all output images. Grid: one invocation per element. Bindings: x,
// dy, result.

fn value(i: u32) -> {{T}} {
    let channel = i % p.filters;
    let tap = i / p.filters;
    let k2 = tap % p.kernel2;
    let k1 = tap / p.kernel2 % p.kernel1;
    let part = tap / p.kernel2 / p.kernel1;
    let end = min((part + 1u) * p.chunk, p.lines);
    var sum = {{T}}();
    for (var line = part * p.chunk; line < end; line += 1u) {
        let image = line / p.output1;
        let x1 = line % p.output1;
        let y1 = x1 * p.stride1 + k1 * p.dilation1 - p.pad1;
        if y1 >= p.input1 {
            continue;
        }
        for (var x2 = 0u; x2 < p.output2; x2 += 1u) {
            let y2 = x2 * p.stride2 + k2 * p.dilation2 - p.pad2;
            if y2 < p.input2 {
                let x_at = element_of(Place(image, channel / p.multiplier, y1, y2), p.channels,
                    p.input1, p.input2);
                sum += load_x(x_at) * load_dy(element_of(Place(image, channel, x1, x2), p.filters,
                    p.output1, p.output2));
            }
        }
    }
    return sum;
}
