var<workgroup> total: atomic<u32>;

@compute @workgroup_size({{WORKGROUP_SIZE}})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) t: u32,
) {
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
