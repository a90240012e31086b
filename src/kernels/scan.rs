//! Scans along one axis: Cumsum, Cumprod, CumulativeLogsumexp. One row each: identity and combination.
//!
//! A line is cut into chunks when there are too few lines to occupy the device: the chunks' totals are scanned by the same program
//! (recursively) and start the second pass. Half types are scanned in float32 and rounded once at the end. The order of
//! operations depends on the shape only, so results are reproducible.

use smallvec::smallvec;

use crate::device::{Binding, Grid, Key, Params, Program};
use crate::dtype::DType::{self, *};
use crate::dtype::types;
use crate::error::Result;
use crate::kernels::op::{Kernel, OpContext, OpContextExt};
use crate::kernels::registry::Registry;
use crate::require;
use crate::shader::{Field, Shader, WORKGROUP, library};
use crate::tensor::Tensor;

/// Lines from which on each is scanned by one invocation.
const MANY_LINES: usize = 4096;
/// Elements in a chunk when there are fewer lines.
const CHUNK: usize = 64;

/// One scan.
#[derive(Debug)]
pub struct Row {
    /// TensorFlow's op.
    pub op: &'static str,
    /// Element types, after TensorFlow's GPU list.
    pub types: &'static [DType],
    /// The neutral element as WGSL, given the element type.
    pub identity: fn(DType) -> String,
    /// The combination of `a` and `b` as WGSL; `{T}` stands for the type in which they are computed.
    pub combine: &'static str,
    /// The library that `combine` calls.
    pub library: Option<&'static str>,
    /// The combination in float64, for tests.
    pub reference: fn(f64, f64) -> f64,
}

/// Every scan, sorted by name.
pub const ROWS: &[Row] = &[
    Row {
        op: "Cumprod",
        types: &[F32, F64, F16, BF16, I32, I64],
        identity: |t| format!("{}(1)", t.value()),
        combine: "a * b",
        library: None,
        reference: |a, b| a * b,
    },
    Row {
        op: "Cumsum",
        types: &[F32, F64, F16, BF16, I32, I64],
        identity: |t| format!("{}(0)", t.value()),
        combine: "a + b",
        library: None,
        reference: |a, b| a + b,
    },
    Row {
        op: "CumulativeLogsumexp",
        types: &[F32, F64, F16, BF16],
        // A parameter, for WGSL has no infinite constants.
        identity: |t| format!("{}(bitcast<f32>(p.minus_infinity))", t.value()),
        combine: "log_sum_exp_{T}(a, b)",
        library: Some("log_sum_exp"),
        reference: |a, b| a.max(b) + (a.min(b) - a.max(b)).exp().ln_1p(),
    },
];

/// Registers the family.
pub fn register(registry: &mut Registry) {
    for row in ROWS {
        registry.op(row.op).types("T", row.types).types("Tidx", types::INDEX).host(&["axis"]).kernel(move |attrs| {
            Ok(Scan {
                row,
                dtype: attrs.dtype("T")?,
                exclusive: attrs.bool("exclusive")?,
                reverse: attrs.bool("reverse")?,
            })
        });
    }
}

/// The shader variants.
pub fn shaders() -> Vec<Shader> {
    let mut shaders: Vec<_> = [F16, BF16].map(round_shader).into();
    for row in ROWS {
        for &dtype in row.types {
            for (pass, exclusive) in
                [(Pass::Totals, false), (Pass::Apply, false), (Pass::Apply, true), (Pass::Whole, true)]
            {
                shaders.push(shader(row, dtype, dtype, pass, exclusive));
            }
        }
    }
    shaders
}

struct Scan {
    row: &'static Row,
    dtype: DType,
    exclusive: bool,
    reverse: bool,
}

impl Kernel for Scan {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let axis = ctx.host_i64(1, &format!("{}: axis", self.row.op))?;
        let x = ctx.input(0)?;
        let rank = x.rank() as i64;
        require!((-rank..rank).contains(&axis), "Expected scan axis in the range [{}, {rank}), but got {axis}", -rank);
        let axis = axis.rem_euclid(rank) as usize;
        let y = ctx.output(0, x.dtype, &x.dims)?;
        if x.is_empty() {
            return Ok(());
        }
        ctx.device().check_extent(x.len())?;
        let lines = Lines {
            outer: x.dims[..axis].iter().product(),
            n: x.dims[axis],
            inner: x.dims[axis + 1..].iter().product(),
        };
        if self.dtype.lanes() == 1 {
            return self.scan(ctx, &x, &y, lines, self.exclusive, self.reverse);
        }
        // Neighbouring lines share words of the output: scan into float32, then round.
        let wide = ctx.temp(F32, &x.dims)?;
        self.scan(ctx, &x, &wide, lines, self.exclusive, self.reverse)?;
        ctx.device().enqueue(&Program {
            key: Key::new("scan round").dtype(self.dtype),
            shader: &|| round_shader(self.dtype),
            bindings: smallvec![Binding::from(&wide), Binding::from(&y)],
            params: Params::new().u32(x.len()),
            grid: Grid::map(x.len(), self.dtype),
        })
    }
}

/// A dense tensor seen as [outer, n, inner], scanned along n.
#[derive(Debug, Clone, Copy)]
struct Lines {
    outer: usize,
    n: usize,
    inner: usize,
}

/// What a program does with a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// Combines it to one value.
    Totals,
    /// Scans it from a given start.
    Apply,
    /// Scans it from the identity: the chunk is a whole line.
    Whole,
}

impl Scan {
    /// Scans `x` into `y`, which has the type in which `x` is computed.
    fn scan(
        &self,
        ctx: &mut dyn OpContext,
        x: &Tensor,
        y: &Tensor,
        lines: Lines,
        exclusive: bool,
        reverse: bool,
    ) -> Result<()> {
        let Lines { outer, n, inner } = lines;
        if outer * inner >= MANY_LINES || n <= CHUNK {
            return self.enqueue(ctx, Pass::Whole, &[x, y], lines, n, exclusive, reverse);
        }
        let chunks = n.div_ceil(CHUNK);
        let totals = ctx.temp(y.dtype, &[outer, chunks, inner])?;
        let starts = ctx.temp(y.dtype, &[outer, chunks, inner])?;
        self.enqueue(ctx, Pass::Totals, &[x, &totals], lines, CHUNK, false, reverse)?;
        self.scan(ctx, &totals, &starts, Lines { n: chunks, ..lines }, true, false)?;
        self.enqueue(ctx, Pass::Apply, &[x, y, &starts], lines, CHUNK, exclusive, reverse)
    }

    #[expect(clippy::too_many_arguments, reason = "one dispatch with its shape and two flags")]
    fn enqueue(
        &self,
        ctx: &mut dyn OpContext,
        pass: Pass,
        tensors: &[&Tensor],
        Lines { outer, n, inner }: Lines,
        chunk: usize,
        exclusive: bool,
        reverse: bool,
    ) -> Result<()> {
        let chunks = n.div_ceil(chunk);
        let count = outer * chunks * inner;
        let loaded = tensors[0].dtype;
        let key = Key::new("scan").name(self.row.op).dtype(self.dtype).dtype(loaded);
        ctx.device().enqueue(&Program {
            key: key.number(pass as u32).number(u32::from(exclusive)),
            shader: &|| shader(self.row, self.dtype, loaded, pass, exclusive),
            bindings: tensors.iter().map(|t| Binding::from(*t)).collect(),
            params: Params::new()
                .u32(count)
                .u32(n)
                .u32(inner)
                .u32(chunks)
                .u32(chunk)
                .u32(u32::from(reverse))
                .u32(f32::NEG_INFINITY.to_bits()),
            grid: Grid::linear(count, WORKGROUP),
        })
    }
}

/// The program of a pass over elements of type `loaded`; `dtype` is the op's type, which decides the identity.
fn shader(row: &Row, dtype: DType, loaded: DType, pass: Pass, exclusive: bool) -> Shader {
    let computed = if loaded.lanes() == 1 { loaded } else { F32 };
    let mut shader = Shader::new(format!("{} {loaded} {pass:?}", row.op)).bind("x", loaded).bind("y", computed);
    let start = if pass == Pass::Apply {
        shader = shader.bind("starts", computed);
        "load_starts(t)"
    } else {
        "identity()"
    };
    if let Some(library) = row.library {
        shader = shader.library(library::of_type(library, computed));
    }
    let store = match pass {
        Pass::Totals => "",
        _ if exclusive => "        store_y(at, state);",
        _ => "        store_y(at, next);",
    };
    shader
        .u32s(&["count", "n", "inner", "chunks", "chunk", "reverse", "minus_infinity"])
        .define("VALUE", computed.value())
        .define("IDENTITY", (row.identity)(dtype))
        .define("COMBINE", row.combine.replace("{T}", computed.value()))
        .define("START", start)
        .define("STORE", store)
        .define("FINISH", if pass == Pass::Totals { "    store_y(t, state);" } else { "" })
        .body(include_str!("../../shaders/scan.wgsl"))
}

/// Rounds float32 to a half type.
fn round_shader(dtype: DType) -> Shader {
    Shader::new(format!("round to {dtype}"))
        .bind("x", F32)
        .bind("y", dtype)
        .param("count", Field::U32)
        .body("fn value(i: u32) -> f32 {\n    return load_x(i);\n}")
        .map("y")
}
