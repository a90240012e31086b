//! Function libraries in `shaders/lib/`. A shader gets the libraries whose functions its text
//! calls, and the libraries whose functions these call.

use std::sync::LazyLock;

use rustc_hash::{FxHashMap, FxHashSet};

use super::hidden;
use super::tokens::Tokens;

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

/// The names of a text's functions, and the names that it calls.
#[derive(Default)]
struct Functions<'t> {
    defined: FxHashSet<&'t str>,
    called: Vec<&'t str>,
}

impl<'t> Functions<'t> {
    fn of(text: &'t str) -> Self {
        let mut found = Self::default();
        let (mut before, mut last) = ("", "");
        for token in Tokens(text) {
            match (before, token) {
                ("fn", "(") => drop(found.defined.insert(last)),
                (_, "(") => found.called.push(last),
                _ => {}
            }
            (before, last) = (last, token);
        }
        found
    }
}

/// The functions of each library.
static FUNCTIONS: LazyLock<Vec<Functions<'static>>> =
    LazyLock::new(|| LIBRARIES.iter().map(|(_, text)| Functions::of(text)).collect());

/// The library that defines a function, by its place in [`LIBRARIES`].
static OWNERS: LazyLock<FxHashMap<&str, usize>> = LazyLock::new(|| {
    let each = FUNCTIONS.iter().enumerate();
    each.flat_map(|(at, own)| own.defined.iter().map(move |name| (*name, at))).collect()
});

fn owners<'t>(functions: &'t Functions<'_>) -> impl Iterator<Item = usize> + 't {
    functions.called.iter().filter_map(|name| OWNERS.get(name).copied())
}

/// The names of the libraries whose functions `text` itself calls. A name may come several times.
pub fn called(text: &str) -> Vec<&'static str> {
    owners(&Functions::of(text)).map(|at| LIBRARIES[at].0).collect()
}

/// The text of all libraries that `text` needs. It may define a function in the place of a
/// library's.
pub fn needed(text: &str, forms: Forms) -> String {
    let own = Functions::of(text);
    let mut open: Vec<usize> = owners(&own).collect();
    let mut wanted = vec![false; LIBRARIES.len()];
    while let Some(at) = open.pop() {
        if !wanted[at] && FUNCTIONS[at].defined.is_disjoint(&own.defined) {
            wanted[at] = true;
            open.extend(owners(&FUNCTIONS[at]));
        }
    }
    let mut out = String::new();
    for ((name, text), _) in LIBRARIES.iter().zip(wanted).filter(|(_, is_wanted)| *is_wanted) {
        let native = NATIVE_FLOAT16.iter().find(|(own, _)| forms.native_float16 && own == name);
        let text = native.map_or(*text, |(_, text)| text);
        if forms.hides_constants && name.ends_with("_f64") {
            out.push_str(&hidden::hide(text));
        } else {
            out.push_str(text);
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_in_one_library() {
        let defined: usize = FUNCTIONS.iter().map(|own| own.defined.len()).sum();
        assert_eq!(OWNERS.len(), defined);
    }

    #[test]
    fn a_text_gets_the_libraries_that_it_calls() {
        let text = "fn f(x: f32) -> f32 {\n    // sin_f32(x)\n    return exp_f32(x);\n}\n";
        assert_eq!(called(text), ["exp"]);
        let needed_by = |text: &str| Functions::of(&needed(text, Forms::default())).defined.len();
        let of = |names: &[&str]| -> usize {
            let chosen = LIBRARIES.iter().zip(&*FUNCTIONS).filter(|((n, _), _)| names.contains(n));
            chosen.map(|(_, own)| own.defined.len()).sum()
        };
        assert_eq!(needed_by(text), of(&["exp", "special"]), "a library calls another one");
        assert_eq!(needed_by("fn f() { philox(); }"), of(&["philox", "mul_wide"]));
        assert_eq!(needed_by("fn mul_wide() {}\nfn f() { philox(); }"), of(&["philox"]));
        assert_eq!(needed_by("fn f(exp_f32: u32) -> u32 { return exp_f32; }"), 0);
    }
}
