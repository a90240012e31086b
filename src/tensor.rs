//! A tensor as kernels see it: type, dims and a device address. It has no TensorFlow handle and
//! owns no memory.

use smallvec::SmallVec;

use crate::dtype::DType;

/// The extents of a tensor, outermost first. Empty for a scalar.
pub type Dims = SmallVec<[usize; 6]>;

/// A shape in the form of TensorFlow's messages: `[2,3]`.
pub fn shape_text(dims: &[usize]) -> String {
    let extents: Vec<String> = dims.iter().map(ToString::to_string).collect();
    format!("[{}]", extents.join(","))
}

/// A view of device memory with a type and a shape, dense and row-major.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost first.
    pub dims: Dims,
    /// Device address of the first element; meaningless if the tensor is empty.
    pub address: u64,
}

impl Tensor {
    /// A tensor of `dims` at `address`.
    pub fn new(dtype: DType, dims: &[usize], address: u64) -> Self {
        Self { dtype, dims: Dims::from_slice(dims), address }
    }

    /// Number of elements; 1 for a scalar.
    pub fn len(&self) -> usize {
        self.dims.iter().product()
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.dims.contains(&0)
    }

    /// Bytes of all elements, without padding.
    pub fn bytes(&self) -> u64 {
        self.len() as u64 * self.dtype.size() as u64
    }

    /// The same memory with other extents; the number of elements must not change.
    #[must_use]
    pub fn reshaped(&self, dims: &[usize]) -> Self {
        debug_assert_eq!(self.len(), dims.iter().product::<usize>());
        Self::new(self.dtype, dims, self.address)
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// The same memory read as another type of the same element size.
    #[must_use]
    pub fn reinterpreted(&self, dtype: DType) -> Self {
        debug_assert_eq!(self.dtype.size(), dtype.size());
        Self { dtype, ..self.clone() }
    }
}

/// A tensor in host memory: inputs that TensorFlow keeps there, and tests' values.
#[derive(Debug, Clone, PartialEq)]
pub struct HostTensor {
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost first.
    pub dims: Dims,
    /// Elements in row-major order, native endianness.
    pub bytes: Vec<u8>,
}

impl HostTensor {
    /// A tensor of typed values. Panics when the count does not fit `dims`.
    pub fn of<T: bytemuck::NoUninit>(dtype: DType, dims: &[usize], values: &[T]) -> Self {
        assert_eq!(size_of::<T>(), dtype.size(), "element size of {dtype}");
        assert_eq!(values.len(), dims.iter().product::<usize>(), "elements for {dims:?}");
        Self { dtype, dims: Dims::from_slice(dims), bytes: bytemuck::cast_slice(values).to_vec() }
    }

    /// float32 values.
    pub fn f32(dims: &[usize], values: &[f32]) -> Self {
        Self::of(DType::F32, dims, values)
    }

    /// int32 values.
    pub fn i32(dims: &[usize], values: &[i32]) -> Self {
        Self::of(DType::I32, dims, values)
    }

    /// int64 values.
    pub fn i64(dims: &[usize], values: &[i64]) -> Self {
        Self::of(DType::I64, dims, values)
    }

    /// bool values.
    pub fn bool(dims: &[usize], values: &[bool]) -> Self {
        let bytes: Vec<u8> = values.iter().map(|b| u8::from(*b)).collect();
        Self::of(DType::Bool, dims, &bytes)
    }

    /// A float tensor of `dtype` (float16, bfloat16, float32 or float64) rounded from f64 values.
    pub fn floats(dtype: DType, dims: &[usize], values: &[f64]) -> Self {
        match dtype {
            DType::F16 => Self::of(
                dtype,
                dims,
                &values.iter().map(|v| half::f16::from_f64(*v)).collect::<Vec<_>>(),
            ),
            DType::BF16 => Self::of(
                dtype,
                dims,
                &values.iter().map(|v| half::bf16::from_f64(*v)).collect::<Vec<_>>(),
            ),
            DType::F32 => {
                Self::of(dtype, dims, &values.iter().map(|v| *v as f32).collect::<Vec<_>>())
            }
            DType::F64 => Self::of(dtype, dims, values),
            _ => panic!("{dtype} is not a float"),
        }
    }

    /// The elements as `T`. Panics when the size of `T` is not the element's.
    pub fn values<T: bytemuck::AnyBitPattern>(&self) -> Vec<T> {
        assert_eq!(size_of::<T>(), self.dtype.size(), "element size of {}", self.dtype);
        self.bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
    }

    /// The elements converted to f64 (bool as 0 and 1); exact for all but 64-bit integers beyond
    /// 2^53.
    pub fn to_f64(&self) -> Vec<f64> {
        match self.dtype {
            DType::F32 => self.values::<f32>().into_iter().map(f64::from).collect(),
            DType::F64 => self.values::<f64>(),
            DType::F16 => self.values::<half::f16>().into_iter().map(f64::from).collect(),
            DType::BF16 => self.values::<half::bf16>().into_iter().map(f64::from).collect(),
            DType::I8 => self.values::<i8>().into_iter().map(f64::from).collect(),
            DType::U8 | DType::Bool => self.values::<u8>().into_iter().map(f64::from).collect(),
            DType::I16 => self.values::<i16>().into_iter().map(f64::from).collect(),
            DType::U16 => self.values::<u16>().into_iter().map(f64::from).collect(),
            DType::I32 => self.values::<i32>().into_iter().map(f64::from).collect(),
            DType::U32 => self.values::<u32>().into_iter().map(f64::from).collect(),
            DType::I64 => self.values::<i64>().into_iter().map(|v| v as f64).collect(),
            DType::U64 => self.values::<u64>().into_iter().map(|v| v as f64).collect(),
            DType::C64 | DType::C128 | DType::Resource | DType::Variant => {
                panic!("{} has no f64 value", self.dtype)
            }
        }
    }

    /// The elements of an int32 or int64 tensor.
    pub fn to_i64(&self) -> crate::Result<Vec<i64>> {
        match self.dtype {
            DType::I32 => Ok(self.values::<i32>().into_iter().map(i64::from).collect()),
            DType::I64 => Ok(self.values::<i64>()),
            DType::U64 => Ok(self
                .values::<u64>()
                .into_iter()
                .map(|v| i64::try_from(v).unwrap_or(i64::MAX))
                .collect()),
            t => crate::invalid!("expected an int32 or int64 tensor, got {t}"),
        }
    }
}

/// Tensors with the names of a program's bindings: `named![x, y: result]` stands for
/// `[("x", &x), ("y", &result)]`.
macro_rules! named {
    (@tensor $name:ident) => { $crate::tensor::reference(&$name) };
    (@tensor $name:ident, $tensor:expr) => { $crate::tensor::reference(&$tensor) };
    ($($name:ident $(: $tensor:expr)?),* $(,)?) => {
        [$((stringify!($name), $crate::tensor::named!(@tensor $name $(, $tensor)?))),*]
    };
}
pub(crate) use named;

/// The tensor itself. A reference to a reference becomes one to the tensor.
pub(crate) const fn reference(tensor: &Tensor) -> &Tensor {
    tensor
}
