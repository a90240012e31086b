
fn multiply_add_{{NAME}}(a: u32, b: u32, c: u32, lane: u32) -> u32 {
    for (var i = lane % 8u; i < M * N; i += 8u) {
        var sum = sums[c + i / 8u];
        for (var k = 0u; k < {{STEPS}}; k += 1u) {
            sum += {{A}}[a + i / N * {{LINE_A}} + k] * {{B}}[b + i % N * {{LINE_B}} + k];
        }
        sums[c + i / 8u] = sum;
    }
    return c;
}
