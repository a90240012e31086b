//! Unique and UniqueWithCounts: the distinct values in the order of their first occurrence.
//!
//! A hash table finds the first position of each value, and prefix sums over the marks of these
//! positions number them. If the table is larger than a binding, or if values crowd in it, a stable
//! sort is used instead ([`super::unique_sorted`]).

use super::keys::{KeyType, infinity};
use super::scan::exclusive;
use super::unique_sorted::by_sort;
use crate::device::{Binding, Grid, declare_program};
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
use crate::shader::{Raw, Shader, WORKGROUP};
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
    NumberDistinct {
        firsts: (&found.firsts).into(),
        ranks: (&found.ranks).into(),
        order: Binding::raw(&places, 4),
        idx: Binding::raw(&idx, 4),
        sizes: Binding::raw(&sizes, 4),
        count: n,
        words: index.size() / 4,
        sized: counted,
    }
    .enqueue(ctx.device(), &NumberDistinct::of(), Grid::linear(n, WORKGROUP))?;
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
        let kind = KeyType::of(x.dtype);
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
        InsertIntoTable {
            x: kind.binding(x),
            table: Binding::raw(&table, 4),
            slots: (&firsts).into(),
            failed: Binding::raw(&failed, 4),
            count: n,
            infinity: infinity(x.dtype),
            mask: slots - 1,
        }
        .enqueue(ctx.device(), &InsertIntoTable::of(kind), Grid::linear(n, WORKGROUP))?;
        MarkFirst {
            slots: (&firsts).into(),
            table: (&table).into(),
            marks: (&marks).into(),
            count: n,
        }
        .enqueue(ctx.device(), &MarkFirst::of(), Grid::linear(n, WORKGROUP))?;
        exclusive(ctx, &marks, &ranks)?;
        let mut host = HostTensor { dtype: U32, dims: Dims::from_slice(&[2]), bytes: vec![0; 8] };
        ctx.device().download(counts.address + 4 * n as u64, &mut host.bytes)?;
        let [distinct, failed] = host.values::<u32>()[..] else { unreachable!("two words") };
        Ok((failed == 0).then_some(Self { firsts, ranks, distinct: distinct as usize }))
    }
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    let mut all = vec![MarkFirst::shader(), NumberDistinct::shader()];
    all.extend(KeyType::all().into_iter().map(InsertIntoTable::shader));
    all
}

declare_program! {
    /// Inserts each element into a hash table.
    struct InsertIntoTable = "sort unique insert"(kind: KeyType);
    bindings { x: kind, table: Raw("atomic<u32>", 4), slots: U32, failed: Raw("atomic<u32>", 4) }
    params { count: usize, infinity: u32, mask: usize }
    shader format!("sort unique insert {kind:?}") =>
        .define("NAN", kind.is_nan())
        .define("PROBES", PROBES.to_string())
        .body(include_str!("../../../shaders/sort/unique_insert.wgsl"))
}

declare_program! {
    /// Finds and marks the first occurrence of each element.
    struct MarkFirst = "sort unique first"();
    bindings { slots: U32, table: U32, marks: U32 }
    params { count: usize }
    shader "sort unique first" => .body(include_str!("../../../shaders/sort/unique_first.wgsl"))
}

declare_program! {
    /// Numbers the distinct elements in the order of their first occurrences.
    struct NumberDistinct = "sort unique number"();
    bindings {
        firsts: U32, ranks: U32, order: U32, idx: Raw("u32", 4), sizes: Raw("atomic<u32>", 4),
    }
    params { count: usize, words: usize, sized: bool }
    shader "sort unique number" => .body(include_str!("../../../shaders/sort/unique_number.wgsl"))
}
