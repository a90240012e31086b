//! The shape of a convolution or pooling, with any number of spatial dimensions up to three.

use crate::device::Params;
use crate::shader::Shader;

/// Extents of a convolution, spatial ones outermost first; missing spatial dimensions lead with extent 1.
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

    /// 2 when the outermost spatial dimension is trivial, else 3: shaders leave a trivial one out.
    pub fn spatial_class(&self) -> usize {
        let trivial = self.input[0] == 1 && self.output[0] == 1 && self.kernel[0] == 1 && self.pad[0] == 0;
        if trivial { 2 } else { 3 }
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
            for list in [&self.input, &self.output, &self.kernel, &self.stride, &self.dilation, &self.pad] {
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
