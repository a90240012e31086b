// Folds the updates of a chain into one element: element `at` of dst, column k of the chain that
// starts at index `head`. A chain visits no index twice, so it ends within p.chain steps; the bound
// tells the compiler so.
fn fold(at: u32, head: u32, k: u32) -> {{VALUE}} {
    var acc = load_dst(at);
    var n = head;
    var last = 0u;
    for (var step = 0u; step < p.chain && n != NONE; step += 1u) {
        {{STEP}}
        n = links[p.off_links + n];
    }
    {{FINISH}}
    return acc;
}

// Scalar updates have stride 0.
fn update(n: u32, k: u32) -> {{VALUE}} {
    return load_updates((n * p.inner + k) * p.update_stride);
}
