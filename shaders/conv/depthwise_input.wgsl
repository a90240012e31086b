// Element i of the gradient of the input, gathered from the windows that contain it.
// Grid: one invocation per stored unit of the gradient. Bindings: weight, dy, result.

fn value(i: u32) -> {{T}} {
    let at = place_of(i, p.channels, p.input1, p.input2);
    var sum = {{T}}();
    for (var k1 = 0u; k1 < p.kernel1; k1 += 1u) {
        let d1 = at.x1 + p.pad1 - k1 * p.dilation1;
        let y1 = d1 / p.stride1;
        if y1 >= p.output1 || y1 * p.stride1 != d1 || at.x1 + p.pad1 < k1 * p.dilation1 {
            continue;
        }
        for (var k2 = 0u; k2 < p.kernel2; k2 += 1u) {
            let d2 = at.x2 + p.pad2 - k2 * p.dilation2;
            let y2 = d2 / p.stride2;
            if y2 >= p.output2 || y2 * p.stride2 != d2 || at.x2 + p.pad2 < k2 * p.dilation2 {
                continue;
            }
            for (var j = 0u; j < p.multiplier; j += 1u) {
                let channel = at.channel * p.multiplier + j;
                let place = Place(at.image, channel, y1, y2);
                let dy_at = element_of(place, p.filters, p.output1, p.output2);
                sum += load_dy(dy_at) * load_weight((k1 * p.kernel2 + k2) * p.filters + channel);
            }
        }
    }
    return sum;
}
