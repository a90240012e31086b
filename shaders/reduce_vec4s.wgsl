// The accumulation of a strided run of vec4s: four elements side by side, which are read at once.

fn identity_four() -> vec4<Accumulator> {
    return vec4(identity());
}

fn map_four(x: vec4<{{INPUT}}>) -> vec4<Accumulator> {
    return vec4(map_element(x.x), map_element(x.y), map_element(x.z), map_element(x.w));
}

fn combine_four(a: vec4<Accumulator>, b: vec4<Accumulator>) -> vec4<Accumulator> {
    return vec4(combine(a.x, b.x), combine(a.y, b.y), combine(a.z, b.z), combine(a.w, b.w));
}

fn finish_four(a: vec4<Accumulator>) -> vec4<{{OUTPUT}}> {
    return vec4(finish(a.x), finish(a.y), finish(a.z), finish(a.w));
}

// Vec4s accumulated before they are added to the total: two levels keep float sums accurate.
const BLOCK = 64u;

// Combines `n` vec4s, `stride` apart, from vec4 `start` on, component by component.
fn reduce_vec4s(start: u32, stride: u32, n: u32) -> vec4<Accumulator> {
    var total = identity_four();
    var at = start;
    for (var begin = 0u; begin < n; begin += BLOCK) {
        let length = min(BLOCK, n - begin);
        var part = identity_four();
        for (var r = 0u; r < length; r += 1u) {
            part = combine_four(part, map_four(read_x(at)));
            at += stride;
        }
        total = combine_four(total, part);
    }
    return total;
}

// Combines all elements of `n` vec4s, `stride` apart, from vec4 `start` on.
fn reduce_run(start: u32, stride: u32, n: u32) -> Accumulator {
    let all = reduce_vec4s(start, stride, n);
    return combine(combine(all.x, all.y), combine(all.z, all.w));
}
