//! The ops whose kernels are registered with TensorFlow.

use std::sync::OnceLock;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::op::{Attrs, Kernel};
use crate::kernels::registry::Registration;

/// The ops registered with TensorFlow; empty without devices.
pub static OPS: OnceLock<Vec<Op>> = OnceLock::new();

/// One op with all its registrations, which share a create function.
pub struct Op {
    /// Its name.
    pub name: &'static str,
    /// The attributes by which the rows differ.
    pub attrs: Vec<&'static str>,
    /// The registrations.
    pub rows: Vec<Registration>,
}

/// Groups the rows by op, in order of first appearance.
pub fn by_op(rows: &[Registration]) -> Vec<Op> {
    let mut index = rustc_hash::FxHashMap::default();
    let mut ops: Vec<Op> = Vec::new();
    for row in rows {
        let at = *index.entry(row.op).or_insert_with(|| {
            ops.push(Op { name: row.op, attrs: Vec::new(), rows: Vec::new() });
            ops.len() - 1
        });
        for (attr, _) in &row.types {
            if !ops[at].attrs.contains(attr) {
                ops[at].attrs.push(attr);
            }
        }
        ops[at].rows.push(row.clone());
    }
    ops
}

/// The registered kernel of an op for tensors within a variant. The type must be the only attribute
/// that matters.
pub fn kernel_for(
    op: &'static str,
    attr: &'static str,
    dtype: DType,
) -> Option<Result<Box<dyn Kernel>>> {
    let rows = &OPS.get()?.iter().find(|o| o.name == op)?.rows;
    let row = rows.iter().find(|row| row.types == [(attr, dtype)])?;
    Some((row.create)(&OneType { op, attr, dtype }))
}

/// The attributes of a node that has only a type.
struct OneType {
    op: &'static str,
    attr: &'static str,
    dtype: DType,
}

impl OneType {
    fn missing<T>(&self, name: &str) -> Result<T> {
        Err(Error::Internal(format!("{} within a variant has no attribute {name}", self.op)))
    }
}

impl Attrs for OneType {
    fn op(&self) -> &str {
        self.op
    }
    fn dtype(&self, name: &str) -> Result<DType> {
        if name == self.attr { Ok(self.dtype) } else { self.missing(name) }
    }
    fn int(&self, name: &str) -> Result<i64> {
        self.missing(name)
    }
    fn float(&self, name: &str) -> Result<f32> {
        self.missing(name)
    }
    fn bool(&self, name: &str) -> Result<bool> {
        self.missing(name)
    }
    fn string(&self, name: &str) -> Result<String> {
        self.missing(name)
    }
    fn ints(&self, name: &str) -> Result<Vec<i64>> {
        self.missing(name)
    }
    fn floats(&self, name: &str) -> Result<Vec<f32>> {
        self.missing(name)
    }
    fn byte_strings(&self, name: &str) -> Result<Vec<Vec<u8>>> {
        self.missing(name)
    }
    fn dtypes(&self, name: &str) -> Result<Vec<DType>> {
        self.missing(name)
    }
}
