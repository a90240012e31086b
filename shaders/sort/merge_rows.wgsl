// Sorts p.rows rows of p.n elements, from row p.first on, and keeps the first p.keep of each:
// kept[row * p.keep + j] is a position in the row. Grid: one invocation for each row, which neither
// waits for others nor shares its memory with them.
//
// Runs of 16 elements are sorted in registers, then four at a time are merged until one is left,
// from one half of `scratch` to the other, where a row begins p.stride elements after the one
// before. p.size is p.n rounded up to a multiple of 16; p.ends tells the length of a run before the
// last merge. Elements are ordered by keys, lesser first, and then by positions, so no two are
// equal; NONE comes last. p.mask inverts keys, so that the greatest come first.

const NONE = 0xffffffffu;
const RUN = 16u;

// Key and position.
alias Element = vec2<u32>;

// The first elements of the runs that are merged, their places in `scratch`, and where the runs
// end.
var<private> heads: array<Element, 4>;
var<private> at: array<u32, 4>;
var<private> ends: array<u32, 4>;

fn before(a: Element, b: Element) -> bool {
    return (a.x < b.x) | ((a.x == b.x) & (a.y < b.y));
}

// Exchanges two elements unless the lesser comes first.
fn order(a: ptr<function, Element>, b: ptr<function, Element>) {
    let first = *a;
    let second = *b;
    let exchanged = before(second, first);
    *a = select(first, second, exchanged);
    *b = select(second, first, exchanged);
}

fn candidate(row: u32, j: u32) -> Element {
    let key = order_key(row * p.n + min(j, p.n - 1u)).x ^ p.mask;
    return select(Element(NONE), Element(key, j), j < p.n);
}

fn head(place: u32, end: u32) -> Element {
    return select(Element(NONE), scratch[p.off_scratch + min(place, end - 1u)], place < end);
}

// Begins to merge runs of `run` elements from element `first` on of the row at `base`.
fn begin(base: u32, first: u32, run: u32) {
{{BEGIN}}
}

// The first of all heads, whose place its successor takes.
fn next() -> Element {
    let right = before(heads[1], heads[0]);
    let left_head = select(heads[0], heads[1], right);
    let right_of_others = before(heads[3], heads[2]);
    let other_head = select(heads[2], heads[3], right_of_others);
    let is_other = before(other_head, left_head);
    let result = select(left_head, other_head, is_other);
    let place = 1u + select(select(at[0], at[1], right), select(at[2], at[3], right_of_others),
        is_other);
    let end = select(select(ends[0], ends[1], right), select(ends[2], ends[3], right_of_others),
        is_other);
    let successor = head(place, end);
    let won_0 = !is_other & !right;
    let won_1 = !is_other & right;
    let won_2 = is_other & !right_of_others;
    let won_3 = is_other & right_of_others;
{{ADVANCE}}
    return result;
}

@compute @workgroup_size({{WORKGROUP_SIZE}})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.rows {
        return;
    }
    let row = p.first + t;
    var base = t * p.stride;
    var to = base + p.rows * p.stride;
    for (var j = 0u; j < p.size; j += RUN) {
{{SORT}}
    }
    for (var run = RUN; run < p.ends; run *= 4u) {
        for (var first = 0u; first < p.size; first += 4u * run) {
            begin(base, first, run);
            for (var j = first; j < min(first + 4u * run, p.size); j += 1u) {
                scratch[p.off_scratch + to + j] = next();
            }
        }
        let source = to;
        to = base;
        base = source;
    }
    begin(base, 0u, p.ends);
    for (var j = 0u; j < p.keep; j += 1u) {
        store_kept(row * p.keep + j, next().y);
    }
}
