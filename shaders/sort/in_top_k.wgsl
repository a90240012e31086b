// Whether a row's wanted element is among its k greatest: fewer than k are greater. A row with a
// wanted class out of range, or with an infinite or NaN prediction, is not. Grid: one workgroup per
// row of p.limit classes; hits[row] is 0 or 1.

// The keys of the infinities of float32.
const HIGHEST = 0xff800000u;
const LOWEST = 0x007fffffu;

var<workgroup> greater: atomic<u32>;
var<workgroup> unknown: atomic<u32>;

fn is_finite(key: u32) -> bool {
    return key < HIGHEST && key > LOWEST;
}

// Whether n is less than k, which is int32 or int64.
fn is_below_k(n: u32) -> bool {
    let high = k_words[p.off_k_words + p.words - 1u];
    if (high >> 31u) != 0u {
        return false;
    }
    return (p.words == 2u && high > 0u) || n < k_words[p.off_k_words];
}

{{ENTRY}} {
    let row = workgroup_id.y * num_workgroups.x + workgroup_id.x;
    let live = row < p.count;
    if local_index == 0u {
        atomicStore(&greater, 0u);
        atomicStore(&unknown, 0u);
    }
    workgroupBarrier();
    if live {
        let wanted = clamped(row);
        var n = 0u;
        var odd = wanted == p.limit;
        if !odd {
            let key = order_key(row * p.limit + wanted).x;
            odd = !is_finite(key);
            for (var c = local_index; c < p.limit; c += WORKGROUP) {
                let other = order_key(row * p.limit + c).x;
                odd = odd || !is_finite(other);
                n += select(0u, 1u, other > key);
            }
        }
        atomicAdd(&greater, n);
        if odd {
            atomicStore(&unknown, 1u);
        }
    }
    workgroupBarrier();
    if live && local_index == 0u {
        store_hits(row, select(0u, 1u,
            atomicLoad(&unknown) == 0u && is_below_k(atomicLoad(&greater))));
    }
}
