// Accumulates as reduce_run.wgsl does, over runs of vec4s: four neighbouring elements, which are
// read at once. In rows the reduced group is the innermost one, and a vec4 has four of its
// elements: e, n and p.extent count vec4s, and FOUR merges their states a, b, c and d. In columns
// the four elements belong to four neighbouring segments: k and p.inner count vec4s, and FOUR is
// the struct of their states.

{{STATE}}
{{SOURCE}}
{{SINK}}
// Vec4s accumulated before they are merged with the total: two levels keep float sums accurate.
const BLOCK = 64u;

// Merges `n` vec4s, `by` apart, from `e` on.
fn reduce_run(o: u32, e: u32, k: u32, by: u32, n: u32) -> {{PARTIAL}} {
    {{CURSORS}}
    var total = {{START}};
    for (var begin = 0u; begin < n; begin += BLOCK) {
        let length = min(BLOCK, n - begin);
        var part = {{START}};
        for (var r = 0u; r < length; r += 1u) {
            {{VEC4S}}
            let a = {{READ_0}};
            let b = {{READ_1}};
            let c = {{READ_2}};
            let d = {{READ_3}};
            part = {{MERGE}}(part, {{FOUR}});
            {{ADVANCE_1}}
        }
        total = {{MERGE}}(total, part);
    }
    return total;
}
