//! A convolution and its products, one by one.

use tensorflow_wgpu::DType;
use tensorflow_wgpu::local::Node;

/// A convolution with three spatial dimensions. One with fewer has leading extents of 1.
#[derive(Debug, Clone)]
pub struct Case {
    pub op: &'static str,
    pub spatial: usize,
    pub last: bool,
    pub batch: usize,
    pub channels: usize,
    /// The number of channels that a filter reads.
    pub depth: usize,
    /// The filter's last dimension.
    pub filters: usize,
    pub input: [usize; 3],
    pub kernel: [usize; 3],
    pub stride: [usize; 3],
    pub dilation: [usize; 3],
    pub padding: &'static str,
    pub explicit: [[usize; 2]; 3],
}

impl Case {
    pub fn depthwise(&self) -> bool {
        self.op.starts_with("Depthwise")
    }

    pub fn out_channels(&self) -> usize {
        if self.depthwise() { self.channels * self.filters } else { self.filters }
    }

    /// Output extents and leading padding, by TensorFlow's documented formulas; None if there is no
    /// output.
    pub fn windows(&self) -> Option<([usize; 3], [usize; 3])> {
        let (mut out, mut pad) = ([0; 3], [0; 3]);
        for d in 0..3 {
            let effective = (self.kernel[d] - 1) * self.dilation[d] + 1;
            (out[d], pad[d]) = match self.padding {
                "SAME" => {
                    let out = self.input[d].div_ceil(self.stride[d]);
                    let needed =
                        ((out - 1) * self.stride[d] + effective).saturating_sub(self.input[d]);
                    (out, needed / 2)
                }
                _ => {
                    let [before, after] = self.explicit[d];
                    let room = (self.input[d] + before + after).checked_sub(effective)?;
                    (room / self.stride[d] + 1, before)
                }
            };
        }
        Some((out, pad))
    }

    pub fn shape(&self, channels: usize, extents: [usize; 3]) -> Vec<usize> {
        let mut dims = vec![self.batch];
        dims.extend(&extents[3 - self.spatial..]);
        dims.insert(if self.last { dims.len() } else { 1 }, channels);
        dims
    }

    pub fn filter_shape(&self) -> Vec<usize> {
        let mut dims = self.kernel[3 - self.spatial..].to_vec();
        dims.extend([self.depth, self.filters]);
        dims
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
        if self.last {
            (image * positions + position) * channels + channel
        } else {
            (image * channels + channel) * positions + position
        }
    }

    /// Calls `f(input element, filter element, output element)` for every product of the
    /// convolution.
    pub fn products(&self, mut f: impl FnMut(usize, usize, usize)) {
        let (out, pad) = self.windows().expect("an output");
        let filters = self.out_channels();
        for image in 0..self.batch {
            for o in positions(out) {
                for k in positions(self.kernel) {
                    let mut x = [0; 3];
                    let inside = (0..3).all(|d| {
                        let at =
                            (o[d] * self.stride[d] + k[d] * self.dilation[d]).checked_sub(pad[d]);
                        x[d] = at.unwrap_or(usize::MAX);
                        x[d] < self.input[d]
                    });
                    if !inside {
                        continue;
                    }
                    let tap = (k[0] * self.kernel[1] + k[1]) * self.kernel[2] + k[2];
                    for filter in 0..filters {
                        let y = self.at(filters, out, image, filter, o);
                        if self.depthwise() {
                            f(
                                self.at(self.channels, self.input, image, filter / self.filters, x),
                                tap * filters + filter,
                                y,
                            );
                            continue;
                        }
                        let groups = self.channels / self.depth;
                        let first = filter / (filters / groups) * self.depth;
                        for c in 0..self.depth {
                            let x = self.at(self.channels, self.input, image, first + c, x);
                            f(x, (tap * self.depth + c) * filters + filter, y);
                        }
                    }
                }
            }
        }
    }

    pub fn node(&self, suffix: &str, dtype: DType) -> Node {
        let list = |values: [usize; 3]| {
            let mut list = vec![1i64];
            list.extend(values[3 - self.spatial..].iter().map(|v| *v as i64));
            list.insert(if self.last { list.len() } else { 1 }, 1);
            list
        };
        let mut node = Node::new(&format!("{}{suffix}", self.op))
            .attr("T", dtype)
            .attr("strides", &list(self.stride)[..])
            .attr("dilations", &list(self.dilation)[..])
            .attr("padding", self.padding)
            .attr(
                "data_format",
                match (self.spatial, self.last) {
                    (2, true) => "NHWC",
                    (2, false) => "NCHW",
                    (_, true) => "NDHWC",
                    (_, false) => "NCDHW",
                },
            );
        if self.op == "Conv3D" {
            node = node.attr("Tshape", DType::I32);
        } else {
            let mut pads = vec![0i64; 2 * (self.spatial + 2)];
            if self.padding == "EXPLICIT" {
                for d in 3 - self.spatial..3 {
                    let at = d + self.spatial - 3 + if self.last { 1 } else { 2 };
                    pads[2 * at] = self.explicit[d][0] as i64;
                    pads[2 * at + 1] = self.explicit[d][1] as i64;
                }
            } else {
                pads.clear();
            }
            node = node.attr("explicit_paddings", &pads[..]);
        }
        node
    }
}

fn positions(extents: [usize; 3]) -> impl Iterator<Item = [usize; 3]> {
    let [a, b, c] = extents;
    (0..a).flat_map(move |i| (0..b).flat_map(move |j| (0..c).map(move |k| [i, j, k])))
}
