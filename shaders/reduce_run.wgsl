// Accumulates strided runs for all reductions of a program at once. A run starts at element `e` of
// the reduced group of run `o`, `k` of the iteration space [outer, p.extent, p.inner]. STATE has
// the reductions' functions, READ gives a run's elements: values of the expression, or states that
// an earlier step has stored, plane by plane.

{{STATE}}
{{SOURCE}}
{{SINK}}
// Elements accumulated before they are merged with the total: two levels keep float sums accurate.
const BLOCK = 256u;

// Merges `n` elements, `by` apart, from element `e` on.
fn reduce_run(o: u32, e: u32, k: u32, by: u32, n: u32) -> State {
    {{CURSORS}}
    var total = identity();
    for (var begin = 0u; begin < n; begin += BLOCK) {
        let length = min(BLOCK, n - begin);
        let vec4s = length / 4u;
        var part = identity();
        for (var q = 0u; q < vec4s; q += 1u) {
            let a = {{READ_0}};
            let b = {{READ_1}};
            let c = {{READ_2}};
            let d = {{READ_3}};
            part = merge(part, merge(merge(a, b), merge(c, d)));
            {{ADVANCE_4}}
        }
        for (var r = vec4s * 4u; r < length; r += 1u) {
            part = merge(part, {{READ_0}});
            {{ADVANCE_1}}
        }
        total = merge(total, part);
    }
    return total;
}
