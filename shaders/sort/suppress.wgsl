// One block of non-maximum suppression: WORKGROUP candidates in the order of their scores, from
// p.first on, against the boxes selected before and then against each other. Grid: one workgroup.
// state[0] is the number of boxes selected so far; selected and corners hold them.

var<workgroup> boxes_here: array<vec4<f32>, WORKGROUP>;
var<workgroup> alive_here: array<u32, WORKGROUP>;

// Corners in the order (y low, x low, y high, x high), whichever diagonal was given.
fn corners_of(i: u32) -> vec4<f32> {
    let a = vec2(load_boxes(i * 4u), load_boxes(i * 4u + 1u));
    let b = vec2(load_boxes(i * 4u + 2u), load_boxes(i * 4u + 3u));
    return vec4(min(a, b), max(a, b));
}

fn overlaps(a: vec4<f32>, b: vec4<f32>) -> bool {
    let area_a = (a.z - a.x) * (a.w - a.y);
    let area_b = (b.z - b.x) * (b.w - b.y);
    if area_a <= 0.0 || area_b <= 0.0 {
        return 0.0 > p.overlap;
    }
    let extent = max(min(a.zw, b.zw) - max(a.xy, b.xy), vec2(0.0));
    let shared_area = extent.x * extent.y;
    return shared_area / (area_a + area_b - shared_area) > p.overlap;
}

fn chosen(s: u32) -> vec4<f32> {
    return vec4(load_corners(s * 4u), load_corners(s * 4u + 1u), load_corners(s * 4u + 2u),
        load_corners(s * 4u + 3u));
}

{{ENTRY}} {
    let t = local_index;
    let i = p.first + t;
    var position = 0u;
    var alive = i < p.count;
    var here = vec4(0.0);
    if alive {
        position = load_order(i);
        here = corners_of(position);
        alive = load_scores(position) > p.lowest;
    }
    var selected_count = min(load_state(0u), p.limit);
    for (var s = 0u; s < selected_count && alive; s += 1u) {
        alive = !overlaps(chosen(s), here);
    }
    boxes_here[t] = here;
    alive_here[t] = select(0u, 1u, alive);
    for (var j = 0u; j < WORKGROUP; j += 1u) {
        workgroupBarrier();
        // The same for all invocations: what they may write now are the flags of later candidates.
        if alive_here[j] != 0u && selected_count < p.limit {
            if t == j {
                store_selected(selected_count, position);
                store_corners(selected_count * 4u, here.x);
                store_corners(selected_count * 4u + 1u, here.y);
                store_corners(selected_count * 4u + 2u, here.z);
                store_corners(selected_count * 4u + 3u, here.w);
            }
            selected_count += 1u;
            if t > j && alive_here[t] != 0u && overlaps(boxes_here[j], here) {
                alive_here[t] = 0u;
            }
        }
    }
    if t == 0u {
        store_state(0u, selected_count);
    }
}
