//! `_WgpuMaskedUpdateSlice`: a box of a tensor takes the elements of an update for which a mask
//! holds, in place if nothing else reads the tensor. So a language model writes the keys and values
//! of a token into a cache, but for rows that the prompt has filled.

use crate::device::{Binding, Device, Grid, declare_program};
use crate::dtype::{DType, types};
use crate::error::Result;
use crate::kernels::definition::{OpDefinition, PartialShape, ShapeInputs};
use crate::kernels::movement::unit::Unit;
use crate::kernels::movement::walk::window_limit;
use crate::kernels::op::{OpContext, OpContextExt};
use crate::kernels::registry::Registry;
use crate::layout::{AccessClass, Iteration, Strides, broadcast_dims, dense_strides};
use crate::require;
use crate::shader::{Shader, WORKGROUP};
use crate::tensor::{Dims, Tensor, shape_text};

/// The op's name.
pub const OP: &str = "_WgpuMaskedUpdateSlice";
/// The most dimensions of a tensor of which words hold elements inside and outside of the box.
pub const MAX_RANK: usize = 8;

/// The op.
pub const DEFINITIONS: &[OpDefinition] = &[OpDefinition {
    name: OP,
    inputs: &["input: T", "mask: bool", "update: T", "begin: int32"],
    outputs: &["output: T"],
    attrs: &["T: {float, half, bfloat16, double}"],
    stateful: false,
    shape,
}];

fn shape(inputs: &ShapeInputs<'_>) -> Result<Vec<PartialShape>> {
    Ok(vec![inputs.shapes.first().cloned().flatten()])
}

/// Adds the op.
pub fn register(registry: &mut Registry) {
    registry.op(OP).types("T", types::FLOATS).host(&["begin"]).kernel(|_| Ok(compute));
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    let box_of = |dims: &[usize], mask: &[usize]| {
        let whole: Strides = dense_strides(dims).iter().map(|stride| stride * 3).collect();
        Iteration::over(dims).broadcast(dims).broadcast(mask).operand(&whole, 0).class()
    };
    let classes = [box_of(&[4], &[1]), box_of(&[4, 4], &[4, 1]), box_of(&[4, 4, 4], &[4, 1, 1])];
    let of = |unit: Unit| {
        if unit.is_packed() {
            return vec![MergeMasked::shader(unit)];
        }
        classes.iter().map(|class| WriteMasked::shader(unit, class)).collect()
    };
    Unit::ALL.into_iter().filter(|unit| unit.bytes() > 1).flat_map(of).collect()
}

/// Inputs: input, mask, update, begin (host).
fn compute(ctx: &mut dyn OpContext) -> Result<()> {
    let (x, mask, update) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
    let begin = ctx.host_i64s(3)?;
    require!(
        begin.len() == x.rank() && update.rank() == x.rank(),
        "{OP}: an update of shape {} at {begin:?} in a tensor of shape {}",
        shape_text(&update.dims),
        shape_text(&x.dims)
    );
    for (d, (extent, size)) in x.dims.iter().zip(&update.dims).enumerate() {
        let (n, b) = (*extent as i64, begin[d]);
        require!((0..=n).contains(&b), "Expected begin[{d}] in [0, {n}], but got {b}");
        let (size, rest) = (*size as i64, n - b);
        require!(size <= rest, "Expected size[{d}] in [0, {rest}], but got {size}");
    }
    require!(
        broadcast_dims(&mask.dims, &update.dims)? == update.dims,
        "{OP}: a mask of shape {} for an update of shape {}",
        shape_text(&mask.dims),
        shape_text(&update.dims)
    );
    if update.is_empty() {
        return ctx.forward_input(0, 0, &x.dims);
    }
    let y = ctx.forward_or_output(&[0], 0, x.dtype, &x.dims)?;
    let strides = dense_strides(&x.dims);
    let offset: i64 = begin.iter().zip(&strides).map(|(b, stride)| b * stride).sum();
    let walk = Iteration::over(&update.dims)
        .broadcast(&update.dims)
        .broadcast(&mask.dims)
        .operand(&strides, 0)
        .collapse();
    let bytes = x.dtype.size() as u64;
    let masked = Masked {
        unit: Unit::of(x.dtype),
        dims: walk.dims().into(),
        strides: std::array::from_fn(|k| walk.strides(k).into()),
        addresses: [update.address, mask.address, y.address + offset as u64 * bytes],
    }
    .widened();
    if masked.unit.is_packed() {
        return merge(ctx.device(), &begin, [&x, &mask, &update, &y]);
    }
    if y.address != x.address {
        ctx.device().copy(y.address, x.address, x.bytes())?;
    }
    masked.write(ctx.device())
}

/// The operands of a walk, in the order of its strides.
const UPDATE: usize = 0;
const MASK: usize = 1;
const WHOLE: usize = 2;

/// A walk over the update, the mask and the box.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Masked {
    unit: Unit,
    dims: Dims,
    strides: [Strides; 3],
    /// Where the first element of each lies.
    addresses: [u64; 3],
}

impl Masked {
    /// The same in the widest elements that lie next to each other and have one element of the
    /// mask.
    fn widened(mut self) -> Self {
        let moved = [UPDATE, WHOLE];
        while let (Some(unit), Some(last)) = (self.unit.doubled(), self.dims.len().checked_sub(1)) {
            let even = |n: &i64| n % 2 == 0;
            let is_run = moved.iter().all(|k| {
                let (inner, outer) = (self.strides[*k][last], &self.strides[*k][..last]);
                inner == 1
                    && outer.iter().all(even)
                    && self.addresses[*k].is_multiple_of(unit.bytes())
            });
            if !is_run || self.strides[MASK][last] != 0 || !self.dims[last].is_multiple_of(2) {
                break;
            }
            self.unit = unit;
            self.dims[last] /= 2;
            for k in moved {
                self.strides[k][..last].iter_mut().for_each(|stride| *stride /= 2);
            }
        }
        self
    }

    /// Bytes from the first to the last element of operand `k`.
    fn span(&self, k: usize) -> u64 {
        let axes = self.dims.iter().zip(&self.strides[k]);
        let reach = axes.map(|(n, stride)| (n - 1) as i64 * stride);
        let bytes = if k == MASK { 1 } else { self.unit.bytes() };
        (reach.sum::<i64>() as u64 + 1) * bytes
    }

    /// Enqueues the walk, in halves if an operand exceeds a binding.
    fn write(self, device: &Device) -> Result<()> {
        let limit = window_limit(device);
        let outermost = self.dims.iter().position(|n| *n > 1);
        if let Some(d) = outermost
            && (0..3).any(|k| self.span(k) > limit)
        {
            let (mut first, mut second) = (self.clone(), self);
            first.dims[d] /= 2;
            second.dims[d] -= first.dims[d];
            for (k, address) in second.addresses.iter_mut().enumerate() {
                let bytes = if k == MASK { 1 } else { second.unit.bytes() };
                *address += first.dims[d] as u64 * second.strides[k][d] as u64 * bytes;
            }
            first.write(device)?;
            return second.write(device);
        }
        let walk = self
            .strides
            .iter()
            .fold(Iteration::over(&self.dims), |walk, strides| walk.operand(strides, 0))
            .collapse();
        let class = walk.class();
        let count = walk.len();
        let of = |k: usize| self.unit.binding(self.addresses[k], self.span(k) / self.unit.bytes());
        let bytes = self.span(MASK);
        let call = WriteMasked {
            src: of(UPDATE),
            mask: Binding { address: self.addresses[MASK], bytes, unit: 1 },
            dst: of(WHOLE),
            count: count as u32,
            walk,
        };
        let touched = 2 * count as u64 * self.unit.bytes() + bytes;
        let (of, grid) = (WriteMasked::of(self.unit, &class), Grid::linear(count, WORKGROUP));
        device.enqueue_touching(&call.program(&of, grid), touched)
    }
}

/// Writes each word of the result, of elements inside the box and outside.
fn merge(device: &Device, begin: &[i64], [x, mask, update, y]: [&Tensor; 4]) -> Result<()> {
    let rank = x.rank();
    require!(rank <= MAX_RANK, "{OP}: {rank} dimensions of elements that share words");
    device.check_extent(x.len())?;
    let unit = Unit::of(x.dtype);
    let of_mask = Iteration::over(&update.dims).broadcast(&mask.dims);
    let padded = |of: &dyn Fn(usize) -> usize, beyond: usize| {
        std::array::from_fn(|d| if d < rank { of(d) } else { beyond })
    };
    let binding = |t: &Tensor| unit.binding(t.address, t.len() as u64);
    let call = MergeMasked {
        src: binding(x),
        part: binding(update),
        mask: Binding::raw(mask, 1),
        dst: binding(y),
        count: x.len(),
        rank,
        extents: padded(&|d| x.dims[d], 1),
        sizes: padded(&|d| update.dims[d], 1),
        begin: padded(&|d| begin[d] as usize, 0),
        mask_strides: padded(&|d| of_mask.strides(0)[d] as usize, 0),
    };
    let grid = Grid::linear(unit.invocations(x.len()), WORKGROUP);
    let touched = 2 * y.bytes() + mask.bytes();
    let of = MergeMasked::of(unit);
    device.enqueue_touching(&call.program(&of, grid), touched)
}

declare_program! {
    /// Stores the elements of the update for which the mask holds.
    struct WriteMasked = "masked write"(unit: Unit, class: &AccessClass);
    bindings { src: unit, mask: DType::U8, dst: unit }
    params { count: u32, walk: Iteration = (class, &["src", "mask", "dst"]) }
}

impl WriteMasked {
    fn shader(unit: Unit, class: &AccessClass) -> Shader {
        Self::declare(format!("masked write {}", unit.bytes()), unit, class)
            .body(include_str!("../../../shaders/movement/masked_write.wgsl"))
    }
}

declare_program! {
    /// The same for elements that share words: each word has a single writer.
    struct MergeMasked = "masked merge"(unit: Unit);
    bindings { src: unit, part: unit, mask: DType::U8, dst: unit }
    params {
        count: usize, rank: usize, extents: [usize; MAX_RANK], sizes: [usize; MAX_RANK],
        begin: [usize; MAX_RANK], mask_strides: [usize; MAX_RANK],
    }
}

impl MergeMasked {
    fn shader(unit: Unit) -> Shader {
        let shader = Self::declare(format!("masked merge {}", unit.bytes()), unit)
            .body(include_str!("../../../shaders/movement/masked_merge.wgsl"));
        unit.map(shader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_under_one_element_of_the_mask_are_wide() {
        let of = |size: &[usize], whole: &[usize], mask: &[usize], at: u64| {
            let walk = Iteration::over(size)
                .broadcast(size)
                .broadcast(mask)
                .operand(&dense_strides(whole), 0)
                .collapse();
            let strides = std::array::from_fn(|k| walk.strides(k).into());
            let addresses = [256, 3, at];
            let unit = Unit::of(DType::F16);
            let wide = Masked { unit, dims: walk.dims().into(), strides, addresses }.widened();
            (wide.unit.bytes(), wide.dims.to_vec())
        };
        let (row, cache) = ([1, 1, 2, 64], [1, 24, 2, 64]);
        assert_eq!(of(&row, &cache, &[1, 1, 1, 1], 512), (16, vec![16]));
        assert_eq!(of(&row, &cache, &[1, 1, 1, 1], 516), (4, vec![64]));
        assert_eq!(of(&row, &cache, &[1, 1, 2, 1], 512), (16, vec![2, 8]));
        assert_eq!(of(&row, &cache, &[1, 1, 1, 64], 512), (2, vec![2, 64]));
        assert_eq!(of(&[3, 5, 6], &[4, 8, 6], &[3, 5, 1], 512), (4, vec![3, 5, 3]));
        assert_eq!(of(&[3, 5, 3], &[4, 8, 6], &[3, 5, 1], 512).0, 2);
    }
}
