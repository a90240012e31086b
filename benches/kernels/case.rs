//! A row of the benchmark: a node, the sources of its operands, and the work that it cannot avoid.
//!
//! Making a case costs nothing: operands get their values when the case runs.

use tensorflow_wgpu::local::Node;
use tensorflow_wgpu::{DType, HostTensor};

/// Elements after which generated values repeat; a prime, so that rows of a matrix differ.
const PERIOD: usize = 65_521;

/// Sizes that depend on the adapter: sizes that fill a GPU would take minutes on a software
/// adapter.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Images of a batch.
    pub batch: usize,
    /// Sequences of a batch.
    pub sequences: usize,
    /// Whether there are rows that would take minutes on a software adapter.
    pub large: bool,
}

impl Sizes {
    /// Sizes for `batch` images in a batch.
    pub const fn new(batch: usize, large: bool) -> Self {
        Self { batch, sequences: batch.div_ceil(2), large }
    }
}

/// The values of a generated operand.
#[derive(Debug, Clone, Copy)]
pub enum Fill {
    /// Numbers in [-1, 1); for bools, both.
    Any,
    /// Numbers in [0.5, 1.5).
    Positive,
    /// Integers from 0 to below this, in no order.
    Below(usize),
    /// Integers from 0 to below this, in ascending order.
    Ascending(usize),
}

/// An operand.
#[derive(Debug, Clone)]
pub enum Source {
    /// A given value, such as a shape or an axis.
    Value(HostTensor),
    /// A generated tensor.
    Tensor(DType, Vec<usize>, Fill),
    /// A variable with generated contents.
    Variable(DType, Vec<usize>, Fill),
}

impl Source {
    /// The operand's value.
    pub fn value(&self) -> HostTensor {
        match self {
            Self::Value(value) => value.clone(),
            Self::Tensor(dtype, dims, fill) | Self::Variable(dtype, dims, fill) => {
                fill.tensor(*dtype, dims)
            }
        }
    }
}

impl Fill {
    fn tensor(self, dtype: DType, dims: &[usize]) -> HostTensor {
        let count: usize = dims.iter().product();
        if let Self::Ascending(below) = self {
            let values: Vec<i64> = (0..count).map(|i| (i * below / count.max(1)) as i64).collect();
            return integers(dtype, dims, &values);
        }
        let made = count.min(PERIOD);
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        let mut unit = || next() as f64 / f64::from(1_u32 << 31);
        let period = match (self, dtype) {
            (Self::Below(below), _) => {
                let values: Vec<i64> = (0..made).map(|_| (unit() * below as f64) as i64).collect();
                integers(dtype, &[made], &values)
            }
            (_, DType::Bool) => {
                HostTensor::bool(&[made], &(0..made).map(|_| unit() < 0.5).collect::<Vec<_>>())
            }
            (_, DType::C64) => {
                let values: Vec<[f32; 2]> =
                    (0..made).map(|_| [unit() as f32 - 0.5, unit() as f32 - 0.5]).collect();
                HostTensor::of(dtype, &[made], &values)
            }
            (Self::Positive, _) => HostTensor::floats(
                dtype,
                &[made],
                &(0..made).map(|_| unit() + 0.5).collect::<Vec<_>>(),
            ),
            _ => HostTensor::floats(
                dtype,
                &[made],
                &(0..made).map(|_| unit() * 2.0 - 1.0).collect::<Vec<_>>(),
            ),
        };
        let mut bytes = Vec::with_capacity(count * dtype.size());
        while bytes.len() < count * dtype.size() {
            let rest = count * dtype.size() - bytes.len();
            bytes.extend_from_slice(&period.bytes[..rest.min(period.bytes.len())]);
        }
        HostTensor { dtype, dims: dims.iter().copied().collect(), bytes }
    }
}

fn integers(dtype: DType, dims: &[usize], values: &[i64]) -> HostTensor {
    match dtype {
        DType::I32 => HostTensor::i32(dims, &values.iter().map(|v| *v as i32).collect::<Vec<_>>()),
        _ => HostTensor::i64(dims, values),
    }
}

/// A row of the benchmark.
#[derive(Debug, Clone)]
pub struct Case {
    /// The family, as in `src/kernels/`.
    pub family: &'static str,
    /// The op, the shape, and further properties that identify the row.
    pub name: String,
    /// The node.
    pub node: Node,
    /// Its operands.
    pub inputs: Vec<Source>,
    /// Multiplications, additions and function calls of one call, if these may limit it.
    pub flops: f64,
    /// Bytes that a call has to read and write, if this is not each operand and each result once.
    pub bytes: Option<f64>,
    /// The number of calls in a unit of work.
    pub calls: usize,
}

impl Case {
    /// A row whose work is to read each operand and to write each result once.
    pub fn new(
        family: &'static str,
        name: impl Into<String>,
        node: Node,
        inputs: impl Into<Vec<Source>>,
    ) -> Self {
        Self {
            family,
            name: name.into(),
            node,
            inputs: inputs.into(),
            flops: 0.0,
            bytes: None,
            calls: 1,
        }
    }

    /// Sets the arithmetic of a call.
    #[must_use]
    pub const fn flops(mut self, flops: f64) -> Self {
        self.flops = flops;
        self
    }

    /// Sets the bytes of a call.
    #[must_use]
    pub const fn bytes(mut self, bytes: f64) -> Self {
        self.bytes = Some(bytes);
        self
    }

    /// Sets the number of calls in a unit of work.
    #[must_use]
    pub const fn calls(mut self, calls: usize) -> Self {
        self.calls = calls;
        self
    }
}

/// Numbers in [-1, 1).
pub fn tensor(dtype: DType, dims: &[usize]) -> Source {
    Source::Tensor(dtype, dims.to_vec(), Fill::Any)
}

/// Numbers in [-1, 1).
pub fn f32s(dims: &[usize]) -> Source {
    tensor(DType::F32, dims)
}

/// Positive numbers.
pub fn positive(dims: &[usize]) -> Source {
    Source::Tensor(DType::F32, dims.to_vec(), Fill::Positive)
}

/// One float.
pub fn scalar(value: f32) -> Source {
    Source::Value(HostTensor::f32(&[], &[value]))
}

/// A vector of int32, for shapes and paddings.
pub fn host(values: &[usize]) -> Source {
    Source::Value(HostTensor::i32(
        &[values.len()],
        &values.iter().map(|v| *v as i32).collect::<Vec<_>>(),
    ))
}

/// One int32, for axes and depths.
pub fn index(value: i32) -> Source {
    Source::Value(HostTensor::i32(&[], &[value]))
}

/// A shape as text: `8×56×56×64`.
pub fn by(dims: &[usize]) -> String {
    dims.iter().map(ToString::to_string).collect::<Vec<_>>().join("×")
}
