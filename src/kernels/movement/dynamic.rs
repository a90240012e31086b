//! `XlaDynamicSlice` and `XlaDynamicUpdateSlice`: a box at a place that the device knows. A place
//! at which the box would not lie inside is moved to the nearest one where it does.

use smallvec::smallvec;

use super::unit::Unit;
use super::{index_values, shape};
use crate::device::{Binding, Device, Grid, Key, Params, Program};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::op::OpContext;
use crate::kernels::registry::Registry;
use crate::require;
use crate::shader::{Field, Shader, WORKGROUP};
use crate::tensor::{Dims, Tensor};

/// The most dimensions that a shader counts.
const MAX_RANK: usize = 8;

/// Adds the ops, for elements of `types` and places of type `indices`.
pub fn register(r: &mut Registry, types: &'static [DType], indices: &'static [DType]) {
    r.op("XlaDynamicSlice")
        .types("T", types)
        .types("Tindices", indices)
        .host(&["size_indices"])
        .kernel(|_| Ok(slice));
    r.op("XlaDynamicUpdateSlice")
        .types("T", types)
        .types("Tindices", indices)
        .kernel(|_| Ok(update));
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    Unit::ALL
        .into_iter()
        .flat_map(|unit| [Way::Read, Way::of(unit)].map(|w| w.shader(unit)))
        .collect()
}

/// Inputs: input, start_indices, size_indices (host).
fn slice(ctx: &mut dyn OpContext) -> Result<()> {
    let (x, start) = (ctx.input(0)?, ctx.input(1)?);
    let sizes = index_values(&ctx.host_input(2)?)?;
    require!(
        start.rank() == 1 && start.dims[0] == sizes.len(),
        "has mismatched number of slice sizes ({}) and number of start indices ({})",
        sizes.len(),
        start.len()
    );
    require!(
        sizes.len() == x.rank(),
        "has mismatched number of start indices ({}) and the rank of operand ({})",
        sizes.len(),
        x.rank()
    );
    let mut dims = Dims::new();
    for (d, (size, extent)) in sizes.iter().zip(&x.dims).enumerate() {
        require!(*size >= 0, "has negative size index to dynamic slice: {size}");
        require!(
            *size as usize <= *extent,
            "has slice size {size} greater than dimension size {extent} in dimension {d} of operand"
        );
        dims.push(*size as usize);
    }
    let y = ctx.output(0, x.dtype, &dims)?;
    run(ctx.device(), Way::Read, [&x, &start, &y, &y])
}

/// Inputs: input, update, indices.
fn update(ctx: &mut dyn OpContext) -> Result<()> {
    let (x, value, start) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
    require!(
        start.rank() == 1 && start.dims[0] == x.rank(),
        "index must be a vector with length equal to the number of input dimensions"
    );
    require!(
        value.rank() == x.rank(),
        "input and update must have the same rank, input shape is {}; update shape is {}",
        shape(&x.dims),
        shape(&value.dims)
    );
    for (size, extent) in value.dims.iter().zip(&x.dims) {
        require!(
            size <= extent,
            "Update dim size {size} greater than dynamic slice dimension: {extent}."
        );
    }
    if value.is_empty() {
        return ctx.forward_input(0, 0, &x.dims);
    }
    let y = ctx.forward_or_output(&[0], 0, x.dtype, &x.dims)?;
    let way = Way::of(Unit::of(x.dtype));
    if way == Way::Write && y.address != x.address {
        ctx.device().copy(y.address, x.address, x.bytes())?;
    }
    run(ctx.device(), way, [&x, &start, &value, &y])
}

/// What an invocation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Reads an element of the box out of the whole.
    Read,
    /// Writes an element of the box into the whole, which has the others already.
    Write,
    /// Writes a word of the whole: what is in the box and what is not.
    Merge,
}

impl Way {
    /// How a box is written: words that hold several elements have one writer.
    const fn of(unit: Unit) -> Self {
        if unit.is_packed() { Self::Merge } else { Self::Write }
    }

    fn shader(self, unit: Unit) -> Shader {
        let shader = Shader::new(format!("dynamic slice {self:?} {}", unit.bytes()))
            .library("quotient")
            .u32s(&["count", "rank", "index_words"])
            .param("extents", Field::Vec4s(MAX_RANK / 4))
            .param("sizes", Field::Vec4s(MAX_RANK / 4));
        let shader = unit.bind(shader, "src").bind("start", DType::U32);
        let shader = if self == Self::Merge { unit.bind(shader, "part") } else { shader };
        let shader = unit
            .bind(shader, "dst")
            .define("ELEMENT", unit.wgsl())
            .body(include_str!("../../../shaders/movement/dynamic.wgsl"));
        match self {
            Self::Read => {
                unit.map(shader.body(include_str!("../../../shaders/movement/dynamic_read.wgsl")))
            }
            Self::Merge => {
                unit.map(shader.body(include_str!("../../../shaders/movement/dynamic_merge.wgsl")))
            }
            Self::Write => {
                shader.body(include_str!("../../../shaders/movement/dynamic_write.wgsl"))
            }
        }
    }
}

/// Enqueues a program over the whole, where the box lies, the box and the result.
fn run(device: &Device, way: Way, [whole, start, part, y]: [&Tensor; 4]) -> Result<()> {
    if y.is_empty() || part.is_empty() {
        return Ok(());
    }
    let rank = whole.rank();
    if rank > MAX_RANK {
        return Err(Error::Unimplemented(format!(
            "dynamic slices of more than {MAX_RANK} dimensions, got {rank}"
        )));
    }
    let unit = Unit::of(y.dtype);
    device.check_extent(whole.len())?;
    let counted = if way == Way::Merge { whole } else { part };
    let list = |dims: &[usize]| {
        let mut list: Dims = dims.into();
        list.resize(MAX_RANK, 1);
        list
    };
    let binding = |t: &Tensor| unit.binding(t.address, t.len() as u64);
    let place = Binding { address: start.address, bytes: start.bytes(), unit: 4 };
    let bindings = match way {
        Way::Read => smallvec![binding(whole), place, binding(y)],
        Way::Write => smallvec![binding(part), place, binding(y)],
        Way::Merge => smallvec![binding(whole), place, binding(part), binding(y)],
    };
    device.enqueue(&Program {
        key: Key::new("dynamic slice").number(way as u32).number(unit.key()),
        shader: &|| way.shader(unit),
        bindings,
        params: Params::new()
            .u32(counted.len())
            .u32(rank)
            .u32(start.dtype.size() / 4)
            .list(&list(&whole.dims))
            .list(&list(&part.dims)),
        grid: Grid::linear(unit.invocations(counted.len()), WORKGROUP),
    })
}
