// Merges the splits of the keys: each has its own maximum and sum of exponentials, and the sums of
// values that go with them. Grid: one invocation per stored unit of result. Bindings: result (rows
// x width), partial (splits x rows x padded), stats (splits x rows x 2).

const LOWEST_FINITE = -3.40282346e38;

fn value(i: u32) -> f32 {
    let row = i / p.width;
    let rows = p.count / p.width;
    var largest = p.lowest;
    for (var s = 0u; s < p.splits; s += 1u) {
        largest = max(largest, load_stats((s * rows + row) * 2u));
    }
    let none = largest < LOWEST_FINITE;
    let base = select(largest, 0.0, none);
    var sum = 0.0;
    var total = 0.0;
    for (var s = 0u; s < p.splits; s += 1u) {
        let at = s * rows + row;
        let weight = exp(load_stats(at * 2u) - base);
        sum += load_partial(at * p.padded + i % p.width) * weight;
        total += load_stats(at * 2u + 1u) * weight;
    }
    return select(sum / total, p.nan, none);
}
