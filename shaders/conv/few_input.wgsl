// The gradient of the input of a convolution of few channels: {{WIDTH}} neighbouring columns of
// strides of one row, counted with the padding, with all their columns and channels. Row r of a
// stride is covered by every stride-th row of the window from r on, column r alike, so that an
// element of the output's gradient is loaded once for all columns of the window. A subgroup's lanes
// share what they load of the filter: element e of a row of the window, which is its column and
// channel, comes from lane e % 8. What lies outside counts as zero; positions before the beginning
// are large unsigned numbers. Grid: a workgroup of one subgroup for each eight runs of each row of
// a stride; those past the last compute that one's sums again and store the same values. Bindings:
// weight, dy, dx. Sums run in the order of rows, filters, columns.

@compute @workgroup_size({{WORKGROUP_SIZE}})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
    @builtin(subgroup_invocation_id) subgroup_lane: u32,
) {
    let workgroup = min(workgroup_id.y * num_workgroups.x + workgroup_id.x, p.total - 1u);
    let r1 = workgroup / p.groups;
    let unit = min(workgroup % p.groups * {{LANES}} + local_index, p.units - 1u);
    let line = unit / p.blocks;
    let image = line / p.lines;
    let i1 = p.low1 + line % p.lines;
    let i2 = p.low2 + unit % p.blocks * {{WIDTH}};
    let taps1 = (p.kernel1 + p.stride1 - 1u - r1) / p.stride1;
{{INSIDE}}{{SUMS}}    for (var o1 = 0u; o1 < taps1; o1 += 1u) {
        let y1 = i1 - o1;
        let in_y = y1 < p.out1;
        let dy_at = ((image * p.out1 + y1) * p.out2 + i2 - {{AHEAD}}) * p.filters;
        let w_at = (r1 + o1 * p.stride1) * {{ELEMENTS}} * p.filters;
{{PLACES}}        for (var f = 0u; f < p.filters; f += 4u) {
{{LOADS}}{{PRODUCTS}}        }
    }
    let x1 = i1 * p.stride1 + r1 - p.pad1;
    let first_x = i2 * {{STRIDE}} - p.pad2;
    let dx_at = ((image * p.in1 + x1) * p.in2 + first_x) * {{CHANNELS}};
    if x1 < p.in1 {
{{STORES}}    }
}
