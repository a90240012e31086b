//! CheckNumerics and CheckNumericsV2: an error when a tensor has NaN or infinite values, else the
//! tensor itself.
//!
//! Both wait for the device, since the result must be known before the step goes on; TensorFlow's
//! GPU kernels wait in the background.

use crate::device::{Grid, declare_program};
use crate::dtype::{
    DType::{self, *},
    types,
};
use crate::error::Result;
use crate::kernels::movement::walk::window_limit;
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::reduce::program::part;
use crate::kernels::registry::Registry;
use crate::require;
use crate::shader::{Raw, Shader, WORKGROUP};

const TYPES: &[DType] = types::FLOATS_BUT_BF16;

/// Bits of the kinds of values that were found.
const NAN: u32 = 1;
const POSITIVE: u32 = 2;
const NEGATIVE: u32 = 4;

/// Adds the ops.
pub fn register(r: &mut Registry) {
    for (op, signed) in [("CheckNumerics", false), ("CheckNumericsV2", true)] {
        r.op(op).types("T", TYPES).note("waits for the device to know whether to fail").kernel(
            move |attrs: &dyn Attrs| {
                Ok(CheckNumerics { signed, message: attrs.string("message")? })
            },
        );
    }
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    TYPES.iter().map(|t| CheckFinite::shader(*t)).collect()
}

struct CheckNumerics {
    /// Whether the message tells the signs of infinities.
    signed: bool,
    message: String,
}

impl CheckNumerics {
    /// TensorFlow's name for the values that were found, or None.
    fn found(&self, flags: u32) -> Option<String> {
        let has = |bit: u32| flags & bit != 0;
        let infinite = has(POSITIVE) || has(NEGATIVE);
        let kinds: Vec<&str> = if self.signed {
            [(NEGATIVE, "-Inf"), (POSITIVE, "+Inf"), (NAN, "NaN")]
                .into_iter()
                .filter(|k| has(k.0))
                .map(|k| k.1)
                .collect()
        } else {
            [(infinite, "Inf"), (has(NAN), "NaN")]
                .into_iter()
                .filter(|k| k.0)
                .map(|k| k.1)
                .collect()
        };
        match &kinds[..] {
            [] => None,
            [one] => Some((*one).to_owned()),
            [one, other] => Some(format!("{one} and {other}")),
            _ => Some("-Inf, +Inf, and NaN".to_owned()),
        }
    }
}

impl Kernel for CheckNumerics {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let x = ctx.input(0)?;
        if !x.is_empty() {
            let flags = ctx.temp(U32, &[1])?;
            let device = ctx.device();
            device.fill(flags.address, 4, 0)?;
            let window = (window_limit(device) as usize / x.dtype.size()).min(1 << 30) & !63;
            for first in (0..x.len()).step_by(window) {
                let count = window.min(x.len() - first);
                CheckFinite { x: part(&x, first, count), flags: (&flags).into(), count }.enqueue(
                    device,
                    &CheckFinite::of(x.dtype),
                    Grid::linear(count, WORKGROUP),
                )?;
            }
            let mut bytes = [0; 4];
            device.download(flags.address, &mut bytes)?;
            let found = self.found(u32::from_ne_bytes(bytes));
            require!(
                found.is_none(),
                "{} : Tensor had {} values",
                self.message,
                found.unwrap_or_default()
            );
        }
        ctx.forward_input(0, 0, &x.dims)
    }
}

declare_program! {
    /// Sets a bit for NaN, one for infinity and one for minus infinity.
    struct CheckFinite = "check numerics"(dtype: DType);
    bindings { x: dtype, flags: Raw("atomic<u32>", 4) }
    params { count: usize }
}

impl CheckFinite {
    fn shader(dtype: DType) -> Shader {
        let suffix = if dtype == F64 { "f64" } else { "f32" };
        Self::declare(format!("check numerics {dtype}"), dtype)
            .define("SUFFIX", suffix)
            .body(include_str!("../../shaders/check_numerics.wgsl"))
    }
}
