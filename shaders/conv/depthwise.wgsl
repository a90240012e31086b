// Depthwise convolution: output channel c * multiplier + j is input channel c under filter
// [kernel1][kernel2][c][j]. Products and sums are f32, or f64 for float64, in the order of the
// kernel. All indices are in elements.

struct Place {
    image: u32,
    channel: u32,
    x1: u32,
    x2: u32,
}
