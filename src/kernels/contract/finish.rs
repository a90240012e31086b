//! The last step of a contraction that was cut or whose result is packed: adds partial sums and rounds to the result's type.

use smallvec::smallvec;

use super::element::computed;
use super::epilogue::{Bound, Form, channel_of};
use crate::device::{Device, Grid, Key, Params, Program};
use crate::dtype::DType;
use crate::error::Result;
use crate::shader::Shader;
use crate::tensor::Tensor;

/// The program's text for results of `dtype`.
pub fn shader(dtype: DType) -> Shader {
    text(computed(dtype), dtype, None)
}

/// The same for partial sums of another type and an epilogue.
pub(super) fn text(partial: DType, dtype: DType, epilogue: Option<&Form>) -> Shader {
    let mut shader = Shader::new(format!("contract finish {partial} {dtype} {epilogue:?}"))
        .bind("partial", partial)
        .bind("y", dtype)
        .u32s(&["count", "splits"])
        .define("SUM", partial.value())
        .define("T", dtype.value());
    shader = match epilogue {
        Some(form) => {
            let (call, reads) = (form.call("sum", "i", &channel_of("i"), ""), form.reads("i", &channel_of("i")));
            form.declare(shader, |shader, _, _| shader).define("READS", reads).define("RESULT", call)
        }
        None => shader.define("READS", "").define("RESULT", "sum"),
    };
    shader.body(include_str!("../../../shaders/contract/finish.wgsl")).map("y")
}

/// Enqueues `y[i] = sum over s of partial[s][i]`, in order.
pub fn enqueue(device: &Device, partial: &Tensor, y: &Tensor) -> Result<()> {
    enqueue_with(device, partial, y, None)
}

/// The same with an epilogue on the sums.
pub(super) fn enqueue_with(device: &Device, partial: &Tensor, y: &Tensor, epilogue: Option<&Bound<'_>>) -> Result<()> {
    let form = epilogue.map(|e| e.form(false));
    let mut key = Key::new("contract finish").dtype(partial.dtype).dtype(y.dtype);
    let mut params = Params::new().u32(y.len()).u32(partial.len() / y.len());
    let mut bindings = smallvec![partial.into(), y.into()];
    if let (Some(epilogue), Some(form)) = (epilogue, &form) {
        key = form.key(key);
        params = epilogue.params(params);
        bindings.extend(epilogue.bindings(form));
    }
    device.enqueue(&Program {
        key,
        shader: &|| text(partial.dtype, y.dtype, form.as_ref()),
        bindings,
        params,
        grid: Grid::map(y.len(), y.dtype),
    })
}
