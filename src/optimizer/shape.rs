//! The known type and shape of a tensor before it exists.

use smallvec::SmallVec;

use super::proto::op_info::TensorProperties;
use crate::dtype::DType;

/// An extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dim {
    /// This extent.
    Known(usize),
    /// Unknown, but equal to every other extent with the same number.
    Symbol(u32),
    /// Unknown, without a number.
    Unknown,
}

impl Dim {
    /// The extent, if it is known.
    pub const fn known(self) -> Option<usize> {
        match self {
            Self::Known(n) => Some(n),
            _ => None,
        }
    }

    /// Whether both are certainly the same extent.
    pub fn same(self, other: Self) -> bool {
        self == other && self != Self::Unknown
    }
}

/// The extents of a tensor of known rank, outermost first.
pub type Shape = SmallVec<[Dim; 6]>;

/// The type and shape of a tensor, as far as they are known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TensorInfo {
    /// The element type, if it is one of ours.
    pub dtype: Option<DType>,
    /// The extents; `None` for an unknown rank.
    pub shape: Option<Shape>,
}

impl TensorInfo {
    /// A tensor with a known type and a fully known shape.
    pub fn known(dtype: DType, dims: &[usize]) -> Self {
        Self { dtype: Some(dtype), shape: Some(dims.iter().map(|d| Dim::Known(*d)).collect()) }
    }

    /// All extents, if they are known.
    pub fn dims(&self) -> Option<Vec<usize>> {
        self.shape.as_ref()?.iter().map(|d| d.known()).collect()
    }

    /// Whether all extents are known and equal to `dims`.
    pub fn has_dims(&self, dims: &[usize]) -> bool {
        self.shape
            .as_ref()
            .is_some_and(|s| s.iter().copied().eq(dims.iter().map(|d| Dim::Known(*d))))
    }

    /// The rank, if it is known.
    pub fn rank(&self) -> Option<usize> {
        self.shape.as_ref().map(SmallVec::len)
    }

    /// The number of elements, if it is known.
    pub fn len(&self) -> Option<usize> {
        self.shape.as_ref()?.iter().try_fold(1, |len: usize, d| len.checked_mul(d.known()?))
    }

    /// Whether the tensor certainly has no element.
    pub fn is_empty(&self) -> bool {
        self.shape.as_ref().is_some_and(|s| s.contains(&Dim::Known(0)))
    }

    /// Whether both certainly have the same shape.
    pub fn same_shape(&self, other: &Self) -> bool {
        match (&self.shape, &other.shape) {
            (Some(a), Some(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.same(*b)),
            _ => false,
        }
    }

    /// Whether it certainly broadcasts to the shape of `other` without changing that shape.
    pub fn broadcasts_to(&self, other: &Self) -> bool {
        let (Some(a), Some(b)) = (&self.shape, &other.shape) else { return false };
        a.len() <= b.len()
            && a.iter().rev().zip(b.iter().rev()).all(|(a, b)| *a == Dim::Known(1) || a.same(*b))
    }

    /// Whether the tensor certainly has one element.
    pub fn is_single(&self) -> bool {
        self.shape.as_ref().is_some_and(|s| s.iter().all(|d| *d == Dim::Known(1)))
    }
}

impl From<&TensorProperties> for TensorInfo {
    /// Grappler numbers unknown extents downwards from -2, with a number for each extent; -1 means
    /// that nothing is known. It omits the shape of a scalar, and marks an unknown rank.
    fn from(properties: &TensorProperties) -> Self {
        let dim = |size: i64| match size {
            -1 => Dim::Unknown,
            n if n < -1 => Dim::Symbol(u32::try_from(-n).unwrap_or(u32::MAX)),
            n => usize::try_from(n).map_or(Dim::Unknown, Dim::Known),
        };
        let shape = match &properties.shape {
            Some(s) if s.unknown_rank => None,
            Some(s) => Some(s.dim.iter().map(|d| dim(d.size)).collect()),
            None => Some(Shape::new()),
        };
        Self { dtype: DType::from_tf(properties.dtype), shape }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_that_are_too_large_are_unknown() {
        let info = |dims: &[usize]| TensorInfo {
            dtype: None,
            shape: Some(dims.iter().map(|n| Dim::Known(*n)).collect()),
        };
        assert_eq!(info(&[1 << 31, 1 << 31]).len(), Some(1 << 62));
        assert_eq!(info(&[1 << 31, 1 << 31, 4]).len(), None);
    }

    #[test]
    fn sameness_is_only_claimed_when_it_is_sure() {
        let info =
            |dims: &[Dim]| TensorInfo { dtype: None, shape: Some(dims.iter().copied().collect()) };
        let (a, b) =
            (info(&[Dim::Symbol(2), Dim::Known(3)]), info(&[Dim::Symbol(3), Dim::Known(3)]));
        assert!(a.same_shape(&a) && !a.same_shape(&b));
        let unknown = info(&[Dim::Unknown]);
        assert!(!unknown.same_shape(&unknown));
        assert!(
            info(&[Dim::Known(3)]).broadcasts_to(&a)
                && info(&[Dim::Known(1), Dim::Known(3)]).broadcasts_to(&a)
        );
        assert!(!b.broadcasts_to(&a) && !a.broadcasts_to(&info(&[Dim::Known(3)])));
    }
}
