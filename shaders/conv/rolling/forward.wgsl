// {{WIDTH}} neighbouring columns of a run of output rows, four channels of each. A step takes the
// input's rows of one stride; `sum`m is the output row that began m steps ago, and the oldest of
// them is complete at the end of a step. Positions outside the input count as zero. Positions
// before the input are large unsigned numbers. Grid: one invocation for each of p.count runs; all
// indices are in units of four channels. Bindings: x, weight, result, the epilogue's operands.

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    let unit = t % p.units;
    let place = t / p.units;
    let column = place % p.blocks * {{WIDTH}};
    let segment = place / p.blocks;
    let image = segment / p.segments;
    let first = segment % p.segments * p.run;
    let end = min(first + p.run, p.output1) + {{AHEAD}};
    let left = column * {{STRIDE}} - p.pad2;
{{INSIDE}}{{FILTERS}}{{READS}}{{SUMS}}    for (var row = first; row < end; row += 1u) {
{{ROWS}}        if row >= first + {{AHEAD}} {
            let at = ((image * p.output1 + row - {{AHEAD}}) * p.output2 + column) * p.units + unit;
{{STORES}}        }
{{MOVES}}    }
}
