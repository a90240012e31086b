// Places each pair at the position given by the prefix sums of all blocks' digit counts, in order
// within its block, so the sort is stable. Grid: one workgroup per block of WORKGROUP * ITEMS keys;
// each invocation owns ITEMS consecutive pairs.
//
// columns[d * WORKGROUP + t] counts the keys of invocation t whose digit is d (low half) or d + 8
// (high half). A block's counts are at most 2,048, so halves never overflow into each other.

const ITEMS = 8u;

var<workgroup> columns: array<u32, 2048>;
var<workgroup> sums: array<u32, WORKGROUP>;

fn column(digit: u32, t: u32) -> u32 {
    return (digit & 7u) * WORKGROUP + t;
}

{{ENTRY}} {
    let t = local_index;
    let block = workgroup_id.y * num_workgroups.x + workgroup_id.x;
    let live = block < p.blocks;
    for (var d = 0u; d < 8u; d += 1u) {
        columns[d * WORKGROUP + t] = 0u;
    }
    let first = (block * WORKGROUP + t) * ITEMS;
    var keys_here: array<u32, ITEMS>;
    // Each invocation owns its columns: no barrier is needed between these.
    for (var k = 0u; k < ITEMS; k += 1u) {
        if live && first + k < p.count {
            let key = load_keys(first + k);
            keys_here[k] = key;
            let digit = (key >> p.shift) & 15u;
            columns[column(digit, t)] += select(1u, 0x10000u, digit >= 8u);
        }
    }
    workgroupBarrier();
    // Prefix sums over all columns, digit by digit: each invocation owns 8 consecutive words.
    var own = 0u;
    for (var k = 0u; k < 8u; k += 1u) {
        own += columns[t * 8u + k];
    }
    sums[t] = own;
    workgroupBarrier();
    for (var step = 1u; step < WORKGROUP; step *= 2u) {
        var before = 0u;
        if t >= step {
            before = sums[t - step];
        }
        workgroupBarrier();
        sums[t] += before;
        workgroupBarrier();
    }
    // Digits from 8 on come after all others.
    var at = sums[t] - own + (sums[WORKGROUP - 1u] << 16u);
    for (var k = 0u; k < 8u; k += 1u) {
        let n = columns[t * 8u + k];
        columns[t * 8u + k] = at;
        at += n;
    }
    workgroupBarrier();
    // Where each digit starts in the block: the column of invocation 0, read before it advances.
    if t < 16u {
        let word = columns[column(t, 0u)];
        sums[t] = select(word & 0xffffu, word >> 16u, t >= 8u);
    }
    workgroupBarrier();
    for (var k = 0u; k < ITEMS; k += 1u) {
        if live && first + k < p.count {
            let key = keys_here[k];
            let digit = (key >> p.shift) & 15u;
            let c = column(digit, t);
            let word = columns[c];
            let rank = select(word & 0xffffu, word >> 16u, digit >= 8u);
            columns[c] = word + select(1u, 0x10000u, digit >= 8u);
            let to = load_starts(digit * p.blocks + block) + rank - sums[digit];
            store_sorted_keys(to, key);
            var value = first + k;
            if p.numbered == 0u {
                value = load_values(first + k);
            }
            store_sorted_values(to, value);
        }
    }
}
