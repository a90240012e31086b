//! The two programs of every scatter: one chains the indices of each row, the other folds each
//! chain into the destination in place.

use crate::device::{Binding, Grid, declare_program, enum_key_parts};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::gather::index::{AnyIndices, IndexParams, Indices};
use crate::kernels::movement::walk::window_limit;
use crate::kernels::op::OpContext;
use crate::shader::{Access, Raw, Shader, WORKGROUP, vec4};
use crate::tensor::Tensor;

/// The effect of an update on an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are TensorFlow's")]
pub enum Fold {
    Update,
    Add,
    Sub,
    Mul,
    Div,
    Min,
    Max,
}

impl Fold {
    /// Every fold.
    pub const ALL: [Self; 7] =
        [Self::Update, Self::Add, Self::Sub, Self::Mul, Self::Div, Self::Min, Self::Max];

    /// The WGSL of one step of a chain, and the text that follows the last step.
    const fn text(self) -> (&'static str, &'static str) {
        match self {
            Self::Update => ("last = max(last, n);", "acc = update(last, k);"),
            Self::Add => ("acc = acc + update(n, k);", ""),
            Self::Sub => ("acc = acc - update(n, k);", ""),
            Self::Mul => ("acc = acc * update(n, k);", ""),
            Self::Div => ("acc = acc / update(n, k);", ""),
            Self::Min => ("acc = min(acc, update(n, k));", ""),
            Self::Max => ("acc = max(acc, update(n, k));", ""),
        }
    }
}

/// Indices that are chained at once. The limit keeps the length of a chain well below
/// [`crate::device::Profile::loop_limit`]; later blocks fold into the results of earlier ones.
pub const BLOCK: usize = 1 << 15;

/// Updates for rows of `inner` elements.
#[derive(Debug, Clone)]
pub struct Scatter<'a> {
    /// The effect of an update.
    pub fold: Fold,
    /// The indices of the rows.
    pub indices: &'a Indices,
    /// Number of indices.
    pub count: usize,
    /// One row for each index, or a scalar for all rows.
    pub updates: &'a Tensor,
    /// Elements of a row.
    pub inner: usize,
}

impl Scatter<'_> {
    /// Enqueues the updates of `dst`, in place.
    pub fn enqueue(&self, ctx: &mut dyn OpContext, dst: &Tensor) -> Result<()> {
        let rows = self.indices.rows();
        if self.count == 0 || self.inner == 0 || rows == 0 {
            return Ok(());
        }
        ctx.device().check_extent(rows)?;
        let row_bytes = self.inner as u64 * dst.dtype.size() as u64;
        let fitting = (window_limit(ctx.device()) / row_bytes).max(1) as usize;
        let block = BLOCK.min(fitting).min(self.count);
        let heads = ctx.temp(DType::U32, &[rows])?;
        let links = ctx.temp(DType::U32, &[block])?;
        // Windows are whole words of packed rows.
        let window = if rows <= fitting { rows } else { (fitting / 4 * 4).max(1) };
        for first in (0..self.count).step_by(block) {
            let count = block.min(self.count - first);
            ctx.device().fill(heads.address, heads.bytes(), u32::MAX)?;
            link(ctx, self.indices, &heads, &links, first, count)?;
            for first_row in (0..rows).step_by(window) {
                let part =
                    ChainWindow { first, count, first_row, rows: window.min(rows - first_row) };
                self.fold(ctx, &heads, &links, dst, &part)?;
            }
        }
        Ok(())
    }

    fn fold(
        &self,
        ctx: &dyn OpContext,
        heads: &Tensor,
        links: &Tensor,
        dst: &Tensor,
        part: &ChainWindow,
    ) -> Result<()> {
        let (fold, dtype) = (self.fold, dst.dtype);
        let size = dtype.size() as u64;
        let scalar = self.updates.dims.is_empty() && self.count * self.inner != 1;
        let slice = |t: &Tensor, first: usize, n: usize| Binding {
            address: t.address + (first * self.inner) as u64 * size,
            bytes: (n * self.inner) as u64 * size,
            unit: size as u32,
        };
        let mut updates =
            if scalar { self.updates.into() } else { slice(self.updates, part.first, part.count) };
        let mut target = slice(dst, part.first_row, part.rows);
        let elements = part.rows * self.inner;
        let unit = vec4::unit(dtype);
        let vec4s = !scalar
            && vec4::supports(dtype)
            && self.inner.is_multiple_of(vec4::WIDTH as usize)
            && [updates.address, target.address].iter().all(|a| a.is_multiple_of(u64::from(unit)));
        if vec4s {
            (updates.unit, target.unit) = (unit, unit);
        }
        let columns = Columns::of(dtype, vec4s);
        let inner = columns.in_row(self.inner);
        let invocations = columns.invocations(dtype, part.count * inner, elements);
        ctx.device().check_extent(invocations.max(elements))?;
        let flops = if fold == Fold::Update { 0 } else { dtype.flops(part.count * self.inner) };
        ctx.device().enqueue_counted(
            &FoldChains {
                heads: heads.into(),
                links: links.into(),
                updates,
                dst: target,
                indices: self.indices.binding(part.first, part.count),
                // The dense program counts elements, the sparse one indices; both bound chains by
                // the number of indices.
                count: if columns == Columns::Word { elements } else { part.count },
                chain: part.count,
                inner,
                first_row: part.first_row,
                rows: part.rows,
                update_stride: !scalar,
                index: self.indices.params(),
            }
            .program(&FoldChains::of(fold, dtype, columns), Grid::linear(invocations, WORKGROUP)),
            flops,
        )
    }
}

/// Chains the indices from `first` on by the row that they name. `heads`, filled with ones,
/// receives the last index of each row so far; `links` receives the index before.
pub fn link(
    ctx: &dyn OpContext,
    indices: &Indices,
    heads: &Tensor,
    links: &Tensor,
    first: usize,
    count: usize,
) -> Result<()> {
    LinkChains {
        heads: heads.into(),
        links: links.into(),
        indices: indices.binding(first, count),
        count,
        index: indices.params(),
    }
    .enqueue(ctx.device(), &LinkChains::of(), Grid::linear(count, WORKGROUP))
}

/// Some of the indices and some of the destination's rows.
struct ChainWindow {
    first: usize,
    count: usize,
    first_row: usize,
    rows: usize,
}

declare_program! {
    /// Chains indices by the row that they name.
    pub struct LinkChains = "scatter link"();
    bindings { heads: Raw("atomic<u32>", 4), links: Raw("u32", 4), indices: AnyIndices }
    params { count: usize, index: IndexParams }
}

impl LinkChains {
    /// Its shader.
    pub fn shader() -> Shader {
        Self::declare("scatter link").body(include_str!("../../../shaders/scatter/link.wgsl"))
    }
}

/// The entry point of programs in which the index at the head of a row's chain serves that row;
/// `{{HEAD}}` is that index of `row`, `{{INDICES}}` the number of indices, and `apply` the work.
pub const ROWS: &str = include_str!("../../../shaders/scatter/rows.wgsl");

/// The columns that an invocation computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Columns {
    /// A column of a row that an index names.
    One,
    /// A vec4 of columns, where rows and tensors begin at whole vec4s.
    Vec4,
    /// A word of packed elements of any rows.
    Word,
}

impl Columns {
    /// The columns for elements of `dtype`; `vec4s` says whether rows and tensors begin at vec4s.
    pub const fn of(dtype: DType, vec4s: bool) -> Self {
        match (vec4s, dtype.lanes()) {
            (true, _) => Self::Vec4,
            (false, 1) => Self::One,
            (false, _) => Self::Word,
        }
    }

    /// The columns that elements of `dtype` may need.
    pub fn all(dtype: DType) -> impl Iterator<Item = Self> {
        let vec4s: &[bool] = if vec4::supports(dtype) { &[true, false] } else { &[false] };
        vec4s.iter().map(move |vec4s| Self::of(dtype, *vec4s))
    }

    /// The extent of a row of `inner` elements, in the shaders' units.
    pub const fn in_row(self, inner: usize) -> usize {
        match self {
            Self::Vec4 => inner / vec4::WIDTH as usize,
            Self::One | Self::Word => inner,
        }
    }

    /// The number of invocations for `named` columns of rows that indices name, in tensors of
    /// `elements` elements.
    pub const fn invocations(self, dtype: DType, named: usize, elements: usize) -> usize {
        match self {
            Self::Word => elements.div_ceil(dtype.lanes() as usize),
            Self::One | Self::Vec4 => named,
        }
    }
}

enum_key_parts!(Columns, Fold);

declare_program! {
    /// Folds chains of updates of `dtype` into the destination.
    struct FoldChains = "scatter fold"(fold: Fold, dtype: DType, columns: Columns);
    bindings {
        heads: Raw("u32", 4),
        links: Raw("u32", 4),
        updates: Access::read(dtype, columns == Columns::Vec4),
        dst: Access::update(dtype, columns == Columns::Vec4),
        indices: AnyIndices,
    }
    params {
        count: usize, chain: usize, inner: usize, first_row: usize, rows: usize,
        update_stride: bool, index: IndexParams,
    }
}

impl FoldChains {
    fn shader(fold: Fold, dtype: DType, columns: Columns) -> Shader {
        let (step, finish) = fold.text();
        let label = format!("scatter {fold:?} {dtype} {columns:?}");
        let shader = Self::declare(label, fold, dtype, columns);
        let shader = match columns {
            Columns::Vec4 => shader
                .body(include_str!("../../../shaders/scatter/vec4.wgsl"))
                .define("VALUE", format!("vec4<{}>", dtype.value())),
            _ => shader.define("VALUE", dtype.value()),
        };
        let shader = shader
            .define("STEP", step)
            .define("FINISH", finish)
            .body(include_str!("../../../shaders/scatter/fold.wgsl"));
        match columns {
            Columns::Word => {
                shader.body(include_str!("../../../shaders/scatter/dense.wgsl")).map("dst")
            }
            _ => shader
                .body(
                    "fn apply(at: u32, n: u32, k: u32) {\n    store_dst(at, fold(at, n, k));\n}\n",
                )
                .define("HEAD", "heads[p.off_heads + row]")
                .define("INDICES", "p.count")
                .body(ROWS),
        }
    }
}

/// Every shader that folds chains of updates of `dtype`.
pub fn fold_shaders(fold: Fold, dtype: DType) -> impl Iterator<Item = Shader> {
    Columns::all(dtype).map(move |columns| FoldChains::shader(fold, dtype, columns))
}
