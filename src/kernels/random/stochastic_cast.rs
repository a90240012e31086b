//! Stochastic rounding of floats to integers. TensorFlow's numbers depend on its threads and
//! vectors; here each element has random bits of its own. Where TensorFlow's clamp overflows
//! (float16 has no 32767), this saturates.

use super::distribution::{generator, words_of};
use super::inputs;
use crate::device::{Grid, declare_program};
use crate::dtype::{
    DType::{self, F64, I8, I16, I32},
    types,
};
use crate::error::Result;
use crate::kernels::op::{Kernel, OpContext};
use crate::kernels::registry::Registry;
use crate::shader::{Raw, Shader};

const FROM: &[DType] = types::FLOATS;
const TO: &[DType] = &[I8, I16, I32];

/// Adds the op.
pub fn register(registry: &mut Registry) {
    registry.op("StochasticCastToInt").types("Tin", FROM).types("Tout", TO).host(&["alg"]).kernel(
        |attrs| Ok(StochasticCast { input: attrs.dtype("Tin")?, output: attrs.dtype("Tout")? }),
    );
}

/// The shader variants.
pub fn shaders() -> Vec<Shader> {
    FROM.iter().flat_map(|x| TO.iter().map(|y| Cast::shader(*x, *y))).collect()
}

declare_program! {
    /// Rounds each element up or down by random bits.
    struct Cast = "random stochastic cast"(input: DType, output: DType);
    bindings { x: input, y: output, counter: Raw("u32", 4), key: Raw("u32", 4) }
    params { count: usize }
}

impl Cast {
    fn shader(input: DType, output: DType) -> Shader {
        let wide = input == F64;
        let (min, max) = match output {
            I8 => ("-128", "127"),
            I16 => ("-32768", "32767"),
            _ => ("-2147483648", "2147483647"),
        };
        let label = format!("random stochastic cast {input} {output}");
        let s = Self::declare(label, input, output)
            .define("F", input.value())
            .define("MIN", min)
            .define("MAX", max)
            .define("PER_SAMPLE", if wide { "2" } else { "4" })
            .define(
                "UNIFORM",
                if wide {
                    "wide_unit_f64(select(bits.xy, bits.zw, (i & 1u) != 0u))"
                } else {
                    "f32(bits[i & 3u] & 0x7fffffu) * 1.1920928955078125e-7"
                },
            );
        let text = include_str!("../../../shaders/random/stochastic_cast.wgsl");
        generator(s, true).body(text).map("y")
    }
}

/// Inputs: input, key, counter, alg.
struct StochasticCast {
    input: DType,
    output: DType,
}

impl Kernel for StochasticCast {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let [key, counter] = inputs::keyed(ctx)?;
        let x = ctx.input(0)?;
        let Some(y) = ctx.some_output(0, self.output, &x.dims)? else { return Ok(()) };
        let device = ctx.device();
        device.check_extent(x.len())?;
        let (of, count) = (Cast::of(self.input, self.output), x.len());
        let ([x, y], counter, key) =
            ([&x, &y].map(Into::into), words_of(&counter, 16), words_of(&key, 8));
        let call = Cast { x, y, counter, key, count };
        call.enqueue(device, &of, Grid::map(count, self.output))
    }
}
