//! Products of matrices and convolutions in f64, by their definitions.

use tensorflow_wgpu::DType;
use tensorflow_wgpu::local::Node;

/// `c[m][n]`, with the operands' transposes undone by indexing.
pub fn matmul(a: &[f64], b: &[f64], [m, k, n]: [usize; 3], ta: bool, tb: bool) -> Vec<f64> {
    let mut c = vec![0.0; m * n];
    for i in 0..m {
        for j in 0..n {
            for l in 0..k {
                let x = if ta { a[l * m + i] } else { a[i * k + l] };
                let y = if tb { b[j * k + l] } else { b[l * n + j] };
                c[i * n + j] += x * y;
            }
        }
    }
    c
}

/// A fused op's node. Its tensors and its epilogue, in which T stands for the type, all have one
/// type.
#[allow(dead_code, reason = "not every test needs it")]
pub fn fused(op: &str, dtype: DType, epilogue: &str, constants: &[f32]) -> Node {
    let text = epilogue.replace('T', dtype.name());
    Node::new(op)
        .attr("T", dtype)
        .attr("T_out", dtype)
        .attr("T_extra", &vec![dtype; epilogue.matches(", T").count()][..])
        .attr("expression", &text[..])
        .attr("constants", constants)
}

/// The element of a tensor of shape `from` that broadcasts to element `z` of shape `to`.
pub fn permuted(z: usize, to: &[usize], from: &[usize]) -> usize {
    let (mut rest, mut at, mut stride) = (z, 0, 1);
    for d in (0..to.len()).rev() {
        let index = rest % to[d];
        rest /= to[d];
        if let Some(extent) = (d + from.len()).checked_sub(to.len()).map(|i| from[i]) {
            at += if extent == 1 { 0 } else { index * stride };
            stride *= extent;
        }
    }
    at
}

/// The position of the channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    Last,
    First,
}

/// A convolution with three spatial dimensions. One with fewer has leading extents of 1.
#[derive(Debug, Clone)]
pub struct Conv {
    pub op: &'static str,
    pub spatial: usize,
    pub layout: Layout,
    pub channels: usize,
    /// The number of channels that a filter reads.
    pub depth: usize,
    /// The filter's last dimension.
    pub filters: usize,
    pub input: [usize; 3],
    pub kernel: [usize; 3],
    pub stride: [usize; 3],
    pub dilation: [usize; 3],
    pub pads: [[usize; 2]; 3],
}

impl Default for Conv {
    fn default() -> Self {
        Self {
            op: "Conv2D",
            spatial: 2,
            layout: Layout::Last,
            channels: 4,
            depth: 4,
            filters: 8,
            input: [1, 6, 5],
            kernel: [1, 3, 2],
            stride: [1; 3],
            dilation: [1; 3],
            pads: [[0; 2], [1, 0], [0, 2]],
        }
    }
}

const BATCH: usize = 2;

impl Conv {
    fn depthwise(&self) -> bool {
        self.op.starts_with("Depthwise")
    }

    fn results(&self) -> usize {
        if self.depthwise() { self.channels * self.filters } else { self.filters }
    }

    /// The dimension of the channels.
    pub fn axis(&self) -> usize {
        if self.layout == Layout::Last { self.spatial + 1 } else { 1 }
    }

    fn dims(&self, channels: usize, extents: [usize; 3]) -> Vec<usize> {
        let mut dims = vec![BATCH];
        dims.extend(&extents[3 - self.spatial..]);
        dims.insert(self.axis(), channels);
        dims
    }

    pub fn input_dims(&self) -> Vec<usize> {
        self.dims(self.channels, self.input)
    }

    pub fn filter_dims(&self) -> Vec<usize> {
        let depth = if self.depthwise() { self.channels } else { self.depth };
        [&self.kernel[3 - self.spatial..], &[depth, self.filters]].concat()
    }

    fn at(
        &self,
        channels: usize,
        extents: [usize; 3],
        image: usize,
        channel: usize,
        x: [usize; 3],
    ) -> usize {
        let position = (x[0] * extents[1] + x[1]) * extents[2] + x[2];
        let positions = extents.iter().product::<usize>();
        match self.layout {
            Layout::Last => (image * positions + position) * channels + channel,
            Layout::First => (image * channels + channel) * positions + position,
        }
    }

    /// The result and its shape.
    pub fn forward(&self, x: &[f64], w: &[f64]) -> (Vec<f64>, Vec<usize>) {
        let size = |d: usize| {
            let room = self.input[d] + self.pads[d][0] + self.pads[d][1]
                - (self.kernel[d] - 1) * self.dilation[d]
                - 1;
            room / self.stride[d] + 1
        };
        let (out, results) = ([size(0), size(1), size(2)], self.results());
        let dims = self.dims(results, out);
        let mut y = vec![0.0; dims.iter().product()];
        for image in 0..BATCH {
            for o in positions(out) {
                for k in positions(self.kernel) {
                    let place = |d: usize| {
                        (o[d] * self.stride[d] + k[d] * self.dilation[d])
                            .wrapping_sub(self.pads[d][0])
                    };
                    let from = [place(0), place(1), place(2)];
                    if (0..3).any(|d| from[d] >= self.input[d]) {
                        continue;
                    }
                    let tap = (k[0] * self.kernel[1] + k[1]) * self.kernel[2] + k[2];
                    for result in 0..results {
                        let (first, column) = if self.depthwise() {
                            (result / self.filters, result % self.filters)
                        } else {
                            (result / (results * self.depth / self.channels) * self.depth, result)
                        };
                        for c in 0..self.depth {
                            // A depthwise filter is [tap][channel][column], others are
                            // [tap][depth][result].
                            let filter = if self.depthwise() {
                                (tap * self.channels + first) * self.filters + column
                            } else {
                                (tap * self.depth + c) * self.filters + column
                            };
                            y[self.at(results, out, image, result, o)] += x
                                [self.at(self.channels, self.input, image, first + c, from)]
                                * w[filter];
                        }
                    }
                }
            }
        }
        (y, dims)
    }

    /// The fused op's node with the attributes of the convolution.
    pub fn node(&self) -> Node {
        let list = |values: [usize; 3]| {
            let mut list = vec![1i64];
            list.extend(values[3 - self.spatial..].iter().map(|v| *v as i64));
            list.insert(self.axis(), 1);
            list
        };
        let (before, after) = (list(self.pads.map(|p| p[0])), list(self.pads.map(|p| p[1])));
        let mut pads: Vec<i64> = before.iter().zip(&after).flat_map(|(b, a)| [*b, *a]).collect();
        for d in [0, self.axis()] {
            pads[2 * d..2 * d + 2].fill(0);
        }
        let explicit = pads.iter().any(|p| *p > 0);
        Node::new(&format!("_WgpuFused{}", self.op))
            .attr("strides", &list(self.stride)[..])
            .attr("dilations", &list(self.dilation)[..])
            .attr("padding", if explicit { "EXPLICIT" } else { "VALID" })
            .attr("explicit_paddings", if explicit { &pads[..] } else { &[] })
            .attr(
                "data_format",
                match (self.spatial, self.layout) {
                    (2, Layout::Last) => "NHWC",
                    (2, Layout::First) => "NCHW",
                    (_, Layout::Last) => "NDHWC",
                    (_, Layout::First) => "NCDHW",
                },
            )
    }
}

fn positions(extents: [usize; 3]) -> impl Iterator<Item = [usize; 3]> {
    let [a, b, c] = extents;
    (0..a).flat_map(move |i| (0..b).flat_map(move |j| (0..c).map(move |k| [i, j, k])))
}
