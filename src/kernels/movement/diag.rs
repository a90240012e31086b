//! Diagonals: MatrixDiag, MatrixDiagPart and MatrixSetDiag (V1 to V3), Diag, DiagPart and
//! MatrixBandPart.

use super::remap::Background;
use super::unit::Unit;
use super::walk::window_limit;
use super::{checked_product, shape};
use crate::device::{Grid, declare_program, enum_key_parts};
use crate::error::Result;
use crate::kernels::op::{Attrs, OpContext, OpContextExt};
use crate::shader::{Shader, WORKGROUP};
use crate::tensor::{Dims, Tensor};
use crate::{invalid, require};

/// How an element of the output is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiagonalKind {
    /// An element of a matrix, from the packed diagonals in `src` or the background.
    Build,
    /// An element of the packed diagonals, from the matrix in `src` or the background.
    Extract,
    /// An element of a matrix: of the diagonals in `src` on these diagonals, else the old one.
    Set,
    /// An element of a matrix: of `src` within the band, else the background.
    Band,
}

impl DiagonalKind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Build, Self::Extract, Self::Set, Self::Band];

    const fn text(self) -> &'static str {
        match self {
            Self::Build | Self::Set => {
                "fn value(i: u32) -> {{ELEMENT}} {
    let at = p.first + i;
    let column = at % p.columns;
    let row = (at / p.columns) % p.rows;
    let place = packed_place(row, column);
    if !place.inside {
        return {{OUTSIDE}};
    }
    return load_src((at / (p.columns * p.rows)) * p.band * p.longest + place.index);
}"
            }
            Self::Extract => {
                "fn value(i: u32) -> {{ELEMENT}} {
    let slot = i % p.longest;
    let diagonal = p.high - i32((i / p.longest) % p.band);
    let along = i32(slot) - padding_of(diagonal);
    if along < 0 || along >= length_of(diagonal) {
        return background();
    }
    let row = u32(along - min(diagonal, 0));
    let column = u32(along + max(diagonal, 0));
    return load_src(((i / (p.longest * p.band)) * p.rows + row) * p.columns + column);
}"
            }
            Self::Band => {
                "fn value(i: u32) -> {{ELEMENT}} {
    let at = p.first + i;
    let column = at % p.columns;
    let row = (at / p.columns) % p.rows;
    let diagonal = i32(column) - i32(row);
    if diagonal > p.high || diagonal < p.low {
        return background();
    }
    return load_src(i);
}"
            }
        }
    }
}

/// The geometry of a batch of diagonals.
#[derive(Debug, Clone, Copy)]
struct Diagonals {
    rows: usize,
    columns: usize,
    low: i64,
    high: i64,
    align: u32,
}

impl Diagonals {
    fn band(&self) -> usize {
        (self.high - self.low + 1) as usize
    }

    /// Elements of the longest diagonal.
    fn longest(&self) -> usize {
        let n = (self.rows as i64 + self.high.min(0)).min(self.columns as i64 - self.low.max(0));
        n.max(0) as usize
    }

    /// The extents of the packed diagonals behind `batch`.
    fn packed(&self, batch: &[usize]) -> Dims {
        let mut dims = Dims::from_slice(batch);
        if self.low != self.high {
            dims.push(self.band());
        }
        dims.push(self.longest());
        dims
    }

    /// Diagonals beyond the matrix are an error.
    fn check(&self) -> Result<()> {
        let (rows, columns) = (self.rows as i64, self.columns as i64);
        for (name, k) in [("lower_diag_index", self.low), ("upper_diag_index", self.high)] {
            require!(
                (k > -rows && k < columns) || k == 0,
                "{name} is out of bound: {k}. It must be between {} and {}",
                -rows,
                columns
            );
        }
        Ok(())
    }
}

/// Enqueues `kind`. A matrix beyond one binding is made in ranges of its elements; diagonals, and
/// the matrix of which they are taken, are bound whole.
fn run(
    ctx: &dyn OpContext,
    kind: DiagonalKind,
    d: &Diagonals,
    src: &Tensor,
    dst: &Tensor,
    background: [u8; 16],
) -> Result<()> {
    if dst.is_empty() {
        return Ok(());
    }
    let unit = Unit::of(dst.dtype);
    ctx.device().check_extent(dst.len())?;
    let bytes = dst.dtype.size();
    let most = match kind {
        DiagonalKind::Extract => dst.len(),
        // Ranges begin with whole words of packed elements.
        DiagonalKind::Build | DiagonalKind::Set | DiagonalKind::Band => {
            (window_limit(ctx.device()) as usize / bytes / 64 * 64).max(64)
        }
    };
    for first in (0..dst.len()).step_by(most) {
        let count = most.min(dst.len() - first);
        let range = |t: &Tensor| unit.binding(t.address + (first * bytes) as u64, count as u64);
        let call = DiagonalsProgram {
            src: match kind {
                DiagonalKind::Band => range(src),
                _ => unit.binding(src.address, src.len() as u64),
            },
            dst: range(dst),
            count,
            first,
            rows: d.rows,
            columns: d.columns,
            band: d.band(),
            longest: d.longest(),
            low: d.low as i32,
            high: d.high as i32,
            align: d.align,
            background: bytemuck::pod_read_unaligned(&background),
        };
        let grid = Grid::linear(unit.invocations(count), WORKGROUP);
        call.enqueue(ctx.device(), &DiagonalsProgram::of(kind, unit), grid)?;
    }
    Ok(())
}

enum_key_parts!(DiagonalKind);

declare_program! {
    /// The work of `kind` on elements of `unit`.
    pub struct DiagonalsProgram = "diagonals"(kind: DiagonalKind, unit: Unit);
    bindings { src: unit, dst: unit }
    params {
        count: usize, first: usize, rows: usize, columns: usize, band: usize, longest: usize,
        low: i32, high: i32, align: u32, background: [u32; 4],
    }
}

impl DiagonalsProgram {
    pub fn shader(kind: DiagonalKind, unit: Unit) -> Shader {
        let background = match unit.bytes() {
            8 => "p.background[0].xy",
            16 => "p.background[0]",
            _ => "p.background[0].x",
        };
        let shader = Self::declare(format!("diagonals {kind:?} {}", unit.bytes()), kind, unit)
            .define("VALUE", kind.text())
            .define(
                "OUTSIDE",
                if kind == DiagonalKind::Set { "load_dst(i)" } else { "background()" },
            )
            .define("BACKGROUND", background)
            .define("ELEMENT", unit.wgsl())
            .body(include_str!("../../../shaders/movement/diagonals.wgsl"));
        unit.map(shader)
    }
}

/// The `align` attribute of the V3 ops as the shader's bits; the ops before V3 align left.
pub fn alignment(attrs: &dyn Attrs, version: u32) -> Result<u32> {
    if version < 3 {
        return Ok(3);
    }
    Ok(match attrs.string("align")?.as_str() {
        "LEFT_LEFT" => 3,
        "LEFT_RIGHT" => 1,
        "RIGHT_LEFT" => 2,
        "RIGHT_RIGHT" => 0,
        other => {
            invalid!("align must be LEFT_RIGHT, RIGHT_LEFT, LEFT_LEFT or RIGHT_RIGHT, got {other}")
        }
    })
}

/// The diagonal numbers of host input `i`: one, or lowest and highest. V1 has no such input and
/// uses the main diagonal.
fn numbers(ctx: &mut dyn OpContext, i: usize, version: u32) -> Result<(i64, i64)> {
    if version == 1 {
        return Ok((0, 0));
    }
    let k = ctx.host_input(i)?;
    require!(
        k.dims.len() <= 1,
        "diag_index must be a scalar or vector, received shape: {}",
        shape(&k.dims)
    );
    match k.to_i64()?[..] {
        [k] => Ok((k, k)),
        [low, high] => {
            require!(
                low <= high,
                "lower_diag_index must not be larger than upper_diag_index: {low} > {high}"
            );
            Ok((low, high))
        }
        _ => invalid!(
            "diag_index must have only one or two elements, received {} elements.",
            k.dims[0]
        ),
    }
}

/// The padding value of host input `i`; V1 pads with zeros.
fn padding(ctx: &mut dyn OpContext, i: usize, version: u32) -> Result<[u8; 16]> {
    if version == 1 {
        return Ok([0; 16]);
    }
    let value = ctx.host_input(i)?;
    require!(value.bytes.len() == value.dtype.size(), "padding_value must be a scalar");
    match Background::element(&value.bytes) {
        Background::Element(bytes) => Ok(bytes),
        Background::Keep => Ok([0; 16]),
    }
}

/// MatrixDiagPart: inputs input (0) and, from V2 on, k (1) and padding_value (2).
pub fn matrix_diag_part(ctx: &mut dyn OpContext, version: u32, align: u32) -> Result<()> {
    let x = ctx.input(0)?;
    require!(x.rank() >= 2, "input must be at least 2-dim, received shape: {}", shape(&x.dims));
    let (low, high) = numbers(ctx, 1, version)?;
    let background = padding(ctx, 2, version)?;
    let (batch, rows, columns) =
        (&x.dims[..x.rank() - 2], x.dims[x.rank() - 2], x.dims[x.rank() - 1]);
    let d = Diagonals { rows, columns, low, high, align };
    d.check()?;
    let dst = ctx.output(0, x.dtype, &d.packed(batch))?;
    run(ctx, DiagonalKind::Extract, &d, &x, &dst, background)
}

/// MatrixDiag: inputs diagonal (0) and, from V2 on, k (1), num_rows (2), num_cols (3) and
/// padding_value (4).
pub fn matrix_diag(ctx: &mut dyn OpContext, version: u32, align: u32) -> Result<()> {
    let x = ctx.input(0)?;
    require!(x.rank() >= 1, "diagonal must be at least 1-dim, received shape: {}", shape(&x.dims));
    let (low, high) = numbers(ctx, 1, version)?;
    let background = padding(ctx, 4, version)?;
    let (mut rows, mut columns) = (-1, -1);
    if version > 1 {
        rows = ctx.host_i64(2, "num_rows")?;
        columns = ctx.host_i64(3, "num_cols")?;
    }
    let longest = x.dims[x.rank() - 1] as i64;
    let band = high - low + 1;
    if band > 1 {
        require!(
            x.rank() >= 2 && x.dims[x.rank() - 2] as i64 == band,
            "The number of diagonals provided in the input does not match the lower_diag_index \
             and upper_diag_index range."
        );
    }
    let (least_rows, least_columns) = (longest - high.min(0), longest + low.max(0));
    require!(rows == -1 || rows >= least_rows, "The number of rows is too small.");
    require!(columns == -1 || columns >= least_columns, "The number of columns is too small.");
    match (rows, columns) {
        (-1, -1) => {
            rows = least_rows.max(least_columns);
            columns = rows;
        }
        (-1, _) => rows = least_rows,
        (_, -1) => columns = least_columns,
        _ => {}
    }
    require!(
        rows == least_rows || columns == least_columns,
        "The number of rows or columns is not consistent with the specified d_lower, d_upper, and \
         diagonal."
    );
    let batch = &x.dims[..x.rank() - if band > 1 { 2 } else { 1 }];
    let d = Diagonals { rows: rows as usize, columns: columns as usize, low, high, align };
    let mut out = Dims::from_slice(batch);
    out.extend([d.rows, d.columns]);
    checked_product(&out)?;
    let dst = ctx.output(0, x.dtype, &out)?;
    run(ctx, DiagonalKind::Build, &d, &x, &dst, background)
}

/// MatrixSetDiag: inputs input (0), diagonal (1) and, from V2 on, k (2).
pub fn matrix_set_diag(ctx: &mut dyn OpContext, version: u32, align: u32) -> Result<()> {
    let (x, diagonal) = (ctx.input(0)?, ctx.input(1)?);
    require!(x.rank() >= 2, "input must be at least 2-dim, received shape: {}", shape(&x.dims));
    require!(
        diagonal.rank() >= 1,
        "diagonal must be at least 1-dim, received shape: {}",
        shape(&diagonal.dims)
    );
    let (low, high) = numbers(ctx, 2, version)?;
    let (rows, columns) = (x.dims[x.rank() - 2], x.dims[x.rank() - 1]);
    let d = Diagonals { rows, columns, low, high, align };
    d.check()?;
    let want = d.packed(&x.dims[..x.rank() - 2]);
    require!(
        diagonal.dims == want,
        "Either first dimensions of diagonal don't match input.shape[:-2], or diagonal.shape[:-1] \
         or diagonal.shape[-1] is wrong: expected {}, got {}",
        shape(&want),
        shape(&diagonal.dims)
    );
    let dst = ctx.forward_or_output(&[0], 0, x.dtype, &x.dims)?;
    if dst.address != x.address {
        ctx.device().copy(dst.address, x.address, x.bytes())?;
    }
    run(ctx, DiagonalKind::Set, &d, &diagonal, &dst, [0; 16])
}

/// MatrixBandPart: inputs input (0), num_lower (1) and num_upper (2).
pub fn matrix_band_part(ctx: &mut dyn OpContext) -> Result<()> {
    let x = ctx.input(0)?;
    require!(x.rank() >= 2, "input must be at least 2-dim, received shape: {}", shape(&x.dims));
    let (rows, columns) = (x.dims[x.rank() - 2], x.dims[x.rank() - 1]);
    let (lower, upper) = (ctx.host_i64(1, "num_lower")?, ctx.host_i64(2, "num_upper")?);
    require!(
        lower <= rows as i64,
        "num_lower must be negative or less or equal to number of rows ({rows}) got: {lower}"
    );
    require!(
        upper <= columns as i64,
        "num_upper must be negative or less or equal to number of columns ({columns}) got: {upper}"
    );
    // A negative number keeps the whole triangle.
    let low = if lower < 0 { -(rows as i64) } else { -lower };
    let high = if upper < 0 { columns as i64 } else { upper };
    let dst = ctx.output(0, x.dtype, &x.dims)?;
    run(
        ctx,
        DiagonalKind::Band,
        &Diagonals { rows, columns, low, high, align: 3 },
        &x,
        &dst,
        [0; 16],
    )
}

/// Diag: a tensor of rank r on the diagonal of one of rank 2 r.
pub fn diag(ctx: &mut dyn OpContext) -> Result<()> {
    let x = ctx.input(0)?;
    require!(x.rank() > 0, "Input must be at least rank 1, got 0");
    let out: Dims = x.dims.iter().chain(&x.dims).copied().collect();
    checked_product(&out)?;
    let n = x.len();
    let dst = ctx.output(0, x.dtype, &out)?;
    let d = Diagonals { rows: n, columns: n, low: 0, high: 0, align: 3 };
    run(ctx, DiagonalKind::Build, &d, &x, &dst, [0; 16])
}

/// DiagPart: the diagonal of rank r of a tensor of rank 2 r.
pub fn diag_part(ctx: &mut dyn OpContext) -> Result<()> {
    let x = ctx.input(0)?;
    require!(
        x.rank() > 0 && x.rank() % 2 == 0,
        "The rank of the tensor should be even and positive, got shape {}",
        shape(&x.dims)
    );
    let half = x.rank() / 2;
    for d in 0..half {
        require!(
            x.dims[d] == x.dims[d + half],
            "Invalid shape {}: dimensions {d} and {} do not match.",
            shape(&x.dims),
            d + half
        );
    }
    let out = Dims::from_slice(&x.dims[..half]);
    let n = out.iter().product();
    let dst = ctx.output(0, x.dtype, &out)?;
    let d = Diagonals { rows: n, columns: n, low: 0, high: 0, align: 3 };
    run(ctx, DiagonalKind::Extract, &d, &x, &dst, [0; 16])
}
