// Scans (prefix sums, products, log-sum-exps) along the middle axis of a dense [outer, n, inner]
// tensor. Grid: one invocation for each chunk of p.chunk elements of each line. Four lines side by
// side, or four elements of a line, may be read and written at once: inner indices, or elements,
// then count vec4s.
//
// With place = (outer index * p.chunks + chunk) * p.inner + inner index: TOTALS: y[place] is the
// combination of a chunk. APPLY: y holds the scan of every chunk, started with starts[place] (the
// scan of the totals) or with the identity when a line is one chunk. Position k of the scan is
// element k of the axis, or n - 1 - k when p.reverse is 1.

alias Value = {{VALUE}};
// The state of an invocation's lines.
alias State = {{STATE}};

fn identity() -> Value {
    return {{IDENTITY}};
}

fn combine_values(a: Value, b: Value) -> Value {
    return {{COMBINE}};
}

fn combine(a: State, b: State) -> State {
    return {{COMBINE_STATES}};
}

fn element(line: u32, inner_index: u32, k: u32) -> u32 {
    let at = select(k, p.n - 1u - k, p.reverse != 0u);
    return (line * p.n + at) * p.inner + inner_index;
}

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    let place = t;
    let lines = t / p.inner;
    let inner_index = t - lines * p.inner;
    let line = lines / p.chunks;
    let chunk = lines - line * p.chunks;
    let first = chunk * p.chunk;
    let end = min(first + p.chunk, p.n);
    var state = {{START}};
    for (var k = first; k < end; k += 1u) {
        let at = element(line, inner_index, k);
{{STEP}}
    }
{{FINISH}}
}
