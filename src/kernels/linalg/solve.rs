//! Triangular solves: blocks of equations are solved in registers, the other equations by `C -= A
//! B`.

use std::fmt::Write;

use super::number::{NUMBERS, Numbers};
use super::program::{Extents, MatrixSlice, block, update};
use crate::device::{Binding, Device, Grid, declare_program};
use crate::dtype::DType::{self, F32};
use crate::error::Result;
use crate::shader::{Shader, Storage};

/// The kind of a triangle.
#[derive(Debug, Clone, Copy)]
pub struct Triangle {
    /// Whether it is upper, and so solved from the last row on.
    pub upper: bool,
    /// Whether its diagonal counts as ones.
    pub unit: bool,
}

/// Equations whose unknowns an invocation has in registers.
const EDGE: usize = 8;
/// Invocations in a workgroup; each walks down a column, or four.
const SOLVERS: u32 = 64;

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    NUMBERS
        .iter()
        .map(|t| SolveTriangle::shader(*t, false))
        .chain([SolveTriangle::shader(F32, true)])
        .collect()
}

/// Solves `A X = B` in place in `x`, for triangles `a` of `n` rows and `cols` right-hand sides.
pub fn solve(
    device: &Device,
    a: MatrixSlice<'_>,
    triangle: Triangle,
    x: MatrixSlice<'_>,
    batch: usize,
    n: usize,
    cols: usize,
) -> Result<()> {
    let dtype = x.tensor.dtype;
    if batch * n * cols == 0 {
        return Ok(());
    }
    let width = block(n);
    let mut firsts: Vec<_> = (0..n).step_by(width).collect();
    if triangle.upper {
        firsts.reverse();
    }
    for first in firsts {
        let width = width.min(n - first);
        let (own, own_x) = (a.from(first, first), x.from(first, 0));
        let vec4s = cols.is_multiple_of(4) && own_x.is_in_vec4s();
        let unit = if vec4s { 4 } else { 1 };
        let units = cols / unit;
        // Upper triangles are treated as lower ones, seen from their last element: strides are
        // negative, in u32's arithmetic.
        let turned = |at: usize, steps: &[usize]| {
            at + if triangle.upper { (width - 1) * steps.iter().sum::<usize>() } else { 0 }
        };
        let step = |stride: usize|
            if triangle.upper { (stride as u32).wrapping_neg() } else { stride as u32 } as usize;
        device.enqueue_counted(
            &SolveTriangle {
                a: a.tensor.into(),
                x: if vec4s { Binding::raw(x.tensor, 16) } else { x.tensor.into() },
                count: device.check_extent(batch * units)?,
                cols: units,
                width,
                a_at: turned(own.at, &[own.row, own.col]),
                a_matrix: own.matrix,
                a_row: step(own.row),
                a_col: step(own.col),
                x_at: turned(own_x.at, &[own_x.row]) / unit,
                x_matrix: own_x.matrix / unit,
                x_row: step(own_x.row / unit),
                unit: triangle.unit,
            }
            .program(&SolveTriangle::of(dtype, vec4s), Grid::linear(batch * units, SOLVERS)),
            dtype.product_flops(batch * width * width * cols) / 2,
        )?;
        let (from, rows) =
            if triangle.upper { (0, first) } else { (first + width, n - first - width) };
        let extents = Extents { batch, m: rows, n: cols, k: width };
        update(device, x.from(from, 0), a.from(from, first), own_x, extents, false)?;
    }
    Ok(())
}

declare_program! {
    /// Solves a block of a triangle for each right-hand side.
    struct SolveTriangle = "linalg triangular"(dtype: DType, vec4s: bool);
    bindings {
        a: dtype, x: if vec4s { Storage::Raw("vec4<f32>", 16) } else { Storage::Typed(dtype) },
    }
    params {
        count: u32, cols: usize, width: usize, a_at: usize, a_matrix: usize, a_row: usize,
        a_col: usize, x_at: usize, x_matrix: usize, x_row: usize, unit: bool,
    }
}

impl SolveTriangle {
    fn shader(dtype: DType, vec4s: bool) -> Shader {
        let value = if vec4s { "vec4<f32>" } else { dtype.value() };
        let access = if vec4s {
            "fn load_value(i: u32) -> value {\n    return x[p.off_x + i];\n}\n\nfn store_value(i: \
             u32, v: value) {\n    x[p.off_x + i] = v;\n}\n"
        } else {
            "fn load_value(i: u32) -> value {\n    return load_x(i);\n}\n\nfn store_value(i: u32, \
             v: value) {\n    store_x(i, v);\n}\n"
        };
        let [begin, step, finish] = texts(dtype);
        Self::declare(
            if vec4s { "linalg triangular, vec4s" } else { "linalg triangular" },
            dtype,
            vec4s,
        )
        .numbers(dtype)
        .define("VALUE", value)
        .define("ACCESS", access)
        .define("BEGIN", begin)
        .define("STEP", step)
        .define("FINISH", finish)
        .workgroup([SOLVERS, 1, 1])
        .body(include_str!("../../../shaders/linalg/triangular.wgsl"))
    }
}

/// The arithmetic on eight equations, unrolled: their start, the subtraction of an earlier
/// unknown's terms, and their solution.
fn texts(dtype: DType) -> [String; 3] {
    let times = |a: String, x: &str| {
        if dtype.is_complex() { format!("times({a}, {x})") } else { format!("{a} * {x}") }
    };
    let [mut begin, mut step, mut finish] = [const { String::new() }; 3];
    for w in 0..EDGE {
        let _ = writeln!(begin, "        let row{w} = min(j + {w}u, last);");
        let _ = writeln!(begin, "        var s{w} = load_value(x_base + row{w} * p.x_row);");
        let of_row =
            |column: &str| format!("load_a(a_base + row{w} * p.a_row + {column} * p.a_col)");
        let _ = writeln!(step, "            s{w} -= {};", times(of_row("k"), "x"));
        for c in 0..w {
            let known = times(of_row(&format!("row{c}")), &format!("s{c}"));
            let _ = writeln!(finish, "        s{w} -= {known};");
        }
        let diagonal = of_row(&format!("row{w}"));
        let divisor = format!("select({diagonal}, number_of(real(1.0)), p.unit != 0u)");
        let _ = if dtype.is_complex() {
            writeln!(finish, "        s{w} = over(s{w}, {divisor});")
        } else {
            writeln!(finish, "        s{w} /= {divisor};")
        };
        let _ = writeln!(
            finish,
            "        if j + {w}u < p.width {{\n            store_value(x_base + row{w} * p.x_row, \
             s{w});\n        }}"
        );
    }
    [begin, step, finish].map(|text| text.trim_end().to_owned())
}
