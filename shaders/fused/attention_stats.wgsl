// The maximum of each row's scores and the sum of their exponentials less the maximum, from those
// of the splits of the keys. Grid: one invocation per element of saved. Bindings: saved (rows x 2),
// stats (splits x rows x 2).

const LOWEST_FINITE = -3.40282346e38;

fn value(i: u32) -> f32 {
    let row = i / 2u;
    let rows = p.count / 2u;
    var largest = p.lowest;
    for (var s = 0u; s < p.splits; s += 1u) {
        largest = max(largest, load_stats((s * rows + row) * 2u));
    }
    let base = select(largest, 0.0, largest < LOWEST_FINITE);
    var total = 0.0;
    for (var s = 0u; s < p.splits; s += 1u) {
        let at = (s * rows + row) * 2u;
        total += load_stats(at + 1u) * exp(load_stats(at) - base);
    }
    return select(total, largest, i % 2u == 0u);
}
