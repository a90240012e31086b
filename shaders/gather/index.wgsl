// Index tensors of any depth: row_of(n) is the row that index n names, or NONE when a component is
// out of range. `indices` is bound as raw words with its offset in bytes, so that uint8, int8
// (p.index_signed), int32 and int64 share the text. A negative index is large as an unsigned
// number, so one comparison checks both ends.

const NONE = 0xffffffffu;

fn component(i: u32) -> u32 {
    if p.index_bytes == 1u {
        let byte = p.off_indices + i;
        let value = extractBits(indices[byte >> 2u], (byte & 3u) * 8u, 8u);
        return select(value, NONE, p.index_signed != 0u && value > 127u);
    }
    let word = (p.off_indices >> 2u) + i * (p.index_bytes >> 2u);
    if p.index_bytes == 8u && indices[word + 1u] != 0u {
        return NONE;
    }
    return indices[word];
}

// At most 8 iterations.
fn row_of(n: u32) -> u32 {
    var row = 0u;
    for (var d = 0u; d < p.depth; d += 1u) {
        let extent = p.extents[d >> 2u][d & 3u];
        let c = component(n * p.depth + d);
        if c >= extent {
            return NONE;
        }
        row = row * extent + c;
    }
    return row;
}
