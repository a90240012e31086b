// Two sums for each channel and segment over x[p.images, p.lines, p.inner]. MODE selects their
// terms:
// - moments: d and d * d, where d is the distance from the channel's first element (which keeps the
//   variance accurate);
// - gradient: dy and dy * (x - mean).
// Segment s takes the channel's elements s, s + segments, …. The sums go to sums[plane,
// p.first_segment + s, channel] of p.all_segments segments. Grid: one invocation for each of
// p.count (segment, channel) pairs.

// Elements added before they are added to the total: two levels keep the sums accurate.
const BLOCK = 64u;

fn terms(e: u32, center: f32) -> vec2<f32> {
    let d = load_x(e) - center;
    {{TERMS}}
}

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    // Neighbouring invocations read neighbouring elements: channels if they are innermost, else
    // positions.
    var c = t % p.lines;
    var s = t / p.lines;
    if p.inner > 1u {
        s = t % p.segments;
        c = t / p.segments;
    }
    let center = {{CENTER}};
    let n = p.images * p.inner;
    var total = vec2<f32>();
    for (var begin = s; begin < n; begin += BLOCK * p.segments) {
        let end = min(n, begin + BLOCK * p.segments);
        var block = vec2<f32>();
        for (var r = begin; r < end; r += p.segments) {
            let image = quotient(r, p.inner);
            block += terms((image * p.lines + c) * p.inner + r - image * p.inner, center);
        }
        total += block;
    }
    let at = (p.first_segment + s) * p.lines + c;
    store_sums(at, total.x);
    store_sums(p.all_segments * p.lines + at, total.y);
}
