//! An epilogue is applied to the elements of a contraction's result before they are stored. It is
//! an [`Expression`] of the element and of up to five further operands. It may have a second value,
//! such as the argument of an activation, which a gradient reads: that value is stored to a result
//! of its own.
//!
//! A further operand is a scalar, a vector with one element for each channel, a column with one for
//! each row of channels that are last, or has the result's shape; its kind is part of the
//! pipeline's key, its extents are not. Everything else that broadcasts is computed by an
//! elementwise program behind the contraction ([`Epilogue::after`]), so that an op with an epilogue
//! accepts all shapes that the ops it replaces accept.

mod text;

use std::sync::Arc;

use smallvec::SmallVec;

use crate::device::{Binding, Device, Params};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::expression::Expression;
use crate::kernels::op::Attrs;
use crate::kernels::scalar::map::Signature;
use crate::kernels::windows;
use crate::require;
use crate::tensor::Tensor;
pub(crate) use text::channel_of;

/// Names of the further operands' bindings.
const NAMES: [&str; 5] = ["e1", "e2", "e3", "e4", "e5"];
/// The name of the second result's binding.
const SECOND: &str = "c_second";
/// Names of the parameters.
const CONSTANTS: [&str; 24] = [
    "c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9", "c10", "c11", "c12", "c13", "c14",
    "c15", "c16", "c17", "c18", "c19", "c20", "c21", "c22", "c23",
];

/// The most further operands; an elementwise program behind the contraction takes the same number.
pub const MAX_EXTRAS: usize = NAMES.len();
/// Bindings of a contraction: its operands, its result and partial sums.
const CONTRACTION: usize = 4;
/// The most parameters.
pub const MAX_CONSTANTS: usize = CONSTANTS.len();

/// A node's epilogue.
#[derive(Debug, Clone)]
pub struct Epilogue {
    function: Arc<Function>,
    constants: Vec<f32>,
}

/// The part of an epilogue that shader text depends on.
#[derive(PartialEq)]
struct Function {
    expression: Expression,
    text: String,
}

/// The text that stands in a shader's label.
impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// How a further operand is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broadcast {
    /// The operand's only element.
    Scalar,
    /// The element of the channel.
    Channel,
    /// The element of the row, where channels are last.
    Row,
    /// The element at the result's index.
    Full,
}

/// An epilogue with its operands for one result.
#[derive(Debug, Clone)]
pub struct Bound<'a> {
    epilogue: &'a Epilogue,
    extras: SmallVec<[(Broadcast, Tensor); MAX_EXTRAS]>,
    /// Where the second value goes.
    second: Option<Tensor>,
    /// Elements of the result between neighbouring channels.
    inner: usize,
    channels: usize,
}

/// The properties of a bound epilogue that shader text depends on.
#[derive(Debug, Clone)]
pub(crate) struct EpilogueVariant {
    function: Arc<Function>,
    /// Type, broadcast and whether four elements are loaded at once.
    extras: SmallVec<[(DType, Broadcast, bool); MAX_EXTRAS]>,
}

impl PartialEq for EpilogueVariant {
    fn eq(&self, other: &Self) -> bool {
        self.function == other.function && self.extras == other.extras
    }
}

impl Epilogue {
    /// Reads the epilogue, which has `values` values of one type, of a node whose contraction is of
    /// type `dtype` from the attributes `expression`, `constants`, `T_extra` and `T_out`. Without
    /// `T_extra` it has no further operands.
    pub fn read(attrs: &dyn Attrs, dtype: DType, values: usize) -> Result<Self> {
        let (expression, constants) =
            (attrs.string("expression")?.parse()?, attrs.floats("constants")?);
        let extras = attrs.dtypes("T_extra").unwrap_or_default();
        let epilogue = Self::of(expression, constants, values)?;
        let expression = epilogue.expression();
        let types: Vec<DType> = std::iter::once(dtype).chain(extras).collect();
        require!(
            expression.inputs() == types,
            "the operands are of {types:?}, which is not what {expression} takes"
        );
        let output = attrs.dtype("T_out")?;
        require!(
            expression.each_output_type().all(|t| t == output),
            "the result is of {output}, which is not what {expression} returns"
        );
        Ok(epilogue)
    }

    /// An epilogue of an expression with one value.
    pub fn new(expression: Expression, constants: Vec<f32>) -> Result<Self> {
        Self::of(expression, constants, 1)
    }

    /// The same for an expression with two values.
    pub fn pair(expression: Expression, constants: Vec<f32>) -> Result<Self> {
        Self::of(expression, constants, 2)
    }

    fn of(expression: Expression, constants: Vec<f32>, values: usize) -> Result<Self> {
        let (extras, given) = (expression.inputs().len().saturating_sub(1), constants.len());
        require!(
            !expression.inputs().is_empty(),
            "{expression} does not take the contraction's result"
        );
        require!(
            extras <= MAX_EXTRAS,
            "{expression} takes {extras} further operands, more than {MAX_EXTRAS}"
        );
        require!(given <= MAX_CONSTANTS, "{given} parameters are more than {MAX_CONSTANTS}");
        require!(given == expression.constants(), "{given} parameters for {expression}");
        let returned = expression.outputs().len();
        require!(returned == values, "{expression} returns {returned} values in place of {values}");
        let text = expression.to_string();
        Ok(Self { function: Arc::new(Function { expression, text }), constants })
    }

    /// The expression of the epilogue.
    pub fn expression(&self) -> &Expression {
        &self.function.expression
    }

    /// The type of its result.
    pub fn output(&self) -> DType {
        self.expression().output_type(0)
    }

    /// The epilogue with its operands for a result of shape `dims` whose channels are dimension
    /// `axis`; `None` where the contraction cannot apply it.
    pub fn bind(&self, dims: &[usize], axis: usize, extras: &[Tensor]) -> Option<Bound<'_>> {
        let with_broadcasts =
            extras.iter().map(|t| Some((broadcast(dims, axis, &t.dims)?, t.clone())));
        Some(Bound {
            epilogue: self,
            extras: with_broadcasts.collect::<Option<_>>()?,
            second: None,
            inner: dims[axis + 1..].iter().product(),
            channels: dims[axis],
        })
    }

    /// Whether an adapter that binds `max_bindings` storage buffers can apply an epilogue that
    /// binds `more` tensors: the contraction itself binds three, and perhaps partial sums.
    pub fn fits(more: usize, max_bindings: u32) -> bool {
        CONTRACTION + more <= max_bindings as usize
    }

    /// Enqueues the expression over a result that the contraction has stored, with operands that
    /// broadcast to `outputs`.
    pub fn after(
        &self,
        device: &Device,
        result: &Tensor,
        extras: &[Tensor],
        outputs: &[Tensor],
    ) -> Result<()> {
        let expression = self.expression();
        let inputs: Vec<Tensor> = std::iter::once(result).chain(extras).cloned().collect();
        Signature {
            op: &self.function.text,
            inputs: expression.inputs(),
            outputs: &expression.output_types(),
            attrs: &CONSTANTS[..self.constants.len()],
            function: &|| expression.wgsl("epilogue"),
            operations: expression.operations(),
        }
        .run(device, &inputs, outputs, &self.constants)
    }
}

fn broadcast(dims: &[usize], axis: usize, extra: &[usize]) -> Option<Broadcast> {
    let lead = dims.len().checked_sub(extra.len())?;
    let is_channel = |d: usize| lead + d == axis;
    if extra.iter().all(|d| *d == 1) {
        Some(Broadcast::Scalar)
    } else if extra
        .iter()
        .enumerate()
        .all(|(d, n)| *n == if is_channel(d) { dims[axis] } else { 1 })
    {
        Some(Broadcast::Channel)
    } else if dims[..lead].iter().all(|d| *d == 1) && dims[lead..] == *extra {
        Some(Broadcast::Full)
    } else {
        let (last, rows) = extra.split_last()?;
        let is_row = axis + 1 == dims.len()
            && *last == 1
            && dims[..lead].iter().all(|d| *d == 1)
            && dims[lead..axis] == *rows;
        is_row.then_some(Broadcast::Row)
    }
}

impl Broadcast {
    /// Whether each of the neighbouring columns has an element of its own.
    const fn is_along_columns(self) -> bool {
        matches!(self, Self::Channel | Self::Full)
    }
}

impl Bound<'_> {
    /// The same with a tensor for the second value. It is stored at the index of the result's
    /// element, four elements at once: see [`super::plan::ProductPlan::stores_pairs`].
    pub fn with_second(self, second: Tensor) -> Self {
        Self { second: Some(second), ..self }
    }

    /// Bytes of the widest element that is read or written for an element of the result.
    pub(crate) fn widest(&self) -> usize {
        let full = self
            .extras
            .iter()
            .filter(|(broadcast, _)| *broadcast == Broadcast::Full)
            .map(|(_, t)| t.dtype.size());
        full.chain([self.epilogue.output().size()]).max().unwrap_or(1)
    }

    /// The same for elements `first` to `first + len` of the result. They are whole rows of
    /// channels, some channels of one position, or a part of one channel.
    pub(crate) fn window(&self, first: usize, len: usize) -> Self {
        let channel = first / self.inner % self.channels;
        let seen = (first % self.inner + len).div_ceil(self.inner).min(self.channels - channel);
        let moved = |(broadcast, t): &(Broadcast, Tensor)| {
            let t = match broadcast {
                Broadcast::Scalar => t.clone(),
                Broadcast::Channel => windows::part(t, channel, seen),
                Broadcast::Row => {
                    let rows = (channel + len).div_ceil(self.channels);
                    windows::part(t, first / self.channels, rows)
                }
                Broadcast::Full => windows::part(t, first, len),
            };
            (*broadcast, t)
        };
        Self {
            extras: self.extras.iter().map(moved).collect(),
            second: self.second.as_ref().map(|t| windows::part(t, first, len)),
            ..*self
        }
    }

    /// Its [`EpilogueVariant`]; with `vec4s` four neighbouring elements of the result are stored at
    /// once.
    pub(crate) fn variant(&self, vec4s: bool) -> EpilogueVariant {
        let four = |broadcast: Broadcast, t: &Tensor| {
            let typed = t.dtype.is_single();
            vec4s
                && broadcast.is_along_columns()
                && typed
                && t.address.is_multiple_of(4 * t.dtype.size() as u64)
        };
        EpilogueVariant {
            function: self.epilogue.function.clone(),
            extras: self
                .extras
                .iter()
                .map(|(broadcast, t)| (t.dtype, *broadcast, four(*broadcast, t)))
                .collect(),
        }
    }

    /// Bindings of the further operands and of the second result.
    pub(crate) fn bindings<'b>(
        &'b self,
        variant: &'b EpilogueVariant,
    ) -> impl Iterator<Item = Binding> + 'b {
        let unit = |vec4s: bool, t: &Tensor| t.dtype.size() as u32 * if vec4s { 4 } else { 1 };
        self.extras
            .iter()
            .zip(&variant.extras)
            .map(move |((_, t), f)| Binding::raw(t, unit(f.2, t)))
            .chain(self.second.iter().map(move |t| Binding::raw(t, unit(true, t))))
    }

    /// The number of tensors that it binds: further operands and the second result.
    pub(super) fn tensors(&self) -> usize {
        self.extras.len() + usize::from(self.second.is_some())
    }

    /// Appends the parameters that [`EpilogueVariant::declare`] declares.
    pub(crate) fn params(&self, params: Params) -> Params {
        self.epilogue
            .constants
            .iter()
            .fold(params.u32(self.inner).u32(self.channels), |p, c| p.f32(*c))
    }
}
