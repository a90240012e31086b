//! The last step of a contraction that was cut or whose result is packed: adds partial sums and
//! rounds to the result's type.

use smallvec::smallvec;

use super::element::declarations;
use super::epilogue::{Bound, EpilogueVariant, channel_of};
use super::programs::Dispatch;
use super::text::{FINISH, store4, vec4s_of};
use crate::device::{Binding, Device, Grid, Key, Params};
use crate::dtype::{DType, Operations};
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
    finished(shader, epilogue)
        .define(
            "STORE",
            format!("    let v = finish(sum, i, 0u);\n{}", store4(epilogue, "i", "v", "    ")),
        )
        .body(include_str!("../../../shaders/contract/finish_vec4s.wgsl"))
}

/// Declares `finish`, which is applied to four sums.
fn finished(shader: Shader, epilogue: Option<&EpilogueVariant>) -> Shader {
    match epilogue {
        Some(variant) => variant.declare(shader, vec4s_of).body(&variant.finish("", false)),
        None => shader.body(FINISH),
    }
}

/// The text for four neighbours at a time. The neighbours from `split` on are sums of columns and
/// go to a result of their own.
pub(super) fn both_text(
    partial: DType,
    dtypes: [DType; 2],
    epilogue: Option<&EpilogueVariant>,
) -> Shader {
    let [dtype, sums] = dtypes;
    let mut shader =
        Shader::new(format!("contract finish with sums {partial} {dtype} {sums} {epilogue:?}"));
    shader = vec4s_of(shader.body(&declarations(partial)), "partial", partial);
    shader = vec4s_of(vec4s_of(shader, "c", dtype), "c_sums", sums);
    shader = shader.u32s(&["count", "split_k", "split"]);
    finished(shader, epilogue)
        .define(
            "STORE",
            "    if i < p.split {\n        store4_c(i, finish(sum, i, 0u));\n    } else {\n        \
             store4_c_sums(i - p.split, sum);\n    }",
        )
        .body(include_str!("../../../shaders/contract/finish_vec4s.wgsl"))
}

/// The types whose sums are added in vec4s.
pub(super) fn in_vec4s(dtype: DType) -> bool {
    dtype.is_single() || dtype == DType::I32
}

/// Enqueues `y[i] = sum over s of partial[s][i]`, in order.
pub fn enqueue(device: &Device, partial: &Tensor, y: &Tensor) -> Result<()> {
    dispatch(partial, y, None, true).enqueue(device)
}

/// Whether [`dispatch_both`] can store to these results.
pub(super) fn stores_both(y: &Tensor, sums: &Tensor) -> bool {
    let four = |t: &Tensor| {
        in_vec4s(t.dtype)
            && t.len().is_multiple_of(4)
            && t.address.is_multiple_of(4 * t.dtype.size() as u64)
    };
    four(y) && four(sums)
}

/// The same for partial sums of `y` and, behind them, of `sums`, to which the epilogue does not
/// apply.
pub(super) fn dispatch_both(
    partial: &Tensor,
    y: &Tensor,
    sums: &Tensor,
    epilogue: Option<&Bound<'_>>,
) -> Dispatch {
    let variant = epilogue.map(|e| e.variant(true));
    let types = [y.dtype, sums.dtype];
    let mut key = Key::new("contract finish with sums").dtype(partial.dtype);
    key = key.dtype(y.dtype).dtype(sums.dtype);
    let count = y.len() + sums.len();
    let mut params = Params::new().u32(count).u32(partial.len() / count).u32(y.len());
    let unit = |t: &Tensor| Binding::raw(t, t.dtype.size() as u32 * 4);
    let mut bindings = smallvec![unit(partial), unit(y), unit(sums)];
    if let (Some(epilogue), Some(variant)) = (epilogue, &variant) {
        key = variant.key(key);
        params = epilogue.params(params);
        bindings.extend(epilogue.bindings(variant));
    }
    let computed = partial.dtype;
    Dispatch {
        operations: Operations::default(),
        key,
        shader: Box::new(move || both_text(computed, types, variant.as_ref())),
        bindings,
        params,
        grid: Grid::linear(count / 4, WORKGROUP),
    }
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
        operations: Operations::default(),
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
