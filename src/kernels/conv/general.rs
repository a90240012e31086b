//! Conv: it has two or three spatial dimensions, which the input's rank tells, behind any number of
//! batch dimensions.

use super::attributes::{ConvAttributes, Family};
use super::dense;
use super::window::{Format, Padding, positive};
use crate::error::{Error, Result};
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::require;
use crate::tensor::Dims;

/// The node's attributes, which are checked when the rank is known.
pub(super) struct General {
    strides: Vec<i64>,
    dilations: Vec<i64>,
    padding: String,
    explicit: Vec<i64>,
    channels_last: bool,
    batch_dims: usize,
}

impl General {
    /// Reads the attributes.
    pub fn new(attrs: &dyn Attrs) -> Result<Self> {
        if attrs.int("groups")? != 1 {
            let message = "Grouped/Depthwise Convolutions are not supported yet.";
            return Err(Error::Unimplemented(message.to_owned()));
        }
        let batch_dims = attrs.int("batch_dims")?;
        Ok(Self {
            strides: attrs.ints("strides")?,
            dilations: attrs.ints("dilations").unwrap_or_default(),
            padding: attrs.string("padding")?,
            explicit: attrs.ints("explicit_paddings").unwrap_or_default(),
            channels_last: attrs.string("data_format")? == "CHANNELS_LAST",
            batch_dims: usize::try_from(batch_dims).map_err(|_| {
                Error::InvalidArgument(format!("batch_dims must be non-negative, got {batch_dims}"))
            })?,
        })
    }

    /// TensorFlow's checks, in its order and words.
    fn check(&self, input: &[usize], filter: &[usize]) -> Result<ConvAttributes> {
        let spatial = input.len() as i64 - 1 - self.batch_dims as i64;
        require!(
            matches!(spatial, 2 | 3),
            "The input must have 2 or 3 spatial dimensions but got {spatial}"
        );
        require!(
            !filter.contains(&0),
            "filter must not have zero elements (i.e. all dimensions must be non-zero)"
        );
        require!(
            matches!(filter.len(), 4 | 5),
            "The filter must be rank 4 or 5 but got {}",
            filter.len()
        );
        let format = Format { spatial: spatial as usize, channels_last: self.channels_last };
        let (rank, channel) = (format.rank(), format.channel());
        require!(
            filter.len() == rank,
            "The filter must have {spatial} spatial dimensions like the input but has rank {}",
            filter.len()
        );
        require!(
            self.strides.len() == rank,
            "Sliding window strides field must specify {rank} dimensions"
        );
        require!(
            self.strides[0] == 1 && self.strides[channel] == 1,
            "Current implementation does not support strides in the batch and depth dimensions."
        );
        let Some(stride) = positive(format, &self.strides) else {
            crate::invalid!("Spatial strides should be larger than 0.");
        };
        let dilations =
            if self.dilations.is_empty() { vec![1; rank] } else { self.dilations.clone() };
        require!(dilations.len() == rank, "Dilation rates field must specify{rank}dimensions");
        require!(
            dilations[0] == 1 && dilations[channel] == 1,
            "Current implementation does not support dilation rates in the batch and depth \
             dimensions."
        );
        let Some(dilation) = positive(format, &dilations) else {
            crate::invalid!("Dilated rates should be larger than 0.");
        };
        let padding = Padding::parse(&self.padding, &self.explicit, format)?;
        let depth = input[if self.channels_last { input.len() - 1 } else { self.batch_dims }];
        let filter_depth = filter[rank - 2];
        require!(
            depth == filter_depth,
            "Input depth must be equal to filter depth: {depth} vs {filter_depth}"
        );
        let family = if spatial == 2 { Family::CONV2D } else { Family::CONV3D };
        Ok(ConvAttributes::of(family, format, stride, dilation, padding))
    }
}

impl Kernel for General {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let (x, filter) = (ctx.input(0)?, ctx.input(1)?);
        let attributes = self.check(&x.dims, &filter.dims)?;
        let (batch, image) = x.dims.split_at(self.batch_dims);
        let flat: Dims =
            std::iter::once(batch.iter().product()).chain(image.iter().copied()).collect();
        let (g, result) = attributes.forward(&flat, &filter.dims)?;
        let dims: Dims = batch.iter().chain(&result[1..]).copied().collect();
        let Some(y) = ctx.some_output(0, x.dtype, &dims)? else { return Ok(()) };
        let operands = [&x.reshaped(&flat), &filter, &y.reshaped(&result)];
        dense::forward(&ctx.device().profile(), &g, operands, None)?.enqueue(ctx)
    }
}
