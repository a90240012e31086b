//! The reasons why a node is not fused, or not with its neighbours.

use std::fmt;

use crate::dtype::DType;
use crate::kernels::fused::cost::BOUND;

/// Why a node, or two neighbours, are not computed by one fused op.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// The node runs on a device that is not ours, or the two run on different devices.
    OtherDevice,
    /// No fused op has the node's function.
    NoFunction,
    /// The node lacks an attribute that names a type.
    NoType,
    /// The node lacks this attribute of its function.
    NoAttribute(&'static str),
    /// A fused op does not hold values of this type.
    Type(DType),
    /// A conversion drops bits instead of rounding.
    Truncates,
    /// The function loops so long that a kernel must not have it beside others.
    LongLoops,
    /// The shapes of the inputs may differ where the op needs equal ones.
    ShapesMayDiffer,
    /// The axes of a reduction are no constant.
    UnknownAxes,
    /// The node's result must keep its name: it is fetched or otherwise preserved.
    Preserved,
    /// A node that cannot be fused with the two reads the value between them.
    ReadElsewhere,
    /// The kernel of the neighbour cannot read an operand of this shape or type.
    Operand,
    /// The two compute different shapes.
    OtherShape,
    /// The smaller value costs too much to be computed again for each element, or others need it.
    SmallValue,
    /// The rank of a product that is added to weights is too high: two products in its place would
    /// save no work.
    HighRank,
    /// The two do not run under the same conditions.
    OtherConditions,
    /// One node would depend on itself.
    Cycle,
    /// The program would hold more operations than a driver compiles in good time: this many, if
    /// they were counted.
    TooLarge(Option<u32>),
    /// The program would read and write too many tensors.
    TooManyTensors,
    /// Nothing beside the node can be computed with it.
    Alone,
}

impl Refusal {
    /// Checks that a program may hold this number of operations, as `cost` counts them.
    ///
    /// # Errors
    /// `TooLarge` beyond the bound.
    pub const fn check_size(operations: u32) -> Result<(), Self> {
        if operations > BOUND { Err(Self::TooLarge(Some(operations))) } else { Ok(()) }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoAttribute(name) => return write!(f, "the attribute {name} is missing"),
            Self::TooLarge(Some(count)) => {
                return write!(f, "the program would hold {count} operations, more than {BOUND}");
            }
            Self::Type(DType::I32) => "int32 tensors are in host memory",
            Self::Type(dtype) => return write!(f, "fused ops do not hold {dtype}"),
            Self::OtherDevice => "the two are on different devices",
            Self::NoFunction => "no fused op computes it with its neighbours",
            Self::NoType => "the type is unknown",
            Self::Truncates => "the conversion drops bits instead of rounding",
            Self::LongLoops => "the function loops too long to stand beside others",
            Self::ShapesMayDiffer => "the shapes of the inputs may differ",
            Self::UnknownAxes => "the axes are not known",
            Self::Preserved => "the result is fetched or must keep its name",
            Self::ReadElsewhere => "other nodes read the value, so that it is stored anyway",
            Self::Operand => "the kernel cannot read an operand of this shape or type",
            Self::OtherShape => "the two have different shapes",
            Self::SmallValue => {
                "the smaller value is expensive to compute again, or others read it"
            }
            Self::HighRank => "the rank is too high for products with each factor to save work",
            Self::OtherConditions => {
                "the two run under different conditions, or control inputs order them"
            }
            Self::Cycle => "the fused node would depend on itself",
            Self::TooLarge(None) => "the program would be too large",
            Self::TooManyTensors => "the program would bind too many tensors",
            Self::Alone => "no neighbour can be computed together with it",
        })
    }
}
