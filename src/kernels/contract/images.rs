//! Windows of images, for convolutions, pooling and patches whose images exceed one binding. A
//! window is a number of whole images. An image that does not fit by itself is cut into planes
//! where channels come first and do not see each other, else into slabs along the outermost spatial
//! dimension, with the rows of neighbouring slabs that they see.

use super::geometry::Geometry;
use crate::kernels::windows::{largest, ranges};

/// The tensor whose elements belong to one window each. Of the other tensor, a window has the
/// elements that these see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The input.
    Input,
    /// The input, with the whole pooling windows that its elements are in: gradients of pooling
    /// look at all elements of such a window.
    Surrounded,
    /// The output.
    Output,
}

/// A part of a convolution or pooling.
#[derive(Debug, Clone)]
pub struct Window {
    /// The shape of the part.
    pub geometry: Geometry,
    /// Where it begins in the input, in elements.
    pub input: usize,
    /// Where it begins in the output, in elements.
    pub output: usize,
    /// The first element and the number of those elements of its input that belong to it alone.
    pub own: (usize, usize),
}

impl Geometry {
    /// Elements of the input.
    pub fn inputs(&self) -> usize {
        self.batch * self.channels * self.input_positions()
    }

    /// Elements of the output.
    pub fn outputs(&self) -> usize {
        self.batch * self.filters * self.output_positions()
    }

    /// The largest windows for which `fits` holds, if there are any. `apart` tells that channels do
    /// not see each other.
    pub fn windows(
        &self,
        side: Side,
        apart: bool,
        fits: &dyn Fn(&Self) -> bool,
    ) -> Option<Vec<Window>> {
        let images = largest(self.batch, |n| fits(&self.of_images(n)));
        if images > 0 {
            return Some(self.image_windows(images));
        }
        let planes = apart && !self.channels_last;
        let count = if planes { largest(self.channels, |n| fits(&self.of_planes(n))) } else { 0 };
        let mut windows = Vec::new();
        if count > 0 {
            for (image, (first, n)) in
                (0..self.batch).flat_map(|i| ranges(self.channels, count).map(move |r| (i, r)))
            {
                let plane = image * self.channels + first;
                windows.push(
                    self.of_planes(n)
                        .at(plane * self.input_positions(), plane * self.output_positions()),
                );
            }
            return Some(windows);
        }
        let single = self.channels == 1 && self.filters == 1;
        if !self.channels_last && !planes && !single {
            return None;
        }
        let d = (0..2).find(|d| self.input[*d] > 1 || self.output[*d] > 1).unwrap_or(2);
        let whole = if planes { self.of_planes(1) } else { self.of_images(1) };
        let extent = if side == Side::Output { self.output[d] } else { self.input[d] };
        let count = largest(extent, |n| fits(&whole.largest_slab(side, d, n)));
        if count == 0 {
            return None;
        }
        let (row, to_row) = (whole.inputs() / self.input[d], whole.outputs() / self.output[d]);
        let wholes = if planes { self.batch * self.channels } else { self.batch };
        for (i, (first, n)) in (0..wholes).flat_map(|i| ranges(extent, count).map(move |r| (i, r)))
        {
            let mut slab = whole.clone();
            let (from, to) = match side {
                Side::Input => (first, slab.crop_input(d, first, n)),
                Side::Surrounded => slab.crop_surrounded(d, first, n),
                Side::Output => (slab.crop_output(d, first, n), first),
            };
            let mut window =
                slab.at(i * whole.inputs() + from * row, i * whole.outputs() + to * to_row);
            if side == Side::Surrounded {
                window.own = ((first - from) * row, n * row);
            }
            windows.push(window);
        }
        Some(windows)
    }

    /// Windows of `count` images.
    pub fn image_windows(&self, count: usize) -> Vec<Window> {
        let (from, to) = (self.inputs() / self.batch, self.outputs() / self.batch);
        ranges(self.batch, count)
            .map(|(first, n)| self.of_images(n).at(first * from, first * to))
            .collect()
    }

    fn of_images(&self, batch: usize) -> Self {
        Self { batch, ..self.clone() }
    }

    fn of_planes(&self, channels: usize) -> Self {
        Self {
            batch: 1,
            channels,
            filters: channels,
            groups: self.groups.min(channels),
            ..self.clone()
        }
    }

    /// The largest slab of `count` rows.
    fn largest_slab(&self, side: Side, d: usize, count: usize) -> Self {
        let mut slab = self.clone();
        let reach = (self.kernel[d] - 1) * self.dilation[d];
        match side {
            Side::Input => {
                slab.input[d] = count;
                slab.output[d] =
                    self.output[d].min((count - 1 + reach).div_ceil(self.stride[d]) + 1);
            }
            Side::Surrounded => {
                slab.output[d] =
                    self.output[d].min((count - 1 + reach).div_ceil(self.stride[d]) + 1);
                slab.input[d] = self.input[d].min(count + 2 * reach + self.stride[d] - 1);
            }
            Side::Output => {
                slab.output[d] = count;
                slab.input[d] = self.input[d].min((count - 1) * self.stride[d] + reach + 1);
            }
        }
        slab
    }

    fn at(self, input: usize, output: usize) -> Window {
        let own = (0, self.inputs());
        Window { geometry: self, input, output, own }
    }
}
