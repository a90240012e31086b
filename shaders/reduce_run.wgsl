// The accumulation of a strided run of single elements.

// Elements accumulated before they are added to the total: two levels keep float sums accurate.
const BLOCK = 256u;

// Combines `n` elements, `stride` apart, from element `start` on. Four accumulators hide the
// latency of loads.
fn reduce_run(start: u32, stride: u32, n: u32) -> Accumulator {
    var total = identity();
    var at = start;
    for (var begin = 0u; begin < n; begin += BLOCK) {
        let length = min(BLOCK, n - begin);
        let vec4s = length / 4u;
        var a = identity();
        var b = identity();
        var c = identity();
        var d = identity();
        for (var q = 0u; q < vec4s; q += 1u) {
            a = combine(a, map_element(load_x(at)));
            b = combine(b, map_element(load_x(at + stride)));
            c = combine(c, map_element(load_x(at + 2u * stride)));
            d = combine(d, map_element(load_x(at + 3u * stride)));
            at += 4u * stride;
        }
        for (var r = vec4s * 4u; r < length; r += 1u) {
            a = combine(a, map_element(load_x(at)));
            at += stride;
        }
        total = combine(total, combine(combine(a, b), combine(c, d)));
    }
    return total;
}
