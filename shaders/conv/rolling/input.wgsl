// The gradient of the input: {{WIDTH}} neighbouring columns of strides and a run of rows of
// strides, counted with the padding, four channels of each. A step takes a row of the output's
// gradient; `sum`m is the sum so far of the m-th row of strides from there on, and the first of
// them is complete at the end of a step. Rows and columns outside are large unsigned numbers, and
// count as zero. Grid: one invocation for each of p.count runs; all indices are in units of four
// channels. Bindings: weight, dy, result.

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    let unit = t % p.units;
    let place = t / p.units;
    let column = p.low2 + place % p.blocks * {{WIDTH}};
    let segment = place / p.blocks;
    let image = segment / p.segments;
    let first = p.low1 + segment % p.segments * p.run;
    let steps = min(first + p.run, p.high1) - first + {{AHEAD}};
    let left = column - {{AHEAD}};
    let first_x = column * {{STRIDE}} - p.pad2;
{{INSIDE}}{{FILTERS}}{{SUMS}}    for (var step = 0u; step < steps; step += 1u) {
        let y = first + step - {{AHEAD}};
        let in_y = y < p.output1;
        let dy_at = ((image * p.output1 + y) * p.output2 + left) * p.units + unit;
{{LOADS}}{{PRODUCTS}}        if step >= {{AHEAD}} {
{{STORES}}        }
{{MOVES}}    }
}
