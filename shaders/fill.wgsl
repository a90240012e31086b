// Fills `p.count` bytes of `dst` with the word `p.pattern`, whose byte 0 falls on addresses that
// are multiples of 4. Grid: one invocation per destination word. p.off_dst is in bytes.

{{ENTRY}} {
    let w = (p.off_dst >> 2u) + linear_id(workgroup_id, num_workgroups, local_index);
    let first = w * 4u;
    let end = p.off_dst + p.count;
    if first >= end {
        return;
    }
    if first >= p.off_dst && first + 4u <= end {
        dst[w] = p.pattern;
        return;
    }
    // A word at an edge keeps the bytes outside the range.
    var mask = 0u;
    for (var k = 0u; k < 4u; k += 1u) {
        if first + k >= p.off_dst && first + k < end {
            mask |= 0xffu << (k * 8u);
        }
    }
    dst[w] = (dst[w] & ~mask) | (p.pattern & mask);
}
