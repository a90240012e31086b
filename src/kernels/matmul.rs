//! MatMul and the BatchMatMul family: shapes and broadcasting around [`super::contract`].

use crate::device::Profile;
use crate::dtype::{DType, types, union};
use crate::error::Result;
use crate::kernels::contract::epilogue::Bound;
use crate::kernels::contract::plan::{Product, ProductPlan};
use crate::kernels::contract::{self, Contraction};
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::registry::Registry;
use crate::layout::{Iteration, broadcast_dims};
use crate::require;
use crate::shader::Shader;
use crate::tensor::{Dims, Tensor, shape_text};

/// Element types: those of TensorFlow's GPU kernels, and int64 of the integers of its CPU kernels;
/// int32 stays in host memory.
const TYPES: &[DType] = union!(types::INEXACT, &[DType::I64]);
/// Element types of the newer batch forms.
const TYPES_V2: &[DType] = union!(TYPES, &[DType::I16]);

/// Adds the ops.
pub fn register(r: &mut Registry) {
    r.op("MatMul")
        .types("T", TYPES)
        .kernel(|attrs| MatMul::new(attrs, Batches::Matrices, "transpose_a", "transpose_b"));
    r.op("BatchMatMul")
        .types("T", TYPES)
        .kernel(|attrs| MatMul::new(attrs, Batches::SameBatch, "adj_x", "adj_y"));
    r.op("BatchMatMulV2")
        .types("T", TYPES_V2)
        .kernel(|attrs| MatMul::new(attrs, Batches::Broadcast, "adj_x", "adj_y"));
    let int8 = [(DType::I8, DType::I32)];
    for (of, result) in TYPES_V2.iter().map(|t| (*t, *t)).chain(int8) {
        r.op("BatchMatMulV3")
            .types("Ta", of.alone())
            .types("Tb", of.alone())
            .types("Tout", result.alone())
            .kernel(|attrs| MatMul::new(attrs, Batches::Broadcast, "adj_x", "adj_y"));
    }
}

/// Every shader variant: all contractions are listed here, and convolutions share them.
pub fn shaders() -> Vec<Shader> {
    contract::variants()
}

/// The dimensions that an op allows beyond two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Batches {
    /// Matrices only.
    Matrices,
    /// Equal batch dimensions.
    SameBatch,
    /// Batch dimensions that broadcast.
    Broadcast,
}

/// MatMul or one of its batch forms.
pub(crate) struct MatMul {
    batches: Batches,
    transpose_a: bool,
    transpose_b: bool,
    /// The batch forms' adjoints conjugate complex matrices; MatMul only transposes.
    conjugates: bool,
}

impl MatMul {
    /// Reads the attributes; `a` and `b` name those of the transposes.
    pub fn new(attrs: &dyn Attrs, batches: Batches, a: &str, b: &str) -> Result<Self> {
        Ok(Self {
            batches,
            transpose_a: attrs.bool(a)?,
            transpose_b: attrs.bool(b)?,
            conjugates: batches != Batches::Matrices,
        })
    }

    /// Products of two matrices.
    pub const fn matrices(transpose_a: bool, transpose_b: bool) -> Self {
        Self { batches: Batches::Matrices, transpose_a, transpose_b, conjugates: false }
    }

    /// TensorFlow's checks, in its order and words. Returns the batch dimensions of the result.
    fn check(&self, a: &[usize], b: &[usize]) -> Result<Dims> {
        let show = shape_text;
        if self.batches != Batches::Broadcast {
            require!(
                a.len() == b.len(),
                "In[0] and In[1] has different ndims: {} vs. {}",
                show(a),
                show(b)
            );
        }
        if self.batches == Batches::Matrices {
            require!(a.len() == 2, "In[0] and In[1] ndims must be == 2: {}", a.len());
        }
        require!(a.len() >= 2, "In[0] ndims must be >= 2: {}", a.len());
        require!(b.len() >= 2, "In[1] ndims must be >= 2: {}", b.len());
        let (batch_a, batch_b) = (&a[..a.len() - 2], &b[..b.len() - 2]);
        if self.batches == Batches::SameBatch {
            for (d, (x, y)) in batch_a.iter().zip(batch_b).enumerate() {
                require!(
                    x == y,
                    "In[0].dim({d}) and In[1].dim({d}) must be the same: {} vs {}",
                    show(a),
                    show(b)
                );
            }
        }
        let Ok(batch) = broadcast_dims(batch_a, batch_b) else {
            crate::invalid!(
                "In[0] and In[1] must have compatible batch dimensions: {} vs. {}",
                show(a),
                show(b)
            );
        };
        Ok(batch)
    }
}

/// Rows and columns of the last two dimensions.
fn edges(dims: &[usize], transposed: bool) -> (usize, usize) {
    let [rows, columns] = [dims[dims.len() - 2], dims[dims.len() - 1]];
    if transposed { (columns, rows) } else { (rows, columns) }
}

impl Kernel for MatMul {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        Product::compute(self, ctx)
    }
}

impl Product for MatMul {
    fn shape(&self, a: &[usize], b: &[usize]) -> Result<Dims> {
        let mut dims = self.check(a, b)?;
        let ((m, k), (k_b, n)) = (edges(a, self.transpose_a), edges(b, self.transpose_b));
        require!(
            k == k_b,
            "Matrix size-incompatible: In[0]: {}, In[1]: {}",
            shape_text(a),
            shape_text(b)
        );
        dims.extend([m, n]);
        Ok(dims)
    }

    fn result(&self, a: DType) -> DType {
        if a == DType::I8 { DType::I32 } else { a }
    }

    fn channel(&self, dims: &[usize]) -> usize {
        dims.len() - 1
    }

    fn plan<'e>(
        &self,
        profile: &Profile,
        [a, b, c]: [&Tensor; 3],
        epilogue: Option<Bound<'e>>,
    ) -> Result<ProductPlan<'e>> {
        let ((m, k), (_, n)) = (edges(&a.dims, self.transpose_a), edges(&b.dims, self.transpose_b));
        let batch = &c.dims[..c.rank() - 2];
        let (batch_a, batch_b) = (&a.dims[..a.rank() - 2], &b.dims[..b.rank() - 2]);
        // If all matrices share b, the batch becomes more rows of one product.
        let shared = !self.transpose_a
            && batch_b.iter().all(|d| *d == 1)
            && batch_a.iter().product::<usize>() > 1
            && batch_a.iter().product::<usize>() == batch.iter().product::<usize>();
        let (m, walk) = if shared {
            (
                m * batch.iter().product::<usize>(),
                Iteration::over(&[]).broadcast(&[]).broadcast(&[]).broadcast(&[]),
            )
        } else {
            (
                m,
                Iteration::over(batch)
                    .broadcast(batch_a)
                    .broadcast(batch_b)
                    .broadcast(batch)
                    .collapse(),
            )
        };
        let transposed = [self.transpose_a, self.transpose_b];
        let conjugates = self.conjugates && a.dtype.is_complex();
        Contraction::product([m, k, n], [a, b, c])
            .transposed(transposed)
            .over(walk)
            .conjugated(transposed.map(|t| t && conjugates))
            .plan(profile, epilogue)
    }
}
