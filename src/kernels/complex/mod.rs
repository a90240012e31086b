//! Complex numbers: elementwise ops, conversions and the conjugate transpose. A complex number is a
//! `vec2` of its parts.
//!
//! The ops are rows ([`table`]) of the same kind as the real ones', run by the same program. Sums
//! and products over axes are rows of `reduce`, segment sums belong to `scatter`.

pub mod reference;
pub mod table;

use super::movement::plan::ElementSource;
use super::movement::rearrange;
use super::op::OpContext;
use super::registry::Registry;
use super::scalar::row::Row;
use super::scalar::{self, cast, kernel};
use crate::dtype::{DType, types};
use crate::error::Result;
use crate::shader::Shader;

/// complex64 and, where the adapter has float64, complex128.
pub const COMPLEX: &[DType] = types::COMPLEX;

/// Adds the family's ops.
pub fn register(registry: &mut Registry) {
    for row in table::ROWS {
        scalar::register_row(registry, row);
    }
    registry.op("Cast").types("SrcT", COMPLEX).types("DstT", COMPLEX).kernel(cast::Cast::new);
    registry.op("Cast").types("SrcT", COMPLEX).types("DstT", cast::TYPES).kernel(cast::Cast::new);
    registry.op("Cast").types("SrcT", cast::TYPES).types("DstT", COMPLEX).kernel(cast::Cast::new);
    let builder = registry.op("ConjugateTranspose").types("T", COMPLEX).host(&["perm"]);
    builder.kernel(|attrs| {
        let dtype = attrs.dtype("T")?;
        Ok(move |ctx: &mut dyn OpContext| conjugate_transpose(ctx, dtype))
    });
}

/// The row of an op.
fn row(op: &str) -> &'static Row {
    table::ROWS.iter().find(|r| r.op == op).unwrap_or_else(|| panic!("no complex row {op}"))
}

/// `Conj` of a permuted walk.
fn conjugate_transpose(ctx: &mut dyn OpContext, dtype: DType) -> Result<()> {
    let x = ctx.input(0)?;
    let plan = rearrange::transpose(ctx, &x.dims)?;
    let y = ctx.output(0, dtype, &plan.dims)?;
    let ElementSource::Strided(walk) = plan.source else { unreachable!("a transpose is strided") };
    kernel::signature(row("Conj"), dtype, &[dtype], &[], |s| {
        s.run_walk(ctx.device(), &walk, &[x], &y)
    })
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    let mut shaders: Vec<Shader> = table::ROWS.iter().flat_map(scalar::row_shaders).collect();
    let conversions =
        COMPLEX.iter().flat_map(|c| COMPLEX.iter().chain(cast::TYPES).map(move |t| (*c, *t)));
    for (from, to) in conversions.flat_map(|(a, b)| [(a, b), (b, a)]).filter(|(a, b)| a != b) {
        shaders.extend(cast::signature(from, to, false, |s| s.linear_shaders()));
    }
    shaders
}
