//! `_WgpuFusedQuantizedMatMul`: a product with quantized weights and its epilogue. The weights are
//! decoded as they are loaded, see [`crate::kernels::contract::weights`].

use std::sync::Arc;

use super::sibling_products::{Fused, checked};
use crate::device::Profile;
use crate::dtype::{DType, types};
use crate::error::{Error, Result};
use crate::kernels::contract::Contraction;
use crate::kernels::contract::epilogue::{Bound, Epilogue};
use crate::kernels::contract::plan::{Product, ProductPlan};
use crate::kernels::contract::weights::{CodePacking, Decoder, QuantizedWeights};
use crate::kernels::definition::{OpDefinition, PartialShape, ShapeInputs};
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::registry::Registry;
use crate::require;
use crate::tensor::{Dims, Tensor, shape_text};

/// The op that multiplies by a matrix of codes. Its inputs are a left operand, whose last dimension
/// is contracted, then the codes, the decoder's parameters, and the epilogue's further operands.
pub const QUANTIZED: &str = "_WgpuFusedQuantizedMatMul";

/// The same for an einsum, of which several dimensions are contracted or columns. It is an op of
/// its own because a shape function sees neither.
pub const EINSUM: &str = "_WgpuFusedQuantizedEinsum";

/// The inputs of both ops.
const INPUTS: &[&str] = &["x: T", "codes: T_codes", "parameter: T_parameters", "extra: T_extra"];

/// The attributes of both ops.
macro_rules! attrs {
    ($($own:literal),*) => {
        &[
            "T: {float, half, bfloat16}",
            "T_codes: {int8, uint8}",
            "T_parameters: list(type) >= 0",
            "T_extra: list(type) >= 0",
            "T_out: {float, half, bfloat16, double}",
            "expression: string",
            "constants: list(float)",
            "decoder: string",
            "packing: {'bytes', 'rows', 'columns'} = 'bytes'",
            "extent: int = 0",
            "adj_y: bool = false",
            "head: int = 0",
            $($own),*
        ]
    };
}

/// The ops.
pub const DEFINITIONS: &[OpDefinition] = &[
    OpDefinition {
        name: EINSUM,
        inputs: INPUTS,
        outputs: &["output: T_out"],
        attrs: attrs!("contracted: int = 1", "columns: list(int)"),
        stateful: false,
        shape: |_| Ok(vec![None]),
    },
    OpDefinition {
        name: QUANTIZED,
        inputs: INPUTS,
        outputs: &["output: T_out"],
        attrs: attrs!(),
        stateful: false,
        shape,
    },
];

/// Adds the ops.
pub fn register(r: &mut Registry) {
    for op in [EINSUM, QUANTIZED] {
        r.op(op)
            .types("T", types::FLOATS_BUT_F64)
            .types("T_codes", &[DType::I8, DType::U8])
            .types("T_out", types::FLOATS)
            .kernel(move |attrs| QuantizedMatMul::read(attrs, op));
    }
}

/// A product with quantized weights.
struct QuantizedMatMul {
    op: &'static str,
    decoder: Arc<Decoder>,
    packing: CodePacking,
    /// The number of codes in the packed dimension.
    extent: usize,
    /// Whether the weights are transposed.
    by_columns: bool,
    /// The number of columns of one head, if the codes are a tensor of heads.
    head: Option<usize>,
    /// The number of dimensions of the left operand that are contracted.
    contracted: usize,
    /// The extents of the columns, if they are several dimensions.
    columns: Vec<i64>,
    epilogue: Epilogue,
}

impl QuantizedMatMul {
    fn read(attrs: &dyn Attrs, op: &'static str) -> Result<Self> {
        let (contracted, columns) = match op {
            EINSUM => (attrs.int("contracted")?, attrs.ints("columns")?),
            _ => (1, Vec::new()),
        };
        let epilogue = checked(Epilogue::read(attrs, attrs.dtype("T")?, 1)?)?;
        let extras = epilogue.expression().inputs().len() - 1;
        require!(extras == 0 || op != EINSUM, "{op}: {extras} further operands");
        Ok(Self {
            op,
            contracted: usize::try_from(contracted).unwrap_or(0),
            columns,
            decoder: Arc::new(attrs.string("decoder")?.parse()?),
            packing: attrs.string("packing")?.parse()?,
            extent: usize::try_from(attrs.int("extent")?).unwrap_or(0),
            by_columns: attrs.bool("adj_y")?,
            head: usize::try_from(attrs.int("head")?).ok().filter(|width| *width > 0),
            epilogue,
        })
    }
}

impl Kernel for QuantizedMatMul {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let inputs = (0..ctx.num_inputs()).map(|i| ctx.input(i)).collect::<Result<Vec<_>>>()?;
        let parameters = self.decoder.parameters();
        let [x, codes, others @ ..] = &inputs[..] else { return Err(too_few(&inputs)) };
        let (parameters, extras) =
            others.split_at_checked(parameters).ok_or_else(|| too_few(&inputs))?;
        let weights = QuantizedWeights::new(
            (self.packing, &self.decoder, self.extent),
            &codes.dims,
            parameters,
            (x.dtype, self.by_columns),
        )?;
        let weights = match self.head {
            Some(width) => weights.of_heads(width)?,
            None => weights,
        };
        let columns = match &self.columns[..] {
            [] => [weights.matrix()[1]].into_iter().collect(),
            columns => columns.iter().map(|n| usize::try_from(*n).unwrap_or(0)).collect(),
        };
        let base = Box::new(Decoded { weights, contracted: self.contracted, columns });
        let product = Fused { op: self.op, base, epilogue: self.epilogue.clone() };
        match product.start(ctx, [x, codes], extras, 0)? {
            Some(plan) => plan.enqueue(ctx),
            None => Ok(()),
        }
    }
}

fn too_few(inputs: &[Tensor]) -> Error {
    Error::InvalidArgument(format!("{QUANTIZED}: {} inputs", inputs.len()))
}

/// The product of a tensor's last dimensions and weights.
struct Decoded {
    weights: QuantizedWeights,
    contracted: usize,
    /// The extents of the columns.
    columns: Dims,
}

impl Product for Decoded {
    fn shape(&self, a: &[usize], _: &[usize]) -> Result<Dims> {
        let [k, n] = self.weights.matrix();
        let lead = a.len().saturating_sub(self.contracted);
        let fits = self.contracted > 0 && lead > 0 && a[lead..].iter().product::<usize>() == k;
        require!(
            fits && self.columns.iter().product::<usize>() == n,
            "Matrix size-incompatible: In[0]: {}, In[1]: {}",
            shape_text(a),
            shape_text(&[k, n])
        );
        Ok(a[..lead].iter().chain(&self.columns).copied().collect())
    }

    fn channel(&self, dims: &[usize]) -> usize {
        dims.len() - 1
    }

    fn parameters(&self) -> usize {
        self.weights.tensors()
    }

    fn plan<'e>(
        &self,
        profile: &Profile,
        [a, b, c]: [&Tensor; 3],
        epilogue: Option<Bound<'e>>,
    ) -> Result<ProductPlan<'e>> {
        let [k, n] = self.weights.matrix();
        Contraction::product([c.len() / n.max(1), k, n], [a, b, c])
            .quantized(self.weights.clone())
            .plan(profile, epilogue)
    }
}

/// The shape of the left operand, but for its last extent: shape functions see neither the number
/// of parameters nor how codes are packed.
fn shape(inputs: &ShapeInputs<'_>) -> Result<Vec<PartialShape>> {
    let mut shape = inputs.shapes.first().cloned().flatten();
    if let Some(last) = shape.as_mut().and_then(|dims| dims.last_mut()) {
        *last = None;
    }
    Ok(vec![shape])
}
