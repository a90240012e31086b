// One step of many variables. Their tensors lie in a few windows of memory, bound as raw words; the
// table has a row for each run of elements: the first workgroup, the number of elements, then for
// each value of the expression its offset in its window in elements, and the distance of
// neighbouring elements: 0 where one element serves all. The rows are in the order of their
// workgroups; the constants follow them. Grid: workgroups of WORKGROUP * UNITS * LANES elements
// each. The windows' offsets are 0. A variable's elements are read before they are written, all by
// one invocation, so a step may be in place.

const UNITS = {{UNITS}}u;
const LANES = {{LANES}}u;
const ROW = {{ROW}}u;

// Offset, and the distance of neighbouring elements.
fn place(row: u32, value: u32) -> vec2<u32> {
    let at = p.off_table + row + 2u + 2u * value;
    return vec2(table[at], table[at + 1u]);
}

{{ENTRY}} {
    let group = workgroup_id.y * num_workgroups.x + workgroup_id.x;
    // The last row that starts at or before this workgroup.
    var index = 0u;
    for (var jump = p.jump; jump > 0u; jump = jump >> 1u) {
        let next = index + jump;
        if next < p.rows && table[p.off_table + next * ROW] <= group {
            index = next;
        }
    }
    let row = index * ROW;
    let count = table[p.off_table + row + 1u];
    let first = ((group - table[p.off_table + row]) * UNITS * WORKGROUP + local_index) * LANES;
{{PLACES}}
    for (var unit = 0u; unit < UNITS; unit += 1u) {
        let i = first + unit * (WORKGROUP * LANES);
        if i >= count {
            return;
        }
{{STEPS}}
    }
}
