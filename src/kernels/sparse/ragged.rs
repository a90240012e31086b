//! RaggedFillEmptyRows and its gradient: rows without values get a default one.

use crate::device::{Binding, Grid, declare_program};
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
use crate::kernels::scalar::cast::cast;
use crate::kernels::segment::reduce::{Fold, Segments};
use crate::kernels::sort::buckets::{Buckets, clamped};
use crate::kernels::sort::scan::{exclusive, word, words};
use crate::require;
use crate::shader::{Raw, Shader, WORKGROUP};
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
    EmptyRows { bounds: (&bounds).into(), empty: (&empty).into(), count: rows }.enqueue(
        ctx.device(),
        &EmptyRows::of(),
        Grid::map(rows, U32),
    )?;
    exclusive(ctx, &empty, &filled)?;
    let [added, good] = words(ctx, [(&filled, rows), (&bounds, rows)])?.map(|word| word as usize);
    if let Some(buckets) = &buckets
        && good != n
    {
        let first = word(ctx, &buckets.positions, good)? as usize;
        return Err(out_of_range(ctx, rowids, first, rows)?);
    }
    let indicator = ctx.output(2, Bool, &[rows])?;
    EmptyRowIndicator { empty: (&empty).into(), out: (&indicator).into(), count: rows }.enqueue(
        ctx.device(),
        &EmptyRowIndicator::of(),
        Grid::map(rows, Bool),
    )?;
    let total = n + added;
    let out_rowids = if output { ctx.output(0, I64, &[total])? } else { ctx.temp(I64, &[total])? };
    let out = ctx.output(1, values.dtype, &[total])?;
    let reverse = ctx.output(3, I64, &[n])?;
    let places = ctx.temp(U32, &[total])?;
    let (keys, positions) = buckets.as_ref().map_or((&empty, &empty), |b| (&b.keys, &b.positions));
    PlaceValues {
        keys: keys.into(),
        positions: positions.into(),
        bounds: (&bounds).into(),
        filled: (&filled).into(),
        places: (&places).into(),
        rowids: Binding::raw(&out_rowids, 4),
        reverse: Binding::raw(&reverse, 4),
        count: n + rows,
        values: n,
    }
    .enqueue(ctx.device(), &PlaceValues::of(), Grid::linear(n + rows, WORKGROUP))?;
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
    PickValues {
        src: unit.binding(values.address, values.len() as u64),
        other: unit.binding(default.address, 1),
        dst: unit.binding(out.address, out.len() as u64),
        places: places.into(),
        count: out.len(),
        values: values.len(),
    }
    .enqueue(
        ctx.device(),
        &PickValues::of(unit),
        Grid::linear(unit.invocations(out.len()), WORKGROUP),
    )
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
        MarkUsed { numbers: Binding::raw(&map, 4), used: (&used).into(), count: n, limit: m }
            .enqueue(ctx.device(), &MarkUsed::of(), Grid::linear(n, WORKGROUP))?;
    }
    let (dtype, wide) = (grad.dtype, grad.dtype.accumulator());
    let masked = ctx.temp(wide, &[m])?;
    MaskUsed { x: (&grad).into(), used: (&used).into(), masked: (&masked).into(), count: m }
        .enqueue(ctx.device(), &MaskUsed::of(dtype), Grid::map(m, wide))?;
    let total = if wide == dtype { d_default.reshaped(&[1]) } else { ctx.temp(wide, &[1])? };
    Segments { fold: Fold::Sum, ids: &ids, rows: None, data: &masked, inner: 1 }
        .enqueue(ctx, &total)?;
    if wide == dtype {
        return Ok(());
    }
    cast(ctx.device(), &total, &d_default)
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    let mut all = vec![
        EmptyRows::shader(),
        EmptyRowIndicator::shader(),
        PlaceValues::shader(),
        MarkUsed::shader(),
    ];
    all.extend(Unit::ALL.map(PickValues::shader));
    all.extend(SUMMED.iter().map(|t| MaskUsed::shader(*t)));
    all
}

declare_program! {
    /// 1 for each row without values.
    struct EmptyRows = "sort ragged empty"();
    bindings { bounds: U32, empty: U32 }
    params { count: usize }
    shader "ragged empty rows" =>
        .body(include_str!("../../../shaders/sort/ragged_rows.wgsl"))
        .map("empty")
}

declare_program! {
    /// Turns numbers into booleans.
    struct EmptyRowIndicator = "sort ragged indicator"();
    bindings { empty: U32, out: Bool }
    params { count: usize }
    shader "ragged empty row indicator" =>
        .body("fn value(i: u32) -> bool {\n    return load_empty(i) != 0u;\n}")
        .map("out")
}

declare_program! {
    /// Places every value, and a default for every row without one.
    struct PlaceValues = "sort ragged place"();
    bindings {
        keys: U32, positions: U32, bounds: U32, filled: U32, places: U32, rowids: Raw("u32", 4),
        reverse: Raw("u32", 4),
    }
    params { count: usize, values: usize }
    shader "ragged place" => .body(include_str!("../../../shaders/sort/ragged_place.wgsl"))
}

declare_program! {
    /// Takes values by their places, or the default.
    struct PickValues = "sort ragged pick"(unit: Unit);
    bindings { src: unit, other: unit, dst: unit, places: U32 }
    params { count: usize, values: usize }
}

impl PickValues {
    fn shader(unit: Unit) -> Shader {
        unit.map(Self::declare(format!("ragged pick {}", unit.bytes()), unit).body(&format!(
            "fn value(i: u32) -> {} {{\n    let at = load_places(i);\n    if at == p.values \
                 {{\n        return load_other(0u);\n    }}\n    return load_src(at);\n}}",
            unit.wgsl()
        )))
    }
}

declare_program! {
    /// Marks the positions that the map names.
    struct MarkUsed = "sort ragged mark"();
    bindings { numbers: Raw("u32", 4), used: U32 }
    params { count: usize, limit: usize }
    shader "ragged mark" =>
        .body(clamped(I64)).body(
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

declare_program! {
    /// The elements that are not marked, in the type in which they are summed.
    struct MaskUsed = "sort ragged mask"(dtype: DType);
    bindings { x: dtype, used: U32, masked: dtype.accumulator() }
    params { count: usize }
}

impl MaskUsed {
    fn shader(dtype: DType) -> Shader {
        let value = dtype.value();
        Self::declare(format!("ragged mask {dtype}"), dtype)
        .body(&format!(
            "fn value(i: u32) -> {value} {{\n    return select(load_x(i), {value}(), load_used(i) \
             != 0u);\n}}"
        ))
        .map("masked")
    }
}
