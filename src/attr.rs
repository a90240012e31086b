//! Attribute values. They are kept in their encoded form and decoded on demand.

use std::sync::OnceLock;

use bytes::Bytes;
use prost::Message;

use crate::dtype::DType;
use crate::proto::attr_value::{ListValue, Value};
use crate::proto::{AttrValue, TensorProto, TensorShapeProto, tensor_shape_proto};
use crate::tensor::HostTensor;

/// An attribute's value.
#[derive(Clone)]
pub struct Attr {
    raw: Bytes,
    /// Boxed, because a value is large and most are never decoded.
    decoded: OnceLock<Option<Box<Value>>>,
}

impl std::fmt::Debug for Attr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.value().fmt(f)
    }
}

impl PartialEq for Attr {
    fn eq(&self, other: &Self) -> bool {
        self.raw == other.raw
    }
}

impl Attr {
    /// The value that is encoded as `raw`, an `AttrValue`.
    pub const fn encoded(raw: Bytes) -> Self {
        Self { raw, decoded: OnceLock::new() }
    }

    /// The encoded `AttrValue`.
    pub const fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// The value; `None` if our schema cannot read it.
    pub fn value(&self) -> Option<&Value> {
        let decode =
            || AttrValue::decode(self.raw.clone()).ok().and_then(|v| v.value).map(Box::new);
        self.decoded.get_or_init(decode).as_deref()
    }

    /// A `type`; `None` for a type that is not ours.
    pub fn dtype(&self) -> Option<DType> {
        match self.value() {
            Some(Value::Type(t)) => DType::from_tf(*t),
            _ => None,
        }
    }

    /// An `int`.
    pub fn int(&self) -> Option<i64> {
        match self.value() {
            Some(Value::I(v)) => Some(*v),
            _ => None,
        }
    }

    /// A `float`.
    pub fn float(&self) -> Option<f32> {
        match self.value() {
            Some(Value::F(v)) => Some(*v),
            _ => None,
        }
    }

    /// A `bool`.
    pub fn bool(&self) -> Option<bool> {
        match self.value() {
            Some(Value::B(v)) => Some(*v),
            _ => None,
        }
    }

    /// A `string` in UTF-8.
    pub fn string(&self) -> Option<&str> {
        match self.value() {
            Some(Value::S(v)) => std::str::from_utf8(v).ok(),
            _ => None,
        }
    }

    fn list(&self) -> Option<&ListValue> {
        match self.value() {
            Some(Value::List(v)) => Some(v),
            _ => None,
        }
    }

    /// A `list(string)`.
    pub fn byte_strings(&self) -> Option<&[Vec<u8>]> {
        self.list().map(|l| &l.s[..])
    }

    /// A `list(int)`.
    pub fn ints(&self) -> Option<&[i64]> {
        self.list().map(|l| &l.i[..])
    }

    /// A `list(float)`.
    pub fn floats(&self) -> Option<&[f32]> {
        self.list().map(|l| &l.f[..])
    }

    /// A `list(type)`; `None` if one of the types is not ours.
    pub fn dtypes(&self) -> Option<Vec<DType>> {
        self.list()?.r#type.iter().map(|t| DType::from_tf(*t)).collect()
    }

    /// A `list(shape)`: the extents of each shape, or `None` if some are unknown.
    pub fn shapes(&self) -> Option<Vec<Option<Vec<usize>>>> {
        let extents = |shape: &TensorShapeProto| {
            let dims = shape.dim.iter().map(|d| usize::try_from(d.size).ok());
            if shape.unknown_rank { None } else { dims.collect() }
        };
        Some(self.list()?.shape.iter().map(extents).collect())
    }

    /// A `tensor`.
    pub fn tensor(&self) -> Option<&TensorProto> {
        match self.value() {
            Some(Value::Tensor(t)) => Some(t),
            _ => None,
        }
    }
}

impl From<Value> for Attr {
    fn from(value: Value) -> Self {
        let raw = AttrValue { value: Some(value) }.encode_to_vec().into();
        Self::encoded(raw)
    }
}

impl From<DType> for Attr {
    fn from(v: DType) -> Self {
        Value::Type(v as i32).into()
    }
}
impl From<i64> for Attr {
    fn from(v: i64) -> Self {
        Value::I(v).into()
    }
}
impl From<f32> for Attr {
    fn from(v: f32) -> Self {
        Value::F(v).into()
    }
}
impl From<bool> for Attr {
    fn from(v: bool) -> Self {
        Value::B(v).into()
    }
}
impl From<&str> for Attr {
    fn from(v: &str) -> Self {
        Value::S(v.as_bytes().to_vec()).into()
    }
}
impl From<String> for Attr {
    fn from(v: String) -> Self {
        Value::S(v.into_bytes()).into()
    }
}
impl From<Vec<Vec<u8>>> for Attr {
    fn from(s: Vec<Vec<u8>>) -> Self {
        Value::List(ListValue { s, ..Default::default() }).into()
    }
}
impl From<&[&str]> for Attr {
    fn from(v: &[&str]) -> Self {
        v.iter().map(|s| s.as_bytes().to_vec()).collect::<Vec<_>>().into()
    }
}
impl From<&[i64]> for Attr {
    fn from(v: &[i64]) -> Self {
        Value::List(ListValue { i: v.to_vec(), ..Default::default() }).into()
    }
}
impl From<&[f32]> for Attr {
    fn from(v: &[f32]) -> Self {
        Value::List(ListValue { f: v.to_vec(), ..Default::default() }).into()
    }
}
impl From<&[DType]> for Attr {
    fn from(v: &[DType]) -> Self {
        Value::List(ListValue {
            r#type: v.iter().map(|t| *t as i32).collect(),
            ..Default::default()
        })
        .into()
    }
}
impl From<&[Vec<usize>]> for Attr {
    /// A `list(shape)`.
    fn from(v: &[Vec<usize>]) -> Self {
        Value::List(ListValue {
            shape: v.iter().map(|dims| shape(dims)).collect(),
            ..Default::default()
        })
        .into()
    }
}
impl From<&HostTensor> for Attr {
    fn from(v: &HostTensor) -> Self {
        Value::Tensor(TensorProto {
            dtype: v.dtype as i32,
            tensor_shape: Some(shape(&v.dims)),
            tensor_content: v.bytes.clone(),
            ..Default::default()
        })
        .into()
    }
}

fn shape(dims: &[usize]) -> TensorShapeProto {
    let dim = |d: &usize| tensor_shape_proto::Dim { size: *d as i64, name: String::new() };
    TensorShapeProto { dim: dims.iter().map(dim).collect(), unknown_rank: false }
}

/// The largest number of elements that [`constant`] unpacks.
const MAX_CONSTANT: usize = 1 << 16;

/// The elements of a tensor in a graph; `None` for types that are not ours, and for large or
/// malformed tensors.
pub fn constant(t: &TensorProto) -> Option<HostTensor> {
    let dtype = DType::from_tf(t.dtype).filter(|t| t.size() > 0)?;
    let shape = t.tensor_shape.clone().unwrap_or_default();
    let dims =
        shape.dim.iter().map(|d| usize::try_from(d.size).ok()).collect::<Option<Vec<_>>>()?;
    let count: usize = dims.iter().product();
    if shape.unknown_rank || count > MAX_CONSTANT {
        return None;
    }
    let mut bytes =
        if t.tensor_content.is_empty() { listed(t, dtype) } else { t.tensor_content.clone() };
    let size = dtype.size();
    if bytes.is_empty() {
        bytes = vec![0; size];
    }
    if bytes.len() % size != 0 || bytes.len() > count.max(1) * size {
        return None;
    }
    // If the list is too short, its last element repeats.
    let last = bytes[bytes.len() - size..].to_vec();
    while bytes.len() < count * size {
        bytes.extend_from_slice(&last);
    }
    bytes.truncate(count * size);
    Some(HostTensor { dtype, dims: dims.into_iter().collect(), bytes })
}

/// The bytes of the list for the tensor's type.
fn listed(t: &TensorProto, dtype: DType) -> Vec<u8> {
    fn bytes<T: bytemuck::NoUninit>(values: &[T]) -> Vec<u8> {
        bytemuck::cast_slice(values).to_vec()
    }
    fn narrow<T: bytemuck::NoUninit>(values: &[i32], f: impl Fn(i32) -> T) -> Vec<u8> {
        bytes(&values.iter().map(|v| f(*v)).collect::<Vec<_>>())
    }
    match dtype {
        DType::F32 => bytes(&t.float_val),
        DType::F64 => bytes(&t.double_val),
        DType::C64 => bytes(&t.scomplex_val),
        DType::C128 => bytes(&t.dcomplex_val),
        DType::I32 => bytes(&t.int_val),
        DType::I64 => bytes(&t.int64_val),
        DType::U32 => bytes(&t.uint32_val),
        DType::U64 => bytes(&t.uint64_val),
        DType::F16 | DType::BF16 => narrow(&t.half_val, |v| v as u16),
        DType::I16 | DType::U16 => narrow(&t.int_val, |v| v as u16),
        DType::I8 | DType::U8 => narrow(&t.int_val, |v| v as u8),
        DType::Bool => t.bool_val.iter().map(|b| u8::from(*b)).collect(),
        DType::Resource | DType::Variant => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_list_repeats_its_last_element() {
        let dims = |n| {
            Some(TensorShapeProto {
                dim: vec![tensor_shape_proto::Dim { size: n, ..Default::default() }],
                ..Default::default()
            })
        };
        let t = TensorProto {
            dtype: 1,
            tensor_shape: dims(3),
            float_val: vec![1.0, 2.0],
            ..Default::default()
        };
        assert_eq!(constant(&t), Some(HostTensor::f32(&[3], &[1.0, 2.0, 2.0])));
        let none = TensorProto { float_val: vec![], ..t.clone() };
        assert_eq!(constant(&none), Some(HostTensor::f32(&[3], &[0.0; 3])));
        let many = TensorProto { tensor_shape: dims(1), ..t };
        assert_eq!(constant(&many), None);
    }

    #[test]
    fn a_tensor_survives_its_attribute() {
        let t = HostTensor::i64(&[2], &[-1, 5]);
        assert_eq!(Attr::from(&t).tensor().and_then(constant), Some(t));
    }
}
