//! An optimizer's scalars in one buffer, for programs that have no binding left for each of them.

use smallvec::SmallVec;

use crate::device::{Grid, Key, Params, Program};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::shader::Shader;
use crate::tensor::Tensor;

const NAMES: [&str; 7] = ["s0", "s1", "s2", "s3", "s4", "s5", "s6"];

/// A temporary with the values of `scalars`, in order.
pub fn pack(ctx: &mut dyn OpContext, scalars: &[Tensor]) -> Result<Tensor> {
    let dtype = scalars[0].dtype;
    let packed = ctx.temp(dtype.accumulator(), &[scalars.len()])?;
    let mut bindings: SmallVec<[_; 8]> = scalars.iter().map(Into::into).collect();
    bindings.push((&packed).into());
    ctx.device().enqueue(&Program {
        key: Key::new("optimizer scalars").dtype(dtype).number(scalars.len() as u32),
        shader: &|| shader(dtype, scalars.len()),
        bindings,
        params: Params::new(),
        grid: Grid([1, 1, 1]),
    })?;
    Ok(packed)
}

/// Every variant.
pub fn shaders() -> Vec<Shader> {
    super::table::ALL.iter().flat_map(|t| (1..=6).map(|n| shader(*t, n))).collect()
}

fn shader(dtype: DType, count: usize) -> Shader {
    let names = &NAMES[..count];
    let shader =
        names.iter().fold(Shader::new(format!("{count} scalars {dtype}")), |s, n| s.bind(n, dtype));
    let stores: String = names
        .iter()
        .enumerate()
        .map(|(k, n)| format!("    store_packed({k}u, load_{n}(0u));\n"))
        .collect();
    shader
        .bind("packed", dtype.accumulator())
        .workgroup([1, 1, 1])
        .body(&format!("{{{{ENTRY}}}} {{\n{stores}}}\n"))
}
