//! An optimizer's scalars in one buffer, for programs that have no binding left for each of them.

use crate::device::{Grid, declare_program};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::shader::{List, Shader};
use crate::tensor::Tensor;

const NAMES: [&str; 7] = ["s0", "s1", "s2", "s3", "s4", "s5", "s6"];

/// A temporary with the values of `scalars`, in order.
pub fn pack(ctx: &mut dyn OpContext, scalars: &[Tensor]) -> Result<Tensor> {
    let dtype = scalars[0].dtype;
    let packed = ctx.temp(dtype.accumulator(), &[scalars.len()])?;
    let of = Pack::of(dtype, scalars.len());
    let scalars = NAMES.into_iter().zip(scalars.iter().map(Into::into)).collect();
    let call = Pack { scalars, packed: (&packed).into() };
    call.enqueue(ctx.device(), &of, Grid([1, 1, 1]))?;
    Ok(packed)
}

/// Every variant.
pub fn shaders() -> Vec<Shader> {
    super::table::ALL.iter().flat_map(|t| (1..=6).map(|n| Pack::shader(*t, n))).collect()
}

declare_program! {
    /// Writes `count` scalars one behind the other.
    struct Pack = "optimizer scalars"(dtype: DType, count: usize);
    lists { scalars: List(NAMES[..count].iter().map(|name| (*name, dtype))) }
    bindings { packed: dtype.accumulator() }
    params {}
}

impl Pack {
    fn shader(dtype: DType, count: usize) -> Shader {
        let store = |(k, name)| format!("    store_packed({k}u, load_{name}(0u));\n");
        let stores: String = NAMES[..count].iter().enumerate().map(store).collect();
        Self::declare(format!("{count} scalars {dtype}"), dtype, count)
            .workgroup([1, 1, 1])
            .body(&format!("{{{{ENTRY}}}} {{\n{stores}}}\n"))
    }
}
