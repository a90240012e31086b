// Block t of the walk, or run of blocks that are neighbours in dst: columns lie p.src_step vectors
// apart in src, lines p.dst_step vectors apart in dst. The program moves bits without computing.
// Grid: one invocation per block or run. All indices count vectors of a block's side of elements.

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    let from_block = p.off_src + index_src(t);
    let to_block = p.off_dst + index_dst(t);
{{READS}}
{{WRITES}}
}
