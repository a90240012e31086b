//! Unique and UniqueWithCounts: the distinct values in the order of their first occurrence.
//!
//! A hash table finds the first position of each value, and prefix sums over the marks of these
//! positions number them. If the table is larger than a binding, or if values crowd in it, a stable
//! sort is used instead ([`super::unique_sorted`]).

use smallvec::smallvec;

use super::keys::{Kind, infinity};
use super::scan::exclusive;
use super::unique_sorted::by_sort;
use crate::device::{Binding, Grid, Key, Params, Program};
use crate::dtype::types::INDEX;
use crate::dtype::{
    DType::{self, *},
    types, union,
};
use crate::error::Result;
use crate::kernels::gather::index::Indices;
use crate::kernels::gather::rows::Gather;
use crate::kernels::movement::walk::window_limit;
use crate::kernels::op::OpContext;
use crate::kernels::registry::{Registry, WAITS_FOR_SIZE};
use crate::require;
use crate::shader::{Shader, WORKGROUP};
use crate::tensor::{Dims, HostTensor, Tensor};

const TYPES: &[DType] = union!(types::REALS, &[Bool]);

/// Slots that an element probes before the table gives up: far more than a half-full table needs
/// for values that the hash spreads.
const PROBES: u32 = 512;

/// Registers the ops.
pub fn register(r: &mut Registry) {
    for (op, counted) in [("Unique", false), ("UniqueWithCounts", true)] {
        r.op(op).types("T", TYPES).types("out_idx", INDEX).note(WAITS_FOR_SIZE).kernel(
            move |attrs| {
                let index = attrs.dtype("out_idx")?;
                Ok(move |ctx: &mut dyn OpContext| unique(ctx, index, counted))
            },
        );
    }
}

/// Outputs y (0), idx (1) and, if `counted`, count (2). Waits for the device, since the number of
/// distinct values is an extent.
fn unique(ctx: &mut dyn OpContext, index: DType, counted: bool) -> Result<()> {
    let x = ctx.input(0)?;
    require!(x.rank() == 1, "unique expects a 1D vector.");
    let n = x.len();
    let idx = ctx.output(1, index, &[n])?;
    if n == 0 {
        ctx.output(0, x.dtype, &[0])?;
        if counted {
            ctx.output(2, index, &[0])?;
        }
        return Ok(());
    }
    let Some(found) = Firsts::find(ctx, &x)? else { return by_sort(ctx, &x, &idx, counted) };
    let y = ctx.output(0, x.dtype, &[found.distinct])?;
    let places = ctx.temp(I32, &[found.distinct])?;
    let sizes = if counted { ctx.output(2, index, &[found.distinct])? } else { places.clone() };
    if counted {
        ctx.device().fill(sizes.address, sizes.bytes(), 0)?;
    }
    ctx.device().enqueue(&Program {
        key: Key::new("sort unique number"),
        shader: &number_shader,
        bindings: smallvec![
            (&found.firsts).into(),
            (&found.ranks).into(),
            Binding::raw(&places, 4),
            Binding::raw(&idx, 4),
            Binding::raw(&sizes, 4),
        ],
        params: Params::new().u32(n).u32(index.size() / 4).u32(u32::from(counted)),
        grid: Grid::linear(n, WORKGROUP),
    })?;
    let indices = Indices::new(&places, &[n])?;
    Gather { batch: 1, outer: 1, count: found.distinct, inner: 1 }.enqueue(
        ctx.device(),
        &x,
        &indices,
        &y,
    )
}

/// Where each value occurs first.
struct Firsts {
    /// For each element, the position of the first element that equals it.
    firsts: Tensor,
    /// For each position and for the end, the number of first occurrences before it.
    ranks: Tensor,
    distinct: usize,
}

impl Firsts {
    /// Finds them by a hash table; None if the table does not work out. Waits for the device.
    fn find(ctx: &mut dyn OpContext, x: &Tensor) -> Result<Option<Self>> {
        let n = ctx.device().check_extent(x.len())? as usize;
        let slots = (2 * n).next_power_of_two();
        if 4 * slots as u64 > window_limit(ctx.device()) {
            return Ok(None);
        }
        let kind = Kind::of(x.dtype);
        let table = ctx.temp(U32, &[slots])?;
        let firsts = ctx.temp(U32, &[n])?;
        let marks = ctx.temp(U32, &[n])?;
        // The ranks and, behind them, the number of elements that found no slot: one wait covers
        // both.
        let counts = ctx.temp(U32, &[n + 2])?;
        let ranks = Tensor::new(U32, &[n + 1], counts.address);
        let failed = Tensor::new(U32, &[1], counts.address + 4 * (n as u64 + 1));
        ctx.device().fill(table.address, table.bytes(), u32::MAX)?;
        ctx.device().fill(failed.address, failed.bytes(), 0)?;
        ctx.device().enqueue(&Program {
            key: Key::new("sort unique insert").number(kind.key()),
            shader: &|| insert_shader(kind),
            bindings: smallvec![
                kind.binding(x),
                Binding::raw(&table, 4),
                (&firsts).into(),
                Binding::raw(&failed, 4),
            ],
            params: Params::new().u32(n).u32(infinity(x.dtype)).u32(slots - 1),
            grid: Grid::linear(n, WORKGROUP),
        })?;
        ctx.device().enqueue(&Program {
            key: Key::new("sort unique first"),
            shader: &first_shader,
            bindings: smallvec![(&firsts).into(), (&table).into(), (&marks).into()],
            params: Params::new().u32(n),
            grid: Grid::linear(n, WORKGROUP),
        })?;
        exclusive(ctx, &marks, &ranks)?;
        let mut host = HostTensor { dtype: U32, dims: Dims::from_slice(&[2]), bytes: vec![0; 8] };
        ctx.device().download(counts.address + 4 * n as u64, &mut host.bytes)?;
        let [distinct, failed] = host.values::<u32>()[..] else { unreachable!("two words") };
        Ok((failed == 0).then_some(Self { firsts, ranks, distinct: distinct as usize }))
    }
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    let mut all = vec![first_shader(), number_shader()];
    all.extend(Kind::all().into_iter().map(insert_shader));
    all
}

fn insert_shader(kind: Kind) -> Shader {
    kind.declare(Shader::new(format!("sort unique insert {kind:?}")))
        .bind_raw("table", "atomic<u32>", 4)
        .bind("slots", U32)
        .bind_raw("failed", "atomic<u32>", 4)
        .u32s(&["count", "infinity", "mask"])
        .define("NAN", kind.is_nan())
        .define("PROBES", PROBES.to_string())
        .body(include_str!("../../../shaders/sort/unique_insert.wgsl"))
}

fn first_shader() -> Shader {
    ["slots", "table", "marks"]
        .into_iter()
        .fold(Shader::new("sort unique first"), |shader, name| shader.bind(name, U32))
        .u32s(&["count"])
        .body(include_str!("../../../shaders/sort/unique_first.wgsl"))
}

fn number_shader() -> Shader {
    ["firsts", "ranks", "order"]
        .into_iter()
        .fold(Shader::new("sort unique number"), |shader, name| shader.bind(name, U32))
        .bind_raw("idx", "u32", 4)
        .bind_raw("sizes", "atomic<u32>", 4)
        .u32s(&["count", "words", "sized"])
        .body(include_str!("../../../shaders/sort/unique_number.wgsl"))
}
