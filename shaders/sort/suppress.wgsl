// One block of non-maximum suppression: WORKGROUP candidates of a row in the order of their scores,
// from p.first on, against the boxes selected before and then against each other. A row is a class
// of an image. Grid: one workgroup for each row.
//
// Scores and their order lie row by row; an image has p.count places with p.box_classes boxes each.
// state[row] is the number of boxes selected so far; selected and corners hold them, p.limit for
// each row. If there are many selected boxes, several programs go over them, p.most at a time from
// p.visited on: alive holds the boxes that are left, and the last program (p.resolves) selects.

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
    let row = linear_id(workgroup_id, num_workgroups, 0u) / WORKGROUP;
    let exists = row < p.rows;
    let i = p.first + t;
    var position = 0u;
    var alive = exists && i < p.count;
    var here = vec4(0.0);
    if alive {
        position = load_order(row * p.count + i) - row * p.count;
        let box = (row / p.classes * p.count + position) * p.box_classes;
        here = corners_of(box + row % p.classes % p.box_classes);
        alive = load_scores(row * p.count + position) > p.lowest;
        if p.visited > 0u {
            alive = alive && load_alive(row * WORKGROUP + t) != 0u;
        }
    }
    var selected_count = 0u;
    if exists {
        selected_count = min(load_state(row), p.limit);
    }
    let first_selected = row * p.limit;
    let end = min(selected_count, p.visited + p.most);
    for (var s = p.visited; s < end && alive; s += 1u) {
        alive = !overlaps(chosen(first_selected + s), here);
    }
    if p.resolves == 0u {
        if exists {
            store_alive(row * WORKGROUP + t, select(0u, 1u, alive));
        }
        return;
    }
    boxes_here[t] = here;
    alive_here[t] = select(0u, 1u, alive);
    for (var j = 0u; j < WORKGROUP; j += 1u) {
        workgroupBarrier();
        // The condition is the same for all invocations: they may now write only the flags of later
        // candidates.
        if alive_here[j] != 0u && selected_count < p.limit {
            if t == j {
                let place = first_selected + selected_count;
                store_selected(place, position);
                store_corners(place * 4u, here.x);
                store_corners(place * 4u + 1u, here.y);
                store_corners(place * 4u + 2u, here.z);
                store_corners(place * 4u + 3u, here.w);
            }
            selected_count += 1u;
            if t > j && alive_here[t] != 0u && overlaps(boxes_here[j], here) {
                alive_here[t] = 0u;
            }
        }
    }
    if exists && t == 0u {
        store_state(row, selected_count);
    }
}
