//! The shape of a convolution or pooling, with any number of spatial dimensions up to three.

use crate::device::Params;
use crate::shader::Shader;

/// Extents of a convolution, spatial ones outermost first; missing spatial dimensions lead with
/// extent 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Geometry {
    /// Images.
    pub batch: usize,
    /// Channels of the input.
    pub channels: usize,
    /// Channels of the output.
    pub filters: usize,
    /// Groups of channels that do not see each other.
    pub groups: usize,
    /// Spatial extents of the input.
    pub input: [usize; 3],
    /// Spatial extents of the output.
    pub output: [usize; 3],
    /// Spatial extents of the kernel.
    pub kernel: [usize; 3],
    /// Strides.
    pub stride: [usize; 3],
    /// Dilations.
    pub dilation: [usize; 3],
    /// Padding before the first element.
    pub pad: [usize; 3],
    /// Whether channels are the innermost dimension of input and output.
    pub channels_last: bool,
}

impl Geometry {
    /// Positions of the input in an image.
    pub fn input_positions(&self) -> usize {
        self.input.iter().product()
    }

    /// Positions of the output in an image.
    pub fn output_positions(&self) -> usize {
        self.output.iter().product()
    }

    /// Positions of the kernel.
    pub fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Pairs of an output and an element of its window.
    pub fn pooled(&self) -> usize {
        self.batch * self.channels * self.output_positions() * self.taps()
    }

    /// 2 if the outermost spatial dimension is trivial, else 3: shaders leave a trivial one out.
    pub fn spatial_class(&self) -> usize {
        let trivial =
            self.input[0] == 1 && self.output[0] == 1 && self.kernel[0] == 1 && self.pad[0] == 0;
        if trivial { 2 } else { 3 }
    }

    /// Padding in front. It may be negative after an image or a kernel is cropped; the shaders'
    /// sums of u32 then wrap as needed.
    const fn padding(&self, d: usize) -> i64 {
        self.pad[d] as u32 as i32 as i64
    }

    const fn set_padding(&mut self, d: usize, pad: i64) {
        self.pad[d] = pad as i32 as u32 as usize;
    }

    /// Keeps `count` kernel positions from `first` on along dimension `d`.
    pub fn crop_kernel(&mut self, d: usize, first: usize, count: usize) {
        let pad = self.padding(d) - (first * self.dilation[d]) as i64;
        self.kernel[d] = count;
        self.set_padding(d, pad);
    }

    /// How far a window's last position lies behind its first one.
    const fn reach(&self, d: usize) -> i64 {
        ((self.kernel[d] - 1) * self.dilation[d]) as i64
    }

    /// Keeps `count` output positions from `first` on along dimension `d`, and the input positions
    /// that they see. Returns the first of those.
    pub fn crop_output(&mut self, d: usize, first: usize, count: usize) -> usize {
        let start = (first * self.stride[d]) as i64 - self.padding(d);
        let end = start + ((count - 1) * self.stride[d]) as i64 + self.reach(d) + 1;
        let low = start.clamp(0, self.input[d] as i64 - 1);
        let high = end.clamp(low + 1, self.input[d] as i64);
        (self.input[d], self.output[d]) = ((high - low) as usize, count);
        self.set_padding(d, low - start);
        low as usize
    }

    /// Keeps `count` input positions from `first` on along dimension `d`, and the output positions
    /// that see them. Returns the first of those.
    pub fn crop_input(&mut self, d: usize, first: usize, count: usize) -> usize {
        let (start, stride) = (first as i64 + self.padding(d), self.stride[d] as i64);
        let low = (start - self.reach(d)).div_euclid(stride).clamp(0, self.output[d] as i64 - 1);
        let high = (start + count as i64 - 1).div_euclid(stride) + 1;
        let high = high.clamp(low + 1, self.output[d] as i64);
        (self.input[d], self.output[d]) = (count, (high - low) as usize);
        self.set_padding(d, start - low * stride);
        low as usize
    }

    /// [`Geometry::crop_input`] with all input positions that the remaining output positions see;
    /// returns the first ones of both.
    pub fn crop_surrounded(&mut self, d: usize, first: usize, count: usize) -> (usize, usize) {
        let (pad, end) = (self.padding(d), self.input[d]);
        let whole_reach = self.reach(d);
        let low = self.crop_input(d, first, count);
        let start = (low * self.stride[d]) as i64 - pad;
        let last = start + ((self.output[d] - 1) * self.stride[d]) as i64 + whole_reach;
        let from = (start.max(0) as usize).min(first);
        let behind = (first + count).max(end.min((last + 1).max(0) as usize));
        self.input[d] = behind - from;
        self.set_padding(d, from as i64 - start);
        (from, low)
    }

    /// Declares the parameters of [`Geometry::patch_params`] and its two siblings.
    pub(super) fn declare(mut shader: Shader, spatial: usize, window: bool) -> Shader {
        for d in 3 - spatial..3 {
            for name in ["in", "out", "kernel", "stride", "dilation", "pad"] {
                shader = shader.u32s(&[&format!("{name}{d}")]);
            }
        }
        shader = shader.u32s(&["pixel", "image"]);
        if window { shader.u32s(&["channels", "channel_step"]) } else { shader }
    }

    fn params(&self, mut params: Params) -> Params {
        for d in 3 - self.spatial_class()..3 {
            for list in
                [&self.input, &self.output, &self.kernel, &self.stride, &self.dilation, &self.pad]
            {
                params = params.u32(list[d]);
            }
        }
        params
    }

    fn places(&self, params: Params, channels: usize, positions: usize) -> Params {
        params.u32(if self.channels_last { channels } else { 1 }).u32(channels * positions)
    }

    /// Parameters of rows that are output positions and read the input.
    pub(super) fn patch_params(&self, params: Params) -> Params {
        self.places(self.params(params), self.channels, self.input_positions())
    }

    /// Parameters of rows that are input positions and read the output's gradient.
    pub(super) fn spread_params(&self, params: Params) -> Params {
        self.places(self.params(params), self.filters, self.output_positions())
    }

    /// Parameters of rows that are kernel positions and channels and read the input.
    pub(super) fn window_params(&self, params: Params) -> Params {
        let step = if self.channels_last { 1 } else { self.input_positions() };
        self.patch_params(params).u32(self.channels / self.groups).u32(step)
    }
}
