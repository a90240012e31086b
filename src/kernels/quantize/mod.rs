//! Simulated quantization: FakeQuantWithMinMax* and QuantizeAndDequantize*, with their gradients.

mod dequantize;
mod fake;

use crate::device::Device;
use crate::dtype::{DType, types};
use crate::kernels::movement::walk::window_limit;
use crate::kernels::op::Attrs;
use crate::kernels::registry::Registry;
use crate::shader::Shader;
use dequantize::{Quantize, QuantizeGrad, Version};
use fake::{BoundsFrom, Fake};

const TYPES: &[DType] = types::F32_F64;

/// Adds the ops.
pub fn register(r: &mut Registry) {
    for (op, bounds_from, gradient) in fake::OPS {
        let host: &'static [&'static str] =
            if *bounds_from == BoundsFrom::Attributes { &[] } else { &["min", "max"] };
        r.op(op).host(host).kernel(move |a: &dyn Attrs| Fake::new(a, op, *bounds_from, *gradient));
    }
    let host: &'static [&'static str] = &["input_min", "input_max"];
    let with_bits: &'static [&'static str] = &["input_min", "input_max", "num_bits"];
    for (op, version, host) in [
        ("QuantizeAndDequantize", Version::Attributes, &[][..]),
        ("QuantizeAndDequantizeV2", Version::Inputs, host),
        ("QuantizeAndDequantizeV3", Version::BitsInput, with_bits),
        ("QuantizeAndDequantizeV4", Version::Inputs, host),
    ] {
        r.op(op)
            .types("T", TYPES)
            .host(host)
            .kernel(move |a: &dyn Attrs| Quantize::new(a, version));
    }
    r.op("QuantizeAndDequantizeV4Grad")
        .types("T", TYPES)
        .host(host)
        .kernel(|a| QuantizeGrad::new(a));
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    [fake::shaders(), dequantize::shaders(TYPES)].concat()
}

/// Elements of `size` bytes that a program takes at once.
fn window(device: &Device, size: usize) -> usize {
    (window_limit(device) as usize / size).min(1 << 30) & !63
}
