//! Index tensors in shaders: int32, int64, int8 and uint8 by their bytes, one or more components per index.

use smallvec::SmallVec;

use crate::device::{Binding, Params};
use crate::error::Result;
use crate::require;
use crate::shader::{Field, Shader};
use crate::tensor::Tensor;

/// Components that an index may have.
const MAX_DEPTH: usize = 8;

/// Indices into the rows of a tensor whose leading extents are `extents`.
#[derive(Debug, Clone)]
pub struct Indices {
    /// The tensor; each index is `extents.len()` consecutive elements.
    pub tensor: Tensor,
    /// The extents that the components index.
    pub extents: SmallVec<[usize; 8]>,
}

impl Indices {
    /// Checks the number of components.
    pub fn new(tensor: &Tensor, extents: &[usize]) -> Result<Self> {
        require!(
            extents.len() <= MAX_DEPTH,
            "Only indices.shape[-1] values between 1 and {MAX_DEPTH} are currently supported.  Requested rank: {}",
            extents.len()
        );
        Ok(Self { tensor: tensor.clone(), extents: extents.into() })
    }

    /// Number of rows that can be named.
    pub fn rows(&self) -> usize {
        self.extents.iter().product()
    }

    fn bytes(&self) -> u64 {
        self.tensor.dtype.size() as u64
    }

    /// The indices from `first` on, `count` of them, as a binding; the shader counts from `first`.
    pub fn binding(&self, first: usize, count: usize) -> Binding {
        let each = self.extents.len() as u64 * self.bytes();
        Binding { address: self.tensor.address + first as u64 * each, bytes: count as u64 * each, unit: 1 }
    }

    /// Appends the parameters that [`declare`] declares.
    #[must_use]
    pub fn params(&self, params: Params) -> Params {
        let mut extents: SmallVec<[usize; 8]> = self.extents.clone();
        extents.resize(MAX_DEPTH, 0);
        params
            .u32(self.bytes())
            .u32(u32::from(self.tensor.dtype.is_signed_integer()))
            .u32(self.extents.len())
            .list(&extents)
    }
}

/// Declares the binding `indices`, its parameters and `row_of`.
#[must_use]
pub fn declare(shader: Shader) -> Shader {
    shader
        .bind_raw("indices", "u32", 1)
        .u32s(&["index_bytes", "index_signed", "depth"])
        .param("extents", Field::Vec4s(MAX_DEPTH / 4))
        .body(include_str!("../../../shaders/gather/index.wgsl"))
}
