//! RaggedTensorToTensor: the rows of a ragged tensor, padded by a default value.
//!
//! Row partitions are in host memory: they decide the output's extents, and which row of the values
//! goes where. The host computes both; values and default stay on the device, which moves them.

use crate::device::{Grid, declare_program};
use crate::dtype::{DType::U32, types};
use crate::error::{Error, Result};
use crate::kernels::movement::unit::Unit;
use crate::kernels::movement::walk::copy_strided;
use crate::kernels::movement::{checked_product, index_values};
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::registry::Registry;
use crate::kernels::windows;
use crate::layout::Iteration;
use crate::require;
use crate::shader::{Shader, WORKGROUP};
use crate::tensor::{Dims, HostTensor, Tensor, shape_text};

/// The most rows of the output whose sources the host lists at a time.
const MOST_LISTED: usize = 1 << 24;
/// The most rows of a ragged dimension other than the values' own rows.
const MOST_ROWS: i64 = 1 << 28;
/// The source of a row that is padded.
const NO_ROW: u32 = u32::MAX;

/// Registers the op.
pub fn register(r: &mut Registry) {
    r.op("RaggedTensorToTensor")
        .types("T", types::ELEMENTS)
        .types("Tindex", types::INDEX)
        .host(&["shape", "row_partition_tensors"])
        .note("row partitions are in host memory, which finds each row's place")
        .kernel(|attrs| ToTensor::new(attrs));
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Partition {
    FirstDimSize,
    ValueRowids,
    RowSplits,
}

/// The kind of the partition that gives the rows of a ragged dimension, and the partition.
type Ragged = (Partition, Vec<i64>);

/// Inputs: shape (0, host), values (1), default_value (2), row partitions (3.., host).
struct ToTensor {
    /// The type of each partition tensor.
    types: Vec<Partition>,
}

/// Where rows of one dimension begin in the output, counted in rows of the innermost ragged
/// dimension; None for rows outside the output. There may be more rows than are listed.
struct Places {
    known: Vec<Option<i64>>,
    count: i64,
}

impl ToTensor {
    fn new(attrs: &dyn Attrs) -> Result<Self> {
        let types = attrs.strings("row_partition_types")?;
        let types = types.iter().map(|t| match t.as_str() {
            "FIRST_DIM_SIZE" => Ok(Partition::FirstDimSize),
            "VALUE_ROWIDS" => Ok(Partition::ValueRowids),
            "ROW_SPLITS" => Ok(Partition::RowSplits),
            other => Err(Error::InvalidArgument(format!(
                "Unknown string for partition info type: {other}"
            ))),
        });
        Ok(Self { types: types.collect::<Result<_>>()? })
    }

    /// The number of rows of the outermost dimension, and the partition of each ragged one.
    fn partitions(&self, ctx: &mut dyn OpContext) -> Result<(usize, Vec<Ragged>)> {
        require!(!self.types.is_empty(), "No row_partition_types given.");
        require!(
            ctx.num_inputs() == 3 + self.types.len(),
            "{} row partitions of {} types",
            ctx.num_inputs() - 3,
            self.types.len()
        );
        let mut parts = Vec::new();
        for (i, kind) in self.types.iter().enumerate() {
            let tensor = ctx.host_input(3 + i)?;
            parts.push((*kind, index_values(&tensor)?));
        }
        require!(
            !parts[0].1.is_empty(),
            "Invalid first partition input. Tensor requires at least one element."
        );
        let first = match parts[0].0 {
            Partition::FirstDimSize => {
                require!(parts[0].1.len() == 1, "FIRST_DIM_SIZE must be a scalar");
                parts.remove(0).1[0]
            }
            Partition::RowSplits => parts[0].1.len() as i64 - 1,
            Partition::ValueRowids => {
                return Err(Error::InvalidArgument(
                    "Cannot handle VALUE_ROWIDS in first dimension.".to_owned(),
                ));
            }
        };
        require!(first >= 0, "the first dimension's size must not be negative, got {first}");
        for (kind, _) in &parts {
            require!(
                *kind != Partition::FirstDimSize,
                "Cannot handle partition type FIRST_DIM_SIZE behind the first"
            );
        }
        Ok((first as usize, parts))
    }
}

/// The shape that the caller asks for, with −1 for open extents; None if all of it is open.
fn wanted(shape: &HostTensor) -> Result<Option<Vec<i64>>> {
    let values = index_values(shape)?;
    require!(
        shape.dims.len() <= 1,
        "Shape must be at most rank 1 but is rank {}",
        shape.dims.len()
    );
    if shape.dims.is_empty() {
        require!(
            values == [-1],
            "The only valid scalar shape tensor is the fully unknown shape specified as -1."
        );
        return Ok(None);
    }
    for n in &values {
        require!(*n >= -1, "Dimension {n} must be >= -1");
    }
    Ok(Some(values))
}

/// The most values of a row.
fn width(kind: Partition, partition: &[i64]) -> i64 {
    match kind {
        Partition::RowSplits => {
            partition.windows(2).map(|w| w[1].saturating_sub(w[0])).max().unwrap_or(0).max(0)
        }
        _ => partition.chunk_by(|a, b| a == b).map(|run| run.len() as i64).max().unwrap_or(0),
    }
}

/// The output's extents.
fn extents(
    wanted: Option<Vec<i64>>,
    first: usize,
    parts: &[Ragged],
    values: &[usize],
) -> Result<Dims> {
    let rank = parts.len() + values.len();
    let wanted = wanted.unwrap_or_else(|| vec![-1; rank]);
    let text = || {
        let dims = wanted.iter().map(|n| if *n < 0 { "?".to_owned() } else { n.to_string() });
        format!(
            "rt_input.shape and shape=[{}] are incompatible",
            dims.collect::<Vec<_>>().join(",")
        )
    };
    require!(
        wanted.len() == rank,
        "{}: rt_input.rank = {rank} but shape.rank = {}",
        text(),
        wanted.len()
    );
    let mut dims = Dims::new();
    for (i, n) in wanted.iter().enumerate() {
        let own = i.checked_sub(parts.len()).filter(|at| *at > 0).map(|at| values[at]);
        let size = match (own, usize::try_from(*n)) {
            (Some(own), Ok(n)) => {
                require!(own == n, "{}: rt_input.shape[{i}] = {own} but shape[{i}] = {n}", text());
                own
            }
            (Some(own), Err(_)) => own,
            (None, Ok(n)) => n,
            (None, Err(_)) if i == 0 => first,
            (None, Err(_)) => width(parts[i - 1].0, &parts[i - 1].1) as usize,
        };
        dims.push(size);
    }
    checked_product(&dims)?;
    Ok(dims)
}

/// Where the rows of the next dimension begin: `step` apart, up to `size` in a row. Only the first
/// `need` places are listed.
fn split(splits: &[i64], parents: &Places, step: i64, size: i64, need: i64) -> Result<Places> {
    let rows = splits.len() as i64 - 1;
    require!(
        rows <= parents.count,
        "Row partition size is greater than output size: {rows} > {}",
        parents.count
    );
    let mut places = Places { known: Vec::new(), count: 0 };
    for (i, ends) in splits.windows(2).enumerate() {
        let length = ends[1].saturating_sub(ends[0]).max(0);
        let parent = parents.known.get(i).copied().flatten();
        let listed = length.min(need.saturating_sub(places.known.len() as i64));
        places
            .known
            .extend((0..listed).map(|j| parent.filter(|_| j < size).map(|place| place + j * step)));
        places.count = places.count.saturating_add(length);
    }
    let is_whole = splits.last().is_none_or(|last| *last == places.count);
    require!(is_whole, "Invalid row split size.");
    Ok(places)
}

/// The same for a partition by each value's row.
fn by_row(rowids: &[i64], parents: &Places, step: i64, size: i64) -> Result<Places> {
    let mut known = Vec::with_capacity(rowids.len());
    let (mut before, mut column) = (None, 0);
    for row in rowids {
        let which = if before.is_none() { "current_value_rowid" } else { "next_value_rowid" };
        require!(
            (0..parents.count).contains(row),
            "Got {which}={row} which is not less than {}",
            parents.count
        );
        column = if before == Some(row) { column + 1 } else { 0 };
        before = Some(row);
        let parent = parents.known.get(*row as usize).copied().flatten();
        known.push(parent.filter(|_| column < size).map(|place| place + column * step));
    }
    Ok(Places { count: known.len() as i64, known })
}

/// The number of rows of a dimension that its partition names.
fn named((kind, partition): &Ragged) -> i64 {
    match kind {
        Partition::RowSplits => (partition.len() as i64 - 1).max(0),
        _ => partition.iter().copied().max().map_or(0, |row| row.saturating_add(1)),
    }
}

/// Pairs of a row of the output and a row of the values, in the order of the output.
fn sources(
    dims: &[usize],
    first: usize,
    parts: &[Ragged],
    rows: usize,
) -> Result<Vec<(usize, u32)>> {
    let mut step = dims[1..=parts.len()].iter().product::<usize>() as i64;
    let need = parts.first().map_or(rows as i64, named).min(first as i64);
    require_listable(need)?;
    let at = |i: i64| (i < dims[0] as i64).then_some(i * step);
    let mut places = Places { known: (0..need).map(at).collect(), count: first as i64 };
    for (i, (kind, partition)) in parts.iter().enumerate() {
        let size = dims[i + 1] as i64;
        step /= size.max(1);
        let need = parts.get(i + 1).map_or(rows as i64, named);
        places = match kind {
            Partition::RowSplits => {
                require_listable(need)?;
                split(partition, &places, step, size, need)?
            }
            _ => by_row(partition, &places, step, size)?,
        };
    }
    // Only a partition of the first dimension cuts values off.
    require!(
        parts.is_empty() || places.count <= rows as i64,
        "the row partitions name {} rows of values, of which there are {rows}",
        places.count
    );
    let mut pairs: Vec<(usize, u32)> = places
        .known
        .iter()
        .enumerate()
        .filter_map(|(row, place)| place.map(|place| (place as usize, row as u32)))
        .collect();
    pairs.sort_by_key(|(place, _)| *place);
    Ok(pairs)
}

fn require_listable(rows: i64) -> Result<()> {
    if rows > MOST_ROWS {
        return Err(Error::ResourceExhausted(format!(
            "a ragged dimension of {rows} rows: this device takes up to {MOST_ROWS}"
        )));
    }
    Ok(())
}

/// Refuses a default that does not fit the values' elements.
fn check_default(default: &Tensor, values: &Tensor) -> Result<()> {
    let text = || {
        format!(
            "default_value.shape={} and rt_input.flat_values.shape={} are incompatible",
            shape_text(&default.dims),
            shape_text(&values.dims)
        )
    };
    require!(
        default.rank() < values.rank(),
        "{}: default_value.rank = {}  must be less than rt_input.flat_values.rank = {}",
        text(),
        default.rank(),
        values.rank()
    );
    for (i, (d, v)) in default.dims.iter().rev().zip(values.dims.iter().rev()).enumerate() {
        let i = i + 1;
        require!(
            *d == 1 || d == v,
            "{}: default_value.shape[-{i}] = {d} but rt_input.flat_values.shape[-{i}] = {v}",
            text()
        );
    }
    Ok(())
}

impl Kernel for ToTensor {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let (values, default) = (ctx.input(1)?, ctx.input(2)?);
        let (first, parts) = self.partitions(ctx)?;
        check_default(&default, &values)?;
        let dims = extents(wanted(&ctx.host_input(0)?)?, first, &parts, &values.dims)?;
        let Some(out) = ctx.some_output(0, values.dtype, &dims)? else { return Ok(()) };
        let rows = values.dims[0];
        if rows >= NO_ROW as usize {
            return Err(Error::ResourceExhausted(format!("{rows} rows of values exceed 2^32")));
        }
        let pairs = sources(&dims, first, &parts, rows)?;
        let element = Dims::from_slice(&dims[parts.len() + 1..]);
        let inner: usize = element.iter().product();
        let default = if default.len() == 1 || default.len() == inner {
            default
        } else {
            let whole = ctx.temp(default.dtype, &element)?;
            let walk = Iteration::over(&element).broadcast(&default.dims).broadcast(&element);
            copy_strided(ctx.device(), &walk, &default, &whole)?;
            whole
        };
        pad(ctx, &values, &default, &pairs, &out, inner)
    }
}

/// Moves the rows of `pairs`, and writes the default to all other rows of `out`.
fn pad(
    ctx: &mut dyn OpContext,
    values: &Tensor,
    default: &Tensor,
    pairs: &[(usize, u32)],
    out: &Tensor,
    inner: usize,
) -> Result<()> {
    let unit = Unit::of(out.dtype);
    let capabilities = *ctx.device().capabilities();
    let limit = windows::limit(&capabilities);
    let row = inner as u64 * unit.bytes();
    let slots = out.len() / inner;
    let most = windows::largest(slots, |n| n <= MOST_LISTED && n as u64 * row.max(4) <= limit);
    if most == 0 || (most < slots && most % 4 != 0) || default.bytes() > limit {
        return Err(windows::too_large(&capabilities, "a row of a ragged tensor"));
    }
    let places = ctx.temp(U32, &[most])?;
    let mut rest = pairs;
    for (first, count) in windows::ranges(slots, most) {
        let (here, behind) = rest.split_at(rest.partition_point(|(at, _)| *at < first + count));
        rest = behind;
        let mut listed = vec![NO_ROW; count];
        for (at, source) in here {
            listed[at - first] = *source;
        }
        // The rows that this window takes are contiguous.
        let low = here.iter().map(|(_, source)| *source).min().unwrap_or(0) as usize;
        let high = here.iter().map(|(_, source)| *source as usize + 1).max().unwrap_or(0);
        let low = low / 4 * 4;
        if (high.saturating_sub(low)) as u64 * row > limit {
            return Err(windows::too_large(&capabilities, "rows that lie far apart"));
        }
        let device = ctx.device();
        device.upload(places.address, bytemuck::cast_slice(&listed))?;
        let from = values.address + low as u64 * row;
        let taken = (high.max(low) - low) * inner;
        let elements = device.check_extent(count * inner)? as usize;
        let source = match taken {
            0 => unit.binding(default.address, default.len() as u64),
            _ => unit.binding(from, taken as u64),
        };
        PadRows {
            src: source,
            other: unit.binding(default.address, default.len() as u64),
            dst: unit.binding(out.address + first as u64 * row, elements as u64),
            places: (&places).into(),
            count: elements,
            inner,
            first_row: low,
            others: default.len(),
        }
        .enqueue(
            device,
            &PadRows::of(unit),
            Grid::linear(unit.invocations(elements), WORKGROUP),
        )?;
    }
    Ok(())
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    Unit::ALL.map(PadRows::shader).to_vec()
}

declare_program! {
    /// Moves the row of each place, or the default.
    struct PadRows = "ragged to tensor"(unit: Unit);
    bindings { src: unit, other: unit, dst: unit, places: U32 }
    params { count: usize, inner: usize, first_row: usize, others: usize }
}

impl PadRows {
    fn shader(unit: Unit) -> Shader {
        unit.map(Self::declare(format!("ragged to tensor {}", unit.bytes()), unit).body(&format!(
            "fn value(i: u32) -> {} {{\n    let row = load_places(i / p.inner);\n    if row == \
         {NO_ROW}u {{\n        return load_other(i % p.others);\n    }}\n    return load_src((row \
         - p.first_row) * p.inner + i % p.inner);\n}}",
            unit.wgsl()
        )))
    }
}
