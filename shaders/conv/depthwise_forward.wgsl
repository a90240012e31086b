// Element i of the output. Grid: one invocation per stored unit of the output. Bindings: x, weight,
// result, the epilogue's operands.

fn value(i: u32) -> {{RESULT_T}} {
    let at = place_of(i, p.filters, p.output1, p.output2);
    let channel = at.channel / p.multiplier;
    var sum = {{T}}();
    for (var k1 = 0u; k1 < p.kernel1; k1 += 1u) {
        // A position before the input is a large unsigned number.
        let y1 = at.x1 * p.stride1 + k1 * p.dilation1 - p.pad1;
        if y1 >= p.input1 {
            continue;
        }
        for (var k2 = 0u; k2 < p.kernel2; k2 += 1u) {
            let y2 = at.x2 * p.stride2 + k2 * p.dilation2 - p.pad2;
            if y2 < p.input2 {
                let place = Place(at.image, channel, y1, y2);
                let x_at = element_of(place, p.channels, p.input1, p.input2);
                sum += load_x(x_at) * load_weight((k1 * p.kernel2 + k2) * p.filters + at.channel);
            }
        }
    }
{{READS}}
    return {{RESULT}};
}
