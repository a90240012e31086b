//! RaggedFillEmptyRows and its gradient: rows without values get a default one.

use smallvec::smallvec;

use crate::device::{Binding, Grid, Key, Params, Program};
use crate::dtype::{
    DType::{self, *},
    types,
};
use crate::error::{Error, Result};
use crate::kernels::gather::index::Indices;
use crate::kernels::gather::rows::Gather;
use crate::kernels::movement::shape;
use crate::kernels::movement::unit::Unit;
use crate::kernels::op::OpContext;
use crate::kernels::registry::{Registry, WAITS_FOR_SIZE};
use crate::kernels::segment::reduce::{Fold, Segments};
use crate::kernels::sort::buckets::{Buckets, clamped};
use crate::kernels::sort::scan::{exclusive, word, words};
use crate::require;
use crate::shader::{Field, Shader, WORKGROUP};
use crate::tensor::Tensor;

/// Types of the values.
pub const TYPES: &[DType] = types::ELEMENTS;

/// Types of the gradients.
pub const SUMMED: &[DType] = types::REALS;

/// Registers the ops.
pub fn register(r: &mut Registry) {
    r.op("RaggedFillEmptyRows")
        .types("T", TYPES)
        .host(&["nrows"])
        .note(WAITS_FOR_SIZE)
        .kernel(|_| Ok(fill_empty_rows as super::Compute));
    r.op("RaggedFillEmptyRowsGrad")
        .types("T", SUMMED)
        .kernel(|_| Ok(fill_empty_rows_grad as super::Compute));
}

/// Inputs: value_rowids (0, int64, in any order), values (1), nrows (2, host), default_value (3).
/// Waits for the device, since the number of empty rows decides the outputs' extents.
fn fill_empty_rows(ctx: &mut dyn OpContext) -> Result<()> {
    let (rowids, values, default) = (ctx.input(0)?, ctx.input(1)?, ctx.input(3)?);
    let nrows = ctx.host_input(2)?;
    require!(nrows.dims.is_empty(), "nrows must be a scalar, saw: {}", shape(&nrows.dims));
    require!(rowids.rank() == 1, "value_rowids must be a vector, saw: {}", shape(&rowids.dims));
    require!(values.rank() == 1, "values must be a vector, saw: {}", shape(&values.dims));
    let n = rowids.len();
    require!(
        values.len() == n,
        "The length of `values` ({}) must match the first dimension of `value_rowids` ({n}).",
        values.len()
    );
    require!(default.rank() == 0, "default_value must be a scalar, saw: {}", shape(&default.dims));
    let rows = nrows.to_i64()?[0];
    require!(rows >= 0, "Expected shape dimensions to be non-negative, got {rows}");
    let rows = rows as usize;
    if rows == 0 {
        require!(
            n == 0,
            "Received SparseTensor with dense_shape[0] = 0 but indices.shape[0] = {n}"
        );
        // This unusual shape is TensorFlow's.
        ctx.output(0, I64, &[0, 1])?;
        ctx.output(1, values.dtype, &[0])?;
        ctx.output(2, Bool, &[0])?;
        ctx.output(3, I64, &[0])?;
        return Ok(());
    }
    fill_rows(ctx, &rowids, &values, &default, rows, true)?;
    Ok(())
}

/// The rows of values, with a default value in each empty row.
pub struct Filled {
    /// Each value's row (int64).
    pub rowids: Tensor,
    /// The source of each value (uint32); the number of values stands for the default.
    pub places: Tensor,
}

/// Sets the outputs values (1), empty row indicator (2) and reverse index map (3) of a tensor with
/// at least one row; with `output`, the row of each value is output 0. Waits for the device.
pub fn fill_rows(
    ctx: &mut dyn OpContext,
    rowids: &Tensor,
    values: &Tensor,
    default: &Tensor,
    rows: usize,
    output: bool,
) -> Result<Filled> {
    let n = rowids.len();
    ctx.device().check_extent(n.saturating_add(rows).saturating_mul(2))?;
    let empty = ctx.temp(U32, &[rows])?;
    let filled = ctx.temp(U32, &[rows + 1])?;
    let buckets = if n > 0 { Some(Buckets::of(ctx, rowids, rows)?) } else { None };
    let bounds = match &buckets {
        Some(buckets) => buckets.bounds.clone(),
        None => {
            let bounds = ctx.temp(U32, &[rows + 1])?;
            ctx.device().fill(bounds.address, bounds.bytes(), 0)?;
            bounds
        }
    };
    ctx.device().enqueue(&Program {
        key: Key::new("sort ragged empty"),
        shader: &empty_shader,
        bindings: smallvec![(&bounds).into(), (&empty).into()],
        params: Params::new().u32(rows),
        grid: Grid::map(rows, U32),
    })?;
    exclusive(ctx, &empty, &filled)?;
    let [added, good] = words(ctx, [(&filled, rows), (&bounds, rows)])?.map(|word| word as usize);
    if let Some(buckets) = &buckets
        && good != n
    {
        let first = word(ctx, &buckets.positions, good)? as usize;
        return Err(out_of_range(ctx, rowids, first, rows)?);
    }
    let indicator = ctx.output(2, Bool, &[rows])?;
    ctx.device().enqueue(&Program {
        key: Key::new("sort ragged indicator"),
        shader: &indicator_shader,
        bindings: smallvec![(&empty).into(), (&indicator).into()],
        params: Params::new().u32(rows),
        grid: Grid::map(rows, Bool),
    })?;
    let total = n + added;
    let out_rowids = if output { ctx.output(0, I64, &[total])? } else { ctx.temp(I64, &[total])? };
    let out = ctx.output(1, values.dtype, &[total])?;
    let reverse = ctx.output(3, I64, &[n])?;
    let places = ctx.temp(U32, &[total])?;
    let (keys, positions) = buckets.as_ref().map_or((&empty, &empty), |b| (&b.keys, &b.positions));
    ctx.device().enqueue(&Program {
        key: Key::new("sort ragged place"),
        shader: &place_shader,
        bindings: smallvec![
            keys.into(),
            positions.into(),
            (&bounds).into(),
            (&filled).into(),
            (&places).into(),
            Binding::raw(&out_rowids, 4),
            Binding::raw(&reverse, 4),
        ],
        params: Params::new().u32(n + rows).u32(n),
        grid: Grid::linear(n + rows, WORKGROUP),
    })?;
    pick(ctx, values, default, &places, &out)?;
    Ok(Filled { rowids: out_rowids, places })
}

fn out_of_range(ctx: &dyn OpContext, rowids: &Tensor, at: usize, rows: usize) -> Result<Error> {
    let mut bytes = [0; 8];
    ctx.device().download(rowids.address + 8 * at as u64, &mut bytes)?;
    let id = i64::from_ne_bytes(bytes);
    Ok(Error::InvalidArgument(format!("indices({at}, 0) is invalid: {id} >= {rows}")))
}

/// `out[i]` is `values[places[i]]`, or the default where the place is the number of values.
fn pick(
    ctx: &dyn OpContext,
    values: &Tensor,
    default: &Tensor,
    places: &Tensor,
    out: &Tensor,
) -> Result<()> {
    let unit = Unit::of(out.dtype);
    ctx.device().enqueue(&Program {
        key: Key::new("sort ragged pick").number(unit.key()),
        shader: &|| pick_shader(unit),
        bindings: smallvec![
            unit.binding(values.address, values.len() as u64),
            unit.binding(default.address, 1),
            unit.binding(out.address, out.len() as u64),
            places.into(),
        ],
        params: Params::new().u32(out.len()).u32(values.len()),
        grid: Grid::linear(unit.invocations(out.len()), WORKGROUP),
    })
}

/// Inputs: reverse_index_map (0, int64) and grad_values (1). The gradients of elements that no
/// value came from add up to the default's gradient. Indices out of range give zeros, since the
/// host cannot refuse them without waiting for the device.
pub fn fill_empty_rows_grad(ctx: &mut dyn OpContext) -> Result<()> {
    let (map, grad) = (ctx.input(0)?, ctx.input(1)?);
    require!(map.rank() == 1, "reverse_index_map must be a vector, saw: {}", shape(&map.dims));
    require!(grad.rank() == 1, "grad_values must be a vector, saw: {}", shape(&grad.dims));
    let (n, m) = (map.len(), grad.len());
    let d_values = ctx.output(0, grad.dtype, &[n])?;
    let d_default = ctx.output(1, grad.dtype, &[])?;
    ctx.device().fill(d_default.address, d_default.bytes(), 0)?;
    Gather { batch: 1, outer: 1, count: n, inner: 1 }.enqueue(
        ctx.device(),
        &grad,
        &Indices::new(&map, &[m])?,
        &d_values,
    )?;
    if m == 0 {
        return Ok(());
    }
    let used = ctx.temp(U32, &[m])?;
    let ids = ctx.temp(U32, &[m])?;
    ctx.device().fill(used.address, used.bytes(), 0)?;
    ctx.device().fill(ids.address, ids.bytes(), 0)?;
    if n > 0 {
        ctx.device().enqueue(&Program {
            key: Key::new("sort ragged mark"),
            shader: &mark_shader,
            bindings: smallvec![Binding::raw(&map, 4), (&used).into()],
            params: Params::new().u32(n).u32(m),
            grid: Grid::linear(n, WORKGROUP),
        })?;
    }
    let (dtype, wide) = (grad.dtype, grad.dtype.accumulator());
    let masked = ctx.temp(wide, &[m])?;
    ctx.device().enqueue(&Program {
        key: Key::new("sort ragged mask").dtype(dtype),
        shader: &|| mask_shader(dtype),
        bindings: smallvec![(&grad).into(), (&used).into(), (&masked).into()],
        params: Params::new().u32(m),
        grid: Grid::map(m, wide),
    })?;
    let total = if wide == dtype { d_default.reshaped(&[1]) } else { ctx.temp(wide, &[1])? };
    Segments { fold: Fold::Sum, ids: &ids, rows: None, data: &masked, inner: 1 }
        .enqueue(ctx, &total)?;
    if wide == dtype {
        return Ok(());
    }
    ctx.device().enqueue(&Program {
        key: Key::new("sort ragged total").dtype(dtype),
        shader: &|| total_shader(dtype),
        bindings: smallvec![(&total).into(), (&d_default).into()],
        params: Params::new().u32(1),
        grid: Grid::groups(1),
    })
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    let mut all = vec![empty_shader(), indicator_shader(), place_shader(), mark_shader()];
    all.extend(Unit::ALL.map(pick_shader));
    all.extend(SUMMED.iter().map(|t| mask_shader(*t)));
    all.extend(SUMMED.iter().filter(|t| t.lanes() > 1).map(|t| total_shader(*t)));
    all
}

fn empty_shader() -> Shader {
    Shader::new("ragged empty rows")
        .bind("bounds", U32)
        .bind("empty", U32)
        .u32s(&["count"])
        .body(include_str!("../../../shaders/sort/ragged_rows.wgsl"))
        .map("empty")
}

fn indicator_shader() -> Shader {
    Shader::new("ragged empty row indicator")
        .bind("empty", U32)
        .bind("out", Bool)
        .param("count", Field::U32)
        .body("fn value(i: u32) -> bool {\n    return load_empty(i) != 0u;\n}")
        .map("out")
}

fn place_shader() -> Shader {
    ["keys", "positions", "bounds", "filled", "places"]
        .into_iter()
        .fold(Shader::new("ragged place"), |shader, name| shader.bind(name, U32))
        .bind_raw("rowids", "u32", 4)
        .bind_raw("reverse", "u32", 4)
        .u32s(&["count", "values"])
        .body(include_str!("../../../shaders/sort/ragged_place.wgsl"))
}

fn pick_shader(unit: Unit) -> Shader {
    let shader = unit.bind(Shader::new(format!("ragged pick {}", unit.key())), "src");
    let shader =
        unit.bind(unit.bind(shader, "other"), "dst").bind("places", U32).u32s(&["count", "values"]);
    unit.map(shader.body(&format!(
        "fn value(i: u32) -> {} {{\n    let at = load_places(i);\n    if at == p.values \
                 {{\n        return load_other(0u);\n    }}\n    return load_src(at);\n}}",
        unit.wgsl()
    )))
}

/// Marks the positions that the map names.
fn mark_shader() -> Shader {
    let shader = Shader::new("ragged mark").bind_raw("numbers", "u32", 4).bind("used", U32);
    shader.u32s(&["count", "limit"]).body(clamped(I64)).body(
        "{{ENTRY}} {
    let i = linear_id(workgroup_id, num_workgroups, local_index);
    if i >= p.count {
        return;
    }
    let at = clamped(i);
    if at < p.limit {
        store_used(at, 1u);
    }
}
",
    )
}

/// The elements that are not marked, in the type in which they are summed.
fn mask_shader(dtype: DType) -> Shader {
    let value = dtype.value();
    Shader::new(format!("ragged mask {dtype}"))
        .bind("x", dtype)
        .bind("used", U32)
        .bind("masked", dtype.accumulator())
        .param("count", Field::U32)
        .body(&format!(
            "fn value(i: u32) -> {value} {{\n    return select(load_x(i), {value}(), load_used(i) \
             != 0u);\n}}"
        ))
        .map("masked")
}

fn total_shader(dtype: DType) -> Shader {
    Shader::new(format!("ragged total {dtype}"))
        .bind("x", dtype.accumulator())
        .bind("out", dtype)
        .param("count", Field::U32)
        .body(&format!("fn value(i: u32) -> {} {{\n    return load_x(i);\n}}", dtype.value()))
        .map("out")
}
