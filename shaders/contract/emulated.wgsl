// Replaces cooperative matrices where there are none, on subgroups of eight invocations or more:
// each invocation owns every eighth element of a block's sums. Operands stay in place; a matrix is
// the index of its first element.

var<private> sums: array<f32, {{MATRICES_OF_BLOCK}} * M * N / 8u>;

fn zeros(c: u32, lane: u32) -> u32 {
    for (var i = lane % 8u; i < M * N; i += 8u) {
        sums[c + i / 8u] = 0.0;
    }
    return c;
}

fn multiply_add(a: u32, b: u32, c: u32, lane: u32) -> u32 {
    for (var i = lane % 8u; i < M * N; i += 8u) {
        var sum = sums[c + i / 8u];
        for (var k = 0u; k < {{PRODUCTS}}; k += 1u) {
            sum += tile_a[a + i / N * LINE + k] * tile_b[b + i % N * LINE + k];
        }
        sums[c + i / 8u] = sum;
    }
    return c;
}

fn store_matrix(c: u32, at: u32, lane: u32) {
    for (var i = lane % 8u; i < M * N; i += 8u) {
        staged[at + i] = sums[c + i / 8u];
    }
}
