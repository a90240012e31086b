// store_staged for the sums of a part of a tile, to a slot of `partial`; m and n are the first row
// and column of its blocks.
fn keep_staged(local_index: u32, m: u32, n: u32, slot: u32, first: u32, count: u32) {
    for (var i = 0u; i < BLOCKS * M * N / 4u; i += WORKGROUP) {
        let quad = i + local_index;
        let block = quad / (M * N / 4u);
        let row = m + block / {{BLOCKS_N}} * {{BLOCK_M}} + quad / (N / 4u) % M;
        let column = n + block % {{BLOCKS_N}} * {{BLOCK_N}} + quad % (N / 4u) * 4u;
        if quad < BLOCKS * M * N / 4u && block >= first && block < first + count {
            let at = quad * 4u;
            partial[p.off_partial + slot * VEC4S + row * ROW + column / 4u] =
                Vec4(staged[at], staged[at + 1u], staged[at + 2u], staged[at + 3u]);
        }
    }
}
