//! Strided moves of elements of 4 bytes to a dense destination whose rows are whole vec4s: an
//! invocation reads four elements, or a single element for all four, or four in reverse, and writes
//! them at once.

use super::unit::Unit;
use crate::device::{Binding, Device, Grid, Key, KeyPart, declare_program};
use crate::error::Result;
use crate::layout::{Access, AccessClass, Iteration};
use crate::shader::{Raw, Shader, Storage, WORKGROUP};

/// How the four elements lie in the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Four {
    /// One element serves all four.
    Repeated,
    /// Side by side in reverse, in one aligned vec4.
    Turned,
    /// At this distance from one another.
    Apart(i64),
}

impl Four {
    /// How `walk` reads operand 0, whose element 0 lies at `address`, for the dense operand 1.
    pub fn of(unit: Unit, walk: &Iteration, address: u64) -> Option<Self> {
        let (extent, (step, outer)) = (walk.dims().last()?, walk.strides(0).split_last()?);
        let dense = walk.access(1) == Access::Linear;
        if unit.bytes() != 4 || !extent.is_multiple_of(4) || !dense {
            return None;
        }
        let whole = outer.iter().all(|s| s % 4 == 0)
            && walk.offset(0) % 4 == 3
            && address.is_multiple_of(16);
        match step {
            0 => Some(Self::Repeated),
            -1 if whole => Some(Self::Turned),
            // Such neighbours are moved as wider elements, or may start anywhere.
            1 => None,
            step => Some(Self::Apart(*step)),
        }
    }

    /// Enqueues the move of `count` elements from and to these bindings.
    pub fn enqueue(
        self,
        device: &Device,
        walk: &Iteration,
        count: u32,
        src: Binding,
        dst: Binding,
    ) -> Result<()> {
        let (class, vec4s) = (walk.class(), count / 4);
        // Negative steps wrap, as indices do.
        let step = if let Self::Apart(step) = self { step as u32 } else { 0 };
        let src = if self == Self::Turned { Binding { unit: 16, ..src } } else { src };
        let (dst, walk) = (Binding { unit: 16, ..dst }, walk.clone());
        let call = StridedVec4s { src, dst, count: vec4s, step, walk };
        let grid = Grid::linear(vec4s as usize, WORKGROUP);
        call.enqueue(device, &StridedVec4s::of(self, &class), grid)
    }

    const fn source(self) -> Storage {
        if matches!(self, Self::Turned) { Raw("vec4<u32>", 16) } else { Raw("u32", 4) }
    }
}

/// The distance is a parameter, so that the text is the same for all.
impl KeyPart for Four {
    fn add_to(&self, key: Key) -> Key {
        key.number(match self {
            Self::Repeated => 0,
            Self::Turned => 1,
            Self::Apart(_) => 2,
        })
    }
}

declare_program! {
    /// Writes four elements, which lie in the source as `four` says.
    pub struct StridedVec4s = "strided vec4s"(four: Four, class: &AccessClass);
    bindings { src: four.source(), dst: Raw("vec4<u32>", 16) }
    params { count: u32, step: u32, walk: Iteration = (class, &["src", "dst"]) }
}

impl StridedVec4s {
    pub fn shader(four: Four, class: &AccessClass) -> Shader {
        let (label, text) = match four {
            Four::Repeated => ("strided, repeated", "vec4(src[p.off_src + at])"),
            Four::Turned => ("strided, turned", "src[p.off_src + at / 4u].wzyx"),
            Four::Apart(_) => (
                "strided, apart",
                "vec4(src[p.off_src + at], src[p.off_src + at + p.step], src[p.off_src + at + 2u \
                 * p.step], src[p.off_src + at + 3u * p.step])",
            ),
        };
        Self::declare(label, four, class)
            .define("FOUR", text)
            .body(include_str!("../../../shaders/movement/vec4s.wgsl"))
    }
}
