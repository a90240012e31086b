//! The work that a kernel gives to the GPU: a shader by key, the tensors that it binds, its
//! parameters and its grid.

use std::fmt;
use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;
use smallvec::SmallVec;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shader::{Shader, WORKGROUP};
use crate::tensor::Tensor;

/// Identity of a pipeline: everything that its text depends on, and nothing else. Two programs with
/// equal keys must have equal shaders: debug builds check that, and [`super::declare_program!`]
/// makes the key and the shader from the same values. Shapes never belong here; extents are
/// parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    bytes: SmallVec<[u8; SHORT]>,
}

/// The bytes of a key that takes no memory of its own.
const SHORT: usize = 64;
/// The bytes for which a longer key has room after a name.
const ROOM: usize = 128;

impl Key {
    /// The key of the shader `family`, to be refined.
    pub fn new(family: &str) -> Self {
        Self { bytes: SmallVec::from_slice(family.as_bytes()) }
    }

    /// Adds a name, such as an op.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        if self.bytes.len() + name.len() >= SHORT {
            self.bytes.reserve(name.len() + ROOM);
        }
        self.bytes.push(0xff);
        self.bytes.extend_from_slice(name.as_bytes());
        self
    }

    /// Adds an element type.
    #[must_use]
    pub fn dtype(mut self, dtype: DType) -> Self {
        self.bytes.push(0xfe);
        self.bytes.push(dtype as i32 as u8);
        self
    }

    /// Adds a small number: a rank, a tile size, a flag.
    #[must_use]
    pub fn number(mut self, n: u32) -> Self {
        self.bytes.push(0xfd);
        self.bytes.extend_from_slice(&n.to_le_bytes());
        self
    }

    /// The bytes of the key.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The key that consists of `bytes`.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        Self { bytes: SmallVec::from_slice(bytes) }
    }
}

/// Prints it for people: `contract, Relu, float32, 16`.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = &self.bytes[..];
        let text = |f: &mut fmt::Formatter<'_>, rest: &mut &[u8]| {
            // No UTF-8 text contains these marker bytes.
            let end = rest.iter().position(|b| *b >= 0xfd).unwrap_or(rest.len());
            let (head, tail) = rest.split_at(end);
            *rest = tail;
            f.write_str(&String::from_utf8_lossy(head))
        };
        text(f, &mut rest)?;
        while let Some((mark, tail)) = rest.split_first() {
            rest = tail;
            f.write_str(", ")?;
            match (mark, rest) {
                (0xfe, [code, tail @ ..]) => {
                    rest = tail;
                    match DType::from_tf(i32::from(*code)) {
                        Some(dtype) => write!(f, "{dtype}")?,
                        None => write!(f, "{code}")?,
                    }
                }
                (0xfd, [a, b, c, d, tail @ ..]) => {
                    rest = tail;
                    write!(f, "{}", u32::from_le_bytes([*a, *b, *c, *d]))?;
                }
                _ => text(f, &mut rest)?,
            }
        }
        Ok(())
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut h = FxHasher::default();
        h.write(&self.bytes);
        state.write_u64(h.finish());
    }
}

/// The parameters of a [`Program`], in the order in which its [`Shader`] declares them. Scalars and
/// `vec4` lists may be mixed freely: lists are laid out after all scalars on both sides.
#[derive(Debug, Clone, Default)]
pub struct Params {
    pub(crate) scalars: SmallVec<[u32; 16]>,
    pub(crate) vec4s: SmallVec<[u32; 24]>,
}

impl Params {
    /// No parameter.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a `u32`. Panics beyond 2^32: callers check extents with
    /// [`crate::device::Device::check_extent`].
    #[must_use]
    pub fn u32(mut self, v: impl TryInto<u32>) -> Self {
        self.scalars.push(v.try_into().unwrap_or_else(|_| panic!("parameter beyond 32 bits")));
        self
    }

    /// Appends an `i32`.
    #[must_use]
    pub fn i32(mut self, v: i32) -> Self {
        self.scalars.push(v.cast_unsigned());
        self
    }

    /// Appends an `f32`.
    #[must_use]
    pub fn f32(mut self, v: f32) -> Self {
        self.scalars.push(v.to_bits());
        self
    }

    /// Appends a list, padded to whole `vec4<u32>`s with zeros; an empty list takes one.
    #[must_use]
    pub fn list<T: TryInto<u32> + Copy>(mut self, values: &[T]) -> Self {
        for v in values {
            self.vec4s.push((*v).try_into().unwrap_or_else(|_| panic!("parameter beyond 32 bits")));
        }
        let padded = values.len().max(1).next_multiple_of(4);
        self.vec4s.extend(std::iter::repeat_n(0, padded - values.len()));
        self
    }
}

/// Number of workgroups in each dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid(pub [u32; 3]);

impl Grid {
    /// At least `invocations` invocations in workgroups of `workgroup`, spread over x and y: the
    /// shader recovers the index by `linear_id` and must ignore indices past the end.
    pub fn linear(invocations: usize, workgroup: u32) -> Self {
        Self::groups(invocations.div_ceil(workgroup as usize))
    }

    /// At least `n` workgroups, spread over x and y when one dimension (65,535 by WebGPU's default
    /// limit) does not suffice.
    pub fn groups(n: usize) -> Self {
        const MAX: usize = 65_535;
        if n <= MAX {
            return Self([n.max(1) as u32, 1, 1]);
        }
        let y = n.div_ceil(MAX);
        Self([n.div_ceil(y) as u32, y as u32, 1])
    }

    /// The grid of a [`Shader::map`] program with default workgroups over `count` elements of
    /// `dtype`.
    pub fn map(count: usize, dtype: DType) -> Self {
        Self::linear(count.div_ceil(dtype.lanes() as usize), WORKGROUP)
    }
}

/// Fails when `n` elements cannot be indexed with 32 bits by a program that has no windows.
pub fn check_extent(n: usize) -> Result<u32> {
    u32::try_from(n).map_err(|_| {
        Error::ResourceExhausted(format!("a tensor of {n} elements exceeds this kernel's 2^32"))
    })
}

/// A range of device memory bound to a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binding {
    /// Address of the first byte.
    pub address: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Bytes of one element, the unit of the binding's offset parameter.
    pub unit: u32,
}

impl From<&Tensor> for Binding {
    fn from(t: &Tensor) -> Self {
        Self { address: t.address, bytes: t.bytes(), unit: t.dtype.size() as u32 }
    }
}

impl Binding {
    /// The tensor's memory bound as a raw array whose elements have `unit` bytes, such as 16 for
    /// `vec4<f32>`.
    pub fn raw(t: &Tensor, unit: u32) -> Self {
        Self { unit, ..Self::from(t) }
    }
}

/// One dispatch. Bindings may overlap: all are bound read_write, and a dispatch sees the effects of
/// all earlier ones.
pub struct Program<'a> {
    /// Identity of the shader.
    pub key: Key,
    /// Makes the shader; called only when no pipeline with this key exists yet.
    pub shader: &'a dyn Fn() -> Shader,
    /// The tensors to bind, in the shader's order. An empty tensor is bound to unspecified memory.
    pub bindings: SmallVec<[Binding; 8]>,
    /// Parameters, in the shader's order (the offsets of the bindings are added automatically).
    pub params: Params,
    /// Workgroups.
    pub grid: Grid,
}

impl Program<'_> {
    /// The bytes of the parameters, with the offsets of the bindings.
    pub fn block_bytes(&self) -> usize {
        let (scalars, vec4s) = (self.params.scalars.len(), self.params.vec4s.len());
        let words = self.bindings.len() + scalars;
        4 * if vec4s == 0 { words } else { words.next_multiple_of(4) + vec4s }
    }

    /// The same dispatch of another shader that takes the same bindings and parameters.
    #[must_use]
    pub fn with<'s>(&self, key: Key, shader: &'s dyn Fn() -> Shader) -> Program<'s> {
        let (bindings, params) = (self.bindings.clone(), self.params.clone());
        Program { key, shader, bindings, params, grid: self.grid }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_shown_in_words() {
        let key = Key::new("map").name("Relu").dtype(DType::F16).number(70_000).name("at");
        assert_eq!(key.to_string(), "map, Relu, float16, 70000, at");
        // A tuning record may contain any bytes.
        assert_eq!(Key::of_bytes(&[b'a', 0xfd, 1]).to_string(), "a, \u{1}");
        assert_eq!(Key::of_bytes(&[b'a', 0xfe, 250]).to_string(), "a, 250");
    }
}
