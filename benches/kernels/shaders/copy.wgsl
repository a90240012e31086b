// Copies `p.count` vectors of four floats, to measure the bandwidth of the adapter's memory.
// Grid: one invocation per vector. Offsets are in vectors.

{{ENTRY}} {
    let i = linear_id(workgroup_id, num_workgroups, local_index);
    if i < p.count {
        dst[p.off_dst + i] = src[p.off_src + i];
    }
}
