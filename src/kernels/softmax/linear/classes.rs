//! The weights of the classes: products with a part of them, and the weights of single classes.

use std::sync::Arc;

use super::LINEAR_CROSS_ENTROPY;
use crate::dtype::DType::{self, *};
use crate::error::Result;
use crate::kernels::contract::Contraction;
use crate::kernels::contract::weights::{CodePacking, Decoder, QuantizedWeights};
use crate::kernels::expression::Expression;
use crate::kernels::fused::elementwise::ElementwiseProgram;
use crate::kernels::fused::rowwise::RowKernel;
use crate::kernels::gather::index::Indices;
use crate::kernels::gather::rows::Gather;
use crate::kernels::movement::rearrange::permuted;
use crate::kernels::movement::walk::copy_strided;
use crate::kernels::op::{Attrs, OpContext};
use crate::kernels::windows::{Scratch, limit, part, ranges};
use crate::layout::dense_strides;
use crate::require;
use crate::shader::Shader;
use crate::tensor::{Tensor, shape_text};

/// The most rows of an identity matrix.
const BLOCK: usize = 64;

/// How the weights lie in memory.
pub(super) struct Layout {
    /// The type of the products' operands.
    dtype: DType,
    /// Whether a class is a row of the weights, not a column.
    by_rows: bool,
    quantized: Option<Quantized>,
}

/// How quantized weights are decoded.
struct Quantized {
    decoder: Arc<Decoder>,
    packing: CodePacking,
    /// The number of codes in the packed dimension.
    extent: usize,
    /// The numbers from 0 on, as a row.
    numbers: RowKernel,
    /// An identity matrix, from the numbers as a row and as a column.
    identity: ElementwiseProgram,
}

/// The weights of one execution. The first extent of `extents` counts classes.
pub(super) struct Classes<'a> {
    layout: &'a Layout,
    tensor: Tensor,
    /// Their decoder, with columns as the contracted index.
    weights: Option<QuantizedWeights>,
    pub extents: [usize; 2],
}

impl Layout {
    /// Reads the node's attributes.
    pub fn read(attrs: &dyn Attrs) -> Result<Self> {
        let (dtype, weights) = (attrs.dtype("T")?, attrs.dtype("T_weights")?);
        let by_rows = attrs.bool("adj_y")?;
        if dtype == weights {
            return Ok(Self::dense(dtype, by_rows));
        }
        let fits = by_rows && matches!(weights, I8 | U8);
        require!(fits, "{LINEAR_CROSS_ENTROPY}: weights of {weights} for operands of {dtype}");
        let (decoder, packing) = (attrs.string("decoder")?, attrs.string("packing")?);
        let extent = usize::try_from(attrs.int("extent")?).unwrap_or(0);
        let quantized = Quantized::new(dtype, &decoder, &packing, extent)?;
        Ok(Self { dtype, by_rows, quantized: Some(quantized) })
    }

    pub const fn dense(dtype: DType, by_rows: bool) -> Self {
        Self { dtype, by_rows, quantized: None }
    }

    /// Weights of an int8 for each element, as a sample.
    pub fn sample(dtype: DType) -> Result<Self> {
        Ok(Self {
            dtype,
            by_rows: true,
            quantized: Some(Quantized::new(dtype, "* r", "bytes", 0)?),
        })
    }

    /// The number of tensors that decode the weights.
    pub fn parameters(&self) -> usize {
        self.quantized.as_ref().map_or(0, |quantized| quantized.decoder.parameters())
    }

    /// The type of [`Classes::own`].
    pub fn own(&self) -> DType {
        if self.quantized.is_some() { F32 } else { self.dtype }
    }

    pub fn shaders(&self) -> Vec<Shader> {
        let own = self.quantized.iter();
        own.flat_map(|q| [q.numbers.shaders(), q.identity.shaders()].concat()).collect()
    }

    /// The weights in `tensor`, with the tensors that decode them.
    pub fn classes(&self, tensor: Tensor, parameters: &[Tensor]) -> Result<Classes<'_>> {
        let shape = shape_text(&tensor.dims);
        let &[a, b] = &tensor.dims[..] else {
            crate::invalid!("{LINEAR_CROSS_ENTROPY}: weights of shape {shape}");
        };
        let Some(Quantized { decoder, packing, extent, .. }) = &self.quantized else {
            let extents = if self.by_rows { [a, b] } else { [b, a] };
            return Ok(Classes { layout: self, tensor, weights: None, extents });
        };
        let properties = (*packing, decoder, *extent);
        let types = (self.dtype, true);
        let weights = QuantizedWeights::new(properties, &tensor.dims, parameters, types)?;
        let [depth, classes] = weights.matrix();
        let extents = [classes, depth];
        Ok(Classes { layout: self, tensor, weights: Some(weights), extents })
    }
}

impl Quantized {
    fn new(dtype: DType, decoder: &str, packing: &str, extent: usize) -> Result<Self> {
        let numbers = "full: x: float32, uint32; c: 0; s0 = Cast<uint32, float32>(x1); return s0 | \
                       return y0";
        let numbers = RowKernel::new("numbers", numbers.parse()?, Vec::new(), vec![-1]);
        let mut identity = Expression::new();
        let [row, column] = [F32; 2].map(|dtype| identity.input(dtype));
        let [zero, one] = [(); 2].map(|()| identity.constant());
        let is_diagonal = identity.call("Equal", F32, &[row, column])?;
        let element = identity.call("SelectV2", F32, &[is_diagonal, one, zero])?;
        let element = identity.cast(element, dtype)?;
        identity.output(element);
        Ok(Self {
            decoder: Arc::new(decoder.parse()?),
            packing: packing.parse()?,
            extent,
            numbers: numbers.with_columns(),
            identity: ElementwiseProgram::new(identity)?,
        })
    }

    /// An identity matrix of `n` rows.
    fn identity(&self, ctx: &mut dyn OpContext, dtype: DType, n: usize) -> Result<Tensor> {
        // The program reads nothing but the extents of its input.
        let [any, numbers] = [ctx.temp(F32, &[1, n])?, ctx.temp(F32, &[1, n])?];
        self.numbers.enqueue(ctx.device(), &[any], std::slice::from_ref(&numbers))?;
        let identity = ctx.temp(dtype, &[n, n])?;
        let column = numbers.reshaped(&[n, 1]);
        let outputs = std::slice::from_ref(&identity);
        self.identity.run(ctx.device(), &[numbers, column], outputs, &[0.0, 1.0])?;
        Ok(identity)
    }
}

impl Classes<'_> {
    /// The logits `c` of `count` classes from the class `first` on, for rows of `x`.
    pub fn logits(&self, [first, count]: [usize; 2], x: &Tensor, c: &Tensor) -> Contraction {
        let [classes, depth] = self.extents;
        if let Some(weights) = &self.weights {
            let (codes, own) = weights.part(&self.tensor, [0, first], [depth, count]);
            return Contraction::product([x.dims[0], depth, count], [x, &codes, c]).quantized(own);
        }
        let b = self.part(first, count);
        let product = Contraction::product([x.dims[0], depth, count], [x, &b, c]);
        match self.layout.by_rows {
            true => product.transposed([false, true]),
            false => product.strided([depth, classes, count], [false, false]),
        }
    }

    /// The sum `c` of the weights of `count` classes from the class `first` on, weighted by the
    /// rows of `shares`.
    pub fn sums(&self, [first, count]: [usize; 2], shares: &Tensor, c: &Tensor) -> Contraction {
        let [classes, depth] = self.extents;
        let extents = [shares.dims[0], count, depth];
        if let Some(weights) = &self.weights {
            let mut by_rows = weights.clone();
            by_rows.by_columns = false;
            let (codes, own) = by_rows.part(&self.tensor, [first, 0], [count, depth]);
            return Contraction::product(extents, [shares, &codes, c]).quantized(own);
        }
        let b = self.part(first, count);
        let product = Contraction::product(extents, [shares, &b, c]);
        match self.layout.by_rows {
            true => product,
            false => product.strided([count, classes, depth], [false, true]),
        }
    }

    /// The memory of some classes' weights.
    fn part(&self, first: usize, count: usize) -> Tensor {
        let [classes, depth] = self.extents;
        match self.layout.by_rows {
            true => part(&self.tensor, first * depth, count * depth),
            false => part(&self.tensor, first, (depth - 1) * classes + count),
        }
    }

    /// A row for each label: the weights of its class. All labels are classes.
    pub fn own(&self, ctx: &mut dyn OpContext, labels: &Tensor) -> Result<Tensor> {
        let ([classes, depth], count) = (self.extents, labels.len());
        let indices = Indices::new(labels, &[classes])?;
        let rows = |ctx: &mut dyn OpContext, from: &Tensor| {
            let own = ctx.temp(from.dtype, &[count, from.dims[1]])?;
            let gather = Gather { batch: 1, outer: 1, count, inner: from.dims[1] };
            gather.enqueue(ctx.device(), from, &indices, &own).map(|()| own)
        };
        if let (Some(weights), Some(quantized)) = (&self.weights, &self.layout.quantized) {
            let (codes, weights) =
                weights.gathered(&self.tensor, |tensor| rows(&mut *ctx, tensor))?;
            return self.decoded(ctx, &codes, &weights, quantized);
        }
        if self.layout.by_rows {
            return rows(ctx, &self.tensor);
        }
        let columns = ctx.temp(self.tensor.dtype, &[depth, count])?;
        // As many rows of the weights as fit a binding; an even number begins at a whole word.
        let size = self.tensor.dtype.size() * classes.max(count);
        let fits = limit(ctx.device().capabilities()) as usize / size;
        let most = if fits < depth { (fits & !1).max(1) } else { depth };
        for (first, outer) in ranges(depth, most) {
            let from = part(&self.tensor, first * classes, outer * classes);
            let to = part(&columns, first * count, outer * count);
            let gather = Gather { batch: 1, outer, count, inner: 1 };
            gather.enqueue(ctx.device(), &from, &indices, &to)?;
        }
        let own = ctx.temp(self.tensor.dtype, &[count, depth])?;
        let walk = permuted(&columns.dims, &[1, 0]).operand(&dense_strides(&own.dims), 0);
        copy_strided(ctx.device(), &walk, &columns, &own)?;
        Ok(own)
    }

    /// The weights of a matrix of codes: its products with an identity matrix, block by block.
    fn decoded(
        &self,
        ctx: &mut dyn OpContext,
        codes: &Tensor,
        weights: &QuantizedWeights,
        quantized: &Quantized,
    ) -> Result<Tensor> {
        let (rows, depth, dtype) = (codes.dims[0], self.extents[1], self.layout.dtype);
        let decoded = ctx.temp(F32, &[rows, depth])?;
        let block = BLOCK.min(rows);
        let identity = quantized.identity(ctx, dtype, block)?;
        let mut scratch = Scratch::new(ctx);
        for (first, count) in ranges(rows, block) {
            let (codes, own) = weights.part(codes, [first, 0], [count, depth]);
            let c = part(&decoded, first * depth, count * depth);
            Contraction::product([count, count, depth], [&identity, &codes, &c])
                .strided([block, depth, depth], [false, false])
                .quantized(own)
                .enqueue(scratch.window())?;
        }
        Ok(decoded)
    }
}
