// Exclusive prefix sums of counts, in blocks of WORKGROUP * ITEMS elements.
// Grid: one workgroup per block. TOTALS: totals[block] is the sum of the block. Otherwise each element i is handed to STORE with the
// number of counts before it, which starts from starts[block] where p.blocks > 1.

const ITEMS = 4u;

var<workgroup> sums: array<u32, WORKGROUP>;

fn count_of(i: u32) -> u32 {
    return {{COUNT}};
}

{{STORE}}

@compute @workgroup_size({{WORKGROUP_SIZE}})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let block = workgroup_id.y * num_workgroups.x + workgroup_id.x;
    let live = block < p.blocks;
    let first = (block * WORKGROUP + local_index) * ITEMS;
    var counts: array<u32, ITEMS>;
    var own = 0u;
    for (var k = 0u; k < ITEMS; k += 1u) {
        var n = 0u;
        if live && first + k < p.count {
            n = count_of(first + k);
        }
        counts[k] = n;
        own += n;
    }
    sums[local_index] = own;
    workgroupBarrier();
    // Inclusive sums by doubling.
    for (var step = 1u; step < WORKGROUP; step *= 2u) {
        var before = 0u;
        if local_index >= step {
            before = sums[local_index - step];
        }
        workgroupBarrier();
        sums[local_index] += before;
        workgroupBarrier();
    }
{{FINISH}}
}
