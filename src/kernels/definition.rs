//! Our own ops, which the graph optimizer or the Python package emits: their signatures and shape
//! functions, without TensorFlow's C API.
//!
//! `ffi` registers every row of [`crate::kernels::definitions`] with TensorFlow before the
//! kernels.

use crate::dtype::DType;
use crate::error::Result;
use crate::layout::broadcast_dims;

/// A shape as shape inference knows it: `None` for an unknown rank, a `None` within for an unknown
/// extent.
pub type PartialShape = Option<Vec<Option<usize>>>;

/// The part of a node that a shape function sees. TensorFlow's C API shows shape functions no
/// attributes except single types.
pub struct ShapeInputs<'a> {
    /// Shapes of the inputs, lists flattened.
    pub shapes: &'a [PartialShape],
    /// The value of a `type` attribute.
    pub dtype: &'a dyn Fn(&str) -> Option<DType>,
}

/// The shapes of the outputs, as far as they are known. Missing shapes at the end and `None`s are
/// unknown; surplus ones are ignored.
///
/// # Errors
/// `InvalidArgument` if the inputs' shapes do not go together.
pub type ShapeFunction = fn(&ShapeInputs<'_>) -> Result<Vec<PartialShape>>;

/// An op in the form of TensorFlow's `OpDef`, in the syntax of `REGISTER_OP`.
pub struct OpDefinition {
    /// The name, which starts with `_Wgpu`.
    pub name: &'static str,
    /// `name: type`, as in `"x: T"` or `"extra: Textra"`.
    pub inputs: &'static [&'static str],
    /// The same for outputs.
    pub outputs: &'static [&'static str],
    /// `name: kind constraint = default`, as in `"transpose_a: bool = false"`.
    pub attrs: &'static [&'static str],
    /// Whether it reads or writes variables.
    pub stateful: bool,
    /// Its shape function.
    pub shape: ShapeFunction,
}

/// The shape to which all of `shapes` broadcast; an extent is known if some input decides it.
///
/// # Errors
/// `InvalidArgument` if known extents do not broadcast.
pub fn broadcast(shapes: &[PartialShape]) -> Result<PartialShape> {
    let Some(shapes) = shapes.iter().cloned().collect::<Option<Vec<_>>>() else { return Ok(None) };
    let rank = shapes.iter().map(Vec::len).max().unwrap_or(0);
    let mut dims = vec![Some(1); rank];
    for shape in &shapes {
        for (dim, extent) in dims[rank - shape.len()..].iter_mut().zip(shape) {
            *dim = match (*dim, *extent) {
                (Some(a), Some(b)) => Some(broadcast_dims(&[a], &[b])?[0]),
                // An extent other than 1 decides, since the unknown one can only be 1 or equal to
                // it.
                (Some(1), other) | (other, Some(1)) => other,
                (Some(known), None) | (None, Some(known)) => Some(known),
                (None, None) => None,
            };
        }
    }
    Ok(Some(dims))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasting_knows_what_can_be_known() {
        let shape =
            |dims: &[i64]| Some(dims.iter().map(|d| usize::try_from(*d).ok()).collect::<Vec<_>>());
        assert_eq!(broadcast(&[shape(&[2, 1, -1]), shape(&[3, 4])]).unwrap(), shape(&[2, 3, 4]));
        assert_eq!(broadcast(&[shape(&[-1, 1]), shape(&[1, -1])]).unwrap(), shape(&[-1, -1]));
        assert_eq!(broadcast(&[shape(&[2]), None]).unwrap(), None);
        assert_eq!(broadcast(&[shape(&[]), shape(&[])]).unwrap(), shape(&[]));
        assert!(broadcast(&[shape(&[2]), shape(&[3])]).is_err());
    }
}
