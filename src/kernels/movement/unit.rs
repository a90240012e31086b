//! The unit of a move: data movement sees elements as bytes of a size, never as numbers, so five
//! storage classes serve all types and no shader needs 64-bit integers or floats.

use crate::device::{Binding, Key, KeyPart};
use crate::dtype::DType;
use crate::shader::{Element, Shader};

/// Bytes of one moved element: 1, 2, 4, 8 or 16. The unit is wider than the tensor's element where
/// rows allow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unit(u32);

impl Unit {
    /// Every unit.
    pub const ALL: [Self; 5] = [Self(1), Self(2), Self(4), Self(8), Self(16)];

    /// The unit in which elements of `dtype` move.
    pub const fn of(dtype: DType) -> Self {
        Self(dtype.size() as u32)
    }

    /// Bytes of one element.
    pub const fn bytes(self) -> u64 {
        self.0 as u64
    }

    /// Whether several elements share a 32-bit word.
    pub const fn is_packed(self) -> bool {
        self.0 < 4
    }

    /// Elements in one stored word or element.
    pub const fn lanes(self) -> u32 {
        if self.is_packed() { 4 / self.0 } else { 1 }
    }

    /// The unit of twice the size, up to 16 bytes.
    pub const fn doubled(self) -> Option<Self> {
        if self.0 < 16 { Some(Self(self.0 * 2)) } else { None }
    }

    /// The WGSL type that a shader computes with.
    pub const fn wgsl(self) -> &'static str {
        match self.0 {
            8 => "vec2<u32>",
            16 => "vec4<u32>",
            _ => "u32",
        }
    }

    /// WGSL of a `vec4<u32>` that holds the element `value` over and over.
    pub fn repeated(self, value: &str) -> String {
        match self.0 {
            1 => format!("vec4({value} * 0x01010101u)"),
            2 => format!("vec4({value} * 0x00010001u)"),
            4 => format!("vec4({value})"),
            8 => format!("{value}.xyxy"),
            _ => value.to_owned(),
        }
    }

    /// Declares a binding of such elements with `load_NAME` and, unless packed, `store_NAME`.
    #[must_use]
    pub fn bind(self, shader: Shader, name: &'static str) -> Shader {
        match self.0 {
            1 => shader.bind(name, DType::U8),
            2 => shader.bind(name, DType::U16),
            4 => shader.bind(name, DType::U32),
            _ => {
                let ty = self.wgsl();
                shader.bind_raw(name, ty, self.0).body(&format!(
                    "fn load_{name}(i: u32) -> {ty} {{\n    return {name}[p.off_{name} + \
                     i];\n}}\n\nfn store_{name}(i: u32, v: {ty}) {{\n    {name}[p.off_{name} + i] \
                     = v;\n}}\n"
                ))
            }
        }
    }

    /// Appends the entry point of a program whose body defines `fn value(i: u32) -> Element` for
    /// element `i` of the dense binding `dst`. As for [`Shader::map`], the first parameter must be
    /// `count`; launch with [`Unit::grid`].
    #[must_use]
    pub fn map(self, shader: Shader) -> Shader {
        if self.0 <= 4 {
            shader.map("dst")
        } else {
            shader.body(include_str!("../../../shaders/movement/map.wgsl"))
        }
    }

    /// Invocations for `count` elements.
    pub fn invocations(self, count: usize) -> usize {
        count.div_ceil(self.lanes() as usize)
    }

    /// `count` elements at `address` as a binding.
    pub const fn binding(self, address: u64, count: u64) -> Binding {
        Binding { address, bytes: count * self.bytes(), unit: self.0 }
    }
}

impl Element for Unit {
    fn bind(self, shader: Shader, name: &'static str) -> Shader {
        Self::bind(self, shader, name)
    }
}

impl KeyPart for Unit {
    fn add_to(&self, key: Key) -> Key {
        key.number(self.0)
    }
}
