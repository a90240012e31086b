//! The last step of a contraction that was cut or whose result is packed: adds partial sums and
//! rounds to the result's type.

use smallvec::smallvec;

use super::element::declarations;
use super::epilogue::{Bound, EpilogueVariant, channel_of};
use super::plan::Dispatch;
use super::text::{FINISH, vec4s_of};
use crate::device::{Binding, Device, Grid, Key, Params};
use crate::dtype::DType;
use crate::error::Result;
use crate::shader::{Shader, WORKGROUP};
use crate::tensor::Tensor;

/// The program's text for results of `dtype`.
pub fn shader(dtype: DType) -> Shader {
    text(dtype.accumulator(), dtype, None)
}

/// The same for partial sums of another type and an epilogue.
pub(super) fn text(partial: DType, dtype: DType, epilogue: Option<&EpilogueVariant>) -> Shader {
    let mut shader = Shader::new(format!("contract finish {partial} {dtype} {epilogue:?}"))
        .bind("partial", partial)
        .bind("y", dtype)
        .u32s(&["count", "split_k"])
        .define("SUM", partial.value())
        .define("T", dtype.value());
    shader = match epilogue {
        Some(variant) => {
            let (call, reads) = (
                variant.call("sum", "i", &channel_of("i"), ""),
                variant.reads("i", &channel_of("i")),
            );
            variant
                .declare(shader, |shader, _, _| shader)
                .define("READS", reads)
                .define("RESULT", call)
        }
        None => shader.define("READS", "").define("RESULT", "sum"),
    };
    shader.body(include_str!("../../../shaders/contract/finish.wgsl")).map("y")
}

/// The text for four neighbours at a time.
pub(super) fn vec4_text(
    partial: DType,
    dtype: DType,
    epilogue: Option<&EpilogueVariant>,
) -> Shader {
    let mut shader =
        Shader::new(format!("contract finish in vec4s {partial} {dtype} {epilogue:?}"));
    shader = vec4s_of(shader.body(&declarations(partial)), "partial", partial);
    shader = vec4s_of(shader, "c", dtype).u32s(&["count", "split_k"]);
    shader = match epilogue {
        Some(variant) => variant.declare(shader, vec4s_of).body(&variant.finish("", false)),
        None => shader.body(FINISH),
    };
    shader.body(include_str!("../../../shaders/contract/finish_vec4s.wgsl"))
}

/// The types whose sums are added in vec4s.
pub(super) fn in_vec4s(dtype: DType) -> bool {
    dtype.is_single() || dtype == DType::I32
}

/// Enqueues `y[i] = sum over s of partial[s][i]`, in order.
pub fn enqueue(device: &Device, partial: &Tensor, y: &Tensor) -> Result<()> {
    dispatch(partial, y, None, true).enqueue(device)
}

/// The program for `y[i] = sum over s of partial[s][i]`, in order, with an epilogue on the sums.
/// `rows` tells whether vec4s of the result lie within a row of columns, as an epilogue in vec4s
/// needs.
pub fn dispatch(
    partial: &Tensor,
    y: &Tensor,
    epilogue: Option<&Bound<'_>>,
    rows: bool,
) -> Dispatch {
    let aligned =
        |t: &Tensor| in_vec4s(t.dtype) && t.address.is_multiple_of(4 * t.dtype.size() as u64);
    let vec4s = rows && y.len().is_multiple_of(4) && aligned(partial) && aligned(y);
    let variant = epilogue.map(|e| e.variant(vec4s));
    let mut key =
        Key::new("contract finish").number(u32::from(vec4s)).dtype(partial.dtype).dtype(y.dtype);
    let mut params = Params::new().u32(y.len()).u32(partial.len() / y.len());
    let unit = |t: &Tensor| Binding::raw(t, t.dtype.size() as u32 * if vec4s { 4 } else { 1 });
    let mut bindings = smallvec![unit(partial), unit(y)];
    if let (Some(epilogue), Some(variant)) = (epilogue, &variant) {
        key = variant.key(key);
        params = epilogue.params(params);
        bindings.extend(epilogue.bindings(variant));
    }
    let make = if vec4s { vec4_text } else { text };
    let types = [partial.dtype, y.dtype];
    Dispatch {
        flops: 0,
        key,
        shader: Box::new(move || make(types[0], types[1], variant.as_ref())),
        bindings,
        params,
        grid: if vec4s {
            Grid::linear(y.len() / 4, WORKGROUP)
        } else {
            Grid::map(y.len(), y.dtype)
        },
    }
}
