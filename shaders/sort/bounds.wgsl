// Where each key's run starts in sorted keys: bounds[s] is the number of keys below s, for s up to
// and including p.segments. Grid: one invocation per bound. At most 32 iterations.

fn value(s: u32) -> u32 {
    var low = 0u;
    var high = p.keys;
    for (var step = 0u; step < 32u && low < high; step += 1u) {
        let middle = low + (high - low) / 2u;
        if load_sorted(middle) < s {
            low = middle + 1u;
        } else {
            high = middle;
        }
    }
    return low;
}
