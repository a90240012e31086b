//! Formats, paddings and where they place windows: shared by convolutions and pooling.

use crate::error::{Error, Result};
use crate::kernels::op::Attrs;
use crate::tensor::Dims;
use crate::{invalid, require};

/// `data_format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Format {
    /// Number of spatial dimensions.
    pub spatial: usize,
    /// Whether channels are the innermost dimension.
    pub channels_last: bool,
}

impl Format {
    /// Reads the attribute; ops without it have channels last.
    pub fn read(attrs: &dyn Attrs, spatial: usize) -> Result<Self> {
        match attrs.string("data_format").as_deref() {
            Ok("NHWC" | "NDHWC") | Err(_) => Ok(Self { spatial, channels_last: true }),
            Ok("NCHW" | "NCDHW") => Ok(Self { spatial, channels_last: false }),
            Ok(_) => invalid!("Invalid data format"),
        }
    }

    /// Number of dimensions of input and output.
    pub const fn rank(self) -> usize {
        self.spatial + 2
    }

    /// Dimension of the channels.
    pub const fn channel(self) -> usize {
        if self.channels_last { self.spatial + 1 } else { 1 }
    }

    /// First spatial dimension.
    pub const fn first(self) -> usize {
        if self.channels_last { 1 } else { 2 }
    }

    /// The values of an attribute or shape for three spatial dimensions; `missing` leads where
    /// there are fewer.
    pub fn spatial<T: Copy>(self, values: &[T], missing: T) -> [T; 3] {
        let mut out = [missing; 3];
        out[3 - self.spatial..].copy_from_slice(&values[self.first()..self.first() + self.spatial]);
        out
    }

    /// A shape from its parts.
    pub fn shape(self, batch: usize, channels: usize, spatial: [usize; 3]) -> Dims {
        let mut dims = Dims::new();
        dims.push(batch);
        dims.extend_from_slice(&spatial[3 - self.spatial..]);
        dims.insert(self.channel(), channels);
        dims
    }
}

/// `padding` with `explicit_paddings`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Padding {
    /// One output for each stride in the input.
    Same,
    /// No padding.
    Valid,
    /// Before and after each of three spatial dimensions.
    Explicit([(usize, usize); 3]),
}

/// Extents are far below this; sums and products of a few of them stay far below 2^63.
const LIMIT: i64 = 1 << 30;

impl Padding {
    /// Reads the attributes.
    pub fn read(attrs: &dyn Attrs, format: Format) -> Result<Self> {
        let explicit = attrs.ints("explicit_paddings").unwrap_or_default();
        Self::parse(&attrs.string("padding")?, &explicit, format)
    }

    /// From the attributes' values.
    pub fn parse(padding: &str, explicit: &[i64], format: Format) -> Result<Self> {
        require!(
            padding == "EXPLICIT" || explicit.is_empty(),
            "explicit_paddings attribute must be empty if the padding attribute is not EXPLICIT"
        );
        match padding {
            "SAME" => Ok(Self::Same),
            "VALID" => Ok(Self::Valid),
            "EXPLICIT" => {
                let expected = 2 * format.rank();
                let given = explicit.len();
                require!(
                    given == expected,
                    "explicit_paddings attribute must contain {expected} values, but got: {given}"
                );
                require!(
                    explicit.iter().all(|p| (0..LIMIT).contains(p)),
                    "All elements of explicit_paddings must be nonnegative"
                );
                let pairs: Vec<_> =
                    explicit.chunks(2).map(|p| (p[0] as usize, p[1] as usize)).collect();
                require!(
                    pairs[0] == (0, 0) && pairs[format.channel()] == (0, 0),
                    "Nonzero explicit padding in the batch or depth dimensions is not supported"
                );
                Ok(Self::Explicit(format.spatial(&pairs, (0, 0))))
            }
            other => invalid!("Unknown padding type: {other}"),
        }
    }

    /// The output extents and the padding before the first element.
    pub fn windows(
        &self,
        input: [usize; 3],
        kernel: [usize; 3],
        stride: [usize; 3],
        dilation: [usize; 3],
    ) -> Result<([usize; 3], [usize; 3])> {
        let (mut outputs, mut pads) = ([1; 3], [0; 3]);
        for d in 0..3 {
            // A gradient's extents come from its shape argument, and may be up to 2^63 - 1.
            let [input, kernel, stride, dilation] =
                [input[d], kernel[d], stride[d], dilation[d]].map(|n| n as i128);
            let effective = (kernel - 1) * dilation + 1;
            require!(stride > 0, "Stride must be > 0, but got {stride}");
            let (output, pad) = match self {
                Self::Same => {
                    let output = (input + stride - 1) / stride;
                    (output, ((output - 1) * stride + effective - input).max(0) / 2)
                }
                Self::Valid => ((input - effective + stride) / stride, 0),
                Self::Explicit(pairs) => {
                    let (before, after) = (pairs[d].0 as i128, pairs[d].1 as i128);
                    ((input + before + after - effective + stride) / stride, before)
                }
            };
            require!(
                output >= 0,
                "Computed output size would be negative: {output} [input_size: {input}, \
                 effective_filter_size: {effective}, stride: {stride}]"
            );
            let of = |n: i128| usize::try_from(n).map_err(|_| too_large(input, effective));
            (outputs[d], pads[d]) = (of(output)?, of(pad)?);
        }
        Ok((outputs, pads))
    }
}

fn too_large(input: i128, effective: i128) -> Error {
    Error::InvalidArgument(format!(
        "an input of extent {input} is too large for a filter of extent {effective}"
    ))
}

/// The values of an attribute for the spatial dimensions, if they are positive.
pub(crate) fn positive(format: Format, values: &[i64]) -> Option<[usize; 3]> {
    let values = format.spatial(values, 1);
    values.iter().all(|v| (1..LIMIT).contains(v)).then(|| values.map(|v| v as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_padding_puts_the_odd_one_behind() {
        let (out, pad) = Padding::Same.windows([1, 5, 6], [1, 2, 3], [1, 1, 2], [1, 1, 1]).unwrap();
        assert_eq!((out, pad), ([1, 5, 3], [0, 0, 0]));
        let (out, pad) = Padding::Same.windows([1, 5, 5], [1, 4, 3], [1, 1, 1], [1, 1, 2]).unwrap();
        assert_eq!((out, pad), ([1, 5, 5], [0, 1, 2]));
    }

    #[test]
    fn extents_of_any_size_are_counted() {
        let largest = i64::MAX as usize;
        let windows =
            |padding: &Padding| padding.windows([1, 1, largest], [1, 1, 3], [1, 1, 2], [1; 3]);
        assert_eq!(windows(&Padding::Same).unwrap(), ([1, 1, 1 << 62], [0, 0, 1]));
        assert_eq!(windows(&Padding::Valid).unwrap().0, [1, 1, (1 << 62) - 1]);
        assert!(windows(&Padding::Explicit([(0, 0), (0, 0), (largest, largest)])).is_ok());
    }

    #[test]
    fn windows_that_do_not_fit_are_refused() {
        assert_eq!(
            Padding::Valid.windows([1, 2, 2], [1, 3, 1], [1; 3], [1; 3]).unwrap().0,
            [1, 0, 2]
        );
        let error = Padding::Valid.windows([1, 2, 2], [1, 4, 1], [1; 3], [1; 3]).unwrap_err();
        assert!(
            error.to_string().contains("Computed output size would be negative: -1 [input_size: 2"),
            "{error}"
        );
    }
}
