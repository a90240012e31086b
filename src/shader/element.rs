//! The elements of a binding: their type, and the functions that access them.

use super::{Shader, vec4};
use crate::dtype::DType;

/// How a shader sees a binding.
pub trait Element {
    /// Declares the next binding.
    #[must_use]
    fn bind(self, shader: Shader, name: &'static str) -> Shader;
}

/// With `load_NAME` and `store_NAME`.
impl Element for DType {
    fn bind(self, shader: Shader, name: &'static str) -> Shader {
        shader.bind(name, self)
    }
}

/// A binding that only some texts have.
impl<E: Element> Element for Option<E> {
    fn bind(self, shader: Shader, name: &'static str) -> Shader {
        match self {
            Some(element) => element.bind(shader, name),
            None => shader,
        }
    }
}

/// Several bindings with their names.
pub struct List<I>(pub I);

impl<E: Element, I: IntoIterator<Item = (&'static str, E)>> Element for List<I> {
    fn bind(self, shader: Shader, _: &'static str) -> Shader {
        self.0.into_iter().fold(shader, |shader, (name, element)| element.bind(shader, name))
    }
}

/// A binding with accessors, or without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    /// With `load_NAME` and `store_NAME`.
    Typed(DType),
    /// A plain `array` of a WGSL type and its size in bytes, as [`Shader::bind_raw`] declares it.
    Raw(&'static str, u32),
}

pub use Storage::Raw;

impl Element for Storage {
    fn bind(self, mut shader: Shader, name: &'static str) -> Shader {
        shader.bindings.push((name, self));
        shader
    }
}

/// Single elements, or four at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Single elements.
    Each(DType),
    /// As [`vec4::bind_read`] declares them.
    ReadVec4s(DType),
    /// As [`vec4::bind_write`] declares them.
    WriteVec4s(DType),
    /// As [`vec4::bind_update`] declares them.
    UpdateVec4s(DType),
}

impl Access {
    /// Elements to read, four at a time if `vec4s`.
    pub const fn read(dtype: DType, vec4s: bool) -> Self {
        if vec4s { Self::ReadVec4s(dtype) } else { Self::Each(dtype) }
    }

    /// Elements to write, four at a time if `vec4s`.
    pub const fn write(dtype: DType, vec4s: bool) -> Self {
        if vec4s { Self::WriteVec4s(dtype) } else { Self::Each(dtype) }
    }

    /// Elements to read and write, four at a time if `vec4s`.
    pub const fn update(dtype: DType, vec4s: bool) -> Self {
        if vec4s { Self::UpdateVec4s(dtype) } else { Self::Each(dtype) }
    }
}

impl Element for Access {
    fn bind(self, shader: Shader, name: &'static str) -> Shader {
        match self {
            Self::Each(dtype) => shader.bind(name, dtype),
            Self::ReadVec4s(dtype) => vec4::bind_read(shader, name, dtype),
            Self::WriteVec4s(dtype) => vec4::bind_write(shader, name, dtype),
            Self::UpdateVec4s(dtype) => vec4::bind_update(shader, name, dtype),
        }
    }
}
