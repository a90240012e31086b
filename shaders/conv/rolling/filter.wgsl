// Parts of the gradient of the filter, (part, k1, k2, channel): the sums over p.chunk of p.runs
// runs. A run is {{WIDTH}} neighbouring columns of p.run output rows. A step takes the input's rows
// of one stride; `dy`m is the output row of m steps ago. Products of positions outside the input
// are not added; positions before the input are large unsigned numbers. Grid: one invocation for
// each of p.count parts of four channels; all indices are in units of four channels. Bindings: x,
// dy, result.

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    let unit = t % p.units;
    let part = t / p.units;
    let last_run = min((part + 1u) * p.chunk, p.runs);
{{SUMS}}    for (var run = part * p.chunk; run < last_run; run += 1u) {
        let column = run % p.blocks * {{WIDTH}};
        let segment = run / p.blocks;
        let image = segment / p.segments;
        let first = segment % p.segments * p.run;
        let end = min(first + p.run, p.output1);
        let left = column * {{STRIDE}} - p.pad2;
{{INSIDE}}{{GRADIENTS}}        for (var row = first; row < end + {{AHEAD}}; row += 1u) {
            let dy_at = ((image * p.output1 + row) * p.output2 + column) * p.units + unit;
{{LOADS}}{{ROWS}}{{MOVES}}        }
    }
    // One row at a time; the next one is then moved into its place.
    for (var k1 = 0u; k1 < p.kernel; k1 += 1u) {
        let at = (part * p.kernel + k1) * {{KERNEL}} * p.units + unit;
{{STORES}}    }
}
