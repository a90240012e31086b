// Counts elements by bin: counts[bin] += 1. Few bins are counted in workgroup memory first.
// Grid: one workgroup per WORKGROUP * ITEMS elements.

const ITEMS = 8u;
const LOCAL = 2048u;

var<workgroup> local_counts: array<atomic<u32>, LOCAL>;

{{BIN}}

{{ENTRY}} {
    let block = workgroup_id.y * num_workgroups.x + workgroup_id.x;
    let few = p.bins <= LOCAL;
    for (var bin = local_index; few && bin < p.bins; bin += WORKGROUP) {
        atomicStore(&local_counts[bin], 0u);
    }
    workgroupBarrier();
    for (var k = 0u; k < ITEMS; k += 1u) {
        let i = (block * ITEMS + k) * WORKGROUP + local_index;
        if block < p.blocks && i < p.count {
            let bin = bin_of(i);
            if bin < p.bins && few {
                atomicAdd(&local_counts[bin], 1u);
            } else if bin < p.bins {
                atomicAdd(&counts[p.off_counts + bin], 1u);
            }
        }
    }
    workgroupBarrier();
    for (var bin = local_index; few && bin < p.bins; bin += WORKGROUP) {
        let n = atomicLoad(&local_counts[bin]);
        if n > 0u {
            atomicAdd(&counts[p.off_counts + bin], n);
        }
    }
}
