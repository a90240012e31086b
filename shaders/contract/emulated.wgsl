// Replaces cooperative matrices where there are none, on subgroups of eight invocations or more:
// each invocation owns every eighth element of a block's sums. Operands stay in place; a matrix is
// the index of its first element.

var<private> sums: array<f32, {{MATRICES}} * M * N / 8u>;

fn zeros(c: u32, lane: u32) -> u32 {
    for (var i = lane % 8u; i < M * N; i += 8u) {
        sums[c + i / 8u] = 0.0;
    }
    return c;
}

fn store_matrix(c: u32, at: u32, line: u32, lane: u32) {
    for (var i = lane % 8u; i < M * N; i += 8u) {
        staged[at + i / N * line + i % N] = sums[c + i / 8u];
    }
}
