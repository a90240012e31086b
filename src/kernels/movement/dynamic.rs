//! `XlaDynamicSlice` and `XlaDynamicUpdateSlice`: a box at a place that only the device knows. A
//! place where the box would not lie inside is moved to the nearest one where it does.

use super::unit::Unit;
use super::{index_values, shape};
use crate::device::{Binding, Device, Grid, declare_program, enum_key_parts};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::op::OpContext;
use crate::kernels::registry::Registry;
use crate::require;
use crate::shader::{Shader, WORKGROUP};
use crate::tensor::{Dims, Tensor};

/// The most dimensions that a shader handles.
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
        .flat_map(|unit| [Way::Read, Way::of(unit)].map(|way| DynamicSlice::shader(way, unit)))
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
    run(ctx.device(), false, [&x, &start, &y, &y])
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
    run(ctx.device(), true, [&x, &start, &value, &y])
}

/// The work of an invocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Reads an element of the box out of the whole.
    Read,
    /// Writes an element of the box into the whole, whose other elements are there already.
    Write,
    /// Writes a word of the whole, of elements inside the box and outside.
    Merge,
}

impl Way {
    /// How a box is written: a word that holds several elements has a single writer.
    const fn of(unit: Unit) -> Self {
        if unit.is_packed() { Self::Merge } else { Self::Write }
    }
}

enum_key_parts!(Way);

declare_program! {
    /// Reads or writes a box. `part` is the box beside the whole of [`Way::Merge`].
    struct DynamicSlice = "dynamic slice"(way: Way, unit: Unit);
    bindings { src: unit, start: DType::U32, dst: unit }
    optional { part: (way == Way::Merge).then_some(unit) }
    params {
        count: usize, rank: usize, index_words: usize, extents: [usize; MAX_RANK],
        sizes: [usize; MAX_RANK],
    }
}

impl DynamicSlice {
    fn shader(way: Way, unit: Unit) -> Shader {
        let shader = Self::declare(format!("dynamic slice {way:?} {}", unit.bytes()), way, unit)
            .define("ELEMENT", unit.wgsl())
            .body(include_str!("../../../shaders/movement/dynamic.wgsl"));
        match way {
            Way::Read => {
                unit.map(shader.body(include_str!("../../../shaders/movement/dynamic_read.wgsl")))
            }
            Way::Merge => {
                unit.map(shader.body(include_str!("../../../shaders/movement/dynamic_merge.wgsl")))
            }
            Way::Write => shader.body(include_str!("../../../shaders/movement/dynamic_write.wgsl")),
        }
    }
}

/// A box in a whole, in wide elements. Innermost dimensions that the box covers in full are one
/// run.
#[derive(Debug, PartialEq, Eq)]
struct Wide {
    unit: Unit,
    extents: Dims,
    sizes: Dims,
}

impl Wide {
    /// The widest elements that the run and the tensors' addresses allow.
    fn of(unit: Unit, extents: &[usize], sizes: &[usize], addresses: &[u64]) -> Self {
        let covered = extents.iter().zip(sizes).rev().take_while(|(n, size)| n == size).count();
        let outer = extents.len() - covered;
        let mut wide =
            Self { unit, extents: extents[..outer].into(), sizes: sizes[..outer].into() };
        if covered == 0 {
            return wide;
        }
        let mut run: usize = extents[outer..].iter().product();
        while let Some(doubled) = wide.unit.doubled()
            && run.is_multiple_of(2)
            && addresses.iter().all(|a| a.is_multiple_of(doubled.bytes()))
        {
            (wide.unit, run) = (doubled, run / 2);
        }
        // Its start is clamped to 0, whatever the input asks for.
        wide.extents.push(run);
        wide.sizes.push(run);
        wide
    }
}

/// Enqueues a program over the whole, the place of the box, the box and the result.
fn run(device: &Device, write: bool, [whole, start, part, y]: [&Tensor; 4]) -> Result<()> {
    if y.is_empty() || part.is_empty() {
        return Ok(());
    }
    device.check_extent(whole.len())?;
    let addresses = [whole.address, part.address, y.address];
    let Wide { unit, extents, sizes } =
        Wide::of(Unit::of(y.dtype), &whole.dims, &part.dims, &addresses);
    let way = if write { Way::of(unit) } else { Way::Read };
    let rank = extents.len();
    if rank > MAX_RANK {
        return Err(Error::Unimplemented(format!(
            "dynamic slices of more than {MAX_RANK} dimensions, got {rank}"
        )));
    }
    if way == Way::Write && y.address != whole.address {
        device.copy(y.address, whole.address, whole.bytes())?;
    }
    let count = |dims: &[usize]| dims.iter().product::<usize>();
    let count = count(if way == Way::Merge { &extents } else { &sizes });
    let binding = |t: &Tensor| unit.binding(t.address, t.bytes() / unit.bytes());
    let padded = |dims: &[usize]| std::array::from_fn(|d| dims.get(d).copied().unwrap_or(1));
    let call = DynamicSlice {
        src: binding(if way == Way::Write { part } else { whole }),
        start: Binding::raw(start, 4),
        dst: binding(y),
        part: (way == Way::Merge).then(|| binding(part)),
        count,
        rank,
        index_words: start.dtype.size() / 4,
        extents: padded(&extents),
        sizes: padded(&sizes),
    };
    let grid = Grid::linear(unit.invocations(count), WORKGROUP);
    // A merge writes everything, the others move the box alone.
    let moved = if way == Way::Merge { y } else { part };
    let of = DynamicSlice::of(way, unit);
    device.enqueue_touching(&call.program(&of, grid), 2 * moved.bytes() + start.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_box_covers_is_one_run_of_wide_elements() {
        let half = Unit::of(DType::F16);
        let wide = |extents: &[usize], sizes: &[usize], at: u64| {
            let wide = Wide::of(half, extents, sizes, &[0, at, 32]);
            (wide.unit.bytes(), wide.extents.to_vec(), wide.sizes.to_vec())
        };
        assert_eq!(wide(&[2, 9, 4, 6], &[2, 1, 4, 6], 16), (16, vec![2, 9, 3], vec![2, 1, 3]));
        assert_eq!(wide(&[2, 9, 4, 6], &[2, 1, 4, 6], 6), (2, vec![2, 9, 24], vec![2, 1, 24]));
        assert_eq!(wide(&[5, 6], &[1, 5], 16), (2, vec![5, 6], vec![1, 5]));
        assert_eq!(wide(&[5, 3], &[5, 3], 16), (2, vec![15], vec![15]));
        assert_eq!(wide(&[], &[], 16), (2, vec![], vec![]));
    }
}
