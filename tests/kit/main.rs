//! The suites of the GPU kit in one executable: every suite that needs an adapter and nothing else.
//!
//! An executable for each suite would contain the whole crate each time: the kit would be too
//! large, and linking them all takes minutes. A test's name begins with its suite's name, by which
//! the kit and `make suites` run one suite at a time. `cargo test` leaves them out; `cargo test
//! --test NAME` has one.

#[path = "../arg_reduction.rs"]
mod arg_reduction;
#[path = "../autotune.rs"]
mod autotune;
#[path = "../barriers.rs"]
mod barriers;
#[path = "../checkup.rs"]
mod checkup;
#[path = "../complex.rs"]
mod complex;
#[path = "../conv/main.rs"]
mod conv;
#[path = "../debug_summary.rs"]
mod debug_summary;
#[path = "../device.rs"]
mod device;
#[path = "../einsum.rs"]
mod einsum;
#[path = "../failures.rs"]
mod failures;
#[path = "../fft.rs"]
mod fft;
#[path = "../float16.rs"]
mod float16;
#[path = "../fused_argument.rs"]
mod fused_argument;
#[path = "../fused_attention.rs"]
mod fused_attention;
#[path = "../fused_attention_grad.rs"]
mod fused_attention_grad;
#[path = "../fused_concat.rs"]
mod fused_concat;
#[path = "../fused_contraction.rs"]
mod fused_contraction;
#[path = "../fused_cross_entropy.rs"]
mod fused_cross_entropy;
#[path = "../fused_elementwise.rs"]
mod fused_elementwise;
#[path = "../fused_joined.rs"]
mod fused_joined;
#[path = "../fused_products.rs"]
mod fused_products;
#[path = "../fused_quantized.rs"]
mod fused_quantized;
#[path = "../fused_reduce.rs"]
mod fused_reduce;
#[path = "../fused_reduce_epilogue.rs"]
mod fused_reduce_epilogue;
#[path = "../fused_rowwise.rs"]
mod fused_rowwise;
#[path = "../fused_update.rs"]
mod fused_update;
#[path = "../gather.rs"]
mod gather;
#[path = "../image.rs"]
mod image;
#[path = "../inplace.rs"]
mod inplace;
#[path = "../items.rs"]
mod items;
#[path = "../linalg/main.rs"]
mod linalg;
#[path = "../matmul.rs"]
mod matmul;
#[path = "../movement/main.rs"]
mod movement;
#[path = "../norm.rs"]
mod norm;
#[path = "../optimizer_loops.rs"]
mod optimizer_loops;
#[path = "../optimizer_meaning.rs"]
mod optimizer_meaning;
#[path = "../optimizer_random.rs"]
mod optimizer_random;
#[path = "../paging.rs"]
mod paging;
#[path = "../patches.rs"]
mod patches;
#[path = "../pipelines.rs"]
mod pipelines;
#[path = "../pool.rs"]
mod pool;
#[path = "../quantize.rs"]
mod quantize;
#[path = "../random/main.rs"]
mod random;
#[path = "../reduce.rs"]
mod reduce;
#[path = "../region.rs"]
mod region;
#[path = "../rnn/main.rs"]
mod rnn;
#[path = "../scan.rs"]
mod scan;
#[path = "../segment.rs"]
mod segment;
#[path = "../softmax.rs"]
mod softmax;
#[path = "../sort/main.rs"]
mod sort;
#[path = "../sparse.rs"]
mod sparse;
#[path = "../spectral.rs"]
mod spectral;
#[path = "../trace.rs"]
mod trace;
#[path = "../training.rs"]
mod training;
#[path = "../unstaged.rs"]
mod unstaged;
#[path = "../variable.rs"]
mod variable;
