//! Conversions to float16 by the adapter, where a probe finds them right: they have the bits of
//! conversions by integers, alone and in fused kernels.

use tensorflow_wgpu::HostTensor;
use tensorflow_wgpu::device::{Capabilities, Device, Profile, Selection};
use tensorflow_wgpu::dtype::DType::{self, *};
use tensorflow_wgpu::kernels::expression::Expression;
use tensorflow_wgpu::kernels::fused::rowwise::program::RowProgram;
use tensorflow_wgpu::local::{Input, Node, Session};

/// A session whose conversions are the adapter's, and one with conversions by integers. None if the
/// adapter has no 16-bit floats or rounds them in another way.
fn sessions() -> Option<[Session; 2]> {
    let adapter = Selection::enumerate(&|name| std::env::var(name).ok())
        .adapters
        .into_iter()
        .next()
        .expect("a Vulkan driver; on Debian install mesa-vulkan-drivers");
    let converting = Device::open_converting(&adapter).unwrap();
    if !converting.profile().capabilities.float16 {
        let name = adapter.get_info().name;
        assert!(!name.contains("llvmpipe"), "{name} rounds as IEEE 754 wants");
        println!("this adapter does not convert to float16 as IEEE 754 wants");
        return None;
    }
    let own = converting.profile();
    let capabilities = Capabilities { float16: false, ..own.capabilities };
    let integers = Profile { capabilities, ..own };
    Some([Session::new(converting), Session::under(integers).unwrap()])
}

/// The results of a node in both sessions have the same bits.
#[track_caller]
fn assert_same(sessions: &mut [Session; 2], node: &Node, inputs: &[HostTensor]) {
    let inputs: Vec<Input> = inputs.iter().cloned().map(Input::from).collect();
    for misalign in [0, 1] {
        let [native, integers] = sessions.each_mut().map(|session| {
            session.misalign = misalign;
            session.run(node, &inputs).unwrap()
        });
        for (native, integers) in native.iter().zip(&integers) {
            assert!(native.bytes == integers.bytes, "misaligned by {misalign}: {node:?}");
        }
    }
}

/// float32 of all signs and exponents, ties between float16 and their neighbours among them.
fn floats() -> HostTensor {
    let ties = (0_u32..1 << 16).map(|high| high << 16 | 0x1000);
    let near = (0_u32..1 << 18).map(|at| at << 14 | [0, 0xfff, 0x1001, 0x3000][at as usize % 4]);
    let is_number = |v: &f32| !v.is_nan();
    let all: Vec<f32> = ties.chain(near).map(f32::from_bits).filter(is_number).collect();
    HostTensor::f32(&[all.len()], &all)
}

/// float16 of every kind but NaN, in an order in which neighbours differ.
fn halves(n: usize, seed: u32) -> HostTensor {
    let bits = (0..n as u32).map(|at| (at.wrapping_mul(40_503).wrapping_add(seed)) as u16);
    let finite = bits.map(|bits| if bits & 0x7c00 == 0x7c00 { bits & !0x4000 } else { bits });
    let values: Vec<f64> = finite.map(|bits| half::f16::from_bits(bits).to_f64()).collect();
    HostTensor::floats(F16, &[n], &values)
}

fn expression(text: &str) -> Node {
    let e: Expression = text.parse().unwrap();
    Node::new("_WgpuFusedElementwise")
        .attr("T_in", e.inputs())
        .attr("T_out", &e.output_types()[..])
        .attr("expression", text)
        .attr("constants", &[] as &[f32])
}

#[test]
fn casts_and_arithmetic_have_the_same_bits() {
    let Some(mut sessions) = sessions() else { return };
    let cast = Node::new("Cast").attr("SrcT", F32).attr("DstT", F16).attr("Truncate", false);
    assert_same(&mut sessions, &cast, &[floats()]);
    for op in ["AddV2", "Mul", "Sub", "RealDiv", "FloorDiv"] {
        let node = Node::new(op).attr("T", F16);
        assert_same(&mut sessions, &node, &[halves(70_001, 3), halves(70_001, 1000)]);
    }
}

#[test]
fn fused_steps_and_rows_have_the_same_bits() {
    let Some(mut sessions) = sessions() else { return };
    let chain = "x: float16, float16; c: 0; s0 = Mul<float16>(x0, x1); \
                 s1 = AddV2<float16>(s0, x0); s2 = Mul<float16>(s1, s0); \
                 s3 = Sub<float16>(s2, x1); return s3, s1";
    assert_same(&mut sessions, &expression(chain), &[halves(70_001, 7), halves(70_001, 77)]);
    let rows = "Mean: x: float16; c: 0; return x0 | full: x: float16, float16; c: 0; \
                s0 = Sub<float16>(x0, x1); s1 = Mul<float16>(s0, s0); return s1 | return y0";
    let program: RowProgram = rows.parse().unwrap();
    let node = Node::new("_WgpuFusedRowwise")
        .attr("program", rows)
        .attr("axes", &[-1_i64][..])
        .attr("T_in", program.inputs())
        .attr("T_out", &program.output_types()[..])
        .attr("constants", &[] as &[f32]);
    let dims = [67, 130];
    let values: Vec<f64> = (0..67 * 130).map(|at| f64::from(at * 7919 % 1601) / 97.0).collect();
    assert_same(&mut sessions, &node, &[HostTensor::floats(DType::F16, &dims, &values)]);
    let softmax = Node::new("Softmax").attr("T", F16);
    assert_same(&mut sessions, &softmax, &[HostTensor::floats(F16, &dims, &values)]);
}
