//! Kernel families. Each owns one Rust file (or folder), its shaders in `shaders/`, a `register`
//! function that fills the [`registry::Registry`], and a `shaders` function that lists its shader
//! variants. Nothing in here knows TensorFlow's C API or wgpu.

pub mod bias;
pub mod check_numerics;
pub mod complex;
pub mod contract;
pub mod conv;
pub mod debug_summary;
pub mod definition;
pub mod einsum;
pub mod fft;
pub mod fill;
pub mod fused;
pub mod gather;
pub mod image;
pub(crate) mod items;
pub mod linalg;
pub mod matmul;
pub mod movement;
pub mod norm;
pub mod op;
pub mod optimizer;
pub mod parallel_concat;
pub mod patches;
pub mod pool;
pub mod quantize;
pub mod random;
pub mod reduce;
pub mod registry;
pub mod rnn;
pub mod scalar;
pub mod scan;
pub mod scatter;
pub mod segment;
pub mod softmax;
pub mod sort;
pub mod sparse;
pub mod variable;
pub mod variant;
pub(crate) mod windows;

use crate::shader::Shader;
use registry::Registry;

/// A kernel family, one row of [`FAMILIES`].
pub struct Family {
    /// The name of its file or folder.
    pub name: &'static str,
    /// Adds its ops to the registry.
    pub register: fn(&mut Registry),
    /// Every shader variant that the family can ask for (each op, type, access class and tile;
    /// parameter lists of ranks 1 and 5 stand for all ranks). `tests/shaders.rs` checks that each
    /// is valid and translates to SPIR-V, MSL and HLSL.
    pub shaders: fn() -> Vec<Shader>,
}

/// Every family, in the order in which it registers.
pub const FAMILIES: &[Family] = &[
    // One row for each family, alphabetically.
    Family { name: "bias", register: bias::register, shaders: bias::shaders },
    Family { name: "complex", register: complex::register, shaders: complex::shaders },
    Family {
        name: "check_numerics",
        register: check_numerics::register,
        shaders: check_numerics::shaders,
    },
    Family { name: "conv", register: conv::register, shaders: conv::shaders },
    Family { name: "einsum", register: einsum::register, shaders: einsum::shaders },
    Family {
        name: "debug_summary",
        register: debug_summary::register,
        shaders: debug_summary::shaders,
    },
    Family { name: "fft", register: fft::register, shaders: fft::shaders },
    Family { name: "fill", register: fill::register, shaders: fill::shaders },
    Family { name: "fused", register: fused::register, shaders: fused::shaders },
    Family { name: "gather", register: gather::register, shaders: gather::shaders },
    Family { name: "image", register: image::register, shaders: image::shaders },
    Family { name: "linalg", register: linalg::register, shaders: linalg::shaders },
    Family { name: "matmul", register: matmul::register, shaders: matmul::shaders },
    Family { name: "movement", register: movement::register, shaders: movement::shaders },
    Family { name: "norm", register: norm::register, shaders: norm::shaders },
    Family { name: "optimizer", register: optimizer::register, shaders: optimizer::shaders },
    Family {
        name: "parallel_concat",
        register: parallel_concat::register,
        shaders: parallel_concat::shaders,
    },
    Family { name: "patches", register: patches::register, shaders: patches::shaders },
    Family { name: "pool", register: pool::register, shaders: pool::shaders },
    Family { name: "quantize", register: quantize::register, shaders: quantize::shaders },
    Family { name: "random", register: random::register, shaders: random::shaders },
    Family { name: "reduce", register: reduce::register, shaders: reduce::shaders },
    Family { name: "rnn", register: rnn::register, shaders: rnn::shaders },
    Family { name: "scalar", register: scalar::register, shaders: scalar::shaders },
    Family { name: "scan", register: scan::register, shaders: scan::shaders },
    Family { name: "scatter", register: scatter::register, shaders: scatter::shaders },
    Family { name: "segment", register: segment::register, shaders: segment::shaders },
    Family { name: "softmax", register: softmax::register, shaders: softmax::shaders },
    Family { name: "sort", register: sort::register, shaders: sort::shaders },
    Family { name: "sparse", register: sparse::register, shaders: sparse::shaders },
    Family { name: "variable", register: variable::register, shaders: variable::shaders },
    Family { name: "variant", register: variant::register, shaders: variant::shaders },
];
