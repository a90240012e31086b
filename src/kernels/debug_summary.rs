//! DebugNumericSummaryV2: the numbers of infinite, NaN, negative, zero and positive values of a
//! tensor, or whether any value is infinite or NaN.

use crate::device::{Grid, declare_program};
use crate::dtype::{
    DType::{self, *},
    types, union,
};
use crate::error::{Error, Result};
use crate::kernels::movement::walk::window_limit;
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::reduce::program::part;
use crate::kernels::registry::Registry;
use crate::require;
use crate::shader::{Raw, Shader, WORKGROUP};
use crate::tensor::Tensor;

const TYPES: &[DType] = union!(types::FLOATS_BUT_BF16, &[I16, I32]);
const OUTPUTS: &[DType] = types::F32_F64;

/// Adds the op.
pub fn register(r: &mut Registry) {
    r.op("DebugNumericSummaryV2")
        .types("T", TYPES)
        .types("output_dtype", OUTPUTS)
        .kernel(|a| Summary::new(a));
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    TYPES
        .iter()
        .map(|t| DebugCount::shader(*t))
        .chain(OUTPUTS.iter().map(|t| DebugSummary::shader(*t)))
        .collect()
}

/// The counters, in the order in which summaries list them.
const COUNTERS: usize = 6;
const INFINITE_AND_NAN: [u32; 3] = [0, 1, 2];

/// One element of a summary.
#[derive(Debug, Clone, Copy)]
enum Slot {
    /// A number.
    Number(usize),
    /// Minus one.
    MinusOne,
    /// A counter.
    Count(u32),
    /// 1 when there is an infinite or NaN value.
    Unhealthy,
    /// The value that counter 0, 1 or 2 counts, or 0 when there is none.
    Example(u32),
}

/// The most elements of a summary.
const SLOTS: usize = 11;
/// Extents that the summary of a shape lists.
const EXTENTS: usize = 6;

struct Summary {
    output: DType,
    mode: i64,
    id: u64,
}

impl Summary {
    fn new(attrs: &dyn Attrs) -> Result<Self> {
        let (output, id) = (attrs.dtype("output_dtype")?, attrs.int("tensor_id")?);
        let bits = if output == F64 { 53 } else { 24 };
        require!(
            id <= 1 << bits,
            "DebugNumericSummaryV2Op requires tensor_id to be less than or equal to (2^{bits}). \
             Given tensor_id:{id}"
        );
        Ok(Self { output, mode: attrs.int("tensor_debug_mode")?, id: id.max(0) as u64 })
    }

    /// The elements of the summary; the tensor's number comes first, except in mode 8.
    fn slots(&self, x: &Tensor) -> Result<Vec<Slot>> {
        let id = Slot::Number(0);
        let (dtype, rank, size) =
            (Slot::Number(x.dtype as usize), Slot::Number(x.rank()), Slot::Number(x.len()));
        let counts = |n: u32| (0..n).map(Slot::Count);
        Ok(match self.mode {
            2 => vec![id, Slot::Unhealthy],
            3 => [id, size].into_iter().chain(counts(3)).collect(),
            4 => [id, Slot::MinusOne, dtype, rank, size]
                .into_iter()
                .chain(counts(COUNTERS as u32))
                .collect(),
            5 => {
                let last = &x.dims[x.rank().saturating_sub(EXTENTS)..];
                let padding = std::iter::repeat_n(0, EXTENTS - last.len());
                [id, dtype, rank, size]
                    .into_iter()
                    .chain(last.iter().copied().chain(padding).map(Slot::Number))
                    .collect()
            }
            8 => INFINITE_AND_NAN.map(Slot::Example).to_vec(),
            mode => {
                return Err(Error::Unimplemented(format!(
                    "Unimplemented tensor debug mode: {mode}"
                )));
            }
        })
    }
}

impl Kernel for Summary {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let x = ctx.input(0)?;
        let slots = self.slots(&x)?;
        let y = ctx.output(0, self.output, &[slots.len()])?;
        let counters = ctx.temp(U32, &[COUNTERS])?;
        let device = ctx.device();
        device.check_extent(x.len())?;
        device.fill(counters.address, counters.bytes(), 0)?;
        let window = (window_limit(device) as usize / x.dtype.size()).min(1 << 30) & !63;
        let counted = if self.mode == 5 { 0 } else { x.len() };
        for first in (0..counted).step_by(window) {
            let count = window.min(counted - first);
            DebugCount { x: part(&x, first, count), counters: (&counters).into(), count }.enqueue(
                device,
                &DebugCount::of(x.dtype),
                Grid::linear(count, WORKGROUP),
            )?;
        }
        let mut list = [0_usize; 2 * SLOTS];
        for (pair, slot) in list.chunks_exact_mut(2).zip(&slots) {
            let (kind, value) = match *slot {
                Slot::Number(n) => (0, n),
                Slot::MinusOne => (1, 0),
                Slot::Count(n) => (2, n as usize),
                Slot::Unhealthy => (3, 0),
                Slot::Example(n) => (4, n as usize),
            };
            pair.copy_from_slice(&[kind, value]);
        }
        if self.mode != 8 {
            list[1] = (self.id & 0xffff_ffff) as usize;
        }
        let high = if self.mode == 8 { 0 } else { self.id >> 32 };
        let output = self.output;
        DebugSummary {
            counters: (&counters).into(),
            y: (&y).into(),
            count: slots.len(),
            high: high as u32,
            infinity: f32::INFINITY,
            nan: f32::NAN,
            slots: list,
        }
        .enqueue(device, &DebugSummary::of(output), Grid::linear(slots.len(), WORKGROUP))
    }
}

declare_program! {
    /// Counts the values of each kind.
    struct DebugCount = "debug count"(dtype: DType);
    bindings { x: dtype, counters: Raw("atomic<u32>", 4) }
    params { count: usize }
}

impl DebugCount {
    fn shader(dtype: DType) -> Shader {
        let shader = Self::declare(format!("debug count {dtype}"), dtype);
        let suffix = if dtype == F64 { "f64" } else { "f32" };
        let special = format!(
            "if is_nan_{suffix}(x) {{\n        return 2u;\n    }}\n    \
         if is_inf_{suffix}(x) {{\n        \
         return select(1u, 0u, is_negative_{suffix}(x));\n    }}\n    "
        );
        shader
            .define("VALUE", dtype.value())
            .define("SPECIAL", if dtype.is_float() { special } else { String::new() })
            .body(include_str!("../../shaders/debug/count.wgsl"))
    }
}

declare_program! {
    /// The numbers of a summary from the counts.
    struct DebugSummary = "debug summary"(dtype: DType);
    bindings { counters: Raw("u32", 4), y: dtype }
    params { count: usize, high: u32, infinity: f32, nan: f32, slots: [usize; 2 * SLOTS] }
    shader format!("debug summary {dtype}") =>
        .define("T", dtype.value())
        .body(include_str!("../../shaders/debug/summary.wgsl"))
        .map("y")
}
