//! Function libraries in `shaders/lib/`. The first line of a file may be `// requires: a b`, which
//! names other libraries.

use super::hidden;
use crate::dtype::DType;

/// The name and the text of every library.
pub const LIBRARIES: &[(&str, &str)] = &[
    ("arc", include_str!("../../shaders/lib/arc.wgsl")),
    ("bessel", include_str!("../../shaders/lib/bessel.wgsl")),
    ("bessel_f64", include_str!("../../shaders/lib/bessel_f64.wgsl")),
    ("bessel_modified_f64", include_str!("../../shaders/lib/bessel_modified_f64.wgsl")),
    ("arc_f64", include_str!("../../shaders/lib/arc_f64.wgsl")),
    ("bf16_bits", include_str!("../../shaders/lib/bf16_bits.wgsl")),
    ("box_muller", include_str!("../../shaders/lib/box_muller.wgsl")),
    ("box_muller_wide", include_str!("../../shaders/lib/box_muller_wide.wgsl")),
    ("box_muller_wide_f64", include_str!("../../shaders/lib/box_muller_wide_f64.wgsl")),
    ("complex", include_str!("../../shaders/lib/complex.wgsl")),
    ("complex_f64", include_str!("../../shaders/lib/complex_f64.wgsl")),
    ("div", include_str!("../../shaders/lib/div.wgsl")),
    ("div_f64", include_str!("../../shaders/lib/div_f64.wgsl")),
    ("erf", include_str!("../../shaders/lib/erf.wgsl")),
    ("erf_f64", include_str!("../../shaders/lib/erf_f64.wgsl")),
    ("exp", include_str!("../../shaders/lib/exp.wgsl")),
    ("exp_f64", include_str!("../../shaders/lib/exp_f64.wgsl")),
    ("f16_bits", include_str!("../../shaders/lib/f16_bits.wgsl")),
    ("float_to_int", include_str!("../../shaders/lib/float_to_int.wgsl")),
    ("float_to_int_f64", include_str!("../../shaders/lib/float_to_int_f64.wgsl")),
    ("float_to_int64", include_str!("../../shaders/lib/float_to_int64.wgsl")),
    ("fresnel_f64", include_str!("../../shaders/lib/fresnel_f64.wgsl")),
    ("gamma", include_str!("../../shaders/lib/gamma.wgsl")),
    ("gamma_f64", include_str!("../../shaders/lib/gamma_f64.wgsl")),
    ("hyperbolic", include_str!("../../shaders/lib/hyperbolic.wgsl")),
    ("incomplete_beta", include_str!("../../shaders/lib/incomplete_beta.wgsl")),
    ("incomplete_beta_f64", include_str!("../../shaders/lib/incomplete_beta_f64.wgsl")),
    ("incomplete_gamma", include_str!("../../shaders/lib/incomplete_gamma.wgsl")),
    ("incomplete_gamma_f64", include_str!("../../shaders/lib/incomplete_gamma_f64.wgsl")),
    ("integrals", include_str!("../../shaders/lib/integrals.wgsl")),
    ("integrals_f64", include_str!("../../shaders/lib/integrals_f64.wgsl")),
    ("hyperbolic_f64", include_str!("../../shaders/lib/hyperbolic_f64.wgsl")),
    ("log", include_str!("../../shaders/lib/log.wgsl")),
    ("log_f64", include_str!("../../shaders/lib/log_f64.wgsl")),
    ("log_sum_exp", include_str!("../../shaders/lib/log_sum_exp.wgsl")),
    ("log_sum_exp_f64", include_str!("../../shaders/lib/log_sum_exp_f64.wgsl")),
    ("mul_wide", include_str!("../../shaders/lib/mul_wide.wgsl")),
    ("mul_wide_u64", include_str!("../../shaders/lib/mul_wide_u64.wgsl")),
    ("next_after", include_str!("../../shaders/lib/next_after.wgsl")),
    ("next_after_f64", include_str!("../../shaders/lib/next_after_f64.wgsl")),
    ("philox", include_str!("../../shaders/lib/philox.wgsl")),
    ("pow", include_str!("../../shaders/lib/pow.wgsl")),
    ("pow_f64", include_str!("../../shaders/lib/pow_f64.wgsl")),
    ("pow_int", include_str!("../../shaders/lib/pow_int.wgsl")),
    ("pow_int64", include_str!("../../shaders/lib/pow_int64.wgsl")),
    ("quotient", include_str!("../../shaders/lib/quotient.wgsl")),
    ("root", include_str!("../../shaders/lib/root.wgsl")),
    ("root64", include_str!("../../shaders/lib/root64.wgsl")),
    ("round_bf16", include_str!("../../shaders/lib/round_bf16.wgsl")),
    ("round_f16", include_str!("../../shaders/lib/round_f16.wgsl")),
    ("round_f64", include_str!("../../shaders/lib/round_f64.wgsl")),
    ("softplus", include_str!("../../shaders/lib/softplus.wgsl")),
    ("softplus_f64", include_str!("../../shaders/lib/softplus_f64.wgsl")),
    ("special", include_str!("../../shaders/lib/special.wgsl")),
    ("special_f64", include_str!("../../shaders/lib/special_f64.wgsl")),
    ("trig", include_str!("../../shaders/lib/trig.wgsl")),
    ("trig_f64", include_str!("../../shaders/lib/trig_f64.wgsl")),
    ("truncate_float", include_str!("../../shaders/lib/truncate_float.wgsl")),
    ("truncate_float_f64", include_str!("../../shaders/lib/truncate_float_f64.wgsl")),
    ("zeta", include_str!("../../shaders/lib/zeta.wgsl")),
    ("zeta_f64", include_str!("../../shaders/lib/zeta_f64.wgsl")),
];

/// The libraries that convert to float16, for adapters whose own conversions round as IEEE 754
/// wants.
const NATIVE_FLOAT16: &[(&str, &str)] = &[
    ("f16_bits", include_str!("../../shaders/lib/f16_bits_native.wgsl")),
    ("round_f16", include_str!("../../shaders/lib/round_f16_native.wgsl")),
];

/// The forms of libraries.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Forms {
    /// Whether float64 constants are hidden from compilers.
    pub hides_constants: bool,
    /// Whether [`NATIVE_FLOAT16`] takes the place of the libraries that convert by integers.
    pub native_float16: bool,
}

/// The library `name` for functions of `dtype`: its variant `NAME_f64` for float64 and complex128,
/// if there is one.
pub fn of_type(name: &'static str, dtype: DType) -> &'static str {
    let is_twin = |n: &str| n.strip_suffix("_f64") == Some(name);
    match LIBRARIES.iter().find(|(n, _)| dtype.part() == DType::F64 && is_twin(n)) {
        Some((twin, _)) => twin,
        None => name,
    }
}

/// The text of the libraries `wanted` and of all that they require, each once, requirements first.
/// `NAME_u64` has the functions of `NAME` for adapters with 64-bit integers, and replaces it if it
/// comes earlier in `wanted`. Panics when a name is unknown: names are written in this crate's
/// tables and tested.
pub fn resolve(wanted: &[&str], forms: Forms) -> String {
    let mut done = Vec::new();
    let mut out = String::new();
    for name in wanted {
        include(name, forms, &mut done, &mut out);
    }
    out
}

fn include<'a>(name: &'a str, forms: Forms, done: &mut Vec<&'a str>, out: &mut String) {
    if done.iter().any(|d| *d == name || d.strip_suffix("_u64") == Some(name)) {
        return;
    }
    done.push(name);
    let native = NATIVE_FLOAT16.iter().filter(|_| forms.native_float16);
    let text = native
        .chain(LIBRARIES)
        .find(|(n, _)| *n == name)
        .unwrap_or_else(|| panic!("no shader library {name}"))
        .1;
    let required =
        text.lines().next().and_then(|l| l.strip_prefix("// requires: ")).unwrap_or_default();
    for r in required.split_whitespace() {
        let r = LIBRARIES
            .iter()
            .find(|(n, _)| *n == r)
            .unwrap_or_else(|| panic!("{name} requires unknown library {r}"))
            .0;
        include(r, forms, done, out);
    }
    if forms.hides_constants && name.ends_with("_f64") {
        out.push_str(&hidden::hide(text));
    } else {
        out.push_str(text);
    }
    out.push('\n');
}
