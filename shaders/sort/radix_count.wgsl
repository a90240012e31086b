// Counts the digits of each block of keys: counts[digit * p.blocks + block].
// Grid: one workgroup per block of WORKGROUP * ITEMS keys.

const ITEMS = 8u;

var<workgroup> totals: array<atomic<u32>, 16>;

{{ENTRY}} {
    let block = workgroup_id.y * num_workgroups.x + workgroup_id.x;
    if local_index < 16u {
        atomicStore(&totals[local_index], 0u);
    }
    workgroupBarrier();
    for (var k = 0u; k < ITEMS; k += 1u) {
        let i = (block * ITEMS + k) * WORKGROUP + local_index;
        if block < p.blocks && i < p.count {
            atomicAdd(&totals[(load_keys(i) >> p.shift) & 15u], 1u);
        }
    }
    workgroupBarrier();
    if block < p.blocks && local_index < 16u {
        store_counts(local_index * p.blocks + block, atomicLoad(&totals[local_index]));
    }
}
