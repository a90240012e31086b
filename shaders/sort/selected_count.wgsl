var<workgroup> total: atomic<u32>;

{{ENTRY}} {
    let t = local_index;
    let block = workgroup_id.y * num_workgroups.x + workgroup_id.x;
    if t == 0u {
        atomicStore(&total, 0u);
    }
    workgroupBarrier();
    if block < p.blocks {
        atomicAdd(&total, countOneBits(live_flags(block * BLOCK + t * 32u)));
    }
    workgroupBarrier();
    if t == 0u && block < p.blocks {
        store_totals(block, atomicLoad(&total));
    }
}
