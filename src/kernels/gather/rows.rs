//! Gather, GatherV2, GatherNd and similar ops on variables: one program over (batch, outer, index,
//! inner).

use super::index::{AnyIndices, IndexParams, IndexRuns, IndexVariant, Indices};
use crate::device::{Device, Grid, declare_params, declare_program};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::movement::shape;
use crate::kernels::movement::unit::Unit;
use crate::kernels::movement::walk::window_limit;
use crate::kernels::op::{Attrs, OpContext, OpContextExt};
use crate::require;
use crate::shader::{Element, Raw, Shader, WORKGROUP};
use crate::tensor::{Dims, Tensor};

/// `dst[b, o, n, k] = src[b, o, row(b, n), k]`.
#[derive(Debug, Clone)]
pub struct Gather {
    /// Independent batches, each with its own indices.
    pub batch: usize,
    /// Extents before the gathered axis.
    pub outer: usize,
    /// Indices in a batch.
    pub count: usize,
    /// Elements of one row.
    pub inner: usize,
}

impl Gather {
    /// Enqueues the gather of `src` by `indices` into `dst`.
    pub fn enqueue(
        &self,
        device: &Device,
        src: &Tensor,
        indices: &Indices,
        dst: &Tensor,
    ) -> Result<()> {
        if dst.is_empty() {
            return Ok(());
        }
        if src.is_empty() {
            // Every index is out of range.
            return device.fill(dst.address, dst.bytes(), 0);
        }
        let limit = window_limit(device);
        let slice_in = indices.rows() as u64 * self.inner as u64 * src.dtype.size() as u64;
        let slice_out = self.count as u64 * self.inner as u64 * src.dtype.size() as u64;
        if self.batch * self.outer > 1 && (src.bytes() > limit || dst.bytes() > limit) {
            if !slice_out.is_multiple_of(4) {
                return Err(Error::ResourceExhausted(format!(
                    "a gather from {} of {} into {} exceeds this adapter's largest storage binding",
                    shape(&src.dims),
                    src.dtype,
                    shape(&dst.dims)
                )));
            }
            for slice in 0..(self.batch * self.outer) as u64 {
                let first = (slice as usize / self.outer) * self.count;
                let (from, to) = (src.address + slice * slice_in, dst.address + slice * slice_out);
                self.windows(device, src, from, indices, first, to)?;
            }
            return Ok(());
        }
        if src.bytes() > limit || dst.bytes() > limit {
            return self.windows(device, src, src.address, indices, 0, dst.address);
        }
        let window =
            Window { first_index: 0, count: self.count, first_row: 0, rows: indices.rows() };
        self.dispatch(device, Unit::of(src.dtype), src.address, indices, dst.address, &window)
    }

    /// One slice, in windows of output rows and of table rows.
    fn windows(
        &self,
        device: &Device,
        t: &Tensor,
        src: u64,
        indices: &Indices,
        first: usize,
        dst: u64,
    ) -> Result<()> {
        let slice = Self { batch: 1, outer: 1, ..self.clone() };
        let row = self.inner as u64 * t.dtype.size() as u64;
        // Windows of a multiple of 16 rows keep packed rows at whole words.
        let most = ((window_limit(device) / row) as usize / 16 * 16).max(1);
        for at in (0..self.count).step_by(most) {
            for first_row in (0..indices.rows()).step_by(most) {
                let window = Window {
                    first_index: first + at,
                    count: most.min(self.count - at),
                    first_row,
                    rows: most.min(indices.rows() - first_row),
                };
                let from = src + first_row as u64 * row;
                slice.dispatch(
                    device,
                    Unit::of(t.dtype),
                    from,
                    indices,
                    dst + at as u64 * row,
                    &window,
                )?;
            }
        }
        Ok(())
    }

    fn dispatch(
        &self,
        device: &Device,
        mut unit: Unit,
        src: u64,
        indices: &Indices,
        dst: u64,
        window: &Window,
    ) -> Result<()> {
        let mut inner = self.inner;
        while let Some(wide) = unit.doubled() {
            if !inner.is_multiple_of(2)
                || !src.is_multiple_of(wide.bytes())
                || !dst.is_multiple_of(wide.bytes())
            {
                break;
            }
            unit = wide;
            inner /= 2;
        }
        let slices = self.batch * self.outer;
        let mut count = device.check_extent(slices * window.count * inner)?;
        let (variant, windowed) = (indices.variant(), window.rows != indices.rows());
        let mut named = indices.binding(window.first_index, self.batch * window.count);
        let whole =
            [dst, named.address, (window.count * 4) as u64].iter().all(|n| n.is_multiple_of(16));
        let runs = variant.filter(|f| {
            f.has_runs() && (unit.bytes(), inner, windowed, whole) == (4, 1, false, true)
        });
        let (mut count_indices, mut target) = (window.count, unit.binding(dst, u64::from(count)));
        if runs.is_some() {
            (count, count_indices) = (count / 4, count_indices / 4);
            (named.unit, target.unit) = (16, 16);
        }
        let table = TableParams {
            count,
            inner,
            count_indices,
            outer: self.outer,
            first_row: window.first_row,
            rows: window.rows,
            all_rows: indices.rows(),
            index: indices.params(),
        };
        let src = unit.binding(src, (slices * window.rows * inner) as u64);
        // Each row is read by itself, and each index once.
        let row = (inner as u64 * unit.bytes()).max(SECTOR);
        let read = ((slices * window.count) as u64).saturating_mul(row);
        let touched = src.bytes.min(read) + target.bytes + named.bytes;
        let grid = Grid::linear(unit.invocations(count as usize), WORKGROUP);
        if let Some(variant) = runs {
            let call = GatherRuns { src, dst: target, indices: named, table };
            return device.enqueue_touching(&call.program(&GatherRuns::of(variant), grid), touched);
        }
        let call = GatherRows { src, dst: target, indices: named, table };
        let of = GatherRows::of(unit, variant, windowed);
        device.enqueue_touching(&call.program(&of, grid), touched)
    }
}

/// The fewest bytes that a GPU reads from memory at once.
const SECTOR: u64 = 32;

/// A window of a gather: some of the indices, some of the table's rows.
struct Window {
    first_index: usize,
    count: usize,
    first_row: usize,
    rows: usize,
}

declare_params! {
    /// The extents of a gather, and the window of its table.
    pub struct TableParams {
        count: u32, inner: usize, count_indices: usize, outer: usize, first_row: usize,
        rows: usize, all_rows: usize, index: IndexParams,
    }
}

declare_program! {
    /// Gathers single 32-bit elements, four by four.
    pub struct GatherRuns = "gather runs"(variant: IndexVariant);
    bindings { src: DType::U32, dst: Raw("vec4<u32>", 16), indices: IndexRuns(variant) }
    params { table: TableParams }
    shader format!("gather runs {variant:?}") =>
        .body(include_str!("../../../shaders/gather/runs.wgsl"))
}

declare_program! {
    /// Gathers elements of `unit` by indices of `variant`, or by any indices. A window of a table
    /// leaves elements whose rows are outside it unchanged.
    pub struct GatherRows = "gather"(unit: Unit, variant: Option<IndexVariant>, windowed: bool);
    bindings { src: unit, dst: unit, indices: RowIndices(variant) }
    params { table: TableParams }
}

/// Indices of a variant, or any indices.
struct RowIndices(Option<IndexVariant>);

impl Element for RowIndices {
    fn bind(self, shader: Shader, name: &'static str) -> Shader {
        match self.0 {
            Some(variant) => variant.bind(shader, name),
            None => AnyIndices.bind(shader, name),
        }
    }
}

impl GatherRows {
    pub fn shader(unit: Unit, variant: Option<IndexVariant>, windowed: bool) -> Shader {
        let outside = if windowed {
            "    if row - p.first_row >= p.rows {\n        return load_dst(i);\n    }\n"
        } else {
            ""
        };
        let label = format!("gather {} {variant:?} {windowed}", unit.bytes());
        unit.map(
            Self::declare(label, unit, variant, windowed)
                .define("ELEMENT", unit.wgsl())
                .define("OUTSIDE", outside)
                .body(include_str!("../../../shaders/gather/gather.wgsl")),
        )
    }
}

/// Gather: inputs params (0) and indices (1), along axis 0.
pub fn gather(ctx: &mut dyn OpContext) -> Result<()> {
    let params = ctx.input(0)?;
    along(ctx, &params, 0, 0)
}

/// GatherV2: inputs params (0), indices (1) and axis (2).
pub fn gather_v2(ctx: &mut dyn OpContext, batch_dims: i64) -> Result<()> {
    let params = ctx.input(0)?;
    let axis = ctx.host_i64(2, "axis")?;
    along(ctx, &params, axis, batch_dims)
}

/// ResourceGather: inputs the variable (0) and indices (1).
pub fn resource_gather(ctx: &mut dyn OpContext, batch_dims: i64) -> Result<()> {
    let params = ctx.read_variable(0)?;
    along(ctx, &params, batch_dims, batch_dims)
}

fn along(ctx: &mut dyn OpContext, params: &Tensor, axis: i64, batch_dims: i64) -> Result<()> {
    let indices = ctx.input(1)?;
    let rank = params.rank() as i64;
    require!(rank > 0, "params must be at least 1 dimensional");
    require!(
        (-rank..rank).contains(&axis),
        "Expected axis in the range [{}, {rank}), but got {axis}",
        -rank
    );
    let axis = if axis < 0 { axis + rank } else { axis };
    let indices_rank = indices.rank() as i64;
    require!(
        (-indices_rank..=indices_rank).contains(&batch_dims),
        "Expected batch_dims in the range [{}, {indices_rank}], but got {batch_dims}",
        -indices_rank
    );
    let batch_dims = if batch_dims < 0 { batch_dims + indices_rank } else { batch_dims };
    require!(
        batch_dims < rank,
        "batch_dims ({batch_dims}) must be less than rank(params) ({rank})."
    );
    require!(
        axis >= batch_dims,
        "batch_dims ({batch_dims}) must be less than or equal to axis ({axis})."
    );
    let (axis, batch_dims) = (axis as usize, batch_dims as usize);
    for d in 0..batch_dims {
        require!(
            params.dims[d] == indices.dims[d],
            "params.shape[{d}]: {} should be equal to indices.shape[{d}]: {}",
            params.dims[d],
            indices.dims[d]
        );
    }
    let mut out = Dims::from_slice(&params.dims[..axis]);
    out.extend_from_slice(&indices.dims[batch_dims..]);
    out.extend_from_slice(&params.dims[axis + 1..]);
    let dst = ctx.output(0, params.dtype, &out)?;
    Gather {
        batch: params.dims[..batch_dims].iter().product(),
        outer: params.dims[batch_dims..axis].iter().product(),
        count: indices.dims[batch_dims..].iter().product(),
        inner: params.dims[axis + 1..].iter().product(),
    }
    .enqueue(ctx.device(), params, &Indices::new(&indices, &[params.dims[axis]])?, &dst)
}

/// GatherNd: inputs params (0) and indices (1), whose last extent is the number of components.
pub fn gather_nd(ctx: &mut dyn OpContext) -> Result<()> {
    let params = ctx.input(0)?;
    nd(ctx, &params)
}

/// ResourceGatherNd: inputs the variable (0) and indices (1).
pub fn resource_gather_nd(ctx: &mut dyn OpContext) -> Result<()> {
    let params = ctx.read_variable(0)?;
    nd(ctx, &params)
}

fn nd(ctx: &mut dyn OpContext, params: &Tensor) -> Result<()> {
    let indices = ctx.input(1)?;
    require!(params.rank() > 0, "params must be at least a vector");
    require!(indices.rank() > 0, "indices must be at least a vector");
    let (depth, lead) = (indices.dims[indices.rank() - 1], &indices.dims[..indices.rank() - 1]);
    require!(
        depth <= params.rank(),
        "index innermost dimension length must be <= params rank; saw: {depth} vs. {}",
        params.rank()
    );
    let mut out = Dims::from_slice(lead);
    out.extend_from_slice(&params.dims[depth..]);
    // TensorFlow checks for entries, not for elements: it is an error even if an entry is empty.
    require!(
        lead.contains(&0) || !params.is_empty(),
        "Requested more than 0 entries, but params is empty.  Params shape: {}",
        shape(&params.dims)
    );
    let dst = ctx.output(0, params.dtype, &out)?;
    Gather {
        batch: 1,
        outer: 1,
        count: lead.iter().product(),
        inner: params.dims[depth..].iter().product(),
    }
    .enqueue(ctx.device(), params, &Indices::new(&indices, &params.dims[..depth])?, &dst)
}

/// Newer versions of TensorFlow let a node choose how bad indices are handled; a device can only
/// ignore them.
pub fn check_policy(attrs: &dyn Attrs) -> Result<()> {
    match attrs.string("bad_indices_policy").as_deref() {
        Ok("ERROR") => Err(Error::Unimplemented(
            "bad_indices_policy = ERROR is only supported on the CPU; this device gives zeros for \
             bad indices"
                .to_owned(),
        )),
        _ => Ok(()),
    }
}
