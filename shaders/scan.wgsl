// Scans (prefix sums, products, log-sum-exps) along the middle axis of a dense [outer, n, inner] tensor.
// Grid: one invocation for each chunk of p.chunk elements of each line, t = (outer index * p.chunks + chunk) * inner + inner index.
//
// TOTALS: y[t] is the combination of chunk t. APPLY: y holds the scan of every chunk, started with starts[t] (the scan of the totals)
// or with the identity when a line is one chunk. Position k of the scan is element k of the axis, or n - 1 - k when p.reverse is 1.

alias Value = {{VALUE}};

fn identity() -> Value {
    return {{IDENTITY}};
}

fn combine(a: Value, b: Value) -> Value {
    return {{COMBINE}};
}

fn element(line: u32, inner_index: u32, k: u32) -> u32 {
    let at = select(k, p.n - 1u - k, p.reverse != 0u);
    return (line * p.n + at) * p.inner + inner_index;
}

@compute @workgroup_size({{WORKGROUP_SIZE}})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    let inner_index = t % p.inner;
    let chunk = (t / p.inner) % p.chunks;
    let line = t / p.inner / p.chunks;
    let first = chunk * p.chunk;
    let end = min(first + p.chunk, p.n);
    var state = {{START}};
    for (var k = first; k < end; k += 1u) {
        let at = element(line, inner_index, k);
        let next = combine(state, load_x(at));
{{STORE}}
        state = next;
    }
{{FINISH}}
}
