//! Both determinants, as products of a decomposition's pivots.

use super::batch::{Batch, batch_dims};
use super::lu::Decomposition;
use super::number::{NUMBERS, Numbers};
use crate::device::{Binding, Grid, declare_program};
use crate::dtype::DType::{self, F64, I32};
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::kernels::registry::Registry;
use crate::shader::{Shader, WORKGROUP};

/// Registers the ops.
pub fn register(r: &mut Registry) {
    r.op("LogMatrixDeterminant")
        .types("T", NUMBERS)
        .items(&[(0, 2)])
        .kernel(|_| Ok(|ctx: &mut dyn OpContext| determinant(ctx, true)));
    r.op("MatrixDeterminant")
        .types("T", NUMBERS)
        .items(&[(0, 2)])
        .kernel(|_| Ok(|ctx: &mut dyn OpContext| determinant(ctx, false)));
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    NUMBERS
        .iter()
        .flat_map(|t| [Determinant::shader(*t, false), Determinant::shader(*t, true)])
        .collect()
}

fn determinant(ctx: &mut dyn OpContext, log: bool) -> Result<()> {
    let x = ctx.input(0)?;
    let batch = Batch::square(&x)?;
    let dims = batch_dims(&x);
    let dtype = x.dtype;
    let y = ctx.output(0, dtype, dims)?;
    let log_y = if log { ctx.output(1, dtype, dims)? } else { y.clone() };
    if batch.count == 0 {
        return Ok(());
    }
    let count = ctx.device().check_extent(batch.count)?;
    let decomposition = Decomposition::temporary(ctx, &x, false, batch)?;
    if batch.rows == 0 {
        // No panel ran: the determinant of an empty matrix is 1.
        ctx.device().upload(decomposition.state.address, &vec![0; batch.count * 8])?;
    }
    ctx.device().enqueue_counted(
        &Determinant {
            a: Binding::from(&decomposition.lu),
            state: Binding::from(&decomposition.state),
            y: Binding::from(&y),
            log_y: Binding::from(&log_y),
            count,
            n: batch.rows,
            lowest: f32::NEG_INFINITY,
            nan: f32::NAN,
        }
        .program(&Determinant::of(dtype, log), Grid::linear(batch.count, WORKGROUP)),
        dtype.flops(x.len() / batch.rows.max(1)),
    )
}

declare_program! {
    /// The determinant of a decomposition.
    struct Determinant = "linalg determinant"(dtype: DType, log: bool);
    bindings { a: dtype, state: I32, y: dtype, log_y: dtype }
    params { count: u32, n: usize, lowest: f32, nan: f32 }
}

impl Determinant {
    fn shader(dtype: DType, log: bool) -> Shader {
        let store = match (log, dtype.is_complex()) {
            (false, false) => REAL,
            (false, true) => COMPLEX,
            (true, false) => REAL_LOG,
            (true, true) => COMPLEX_LOG,
        };
        let split = match dtype.part() {
            F64 => include_str!("../../../shaders/linalg/split_f64.wgsl"),
            _ => include_str!("../../../shaders/linalg/split.wgsl"),
        };
        let label = if log { "linalg log determinant" } else { "linalg determinant" };
        Self::declare(label, dtype, log)
            .numbers(dtype)
            .define("SPLIT", split)
            .define("PARTS", if dtype.is_complex() { COMPLEX_PARTS } else { REAL_PARTS })
            .define("STORE", store)
            .body(include_str!("../../../shaders/linalg/determinant.wgsl"))
    }
}

const REAL_PARTS: &str = "fn parts_of(x: number) -> Parts {
    let parts = split(x);
    return Parts(parts.mantissa, parts.exponent, parts.is_special);
}
";

/// The smaller part uses the larger one's exponent; if it is negligible beside the larger part, it
/// is zero.
const COMPLEX_PARTS: &str = "fn parts_of(z: number) -> Parts {
    let re = split(z.x);
    let im = split(z.y);
    if re.is_special || im.is_special {
        return Parts(z, 0, true);
    }
    if re.mantissa == real(0.0) {
        return Parts(number(re.mantissa, im.mantissa), im.exponent, false);
    }
    if im.mantissa == real(0.0) {
        return Parts(number(re.mantissa, im.mantissa), re.exponent, false);
    }
    let exponent = max(re.exponent, im.exponent);
    let down = vec2<i32>(max(re.exponent - exponent, LEAST_EXPONENT),
        max(im.exponent - exponent, LEAST_EXPONENT));
    let mantissa = number(re.mantissa * power_of_two(down.x), im.mantissa * power_of_two(down.y));
    return Parts(mantissa, exponent, false);
}
";

const REAL: &str = "    let finite = scaled(mantissa, exponent);
    store_y(matrix, select(finite, mantissa * special, is_special));";
/// Infinities also give NaNs in TensorFlow.
const COMPLEX: &str = "    let finite = number(scaled(mantissa.x, exponent), scaled(mantissa.y, \
                       exponent));
    store_y(matrix, select(finite, number(real(p.nan), real(p.nan)), is_special));";

const REAL_LOG: &str = "    let product = mantissa * special;
    let below = select(real(0.0), real(-1.0), product < 0.0);
    store_y(matrix, select(select(below, real(1.0), product > 0.0), product, is_nan(product)));
    var size = natural_log(abs(mantissa)) + real(exponent) * 0.6931471805599453;
    if mantissa == 0.0 {
        size = real(p.lowest);
    }
    if is_special {
        size = abs(product);
    }
    store_log_y(matrix, size);";

const COMPLEX_LOG: &str = "    let length = modulus(mantissa);
    var sign = number_of(real(0.0));
    var size = real(p.lowest);
    if length > real(0.0) {
        sign = mantissa / length;
        size = natural_log(length) + real(exponent) * 0.6931471805599453;
    }
    if is_special {
        sign = number(real(p.nan), real(p.nan));
        size = real(p.nan);
    }
    store_y(matrix, sign);
    store_log_y(matrix, number_of(size));";
