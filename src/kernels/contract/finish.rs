//! The last step of a contraction that was cut or whose result is packed: adds partial sums and rounds to the result's type.

use smallvec::smallvec;

use super::element::computed;
use crate::device::{Device, Grid, Key, Params, Program};
use crate::dtype::DType;
use crate::error::Result;
use crate::shader::Shader;
use crate::tensor::Tensor;

/// The program's text for results of `dtype`.
pub fn shader(dtype: DType) -> Shader {
    Shader::new(format!("contract finish {dtype}"))
        .bind("partial", computed(dtype))
        .bind("y", dtype)
        .u32s(&["count", "splits"])
        .define("T", dtype.value())
        .body(include_str!("../../../shaders/contract/finish.wgsl"))
        .map("y")
}

/// Enqueues `y[i] = sum over s of partial[s][i]`, in order.
pub fn enqueue(device: &Device, partial: &Tensor, y: &Tensor) -> Result<()> {
    let dtype = y.dtype;
    device.enqueue(&Program {
        key: Key::new("contract finish").dtype(dtype),
        shader: &|| shader(dtype),
        bindings: smallvec![partial.into(), y.into()],
        params: Params::new().u32(y.len()).u32(partial.len() / y.len()),
        grid: Grid::map(y.len(), dtype),
    })
}
