// Copies `p.count` bytes from `src` to `dst`, at any byte offsets.
// Grid: one invocation per destination word. Offsets p.off_src and p.off_dst are in bytes.

fn source(byte: u32) -> u32 {
    let word = byte >> 2u;
    let shift = (byte & 3u) * 8u;
    if shift == 0u {
        return src[word];
    }
    return (src[word] >> shift) | (src[word + 1u] << (32u - shift));
}

{{ENTRY}} {
    let w = (p.off_dst >> 2u) + linear_id(workgroup_id, num_workgroups, local_index);
    let first = w * 4u;
    let end = p.off_dst + p.count;
    if first >= end {
        return;
    }
    if first >= p.off_dst && first + 4u <= end {
        dst[w] = source(first - p.off_dst + p.off_src);
        return;
    }
    // A word at an edge keeps the bytes outside the range.
    var bits = dst[w];
    for (var k = 0u; k < 4u; k += 1u) {
        let byte = first + k;
        if byte >= p.off_dst && byte < end {
            let source_byte = byte - p.off_dst + p.off_src;
            let value = extractBits(src[source_byte >> 2u], (source_byte & 3u) * 8u, 8u);
            bits = insertBits(bits, value, k * 8u, 8u);
        }
    }
    dst[w] = bits;
}
