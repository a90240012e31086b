// One level of a segmented reduction over rows with ascending ids: each chunk of rows is walked by
// one invocation for each column. Grid: t = chunk * p.inner + column.
//
// A run of equal ids that begins and ends inside a chunk is stored at once. A chunk's first run may
// have begun before it and its last may go on after it: both are left as partial results 2 * chunk
// and 2 * chunk + 1, which are the rows of the next level. A chunk that is a single run leaves only
// the first partial result; the id of the other one is NONE. In the last level, one chunk, every
// run is stored.

const NONE = 0xffffffffu;

alias Value = {{VALUE}};

fn combine(a: Value, b: Value) -> Value {
    return {{COMBINE}};
}

fn element(i: u32, column: u32) -> Value {
{{ELEMENT}}
}

// Ids past the last segment name no row.
fn keep(id: u32, column: u32, v: Value) {
    if id < p.segments {
        store_out(id * p.inner + column, v);
    }
}

fn leave(slot: u32, id: u32, column: u32, v: Value) {
    store_partials(slot * p.inner + column, v);
    if column == 0u {
        store_partial_ids(slot, id);
    }
}

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    let column = t % p.inner;
    let chunk = t / p.inner;
    let first = chunk * p.chunk;
    let end = min(first + p.chunk, p.n);
    let last_level = p.chunk >= p.n;
    var i = first;
    // The first row of a chunk always has an id: chunks are even, and the first of each pair of
    // partial results always exists.
    var next = load_ids(first);
    // Each iteration is a run of equal ids; nothing is stored while a run goes on.
    for (var turn = first; turn < end && i < end; turn += 1u) {
        let id = next;
        var total = element(i, column);
        i += 1u;
        for (; i < end; i += 1u) {
            next = load_ids(i);
            if next == id {
                total = combine(total, element(i, column));
            } else if next != NONE {
                break;
            }
        }
        if last_level || (turn != first && i < end) {
            keep(id, column, total);
            continue;
        }
        if turn == first {
            leave(2u * chunk, id, column, total);
        }
        if i >= end {
            leave(2u * chunk + 1u, select(id, NONE, turn == first), column, total);
        }
    }
}
