//! The segmented reduction: rows with ascending segment ids are combined by segment, in an order
//! that depends only on the ids.
//!
//! Rows are reduced in chunks, level by level, so no invocation walks one huge segment or a million
//! small ones. Half types are accumulated in float32.

use crate::device::{Binding, Grid, declare_program, enum_key_parts};
use crate::dtype::DType::{self, *};
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::shader::{Shader, Storage, WORKGROUP};
use crate::tensor::Tensor;

/// Rows in a chunk: an even number, far below [`crate::device::Profile::loop_limit`].
const CHUNK: usize = 64;

/// Columns that one invocation reduces at once, if possible.
const QUAD: usize = 4;

/// How values are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Fold {
    Sum,
    Prod,
    Min,
    Max,
}

enum_key_parts!(Fold);

impl Fold {
    /// Every fold.
    pub const ALL: [Self; 4] = [Self::Sum, Self::Prod, Self::Min, Self::Max];

    const fn text(self) -> &'static str {
        match self {
            Self::Sum => "a + b",
            Self::Prod => "a * b",
            Self::Min => "min(a, b)",
            Self::Max => "max(a, b)",
        }
    }
}

/// Rows to be reduced.
#[derive(Debug, Clone, Copy)]
pub struct Segments<'a> {
    /// The way in which values are combined.
    pub fold: Fold,
    /// The segment of each row: uint32, ascending. Ids from the number of segments on are dropped.
    pub ids: &'a Tensor,
    /// The row of `data` at each place (uint32), unless it is the row of that number. Rows past the
    /// last one count as zeros.
    pub rows: Option<&'a Tensor>,
    /// The rows.
    pub data: &'a Tensor,
    /// Elements of a row.
    pub inner: usize,
}

impl Segments<'_> {
    /// Enqueues the reduction into `out`, rows of the accumulator's type. Segments without rows are
    /// left unchanged.
    pub fn enqueue(&self, ctx: &mut dyn OpContext, out: &Tensor) -> Result<()> {
        let n = self.ids.len();
        if n == 0 || self.inner == 0 || out.is_empty() {
            return Ok(());
        }
        debug_assert_eq!((self.ids.dtype, out.dtype), (U32, self.data.dtype.accumulator()));
        let chunks = n.div_ceil(CHUNK);
        ctx.device().check_extent(self.data.len().max(out.len()).max(2 * chunks * self.inner))?;
        let partial_ids = ctx.temp(U32, &[2 * chunks])?;
        let partials = ctx.temp(out.dtype, &[2 * chunks, self.inner])?;
        let (fold, loaded, permuted) = (self.fold, self.data.dtype, self.rows.is_some());
        let tensors = [self.data, out, &partials];
        let wide = loaded == F32
            && self.inner.is_multiple_of(QUAD)
            && tensors.iter().all(|t| t.address.is_multiple_of(4 * QUAD as u64));
        let columns = if wide { self.inner / QUAD } else { self.inner };
        let count = chunks * columns;
        let binding = |t: &Tensor| if wide { Binding::raw(t, 4 * QUAD as u32) } else { t.into() };
        ctx.device().enqueue_counted(
            &ReduceSegments {
                ids: self.ids.into(),
                rows: self.rows.unwrap_or(self.ids).into(),
                data: binding(self.data),
                out: binding(out),
                partial_ids: (&partial_ids).into(),
                partials: binding(&partials),
                count,
                n,
                inner: columns,
                chunk: CHUNK,
                segments: out.len() / self.inner,
                data_rows: self.data.len() / self.inner,
            }
            .program(
                &ReduceSegments::of(fold, loaded, wide, permuted),
                Grid::linear(count, WORKGROUP),
            ),
            loaded.flops(n * self.inner),
        )?;
        if chunks == 1 {
            return Ok(());
        }
        Segments { ids: &partial_ids, rows: None, data: &partials, ..*self }.enqueue(ctx, out)
    }
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    let both = |fold, t, wide| {
        [false, true].map(|permuted| ReduceSegments::shader(fold, t, wide, permuted))
    };
    let mut all: Vec<_> =
        [I32, U32, I64, U64].into_iter().flat_map(|t| both(Fold::Sum, t, false)).collect();
    for fold in Fold::ALL {
        all.extend([F32, F16, BF16, F64].into_iter().flat_map(|t| both(fold, t, false)));
        all.extend(both(fold, F32, true));
    }
    all
}

/// Elements of type `dtype`, or four columns of float32 if `wide`.
fn columns(dtype: DType, wide: bool) -> Storage {
    if wide { Storage::Raw("vec4<f32>", 16) } else { Storage::Typed(dtype) }
}

declare_program! {
    /// Reduces the rows of each chunk, for rows of type `loaded`; `wide` is for four columns of
    /// float32 at once, `permuted` for rows in another order.
    struct ReduceSegments = "segment reduce"(fold: Fold, loaded: DType, wide: bool, permuted: bool);
    bindings {
        ids: U32, rows: U32, data: columns(loaded, wide), out: columns(loaded.accumulator(), wide),
        partial_ids: U32, partials: columns(loaded.accumulator(), wide),
    }
    params { count: usize, n: usize, inner: usize, chunk: usize, segments: usize, data_rows: usize }
}

impl ReduceSegments {
    fn shader(fold: Fold, loaded: DType, wide: bool, permuted: bool) -> Shader {
        let computed = loaded.accumulator();
        let shader = Self::declare(
            format!("segment {fold:?} {loaded} {wide} {permuted}"),
            fold,
            loaded,
            wide,
            permuted,
        );
        let shader = if wide {
            let accessors = |name: &str| {
                format!(
                    "fn load_{name}(i: u32) -> vec4<f32> {{\n    return {name}[p.off_{name} + \
                 i];\n}}\n\nfn store_{name}(i: u32, v: vec4<f32>) {{\n    {name}[p.off_{name} + \
                 i] = v;\n}}\n"
                )
            };
            shader.body(&["data", "out", "partials"].map(accessors).concat())
        } else {
            shader
        };
        let element = if permuted {
            "    let row = load_rows(i);\n    let v = load_data(min(row, p.data_rows - 1u) * \
             p.inner + column);\n    return select(Value(), v, row < p.data_rows);"
        } else {
            "    return load_data(i * p.inner + column);"
        };
        shader
            .define("VALUE", if wide { "vec4<f32>" } else { computed.value() })
            .define("COMBINE", fold.text())
            .define("ELEMENT", element)
            .body(include_str!("../../../shaders/segment/reduce.wgsl"))
    }
}
