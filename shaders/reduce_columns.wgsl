// Reduces the middle of x[outer, p.extent, p.inner] to y[outer, p.segments, p.inner], where p.inner
// counts vec4s of neighbours: an invocation for VEC4S vec4s of a segment, SPREAD apart, so that
// neighbouring invocations read neighbouring vec4s, and those of a subgroup a long stretch of each
// row. Segment s combines the s-th of p.segments runs of neighbouring rows. Grid: SPREAD
// invocations for each SPREAD * VEC4S vec4s of each of p.count (outer, segment) pairs. Offsets
// count vec4s.

const SPREAD = {{SPREAD}}u;
const VEC4S = {{VEC4S}}u;

@compute @workgroup_size({{WORKGROUP_SIZE}})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    let blocks = (p.inner + SPREAD * VEC4S - 1u) / (SPREAD * VEC4S);
    let run = t / SPREAD / blocks;
    if run >= p.count {
        return;
    }
    let length = (p.extent + p.segments - 1u) / p.segments;
    let first = min(run % p.segments * length, p.extent);
    let end = min(first + length, p.extent);
    // Columns past the last are computed as that one, and not stored.
    let column = t / SPREAD % blocks * SPREAD * VEC4S + t % SPREAD;
    {{COLUMNS}}
    {{TOTALS}}
    var at = (run / p.segments * p.extent + first) * p.inner;
    for (var begin = first; begin < end; begin += BLOCK) {
        let stop = min(begin + BLOCK, end);
        {{PARTS}}
        for (var r = begin; r < stop; r += 1u) {
            {{READS}}
            at += p.inner;
        }
        {{ADDS}}
    }
    for (var j = 0u; j < VEC4S && column + j * SPREAD < p.inner; j += 1u) {
        {{CHOICE}}
        write_y(run * p.inner + column + j * SPREAD, finish_four(all), 4u);
    }
}
