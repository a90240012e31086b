//! The attributes of a pooling node, checked in TensorFlow's words.

use crate::error::{Error, Result};
use crate::kernels::contract::geometry::Geometry;
use crate::kernels::conv::window::{Format, Padding, positive};
use crate::kernels::op::{Attrs, OpContext, OpContextExt};
use crate::require;

/// The format and padding of a node, and its windows if they are attributes.
#[derive(Debug)]
pub(super) struct PoolAttributes {
    /// Where channels are.
    pub format: Format,
    padding: Padding,
    maximum: bool,
    windows: Option<Windows>,
}

#[derive(Debug, Clone)]
struct Windows {
    kernel: [usize; 3],
    stride: [usize; 3],
}

impl PoolAttributes {
    /// Reads the attributes. `fixed` tells that ksize and strides are attributes.
    pub fn read(attrs: &dyn Attrs, spatial: usize, maximum: bool, fixed: bool) -> Result<Self> {
        let format = Format::read(attrs, spatial)?;
        let mut attributes =
            Self { format, padding: Padding::read(attrs, format)?, maximum, windows: None };
        if fixed {
            attributes.windows =
                Some(attributes.check(&attrs.ints("ksize")?, &attrs.ints("strides")?)?);
        }
        Ok(attributes)
    }

    fn check(&self, ksize: &[i64], strides: &[i64]) -> Result<Windows> {
        let (rank, channel, spatial) =
            (self.format.rank(), self.format.channel(), self.format.spatial);
        require!(ksize.len() == rank, "Sliding window ksize field must specify {rank} dimensions");
        require!(
            strides.len() == rank,
            "Sliding window strides field must specify {rank} dimensions"
        );
        let list = |v: &[i64]| v.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
        require!(
            ksize.iter().all(|k| *k > 0),
            "Sliding window ksize must be positive. The specified or inferred ksize is: {}",
            list(ksize)
        );
        let unimplemented = |m: &str| Err(Error::Unimplemented(m.to_owned()));
        let across = |d: usize| ksize[d] != 1 || strides[d] != 1;
        if spatial == 3 && (across(0) || across(channel)) {
            return unimplemented(
                "Pooling is not yet supported on the batch nor channel dimension.",
            );
        }
        if across(0) {
            return unimplemented("Pooling is not yet supported on the batch dimension.");
        }
        if across(channel) {
            return unimplemented(if self.maximum {
                "Depthwise max pooling is currently only implemented for CPU devices."
            } else {
                "Non-spatial pooling is not yet supported. Volunteers? :)"
            });
        }
        let smallest = self.format.spatial(strides, 1).into_iter().min().unwrap_or(1);
        require!(smallest > 0, "Stride must be > 0, but got {smallest}");
        let (Some(kernel), Some(stride)) =
            (positive(self.format, ksize), positive(self.format, strides))
        else {
            crate::invalid!(
                "Sliding window ksize {} or strides {} too large",
                list(ksize),
                list(strides)
            );
        };
        if let Padding::Explicit(pairs) = &self.padding {
            for (d, (before, after)) in [(1, ("Top", "Bottom")), (2, ("Left", "Right"))] {
                for (name, pad) in [(before, pairs[d].0), (after, pairs[d].1)] {
                    require!(
                        pad < kernel[d],
                        "{name} padding {pad} needs to be smaller than the window size {}",
                        kernel[d]
                    );
                }
            }
        }
        Ok(Windows { kernel, stride })
    }

    /// The geometry for an input of shape `dims`; `sizes` is the first of the two host inputs with
    /// ksize and strides, for nodes that have them as inputs.
    pub fn geometry(
        &self,
        ctx: &mut dyn OpContext,
        dims: &[usize],
        sizes: usize,
    ) -> Result<Geometry> {
        let windows = match &self.windows {
            Some(w) => w.clone(),
            None => self.check(&ctx.host_i64s(sizes)?, &ctx.host_i64s(sizes + 1)?)?,
        };
        let format = self.format;
        require!(
            dims.len() == format.rank(),
            "tensor_in_shape must have {} spatial dimensions. {} {}",
            format.spatial,
            dims.len(),
            u32::from(!format.channels_last)
        );
        let input = format.spatial(dims, 1);
        let (output, pad) = self.padding.windows(input, windows.kernel, windows.stride, [1; 3])?;
        let channels = dims[format.channel()];
        Ok(Geometry {
            batch: dims[0],
            channels,
            filters: channels,
            groups: 1,
            input,
            output,
            kernel: windows.kernel,
            stride: windows.stride,
            dilation: [1; 3],
            pad,
            channels_last: format.channels_last,
        })
    }
}
