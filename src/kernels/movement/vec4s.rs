//! Strided moves of elements of 4 bytes to a dense destination whose rows are whole vec4s: an
//! invocation reads four elements, or a single element for all four, or four in reverse, and writes
//! them at once.

use smallvec::smallvec;

use super::unit::Unit;
use crate::device::{Binding, Device, Grid, Key, Params, Program};
use crate::error::Result;
use crate::layout::{Access, AccessClass, Iteration};
use crate::shader::{Shader, WORKGROUP};

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
        let class = walk.class();
        let (kind, step) = match self {
            Self::Repeated => (0, 0),
            Self::Turned => (1, -1),
            Self::Apart(step) => (2, step),
        };
        let src = if self == Self::Turned { Binding { unit: 16, ..src } } else { src };
        let vec4s = count / 4;
        device.enqueue(&Program {
            key: class.key(Key::new("strided vec4s").number(kind)),
            shader: &|| self.shader(&class),
            bindings: smallvec![src, Binding { unit: 16, ..dst }],
            // Negative steps wrap, as indices do.
            params: walk.params(Params::new().u32(vec4s).u32(step as u32)),
            grid: Grid::linear(vec4s as usize, WORKGROUP),
        })
    }

    /// The shader, whose text is the same for all distances.
    pub fn shader(self, class: &AccessClass) -> Shader {
        // The distance is a parameter: the key does not hold it, so the label must not.
        let shader = Shader::new(match self {
            Self::Repeated => "strided, repeated",
            Self::Turned => "strided, turned",
            Self::Apart(_) => "strided, apart",
        });
        let (shader, four) = match self {
            Self::Repeated => (shader.bind_raw("src", "u32", 4), "vec4(src[p.off_src + at])"),
            Self::Turned => {
                (shader.bind_raw("src", "vec4<u32>", 16), "src[p.off_src + at / 4u].wzyx")
            }
            Self::Apart(_) => (
                shader.bind_raw("src", "u32", 4),
                "vec4(src[p.off_src + at], src[p.off_src + at + p.step], src[p.off_src + at + 2u \
                 * p.step], src[p.off_src + at + 3u * p.step])",
            ),
        };
        let shader = shader.bind_raw("dst", "vec4<u32>", 16).u32s(&["count", "step"]);
        class
            .declare(shader, &["src", "dst"])
            .define("FOUR", four)
            .body(include_str!("../../../shaders/movement/vec4s.wgsl"))
    }
}
