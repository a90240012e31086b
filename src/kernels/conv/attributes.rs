//! The attributes of a convolution's node, checked in TensorFlow's words, and the geometry that
//! follows from them and the shapes.

use super::window::{Format, Padding, positive};
use crate::error::{Error, Result};
use crate::kernels::contract::geometry::Geometry;
use crate::kernels::op::Attrs;
use crate::tensor::{Dims, shape_text};
use crate::{invalid, require};

/// How the channels of input and output belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChannelGrouping {
    /// The filter's second-last dimension divides the input's channels.
    Grouped,
    /// Each input channel has filters of its own.
    Depthwise,
}

/// The properties that an op shares with its gradients.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Family {
    spatial: usize,
    /// How channels belong together.
    pub grouping: ChannelGrouping,
    /// The names with which TensorFlow's messages about the gradients of input and of filter begin.
    input_class: &'static str,
    filter_class: &'static str,
}

impl Family {
    /// Conv2D.
    pub const CONV2D: Self = Self {
        spatial: 2,
        grouping: ChannelGrouping::Grouped,
        input_class: "Conv2DBackpropInput",
        filter_class: "Conv2DBackpropFilter",
    };
    /// Conv3D.
    pub const CONV3D: Self = Self {
        spatial: 3,
        grouping: ChannelGrouping::Grouped,
        input_class: "Conv3DBackpropInputOp",
        filter_class: "Conv3DBackpropFilterOp",
    };
    /// DepthwiseConv2dNative.
    pub const DEPTHWISE: Self = Self {
        spatial: 2,
        grouping: ChannelGrouping::Depthwise,
        input_class: "DepthwiseConv2DBackpropInput",
        filter_class: "DepthwiseConv2DBackpropFilter",
    };

    /// Whether this is Conv2D, whose messages differ from the others'.
    fn is_conv2d(self) -> bool {
        self.spatial == 2 && self.grouping == ChannelGrouping::Grouped
    }

    /// The message about sizes that are not a vector.
    pub fn sizes_message(self, input: bool, dims: &[usize]) -> String {
        let (class, name) = if input {
            (self.input_class, "input_sizes")
        } else {
            (self.filter_class, "filter_sizes")
        };
        format!("{class}: {name} input must be 1-dim, not {}", dims.len())
    }
}

/// The attributes of a convolution or of one of its gradients.
#[derive(Debug)]
pub(crate) struct ConvAttributes {
    /// The op's family.
    pub family: Family,
    format: Format,
    stride: [usize; 3],
    dilation: [usize; 3],
    padding: Padding,
}

impl ConvAttributes {
    /// Reads and checks the attributes.
    pub fn read(attrs: &dyn Attrs, family: Family) -> Result<Self> {
        let format = Format::read(attrs, family.spatial)?;
        let (rank, channel) = (format.rank(), format.channel());
        let strides = attrs.ints("strides")?;
        require!(
            strides.len() == rank,
            "Sliding window strides field must specify {rank} dimensions"
        );
        let dilations =
            attrs.ints("dilations").ok().filter(|d| !d.is_empty()).unwrap_or_else(|| vec![1; rank]);
        require!(
            dilations.len() == rank,
            "Sliding window dilations field must specify {rank} dimensions"
        );
        let outside = |what: &str| {
            let message = format!(
                "Current implementation does not yet support {what} in the batch and depth \
                 dimensions."
            );
            if family.is_conv2d() {
                Error::Unimplemented(message)
            } else {
                Error::InvalidArgument(message)
            }
        };
        if strides[0] != 1 || strides[channel] != 1 {
            return Err(outside("strides"));
        }
        let axes = if family.spatial == 3 { "Spatial" } else { "Row and column" };
        let Some(stride) = positive(format, &strides) else {
            invalid!("{axes} strides should be larger than 0.")
        };
        if dilations[0] != 1 || dilations[channel] != 1 {
            return Err(outside("dilations"));
        }
        let Some(dilation) = positive(format, &dilations) else {
            invalid!("Dilated rates should be larger than 0.")
        };
        require!(
            family.grouping == ChannelGrouping::Grouped || stride[1] == stride[2],
            "Current implementation only supports equal length strides in the row and column \
             dimensions."
        );
        Ok(Self { family, format, stride, dilation, padding: Padding::read(attrs, format)? })
    }

    /// Attributes that have been checked already.
    pub const fn of(
        family: Family,
        format: Format,
        stride: [usize; 3],
        dilation: [usize; 3],
        padding: Padding,
    ) -> Self {
        Self { family, format, stride, dilation, padding }
    }

    /// The dimension of the channels of input and output.
    pub const fn channel_axis(&self) -> usize {
        self.format.channel()
    }

    /// Geometry and output shape of the forward op.
    pub fn forward(&self, input: &[usize], filter: &[usize]) -> Result<(Geometry, Dims)> {
        let rank = self.format.rank();
        let subject = if self.family.is_conv2d() { "convolution " } else { "" };
        require!(
            input.len() == rank,
            "{subject}input must be {rank}-dimensional: {}",
            shape_text(input)
        );
        require!(
            filter.len() == rank,
            "{subject}filter must be {rank}-dimensional: {}",
            shape_text(filter)
        );
        let (depth, filter_depth) = (input[self.format.channel()], filter[rank - 2]);
        if self.family.grouping == ChannelGrouping::Depthwise {
            require!(
                depth == filter_depth,
                "input and filter must have the same depth: {depth} vs {filter_depth}"
            );
        } else {
            require!(filter_depth > 0, "filter depth must be stricly positive, got {filter_depth}");
            let input_name = if self.family.spatial == 3 { "Input" } else { "input" };
            require!(
                depth.is_multiple_of(filter_depth),
                "{input_name} depth must be evenly divisible by filter depth: {depth} vs \
                 {filter_depth}"
            );
            require!(
                !filter[..rank - 2].contains(&0),
                "filter must not have zero elements (i.e. all dimensions must be non-zero)"
            );
            let (groups, filters) = (depth / filter_depth, filter[rank - 1]);
            require!(
                groups == 0 || filters.is_multiple_of(groups),
                "output depth must be evenly divisible by number of groups: {filters} vs {groups}"
            );
        }
        let g = self.geometry(input, filter)?;
        let dims = self.format.shape(g.batch, g.filters, g.output);
        Ok((g, dims))
    }

    /// The input's shape from `input_sizes`, which for Conv2D may hold the spatial extents alone.
    pub fn input_dims(&self, sizes: &[i64], filter: &[usize], dy: &[usize]) -> Result<Dims> {
        let rank = self.format.rank();
        let class = self.family.input_class;
        require!(filter.len() == rank, "{class}: filter must be {rank}-dimensional");
        require!(dy.len() == rank, "{class}: out_backprop must be {rank}-dimensional");
        let sizes = extents(sizes)?;
        if self.family.is_conv2d() {
            if let [height, width] = sizes[..] {
                return Ok(self.format.shape(dy[0], filter[rank - 2], [1, height, width]));
            }
            let given = sizes.len();
            require!(
                given == rank,
                "{class} requires input_sizes to contain 4 values or 2 values, but got: {given}"
            );
        }
        require!(sizes.len() == rank, "{class}: input must be {rank}-dimensional");
        Ok(sizes)
    }

    /// The filter's shape from `filter_sizes`.
    pub fn filter_dims(&self, sizes: &[i64]) -> Result<Dims> {
        let rank = self.format.rank();
        require!(
            sizes.len() == rank,
            "{}: filter must be {rank}-dimensional",
            self.family.filter_class
        );
        extents(sizes)
    }

    /// Geometry of a gradient from the shapes of input, filter and the output's gradient.
    pub fn backward(
        &self,
        input: &[usize],
        filter: &[usize],
        dy: &[usize],
        of_input: bool,
    ) -> Result<Geometry> {
        let class = if of_input { self.family.input_class } else { self.family.filter_class };
        let (rank, channel) = (self.format.rank(), self.format.channel());
        for (name, dims) in [("input", input), ("filter", filter), ("out_backprop", dy)] {
            require!(dims.len() == rank, "{class}: {name} must be {rank}-dimensional");
        }
        require!(
            input[0] == dy[0],
            "{class}: input and out_backprop must have the same batch size. Input batch: {}, \
             outbackprop batch: {}, batch_dim: 0",
            input[0],
            dy[0]
        );
        let (depth, filter_depth, filters) = (input[channel], filter[rank - 2], filter[rank - 1]);
        if self.family.grouping == ChannelGrouping::Depthwise {
            require!(
                depth == filter_depth,
                "{class}: input and filter must have the same in_depth"
            );
            require!(
                depth * filters == dy[channel],
                "{class}: depth_multiplier * in_depth not equal to out_depth"
            );
        } else {
            require!(
                depth == 0 || (filter_depth > 0 && depth.is_multiple_of(filter_depth)),
                "{class}: input depth must be evenly divisible by filter depth"
            );
            require!(
                filters == dy[channel],
                "{class}: filter and out_backprop must have the same out_depth"
            );
            let groups = depth / filter_depth.max(1);
            require!(
                groups == 0 || filters.is_multiple_of(groups),
                "{class}: output depth must be evenly divisible by number of groups: {filters} vs \
                 {groups}"
            );
        }
        let g = self.geometry(input, filter)?;
        let first = self.format.first();
        for (d, &actual) in
            self.format.spatial(dy, 1).iter().enumerate().skip(3 - self.family.spatial)
        {
            let (computed, input, filter) = (g.output[d], g.input[d], g.kernel[d]);
            require!(
                actual == computed,
                "{class}: Size of out_backprop doesn't match computed: actual = {actual}, \
                 computed = {computed} spatial_dim: {} input: {input} filter: {filter} output: \
                 {actual} stride: {} dilation: {}",
                d + first + self.family.spatial - 3,
                g.stride[d],
                g.dilation[d]
            );
        }
        Ok(g)
    }

    fn geometry(&self, input: &[usize], filter: &[usize]) -> Result<Geometry> {
        let rank = self.format.rank();
        let mut kernel = [1; 3];
        kernel[3 - self.family.spatial..].copy_from_slice(&filter[..rank - 2]);
        let spatial = self.format.spatial(input, 1);
        let (output, pad) = self.padding.windows(spatial, kernel, self.stride, self.dilation)?;
        let channels = input[self.format.channel()];
        let (filters, groups) = match self.family.grouping {
            ChannelGrouping::Depthwise => (channels * filter[rank - 1], channels),
            ChannelGrouping::Grouped => (filter[rank - 1], channels / filter[rank - 2].max(1)),
        };
        Ok(Geometry {
            batch: input[0],
            channels,
            filters,
            groups: groups.max(1),
            input: spatial,
            output,
            kernel,
            stride: self.stride,
            dilation: self.dilation,
            pad,
            channels_last: self.format.channels_last,
        })
    }
}

/// A shape from a host tensor.
fn extents(sizes: &[i64]) -> Result<Dims> {
    sizes
        .iter()
        .map(|s| {
            usize::try_from(*s)
                .map_err(|_| Error::InvalidArgument(format!("Dimension {s} must be >= 0")))
        })
        .collect()
}
