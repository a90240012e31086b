//! Ops that sort, select, count and search, against plain Rust: every type, ties, NaN, rows beyond
//! one workgroup, and the errors.

mod boxes;
mod counting;
mod radix;
mod selection;

use tensorflow_wgpu::local::{Input, Node, Session};
use tensorflow_wgpu::{DType, Error, HostTensor};

fn session() -> Session {
    Session::shared().expect("a Vulkan driver; on Debian install mesa-vulkan-drivers")
}

fn run(node: &Node, inputs: &[HostTensor], misalign: usize) -> Result<Vec<HostTensor>, Error> {
    let mut session = session();
    session.misalign = misalign;
    let inputs: Vec<Input> = inputs.iter().cloned().map(Input::from).collect();
    session.run(node, &inputs)
}

fn check(node: &Node, inputs: &[HostTensor], want: &[HostTensor]) {
    for misalign in [0, 1] {
        let got = run(node, inputs, misalign).unwrap_or_else(|e| panic!("{node:?}: {e}"));
        assert_eq!(got.len(), want.len());
        for (i, (got, want)) in got.iter().zip(want).enumerate() {
            assert_eq!((&got.dims, got.dtype), (&want.dims, want.dtype), "{node:?} output {i}");
            assert!(
                got.bytes == want.bytes,
                "{node:?} output {i} misaligned by {misalign}: {:?} should be {:?}",
                &got.to_f64()[..got.len().min(40)],
                &want.to_f64()[..want.len().min(40)]
            );
        }
    }
}

trait Len {
    fn len(&self) -> usize;
}

impl Len for HostTensor {
    fn len(&self) -> usize {
        self.dims.iter().product()
    }
}

fn fails(node: &Node, inputs: &[HostTensor], message: &str) {
    match run(node, inputs, 0) {
        Err(Error::InvalidArgument(m)) => {
            assert!(m.contains(message), "{m:?} should say {message:?}")
        }
        other => panic!("{node:?} should fail with {message:?}, gave {other:?}"),
    }
}

/// A number that looks random, below `n`.
fn number(i: usize, seed: usize, n: usize) -> usize {
    let mut v = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ (seed as u64).wrapping_mul(0xd1b5_4a32_d192_ed03);
    v ^= v >> 29;
    v = v.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((v >> 33) as usize) % n
}

fn of_f64(dtype: DType, dims: &[usize], v: &[f64]) -> HostTensor {
    macro_rules! ints {
        ($t:ty) => {
            HostTensor::of(dtype, dims, &v.iter().map(|v| *v as $t).collect::<Vec<_>>())
        };
    }
    match dtype {
        DType::I8 => ints!(i8),
        DType::I16 => ints!(i16),
        DType::I32 => ints!(i32),
        DType::I64 => ints!(i64),
        DType::U8 | DType::Bool => ints!(u8),
        DType::U16 => ints!(u16),
        DType::U32 => ints!(u32),
        DType::U64 => ints!(u64),
        DType::C64 => {
            HostTensor::of(dtype, dims, &v.iter().map(|v| [*v as f32, 0.0]).collect::<Vec<_>>())
        }
        DType::C128 => {
            HostTensor::of(dtype, dims, &v.iter().map(|v| [*v, 0.0]).collect::<Vec<_>>())
        }
        _ => HostTensor::floats(dtype, dims, v),
    }
}

fn offered(op: &str) -> Vec<DType> {
    session().registry().rows().iter().filter(|r| r.op == op).map(|r| r.types[0].1).collect()
}

/// Values with many ties over the whole range of small types, negative ones where the type has
/// them.
fn values(dtype: DType, n: usize, seed: usize) -> Vec<f64> {
    let signed = dtype.is_float() || dtype.is_signed_integer();
    let scale = if dtype.is_float() { 0.5 } else { 1.0 };
    let far = if dtype.size() == 8 { 4_294_967_296.0 } else { 1.0 };
    (0..n)
        .map(|i| {
            let v = number(i, seed, if dtype.size() == 1 { 101 } else { 201 }) as f64
                * scale
                * if i % 3 == 0 { far } else { 1.0 };
            if signed && number(i, seed + 1, 2) == 0 { -v / 2.0 } else { v }
        })
        .map(|v| if dtype.is_float() { v } else { v.trunc() })
        .collect()
}
