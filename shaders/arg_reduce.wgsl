// Index of the best value along the middle of [outer, p.extent, p.inner], to y[outer, p.segments,
// p.inner]. Segment s looks at the elements s, s + segments, …. The smallest index of equal values
// wins; NaN never does; without any winner the index is 0. Grid: one invocation for each of p.count
// outputs. Offsets count elements.

alias Value = {{VALUE}};

fn is_nan(a: Value) -> bool {
    return {{IS_NAN}};
}

fn beats(a: Value, b: Value) -> bool {
    return {{BEATS}};
}

{{ENTRY}} {
    let i = linear_id(workgroup_id, num_workgroups, local_index);
    if i >= p.count {
        return;
    }
    let k = i % p.inner;
    let s = (i / p.inner) % p.segments;
    let o = i / p.inner / p.segments;
    let base = o * p.extent * p.inner + k;
    var best_value = Value();
    var best_index = 0u;
    var found = false;
    for (var r = s; r < p.extent; r += p.segments) {
        let e = base + r * p.inner;
        let v = {{LOAD}};
        let index = {{INDEX}};
        let is_first = v == best_value && index < best_index;
        if !is_nan(v) && (!found || beats(v, best_value) || is_first) {
            best_value = v;
            best_index = index;
            found = true;
        }
    }
    // A segment of nothing but NaN passes on its NaN, which the next step ignores.
    if !found {
        let e = base + s * p.inner;
        best_value = {{LOAD}};
    }
    {{KEEP_BEST}}
    store_y(i, {{OUTPUT}}(best_index));
}
