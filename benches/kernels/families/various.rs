//! Random numbers, sorting, Fourier transforms, and the rows of other files for linear algebra and
//! recurrent layers.

use tensorflow_wgpu::local::Node;
use tensorflow_wgpu::{DType, HostTensor};

use super::{linalg, recurrent};
use crate::case::{Case, Fill, Sizes, Source, by, f32s, host, index, tensor};

/// The rows.
pub fn cases(sizes: Sizes) -> Vec<Case> {
    let mut cases = Vec::new();
    for op in ["RandomUniform", "RandomStandardNormal", "TruncatedNormal"] {
        let node = Node::new(op)
            .attr("dtype", DType::F32)
            .attr("T", DType::I32)
            .attr("seed", 1)
            .attr("seed2", 2);
        cases.push(Case::new("random", format!("{op} 16 M"), node, [host(&[16 << 20])]));
    }
    let seeds = || Source::Value(HostTensor::i32(&[2], &[1, 2]));
    let node = Node::new("StatelessRandomUniform")
        .attr("dtype", DType::F32)
        .attr("T", DType::I32)
        .attr("Tseed", DType::I32);
    cases.push(Case::new(
        "random",
        "StatelessRandomUniform 16 M",
        node,
        [host(&[16 << 20]), seeds()],
    ));

    let rows = sizes.batch * 32;
    for (dims, k) in
        [([sizes.batch, 1000], 5), ([rows, 1024], 8), ([rows, 1024], 1024), ([1, 1 << 18], 100)]
    {
        let node = Node::new("TopKV2").attr("T", DType::F32).attr("index_type", DType::I32);
        cases.push(Case::new(
            "sort",
            format!("TopKV2 {k} of {}", by(&dims)),
            node,
            [f32s(&dims), index(k)],
        ));
    }
    let node = Node::new("TopKV2").attr("T", DType::F32).attr("index_type", DType::I32);
    cases.push(Case::new(
        "sort",
        "TopKV2 sorts 1×262144",
        node,
        [f32s(&[1, 1 << 18]), index(1 << 18)],
    ));
    let node = Node::new("Unique").attr("T", DType::I64).attr("out_idx", DType::I32);
    let ids = Source::Tensor(DType::I64, vec![1 << 18], Fill::Below(1000));
    cases.push(Case::new("sort", "Unique 262144 of 1000 values", node, [ids]));
    let node = Node::new("Where").attr("T", DType::Bool);
    cases.push(Case::new("sort", "Where 4 M", node, [tensor(DType::Bool, &[4 << 20])]));

    for (op, dims) in
        [("FFT", vec![4096, 1024]), ("FFT2D", vec![16, 256, 256]), ("FFT", vec![1, 1 << 20])]
    {
        let node = Node::new(op).attr("Tcomplex", DType::C64);
        let points = dims[1..].iter().product::<usize>() as f64;
        let flops = 5.0 * dims.iter().product::<usize>() as f64 * points.log2();
        cases.push(
            Case::new("fft", format!("{op} {}", by(&dims)), node, [tensor(DType::C64, &dims)])
                .flops(flops),
        );
    }
    let node = Node::new("RFFT").attr("Tcomplex", DType::C64).attr("Treal", DType::F32);
    cases.push(
        Case::new("fft", "RFFT 4096×1024", node, [f32s(&[4096, 1024]), host(&[1024])])
            .flops(2.5 * 4096.0 * 10_240.0),
    );

    cases.extend(recurrent::cases(sizes));
    cases.extend(linalg::cases());
    cases
}
