// Accumulates as reduce_run.wgsl does, over runs of vec4s: four elements side by side, which are
// read at once. The reduced group is the innermost one; e, n and p.extent count its vec4s. Inputs
// without a step along it are read once.

{{STATE}}
{{SOURCE}}
{{SINK}}
// Vec4s accumulated before they are merged with the total: two levels keep float sums accurate.
const BLOCK = 64u;

// Merges `n` vec4s, `by` apart, from four `e` on.
fn reduce_run(o: u32, e: u32, k: u32, by: u32, n: u32) -> State {
    {{CURSORS}}
    var total = identity();
    for (var begin = 0u; begin < n; begin += BLOCK) {
        let length = min(BLOCK, n - begin);
        var part = identity();
        for (var r = 0u; r < length; r += 1u) {
            {{VEC4S}}
            let a = {{READ_0}};
            let b = {{READ_1}};
            let c = {{READ_2}};
            let d = {{READ_3}};
            part = merge(part, merge(merge(a, b), merge(c, d)));
            {{ADVANCE_1}}
        }
        total = merge(total, part);
    }
    return total;
}
