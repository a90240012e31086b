//! OneHot. Results beyond one binding are written in windows.

use super::index::{IndexParams, IndexVariant, Indices};
use crate::device::{Binding, Grid, declare_program};
use crate::error::Result;
use crate::kernels::movement::unit::Unit;
use crate::kernels::movement::{checked_product, shape};
use crate::kernels::op::{OpContext, OpContextExt};
use crate::kernels::windows::{Scratch, largest, limit, part, ranges, write};
use crate::require;
use crate::shader::{Raw, Shader, WORKGROUP};
use crate::tensor::Tensor;

/// OneHot: inputs indices (0), depth (1, host), on_value (2) and off_value (3).
pub fn one_hot(ctx: &mut dyn OpContext, axis: i64) -> Result<()> {
    let indices = ctx.input(0)?;
    let depth = ctx.host_i64(1, "depth")?;
    let (on, off) = (ctx.input(2)?, ctx.input(3)?);
    let rank = indices.rank();
    require!(
        axis == -1 || (0..=rank as i64).contains(&axis),
        "Expected axis to be -1 or between [0, {}).  But received: {axis}",
        rank + 1
    );
    require!(depth >= 0, "depth must be non-negative, got: {depth}");
    require!(on.dims.is_empty(), "on_value must be a scalar, but got: {}", shape(&on.dims));
    require!(off.dims.is_empty(), "off_value must be a scalar, but got: {}", shape(&off.dims));
    let axis = if axis == -1 { rank } else { axis as usize };
    let mut out = indices.dims.clone();
    out.insert(axis, depth as usize);
    checked_product(&out)?;
    let Some(dst) = ctx.some_output(0, on.dtype, &out)? else { return Ok(()) };
    let inner: usize = indices.dims[axis..].iter().product();
    let depth = depth as usize;
    let variant = Indices::new(&indices, &[depth])?.variant();
    let Some(variant) = variant else { unreachable!("scalar indices") };
    let hot = OneHot { indices, on, off, depth, inner, variant };
    let limit = limit(ctx.device().capabilities());
    let each = dst.dtype.size() as u64;
    let fits = |rows: usize, classes: usize, columns: usize| {
        let indices = (rows * columns * hot.indices.dtype.size()) as u64;
        (rows * classes * columns) as u64 * each <= limit && indices <= limit
    };
    let rows = hot.indices.len() / inner;
    if fits(rows, depth, inner) {
        return hot.enqueue(ctx, [(0, rows), (0, depth), (0, inner)], &dst);
    }
    // A part is whole rows, or classes of one row, or columns of one class: each is a range of the
    // result, in ascending order.
    let count = largest(rows, |n| fits(n, depth, inner)).max(1);
    let classes = largest(depth, |n| fits(count, n, inner)).max(1);
    let columns = largest(inner, |n| fits(count, classes, n)).max(1);
    let mut scratch = Scratch::new(ctx);
    for row in ranges(rows, count) {
        for class in ranges(depth, classes) {
            for column in ranges(inner, columns) {
                let first = (row.0 * depth + class.0) * inner + column.0;
                let part = part(&dst, first, row.1 * class.1 * column.1);
                write(scratch.window(), &part, |ctx, dst| {
                    hot.enqueue(ctx, [row, class, column], dst)
                })?;
            }
        }
    }
    Ok(())
}

/// The operands, for results of `[rows, depth, inner]`.
struct OneHot {
    indices: Tensor,
    on: Tensor,
    off: Tensor,
    depth: usize,
    inner: usize,
    variant: IndexVariant,
}

impl OneHot {
    /// Enqueues a part: its first row, class and column, then the number of its rows, classes and
    /// columns.
    fn enqueue(
        &self,
        ctx: &dyn OpContext,
        [(row, rows), (class, classes), (column, columns)]: [(usize, usize); 3],
        dst: &Tensor,
    ) -> Result<()> {
        let count = ctx.device().check_extent(dst.len())?;
        let (unit, variant) = (Unit::of(self.on.dtype), self.variant);
        let len = rows * columns;
        let indices =
            Indices::new(&part(&self.indices, row * self.inner + column, len), &[self.depth])?;
        // The program writes whole units of 16 bytes if no unit reaches from one vector into the
        // next.
        let per_run = 16 / unit.bytes() as usize;
        if self.inner == 1
            && classes == self.depth
            && classes.is_multiple_of(per_run)
            && dst.address.is_multiple_of(16)
        {
            let runs = classes / per_run;
            return OneHotRuns {
                on: unit.binding(self.on.address, 1),
                off: unit.binding(self.off.address, 1),
                dst: Binding { address: dst.address, bytes: dst.bytes(), unit: 16 },
                indices: indices.binding(0, len),
                count: len * runs,
                runs,
                per_run,
                index: indices.params(),
            }
            .enqueue(
                ctx.device(),
                &OneHotRuns::of(unit, variant),
                Grid::linear(len * runs, WORKGROUP),
            );
        }
        OneHotElements {
            on: unit.binding(self.on.address, 1),
            off: unit.binding(self.off.address, 1),
            dst: unit.binding(dst.address, u64::from(count)),
            indices: indices.binding(0, len),
            count,
            inner: columns,
            classes,
            first: class,
            index: indices.params(),
        }
        .enqueue(
            ctx.device(),
            &OneHotElements::of(unit, variant),
            Grid::linear(unit.invocations(count as usize), WORKGROUP),
        )
    }
}

declare_program! {
    /// OneHot with values of `unit` and indices of `variant`.
    pub struct OneHotElements = "one_hot"(unit: Unit, variant: IndexVariant);
    bindings { on: unit, off: unit, dst: unit, indices: variant }
    params { count: u32, inner: usize, classes: usize, first: usize, index: IndexParams }
}

impl OneHotElements {
    pub fn shader(unit: Unit, variant: IndexVariant) -> Shader {
        unit.map(
            Self::declare(format!("one_hot {} {variant:?}", unit.bytes()), unit, variant)
                .define("ELEMENT", unit.wgsl())
                .body(include_str!("../../../shaders/gather/one_hot.wgsl")),
        )
    }
}

declare_program! {
    /// OneHot along the last axis, 16 bytes at a time.
    pub struct OneHotRuns = "one_hot runs"(unit: Unit, variant: IndexVariant);
    bindings { on: unit, off: unit, dst: Raw("vec4<u32>", 16), indices: variant }
    params { count: usize, runs: usize, per_run: usize, index: IndexParams }
}

impl OneHotRuns {
    pub fn shader(unit: Unit, variant: IndexVariant) -> Shader {
        // The words of a vector, by the elements that they belong to, and an element's bits.
        let (words, mask) = match unit.bytes() {
            1 => ("vec4(0u, 1u, 2u, 3u)", "0xff"),
            2 => ("vec4(0u, 1u, 2u, 3u)", "0xffff"),
            4 => ("vec4(0u, 1u, 2u, 3u)", "0xffffffff"),
            8 => ("vec4(0u, 0u, 1u, 1u)", "0xffffffff"),
            _ => ("vec4(0u, 0u, 0u, 0u)", "0xffffffff"),
        };
        Self::declare(format!("one_hot runs {} {variant:?}", unit.bytes()), unit, variant)
            .define("LANES", unit.lanes().to_string())
            .define("BITS", (8 * unit.bytes()).min(32).to_string())
            .define("MASK", mask)
            .define("WORDS", words)
            .define("ON", unit.repeated("load_on(0u)"))
            .define("OFF", unit.repeated("load_off(0u)"))
            .body(include_str!("../../../shaders/gather/one_hot_runs.wgsl"))
    }
}
