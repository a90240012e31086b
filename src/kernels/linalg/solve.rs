//! Triangular solves: blocks of equations are solved in registers, the other equations by `C -= A
//! B`.

use std::fmt::Write;

use smallvec::smallvec;

use super::number::{NUMBERS, Numbers};
use super::program::{Extents, Part, block, update};
use crate::device::{Binding, Device, Grid, Key, Params, Program};
use crate::dtype::DType::{self, F32};
use crate::error::Result;
use crate::shader::Shader;

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
    let vec4s = Solve { dtype: F32, vec4s: true };
    let plain = NUMBERS.iter().map(|t| Solve { dtype: *t, vec4s: false });
    plain.chain([vec4s]).map(Solve::shader).collect()
}

/// Solves `A X = B` in place in `x`, for triangles `a` of `n` rows and `cols` right-hand sides.
pub fn solve(
    device: &Device,
    a: Part<'_>,
    triangle: Triangle,
    x: Part<'_>,
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
        let program = Solve { dtype, vec4s };
        // Upper triangles are treated as lower ones, seen from their last element: strides are
        // negative, in u32's arithmetic.
        let turned = |at: usize, steps: &[usize]| {
            at + if triangle.upper { (width - 1) * steps.iter().sum::<usize>() } else { 0 }
        };
        let step = |stride: usize|
            if triangle.upper { (stride as u32).wrapping_neg() } else { stride as u32 } as usize;
        let params = Params::new().u32(device.check_extent(batch * units)?).u32(units).u32(width);
        let params = params
            .u32(turned(own.at, &[own.row, own.col]))
            .u32(own.matrix)
            .u32(step(own.row))
            .u32(step(own.col));
        let params = params.u32(turned(own_x.at, &[own_x.row]) / unit).u32(own_x.matrix / unit);
        device.enqueue_counted(
            &Program {
                key: Key::new("linalg triangular").dtype(dtype).number(u32::from(vec4s)),
                shader: &|| program.shader(),
                bindings: smallvec![
                    a.tensor.into(),
                    if vec4s { Binding::raw(x.tensor, 16) } else { x.tensor.into() }
                ],
                params: params.u32(step(own_x.row / unit)).u32(u32::from(triangle.unit)),
                grid: Grid::linear(batch * units, SOLVERS),
            },
            dtype.product_flops(batch * width * width * cols) / 2,
        )?;
        let (from, rows) =
            if triangle.upper { (0, first) } else { (first + width, n - first - width) };
        let extents = Extents { batch, m: rows, n: cols, k: width };
        update(device, x.from(from, 0), a.from(from, first), own_x, extents, false)?;
    }
    Ok(())
}

/// The properties that the text depends on.
#[derive(Debug, Clone, Copy)]
struct Solve {
    dtype: DType,
    /// Whether an invocation has four neighbouring right-hand sides.
    vec4s: bool,
}

impl Solve {
    fn shader(self) -> Shader {
        let Self { dtype, vec4s } = self;
        let name = if vec4s { "linalg triangular, vec4s" } else { "linalg triangular" };
        let shader = Shader::new(name).bind("a", dtype);
        let (shader, value) = if vec4s {
            (shader.bind_raw("x", "vec4<f32>", 16), "vec4<f32>".to_owned())
        } else {
            (shader.bind("x", dtype), dtype.value().to_owned())
        };
        let access = if vec4s {
            "fn load_value(i: u32) -> value {\n    return x[p.off_x + i];\n}\n\nfn store_value(i: \
             u32, v: value) {\n    x[p.off_x + i] = v;\n}\n"
        } else {
            "fn load_value(i: u32) -> value {\n    return load_x(i);\n}\n\nfn store_value(i: u32, \
             v: value) {\n    store_x(i, v);\n}\n"
        };
        let [begin, step, finish] = texts(dtype);
        shader
            .u32s(&["count", "cols", "width", "a_at", "a_matrix", "a_row", "a_col"])
            .u32s(&["x_at", "x_matrix", "x_row", "unit"])
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
