// A batch of matrix transposes by blocks of BLOCK x BLOCK elements: columns of a block lie
// p.src_step vectors apart in src, lines p.dst_step vectors apart in dst. The program moves bits
// without computing. Grid: a workgroup for each SIDE x SIDE blocks, along the source's rows and
// along the destination's, and for each matrix; one invocation per block. All indices count vectors
// of a block's side of elements.

const SIDE = {{WORKGROUP_SIDE}}u;
const BLOCK = {{BLOCK}}u;

{{ENTRY}} {
    let row = workgroup_id.x * SIDE + local_index % SIDE;
    let column = workgroup_id.y * SIDE + local_index / SIDE;
    if row >= p.rows || column >= p.columns {
        return;
    }
    let from_block = p.off_src + workgroup_id.z * p.src_batch + column * BLOCK * p.src_step + row;
    let to_block = p.off_dst + workgroup_id.z * p.dst_batch + row * BLOCK * p.dst_step + column;
{{READS}}
{{WRITES}}
}
