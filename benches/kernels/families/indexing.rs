//! Gathers, scatters, segments, one-hot vectors.

use tensorflow_wgpu::DType;
use tensorflow_wgpu::local::Node;

use crate::case::{Case, Fill, Sizes, Source, by, f32s, index, scalar};

/// Words of a vocabulary, as BERT's.
const WORDS: usize = 30_522;
const WIDTH: usize = 768;

/// The rows.
pub fn cases(sizes: Sizes) -> Vec<Case> {
    let tokens = sizes.sequences * 128;
    let ids =
        |count: usize, below: usize| Source::Tensor(DType::I32, vec![count], Fill::Below(below));
    let rows = |count: usize| 4.0 * (count * WIDTH) as f64;
    let mut cases = Vec::new();

    let gather = Node::new("GatherV2")
        .attr("Tparams", DType::F32)
        .attr("Tindices", DType::I32)
        .attr("Taxis", DType::I32);
    let inputs = [f32s(&[WORDS, WIDTH]), ids(tokens, WORDS), index(0)];
    let name = format!("GatherV2 {tokens} rows of {}", by(&[WORDS, WIDTH]));
    let node = gather.clone().attr("batch_dims", 0);
    cases.push(Case::new("gather", name, node.clone(), inputs).bytes(2.0 * rows(tokens)));
    let inputs = [f32s(&[4096, 1024]), ids(512, 1024), index(1)];
    cases.push(
        Case::new("gather", "GatherV2 512 columns of 4096×1024", node, inputs)
            .bytes(8.0 * 4096.0 * 512.0),
    );
    let node = Node::new("GatherNd").attr("Tparams", DType::F32).attr("Tindices", DType::I32);
    let places = Source::Tensor(DType::I32, vec![1 << 20, 2], Fill::Below(1024));
    let inputs = [f32s(&[1024, 1024]), places];
    cases.push(
        Case::new("gather", "GatherNd 1 M elements of 1024×1024", node, inputs)
            .bytes(16.0 * f64::from(1 << 20)),
    );
    let node =
        Node::new("OneHot").attr("T", DType::F32).attr("TI", DType::I32).attr("axis", -1_i64);
    let inputs = [ids(4096, 1000), index(1000), scalar(1.0), scalar(0.0)];
    cases.push(Case::new("gather", "OneHot 4096×1000", node, inputs));

    let scatter = Node::new("TensorScatterAdd").attr("T", DType::F32).attr("Tindices", DType::I32);
    let places = Source::Tensor(DType::I32, vec![tokens, 1], Fill::Below(8192));
    let inputs = [f32s(&[8192, WIDTH]), places, f32s(&[tokens, WIDTH])];
    let name = format!("TensorScatterAdd {tokens} rows to {}", by(&[8192, WIDTH]));
    cases.push(
        Case::new("scatter", name, scatter, inputs).bytes(2.0 * rows(8192) + 2.0 * rows(tokens)),
    );
    let node =
        Node::new("ResourceScatterAdd").attr("dtype", DType::F32).attr("Tindices", DType::I32);
    let table = Source::Variable(DType::F32, vec![WORDS, WIDTH], Fill::Any);
    let inputs = [table, ids(tokens, WORDS), f32s(&[tokens, WIDTH])];
    let name = format!("ResourceScatterAdd {tokens} rows to {}", by(&[WORDS, WIDTH]));
    cases.push(Case::new("scatter", name, node, inputs).bytes(3.0 * rows(tokens)));

    let typed = |op: &str| {
        Node::new(op)
            .attr("T", DType::F32)
            .attr("Tindices", DType::I32)
            .attr("Tnumsegments", DType::I32)
    };
    let inputs = [f32s(&[tokens, WIDTH]), ids(tokens, WORDS), index(WORDS as i32)];
    let name = format!("UnsortedSegmentSum {tokens} rows in {WORDS}");
    cases.push(Case::new("segment", name, typed("UnsortedSegmentSum"), inputs));
    let inputs = [f32s(&[65_536, 64]), ids(65_536, 256), index(256)];
    cases.push(Case::new(
        "segment",
        "UnsortedSegmentSum 65536×64 in 256",
        typed("UnsortedSegmentSum"),
        inputs,
    ));
    let ascending = || Source::Tensor(DType::I32, vec![65_536], Fill::Ascending(1024));
    for op in ["SegmentSum", "SegmentMax"] {
        let inputs = [f32s(&[65_536, 64]), ascending()];
        cases.push(Case::new("segment", format!("{op} 65536×64 in 1024"), typed(op), inputs));
    }
    cases
}
