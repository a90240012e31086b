//! Convolutions of few channels and the gradients of their inputs, on software adapters whose
//! subgroups share loads.
//!
//! A contraction loads their input element by element, and has a column for each channel of the
//! gradient, which leaves most lanes without work. Here an element is loaded once for all columns
//! of the window. Texts are unrolled over a window's columns, its stride along them, and channels;
//! everything else is a parameter.

mod forward;
mod input;

use crate::device::Device;
use crate::dtype::DType;
use crate::kernels::contract::Contraction;
use crate::kernels::contract::geometry::Geometry;
use crate::kernels::windows::limit;
use crate::shader::Shader;
use crate::tensor::Tensor;
pub(super) use forward::{forward, fused};
pub(super) use input::backprop_input;

/// Most channels.
const CHANNELS: usize = 4;
/// Most elements of a row of the window, which bounds the text.
const ELEMENTS: usize = 36;

/// What a text is unrolled over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Window {
    /// Columns of the window.
    kernel: u32,
    /// Stride along them.
    stride: u32,
    channels: u32,
}

impl Window {
    /// The text for a convolution, if it is one of those that there are texts for.
    fn of(device: &Device, g: &Geometry, operands: [&Tensor; 3]) -> Option<Self> {
        let limit = limit(device);
        let fits = device.profile().shares_loads()
            && g.channels_last
            && g.groups == 1
            && g.spatial_class() == 2
            && g.dilation == [1; 3]
            && g.channels <= CHANNELS
            && g.filters.is_multiple_of(4)
            && g.kernel[2] * g.channels <= ELEMENTS
            && g.stride[2] <= CHANNELS
            && g.taps() * g.filters.max(g.channels)
                <= Contraction::LONGEST_WHOLE.min(device.profile().loop_limit)
            && operands.iter().all(|t| t.dtype == DType::F32 && t.bytes() <= limit);
        let window = Self {
            kernel: g.kernel[2] as u32,
            stride: g.stride[2] as u32,
            channels: g.channels as u32,
        };
        fits.then_some(window)
    }

    /// Elements of a row of the window.
    const fn elements(self) -> u32 {
        self.kernel * self.channels
    }
}

/// Whether four elements at a time may be loaded from, or stored to, a tensor.
fn vec4s(t: &Tensor) -> bool {
    t.address.is_multiple_of(16)
}

/// Texts for common windows, and the smallest and largest ones.
pub(super) fn shaders() -> Vec<Shader> {
    let windows =
        [(1, 1, 1), (3, 1, 3), (3, 2, 3), (5, 2, 1), (7, 2, 3), (2, 4, 4), (9, 1, 4), (11, 4, 3)];
    let windows =
        windows.into_iter().map(|(kernel, stride, channels)| Window { kernel, stride, channels });
    windows.flat_map(|window| [input::shader(window), forward::shader(window, None)]).collect()
}
