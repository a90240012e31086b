//! Ops on vectors of three along the last dimension: HSVToRGB, RGBToHSV, AdjustHue,
//! AdjustSaturation, Cross. Each is a row of a table.

use super::check_extents;
use crate::device::{Grid, Key, KeyPart, declare_program};
use crate::dtype::{
    DType::{self, *},
    types,
};
use crate::error::{Error, Result};
use crate::kernels::items::Held;
use crate::kernels::op::OpContext;
use crate::kernels::registry::Registry;
use crate::require;
use crate::shader::Shader;
use crate::tensor::{Tensor, shape_text};

/// The second operand of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Second {
    None,
    /// A float32 scalar on the device with this name: `s` in the expression.
    Scalar(&'static str),
    /// A tensor like the first one: `b` in the expression.
    Tensor,
}

/// An op: name, types, second operand, the result from `a`.
type Row = (&'static str, &'static [DType], Second, &'static str);

const COLORS: &[DType] = types::F32_F64;
const ADJUSTED: &[DType] = types::F32_F16;
const CROSS: &[DType] = types::REALS;

const ROWS: &[Row] = &[
    ("AdjustHue", ADJUSTED, Second::Scalar("delta"), "turned(a, s)"),
    (
        "AdjustSaturation",
        ADJUSTED,
        Second::Scalar("scale"),
        "hsv_to_rgb(saturated(rgb_to_hsv(a), s))",
    ),
    // Computed by components: integers have no cross(), and not every adapter has vectors of 64-bit
    // ones.
    (
        "Cross",
        CROSS,
        Second::Tensor,
        "Triple(a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])",
    ),
    ("HSVToRGB", COLORS, Second::None, "hsv_to_rgb(a)"),
    ("RGBToHSV", COLORS, Second::None, "rgb_to_hsv(a)"),
];

/// Registers the ops.
pub fn register(r: &mut Registry) {
    for row in ROWS {
        let held: Held = match row.2 {
            Second::None => &[(0, 1)],
            Second::Scalar(_) => &[(0, 2)],
            Second::Tensor => &[(0, 1), (1, 1)],
        };
        r.op(row.0)
            .types("T", row.1)
            .items(held)
            .kernel(move |_| Ok(move |ctx: &mut dyn OpContext| compute(ctx, row)));
    }
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    ROWS.iter().flat_map(|row| row.1.iter().map(|t| Triples::shader(row, *t))).collect()
}

fn check(row: &Row, x: &Tensor, second: Option<&Tensor>) -> Result<()> {
    let channels = x.dims.last().copied();
    match (row.2, second) {
        (Second::Scalar(name), Some(s)) => {
            require!(x.rank() >= 3, "input must be at least 3-D, got shape{}", shape_text(&x.dims));
            require!(s.dims.is_empty(), "{name} must be scalar: {}", shape_text(&s.dims));
            let n = channels.unwrap_or_default();
            require!(n == 3, "input must have 3 channels but instead has {n} channels.");
        }
        (Second::Tensor, Some(b)) => {
            require!(
                x.dims == b.dims,
                "Both inputs must be of same shape: {} vs. {}",
                shape_text(&x.dims),
                shape_text(&b.dims)
            );
            require!(x.rank() >= 1, "Input must be at least 1D{}", shape_text(&x.dims));
            if channels != Some(3) {
                let message = "Cross-products are only defined for 3-element vectors.";
                return Err(Error::FailedPrecondition(message.to_owned()));
            }
        }
        _ => {
            require!(x.rank() >= 1, "input must be at least 1D{}", shape_text(&x.dims));
            let n = channels.unwrap_or_default();
            if n != 3 {
                let message =
                    format!("input must have 3 channels but input only has {n} channels.");
                return Err(Error::FailedPrecondition(message));
            }
        }
    }
    Ok(())
}

fn compute(ctx: &mut dyn OpContext, row: &'static Row) -> Result<()> {
    let x = ctx.input(0)?;
    let second = if row.2 == Second::None { None } else { Some(ctx.input(1)?) };
    check(row, &x, second.as_ref())?;
    let y = ctx.output(0, x.dtype, &x.dims)?;
    let device = ctx.device();
    check_extents(device, &[&x])?;
    if y.is_empty() {
        return Ok(());
    }
    let dtype = x.dtype;
    Triples {
        x: (&x).into(),
        y: (&y).into(),
        second: second.as_ref().map(Into::into),
        count: y.len(),
    }
    .enqueue(device, &Triples::of(row, dtype), Grid::map(y.len(), dtype))
}

impl KeyPart for &Row {
    fn add_to(&self, key: Key) -> Key {
        key.name(self.0)
    }
}

impl Second {
    /// The type of the second operand, if there is one.
    const fn element(self, dtype: DType) -> Option<DType> {
        match self {
            Self::None => None,
            Self::Scalar(_) => Some(F32),
            Self::Tensor => Some(dtype),
        }
    }
}

declare_program! {
    /// The expression of a row for each pixel.
    struct Triples = "triple"(row: &Row, dtype: DType);
    bindings { x: dtype, y: dtype }
    optional { second: row.2.element(dtype) }
    params { count: usize }
}

impl Triples {
    fn shader(row: &Row, dtype: DType) -> Shader {
        let second = match row.2 {
            Second::None => "",
            Second::Scalar(_) => "let s = load_second(0u);",
            Second::Tensor => {
                "let b = Triple(load_second(first), load_second(first + 1u), load_second(first + \
                 2u));"
            }
        };
        let (triple, colors) = match row.2 {
            Second::Tensor => ("array<Number, 3>", ""),
            _ => ("vec3<Number>", include_str!("../../../shaders/image/colors.wgsl")),
        };
        Self::declare(format!("{} {dtype}", row.0), row, dtype)
            .body("alias Number = {{NUMBER}};\nalias Triple = {{TRIPLE}};\n")
            .body(colors)
            .define("NUMBER", dtype.value())
            .define("TRIPLE", triple)
            .define("SECOND", second)
            .define("RESULT", row.3)
            .body(include_str!("../../../shaders/image/triple.wgsl"))
            .map("y")
    }
}
