var<workgroup> sums: array<u32, 2u * WORKGROUP>;
var<workgroup> listed: array<u32, BLOCK>;

// int64 as two words: coordinates are below 2^32.
fn store(at: u32, i: u32) {
    var rest = i;
    for (var k = 1u; k < p.rank; k += 1u) {
        let d = p.rank - k;
        let extent = p.dims[d >> 2u][d & 3u];
        out[p.off_out + at * p.rank + d] = vec2(rest % extent, 0u);
        rest /= extent;
    }
    out[p.off_out + at * p.rank] = vec2(rest, 0u);
}

{{ENTRY}} {
    let t = local_index;
    let block = workgroup_id.y * num_workgroups.x + workgroup_id.x;
    var bits = 0u;
    if block < p.blocks {
        bits = live_flags(block * BLOCK + t * 32u);
    }
    var sum = countOneBits(bits);
    var at = 0u - sum;
    sums[t] = sum;
    workgroupBarrier();
    var here = 0u;
    for (var step = 1u; step < WORKGROUP; step *= 2u) {
        if t >= step {
            sum += sums[here + t - step];
        }
        here = WORKGROUP - here;
        sums[here + t] = sum;
        workgroupBarrier();
    }
    at += sum;
    for (var k = 0u; k < 32u && bits != 0u; k += 1u) {
        listed[at] = t * 32u + firstTrailingBit(bits);
        bits &= bits - 1u;
        at += 1u;
    }
    workgroupBarrier();
    let count = sums[here + WORKGROUP - 1u];
    if block < p.blocks {
        let start = load_starts(block);
        for (var k = t; k < count; k += WORKGROUP) {
            store(start + k, block * BLOCK + listed[k]);
        }
    }
}
