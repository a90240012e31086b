// A program over rows: stages of reductions, then elements. LANES neighbouring invocations share a
// row and take UNIT neighbouring columns at a time. p.lowest is minus infinity, which cannot be a
// constant of WGSL. The statements of a row are generated, with row_NAME(i) and column_NAME(i), the
// offsets of row and column `i` in a tensor, in elements. A program may work in place: a row's
// elements are written in the last loop, each by the invocation that read it last. Grid: LANES
// invocations for each of p.rows rows, spread over x and y.

const LANES = {{LANES}}u;
const UNIT = {{UNIT}}u;
// Units that a lane combines before it adds them to its total: two levels keep sums of long rows
// accurate.
const BLOCK = 256u;

{{ENTRY}} {
    let row = linear_id(workgroup_id, num_workgroups, local_index) / LANES;
    let lane = local_index % LANES;
    // Lanes past the last row take part in the barriers.
    let is_row = row < p.rows;
    let at = min(row, p.rows - 1u);
    let columns = select(0u, p.columns, is_row);
{{MAIN}}}
