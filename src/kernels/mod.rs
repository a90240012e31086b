//! Kernel families. Each owns one Rust file (or folder), its shaders in `shaders/`, a `register`
//! function that fills the [`registry::Registry`], and a `shaders` function that lists its shader
//! variants. Nothing here depends on TensorFlow's C API or wgpu.

pub mod aliases;
pub mod bias;
pub mod check_numerics;
pub mod complex;
pub mod contract;
pub mod conv;
pub mod debug_summary;
pub mod definition;
pub mod einsum;
pub mod expression;
pub mod fft;
pub mod fill;
pub mod fused;
pub mod gather;
pub mod image;
pub(crate) mod items;
pub(crate) mod iterations;
pub(crate) mod lanes;
pub mod linalg;
pub mod matmul;
pub mod movement;
pub mod nested_context;
pub mod node;
pub mod norm;
pub mod op;
pub mod parallel_concat;
pub mod parked;
pub mod patches;
pub mod pool;
pub mod quantize;
pub mod random;
pub mod reduce;
mod reference;
pub mod registry;
pub mod rnn;
pub mod scalar;
pub mod scan;
pub mod scatter;
pub mod segment;
pub mod softmax;
pub mod sort;
pub mod sparse;
pub mod training;
pub mod variable;
pub mod variant;
pub(crate) mod windows;

use crate::shader::Shader;
use definition::OpDefinition;
use registry::Registry;

/// A kernel family, one row of [`FAMILIES`].
pub struct Family {
    /// The name of its file or folder.
    pub name: &'static str,
    /// Adds its ops to the registry.
    pub register: fn(&mut Registry),
    /// Every shader variant that the family may need (each op, type, access class and tile;
    /// parameter lists of ranks 1 and 5 stand for all ranks). `tests/shaders.rs` checks that each
    /// is valid and translates to SPIR-V, MSL and HLSL.
    pub shaders: fn() -> Vec<Shader>,
}

/// The ops that TensorFlow does not have, one list for each file: those that the optimizer emits,
/// then those that the Python package emits.
pub fn definitions() -> impl Iterator<Item = &'static OpDefinition> {
    let lists = fused::DEFINITIONS.iter().chain(&[
        parked::DEFINITIONS,
        rnn::DEFINITIONS,
        softmax::DEFINITIONS,
    ]);
    lists.copied().flatten()
}

macro_rules! families {
    ($($name:ident,)*) => {
        /// Every family, in the order in which it registers.
        pub const FAMILIES: &[Family] = &[$(Family {
            name: stringify!($name),
            register: $name::register,
            shaders: $name::shaders,
        }),*];
    };
}

// One row for each family, alphabetically.
families! {
    bias,
    check_numerics,
    complex,
    conv,
    debug_summary,
    einsum,
    fft,
    fill,
    fused,
    gather,
    image,
    linalg,
    matmul,
    movement,
    norm,
    parallel_concat,
    parked,
    patches,
    pool,
    quantize,
    random,
    reduce,
    rnn,
    scalar,
    scan,
    scatter,
    segment,
    softmax,
    sort,
    sparse,
    training,
    variable,
    variant,
}
