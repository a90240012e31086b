// A convolution of few channels: {{WIDTH}} neighbouring columns of a row of the output, four
// filters of each. What a row of the window's columns read of the input follows each other there;
// lane e % 8 loads its element e for all of them. What lies outside counts as zero; positions
// before the beginning are large unsigned numbers. Grid: a workgroup of one subgroup for each run
// of columns and 32 filters; those past the last compute that one's sums again and store the same
// values. Bindings: x, weight, c, the epilogue's operands. Sums run in the order of rows, columns,
// channels.

@compute @workgroup_size({{WORKGROUP_SIZE}})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
    @builtin(subgroup_invocation_id) subgroup_lane: u32,
) {
    let workgroup = min(workgroup_id.y * num_workgroups.x + workgroup_id.x, p.total - 1u);
    let unit = workgroup % p.units;
    let n = (workgroup / p.units * {{LANES}} + local_index) * 4u;
    let filters = min(n, p.filters - 4u);
    let y2 = unit % p.blocks * {{WIDTH}};
    let y1 = unit / p.blocks % p.out1;
    let image = unit / p.blocks / p.out1;
    let first = (y2 * {{STRIDE}} - p.pad2) * {{CHANNELS}};
{{PLACES}}{{SUMS}}    for (var k1 = 0u; k1 < p.kernel1; k1 += 1u) {
        let x1 = y1 * p.stride1 + k1 - p.pad1;
        let in_x = x1 < p.in1;
        let line = (image * p.in1 + x1) * p.line;
        let w_at = k1 * {{ELEMENTS}} * p.filters + filters;
{{LOADS}}{{PRODUCTS}}    }
    let row = (image * p.out1 + y1) * p.out2 + y2;
    if n < p.filters {
{{STORES}}    }
}
