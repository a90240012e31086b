//! Reductions that read four neighbouring elements at once: the text around `reduce_vec4s.wgsl`.

use std::fmt::Write;

use super::plan::Step;
use crate::device::{Barriers, Profile};
use crate::dtype::DType;
use crate::shader::{Shader, WORKGROUP, vec4};

/// Which vec4s a step reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vec4s {
    /// Single elements.
    None,
    /// The reduced group is innermost: a four's elements become one.
    Rows,
    /// They belong to four outputs, which one of `lanes` invocations writes.
    Columns,
    /// The same without sharing: an invocation computes so many vec4s of outputs.
    Outputs(u32),
}

/// From one four of an invocation to the next: what lies between belongs to its neighbours in a
/// subgroup.
pub const SPREAD: usize = 8;

impl Vec4s {
    /// What a step can read whose input and output start where `aligned` says that vec4s start.
    pub fn of(profile: Profile, step: &Step, aligned: [bool; 2]) -> Self {
        let [x, y] = aligned;
        match (step.inner, step.lanes) {
            (1, _) if x && step.extent.is_multiple_of(4) && step.extent > 0 => Self::Rows,
            (2.., lanes) if x && y && step.inner.is_multiple_of(4) => {
                match (profile.barriers, lanes) {
                    (_, 2..) => Self::Columns,
                    (Barriers::Cheap, _) => Self::Outputs(1),
                    (Barriers::Dear, _) if step.extent < 64 => Self::Outputs(1),
                    // A long stretch of each row for each subgroup: rows may lie pages apart.
                    (Barriers::Dear, _) => Self::Outputs(match step.inner / 4 / SPREAD {
                        8.. => 8,
                        4.. => 4,
                        2.. => 2,
                        _ => 1,
                    }),
                }
            }
            _ => Self::None,
        }
    }

    /// For keys.
    pub const fn number(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Rows => 1,
            Self::Columns => 2,
            Self::Outputs(n) => 2 + n,
        }
    }

    /// Whether outputs are written in vec4s.
    pub const fn writes(self) -> bool {
        matches!(self, Self::Columns | Self::Outputs(_))
    }

    /// Invocations of a step, whose extents are in elements.
    pub fn invocations(self, step: &Step, output: DType) -> usize {
        let lanes = step.lanes as usize;
        match self {
            Self::None | Self::Rows => step.outputs().div_ceil(output.lanes() as usize) * lanes,
            Self::Columns => step.outputs() / 4 * lanes,
            Self::Outputs(n) => {
                step.outputs() / step.inner
                    * (step.inner / 4).div_ceil(SPREAD * n as usize)
                    * SPREAD
            }
        }
    }

    /// Invocations in a workgroup of a step that is not shared among lanes.
    pub fn workgroup(self, profile: Profile, invocations: usize) -> u32 {
        match (self, profile.barriers) {
            // A processor's cores share the workgroups.
            (Self::Outputs(_), Barriers::Dear) if invocations < 1 << 13 => SPREAD as u32,
            _ => WORKGROUP,
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

/// Appends the program of [`Vec4s::Outputs`] behind `reduce_vec4s.wgsl`.
pub fn outputs(shader: Shader, count: u32) -> Shader {
    let each = |indent: &str, line: &dyn Fn(u32) -> String| {
        (0..count).map(line).collect::<Vec<_>>().join(&format!("\n{}", " ".repeat(indent.len())))
    };
    let mut choice = "var all = total0;".to_owned();
    for j in 1..count {
        let _ =
            write!(choice, "\n        if j == {j}u {{\n            all = total{j};\n        }}");
    }
    shader
        .define("SPREAD", SPREAD.to_string())
        .define("VEC4S", count.to_string())
        .define(
            "COLUMNS",
            each("    ", &|j| format!("let c{j} = min(column + {j}u * SPREAD, p.inner - 1u);")),
        )
        .define("TOTALS", each("    ", &|j| format!("var total{j} = identity_four();")))
        .define("PARTS", each("        ", &|j| format!("var part{j} = identity_four();")))
        .define(
            "READS",
            each("            ", &|j| {
                format!("part{j} = combine_four(part{j}, map_four(read_x(at + c{j})));")
            }),
        )
        .define(
            "ADDS",
            each("        ", &|j| format!("total{j} = combine_four(total{j}, part{j});")),
        )
        .define("CHOICE", choice)
        .body(include_str!("../../../shaders/reduce_columns.wgsl"))
}
