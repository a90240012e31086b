//! Reductions that read four neighbouring elements at once.

use super::plan::Step;
use crate::dtype::DType;
use crate::shader::{Shader, vec4};

/// The vec4s that a step reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vec4s {
    /// Single elements.
    None,
    /// The reduced group is innermost: the four elements of a vec4 become one.
    Rows,
    /// The four elements belong to four outputs, which one of `lanes` invocations writes.
    Columns,
    /// The same without sharing: an invocation computes four outputs.
    Outputs,
}

impl Vec4s {
    /// The vec4s that a step can read; `aligned` tells whether its input and its output start where
    /// a vec4 may start.
    pub const fn of(step: &Step, aligned: [bool; 2]) -> Self {
        let [x, y] = aligned;
        match (step.inner, step.lanes.count) {
            (1, _) if x && step.extent.is_multiple_of(4) && step.extent > 0 => Self::Rows,
            (2.., lanes) if x && y && step.inner.is_multiple_of(4) => {
                if lanes > 1 {
                    Self::Columns
                } else {
                    Self::Outputs
                }
            }
            _ => Self::None,
        }
    }

    /// Whether outputs are written in vec4s.
    pub const fn writes(self) -> bool {
        matches!(self, Self::Columns | Self::Outputs)
    }

    /// Invocations of a step, whose extents are in elements.
    pub const fn invocations(self, step: &Step, output: DType) -> usize {
        let lanes = step.lanes.count as usize;
        match self {
            Self::None | Self::Rows => step.outputs().div_ceil(output.lanes() as usize) * lanes,
            Self::Columns => step.outputs() / 4 * lanes,
            Self::Outputs => step.outputs() / 4,
        }
    }

    /// Declares the bindings `x` and `y`.
    pub fn bind(self, shader: Shader, input: DType, output: DType) -> Shader {
        match self {
            Self::None => shader.bind("x", input).bind("y", output),
            Self::Rows => vec4::bind_read(shader, "x", input).bind("y", output),
            _ => vec4::bind_write(vec4::bind_read(shader, "x", input), "y", output),
        }
    }
}
