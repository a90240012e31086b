// Prefix sums of counts, in blocks of WORKGROUP * ITEMS elements. Grid: one workgroup per block.
// TOTALS: totals[block] is the sum of the block. Otherwise out[i] is the sum of all counts before
// i, starting from starts[block] if p.blocks > 1, and the last element of out is the sum of all
// counts.

const ITEMS = 16u;

// Two copies, so that a step reads one and writes the other with one barrier in between.
var<workgroup> sums: array<u32, 2u * WORKGROUP>;

{{ENTRY}} {
    let block = workgroup_id.y * num_workgroups.x + workgroup_id.x;
    let first = (block * WORKGROUP + local_index) * ITEMS;
    var end = first;
    if block < p.blocks {
        end = max(first, min(first + ITEMS, p.count));
    }
    var own = 0u;
    for (var i = first; i < end; i += 1u) {
        own += load_x(i);
    }
    sums[local_index] = own;
    workgroupBarrier();
    // Inclusive sums by doubling.
    var here = 0u;
    var sum = own;
    for (var step = 1u; step < WORKGROUP; step *= 2u) {
        if local_index >= step {
            sum += sums[here + local_index - step];
        }
        here = WORKGROUP - here;
        sums[here + local_index] = sum;
        workgroupBarrier();
    }
{{FINISH}}
}
