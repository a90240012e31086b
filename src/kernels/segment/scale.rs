//! The step behind a segmented sum, or before its gradient: rows are divided by a function of their
//! segments' sizes, and rounded.

use super::TYPES;
use crate::device::{Binding, Grid, declare_program, enum_key_parts};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::kernels::sort::buckets::bounds;
use crate::shader::{Raw, Shader};
use crate::tensor::Tensor;

/// The divisor of the sum of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// The sum is not divided.
    One,
    /// The number of its rows.
    Mean,
    /// The square root of the number of its rows.
    SqrtN,
}

enum_key_parts!(Scale);

impl Scale {
    const ALL: [Self; 3] = [Self::One, Self::Mean, Self::SqrtN];
}

/// Writes the rows of `x`, each of which belongs to a segment, divided by `scale`, to `y`. `ids`
/// holds the segments that were reduced: uint32, ascending, not empty. One of the two types is the
/// accumulator's type for the other.
pub fn rescale(
    ctx: &mut dyn OpContext,
    scale: Scale,
    ids: &Tensor,
    x: &Tensor,
    y: &Tensor,
) -> Result<()> {
    let bounds = if scale == Scale::One { ids.clone() } else { bounds(ctx, ids, y.dims[0])? };
    let (loaded, stored) = (x.dtype, y.dtype);
    let count = ctx.device().check_extent(y.len())?;
    ctx.device().enqueue_counted(
        &ScaleSegments {
            x: x.into(),
            bounds: Binding::raw(&bounds, 4),
            y: y.into(),
            count,
            inner: y.len() / y.dims[0],
        }
        .program(&ScaleSegments::of(loaded, stored, scale), Grid::map(y.len(), stored)),
        if scale == Scale::One { 0 } else { stored.flops(y.len()) },
    )
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    let mut all = Vec::new();
    for dtype in TYPES {
        let wide = dtype.accumulator();
        all.extend(Scale::ALL.map(|scale| ScaleSegments::shader(wide, *dtype, scale)));
        if wide != *dtype {
            all.extend(
                [Scale::Mean, Scale::SqrtN].map(|scale| ScaleSegments::shader(*dtype, wide, scale)),
            );
        }
    }
    all
}

declare_program! {
    /// Divides sums by the number of their rows.
    struct ScaleSegments = "segment scale"(loaded: DType, stored: DType, scale: Scale);
    bindings { x: loaded, bounds: Raw("u32", 4), y: stored }
    params { count: u32, inner: usize }
}

impl ScaleSegments {
    fn shader(loaded: DType, stored: DType, scale: Scale) -> Shader {
        let value = stored.accumulator().value();
        let rows = format!("{value}(max(bounds[s + 1u] - bounds[s], 1u))");
        let divisor = match scale {
            Scale::One => String::new(),
            Scale::Mean => format!(" / {rows}"),
            Scale::SqrtN => format!(" / sqrt({rows})"),
        };
        Self::declare(format!("segment scale {scale:?} {loaded} {stored}"), loaded, stored, scale)
        .body(&format!(
            "fn value(i: u32) -> {value} {{\n    let s = p.off_bounds + i / p.inner;\n    return \
             load_x(i){divisor};\n}}"
        ))
        .map("y")
    }
}
