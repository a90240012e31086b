//! Ops that only move elements.

use tensorflow_wgpu::DType;
use tensorflow_wgpu::local::Node;

use crate::case::{Case, Sizes, Source, by, f32s, host, index, scalar, tensor};

/// The rows.
pub fn cases(sizes: Sizes) -> Vec<Case> {
    let n = sizes.batch;
    let mut cases = vec![
        transpose(DType::F32, &[4096, 4096], &[1, 0]),
        transpose(DType::F16, &[4096, 4096], &[1, 0]),
        transpose(DType::F32, &[n, 56, 56, 64], &[0, 3, 1, 2]),
        transpose(DType::F32, &[sizes.sequences, 128, 12, 64], &[0, 2, 1, 3]),
        transpose(DType::F32, &[64, 64, 64, 64], &[3, 2, 1, 0]),
    ];
    let skip = [n.div_ceil(2), 128, 128, 64];
    let typed = |op: &str| Node::new(op).attr("T", DType::F32);
    cases.push(concat(DType::F32, &skip, 3));
    cases.push(concat(DType::F32, &[n, 56, 56, 64], 0));
    cases.push(concat(DType::F16, &skip, 3));
    let node = typed("Split").attr("num_split", 4);
    cases.push(Case::new(
        "movement",
        "Split 1024×4096 in 4 over 1",
        node,
        [index(1), f32s(&[1024, 4096])],
    ));
    // The gates of an LSTM.
    let node = typed("Split").attr("num_split", 4);
    cases.push(Case::new("movement", "Split 4×512 in 4 over 1", node, [index(1), f32s(&[4, 512])]));
    let node = typed("ConcatV2").attr("N", 4).attr("Tidx", DType::I32);
    let gates: Vec<_> = (0..4).map(|_| f32s(&[4, 128])).chain([index(1)]).collect();
    cases.push(Case::new("movement", "ConcatV2 of four 4×128 over 1", node, gates));
    let node = typed("Pack").attr("N", 2).attr("axis", 1);
    cases.push(Case::new(
        "movement",
        "Pack of 2, 1024×2048",
        node,
        [f32s(&[1024, 2048]), f32s(&[1024, 2048])],
    ));

    let (from, to) = ([n, 58, 58, 64], [n, 56, 56, 64]);
    let cropped = 2.0 * bytes(&to);
    let node = typed("Slice").attr("Index", DType::I32);
    let inputs = [f32s(&from), host(&[0, 1, 1, 0]), host(&to)];
    cases.push(
        Case::new("movement", format!("Slice {} of {}", by(&to), by(&from)), node, inputs)
            .bytes(cropped),
    );
    let node = typed("StridedSlice").attr("Index", DType::I32);
    let masks = ["begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"];
    let node = masks.iter().fold(node, |node, mask| node.attr(mask, 0_i64));
    let inputs = [f32s(&[4096, 4096]), host(&[0, 0]), host(&[4096, 4096]), host(&[1, 2])];
    cases.push(
        Case::new("movement", "StridedSlice every second of 4096×4096", node, inputs)
            .bytes(2.0 * bytes(&[4096, 2048])),
    );
    let paddings =
        || Source::Value(tensorflow_wgpu::HostTensor::i32(&[4, 2], &[0, 0, 1, 1, 1, 1, 0, 0]));
    let node = typed("PadV2").attr("Tpaddings", DType::I32);
    cases.push(Case::new(
        "movement",
        format!("PadV2 {} by 1", by(&to)),
        node,
        [f32s(&to), paddings(), scalar(0.0)],
    ));
    let node = typed("MirrorPad").attr("Tpaddings", DType::I32).attr("mode", "REFLECT");
    cases.push(Case::new(
        "movement",
        format!("MirrorPad {} by 1", by(&to)),
        node,
        [f32s(&to), paddings()],
    ));
    let node = typed("Tile").attr("Tmultiples", DType::I32);
    cases.push(Case::new(
        "movement",
        "Tile 1024×1024 by 2×4",
        node,
        [f32s(&[1024, 1024]), host(&[2, 4])],
    ));
    let node = typed("BroadcastTo").attr("Tidx", DType::I32);
    cases.push(Case::new(
        "movement",
        "BroadcastTo 4096×1 to 4096×4096",
        node,
        [f32s(&[4096, 1]), host(&[4096, 4096])],
    ));
    let node = typed("ReverseV2").attr("Tidx", DType::I32);
    cases.push(Case::new(
        "movement",
        "ReverseV2 4096×4096 over 1",
        node,
        [f32s(&[4096, 4096]), host(&[1])],
    ));
    let node = typed("DepthToSpace").attr("block_size", 2).attr("data_format", "NHWC");
    cases.push(Case::new("movement", format!("DepthToSpace {}", by(&to)), node, [f32s(&to)]));
    let node = Node::new("Fill").attr("T", DType::F32).attr("index_type", DType::I32);
    cases.push(Case::new("fill", "Fill 16 M", node, [host(&[16 << 20]), scalar(1.0)]));
    resize(&mut cases, n);
    cases
}

fn bytes(dims: &[usize]) -> f64 {
    4.0 * dims.iter().product::<usize>() as f64
}

fn transpose(dtype: DType, x: &[usize], order: &[usize]) -> Case {
    let node = Node::new("Transpose").attr("T", dtype).attr("Tperm", DType::I32);
    let name = format!("Transpose {dtype} {} to {order:?}", by(x));
    Case::new("movement", name, node, [tensor(dtype, x), host(order)])
}

fn concat(dtype: DType, x: &[usize], axis: i32) -> Case {
    let node = Node::new("ConcatV2").attr("T", dtype).attr("N", 2).attr("Tidx", DType::I32);
    let name = format!("ConcatV2 {dtype} of two {} over {axis}", by(x));
    Case::new("movement", name, node, [tensor(dtype, x), tensor(dtype, x), index(axis)])
}

/// The upsampling of U-Net.
fn resize(cases: &mut Vec<Case>, n: usize) {
    let (small, large) = ([n.div_ceil(2), 64, 64, 64], [n.div_ceil(2), 128, 128, 64]);
    let node = |op: &str| {
        let node = Node::new(op).attr("T", DType::F32);
        node.attr("align_corners", false).attr("half_pixel_centers", true)
    };
    for op in ["ResizeBilinear", "ResizeNearestNeighbor"] {
        let name = |what: &str| format!("{op} {} to 128×128{what}", by(&small));
        cases.push(Case::new("image", name(""), node(op), [f32s(&small), host(&[128, 128])]));
        let inputs = if op == "ResizeBilinear" {
            [f32s(&large), f32s(&small)]
        } else {
            [f32s(&large), host(&[64, 64])]
        };
        // The bilinear gradient reads only its second operand's shape.
        let moved = bytes(&small) + bytes(&large);
        cases.push(
            Case::new("image", name(", gradient"), node(&format!("{op}Grad")), inputs).bytes(moved),
        );
    }
}
