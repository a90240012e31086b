//! ArgMax and ArgMin of types of at most 32 bits, four neighbouring elements at once: the first
//! step of [`super::super::arg`] where these lie in a row that is reduced, or belong to four
//! outputs.

use std::fmt::Write;

use super::super::vec4s::SPREAD;
use super::ArgReduction;
use crate::device::{Barriers, Key, Params, Profile};
use crate::dtype::DType::{self, *};
use crate::shader::{Field, Shader, WORKGROUP, vec4};

/// Which vec4s are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::kernels::reduce) enum Layout {
    /// Neighbours in a row that becomes one output.
    Rows,
    /// Neighbouring columns. An invocation takes so many vec4s of them, [`SPREAD`] apart, so that a
    /// subgroup reads a long stretch of each row.
    Columns(u32),
}

impl Layout {
    /// What fits `[extent, inner]` of an input that starts at a whole four. Its first step takes
    /// several hundred invocations.
    pub fn of(profile: Profile, dtype: DType, extent: usize, inner: usize) -> Option<Self> {
        match inner {
            // A row's vec4s are compared at the end: few are not worth it.
            _ if !matches!(dtype, F32 | F16 | BF16) => None,
            1 => (extent.is_multiple_of(4) && extent >= 16).then_some(Self::Rows),
            _ if !inner.is_multiple_of(4) => None,
            _ if profile.barriers == Barriers::Cheap || extent < 64 => Some(Self::Columns(1)),
            _ => Some(Self::Columns(match inner / 4 / SPREAD {
                8.. => 8,
                4.. => 4,
                2.. => 2,
                _ => 1,
            })),
        }
    }

    /// Extents in what the shader counts.
    pub const fn units(self, extent: usize, inner: usize) -> [usize; 2] {
        match self {
            Self::Rows => [extent / 4, 1],
            Self::Columns(_) => [extent, inner / 4],
        }
    }

    /// Invocations for each output's segment: of a row, or of all columns.
    pub fn invocations(self, inner: usize) -> usize {
        match self {
            Self::Rows => 1,
            Self::Columns(count) => (inner / 4).div_ceil(SPREAD * count as usize) * SPREAD,
        }
    }
}

/// What the text depends on.
#[derive(Debug, Clone, Copy)]
pub(in crate::kernels::reduce) struct Variant {
    pub row: &'static ArgReduction,
    pub input: DType,
    pub output: DType,
    /// Whether only the indices are kept.
    pub last: bool,
    pub layout: Layout,
    pub workgroup: u32,
}

impl Variant {
    /// Invocations in a workgroup for so many: a processor's cores share the workgroups.
    pub fn workgroup(profile: Profile, invocations: usize) -> u32 {
        if profile.barriers == Barriers::Dear && invocations < 1 << 13 {
            SPREAD as u32
        } else {
            WORKGROUP
        }
    }

    pub fn key(&self) -> Key {
        let layout = match self.layout {
            Layout::Rows => 0,
            Layout::Columns(count) => count,
        };
        Key::new("arg_vec4s")
            .name(self.row.op)
            .dtype(self.input)
            .dtype(self.output)
            .number(u32::from(self.last))
            .number(layout)
            .number(self.workgroup)
    }

    /// What no number is worse than, and a NaN: the parameters behind the extents.
    pub fn params(&self, params: Params) -> Params {
        let worst = if (self.row.reference)(1.0, 0.0) { f32::NEG_INFINITY } else { f32::INFINITY };
        params.f32(worst).f32(f32::NAN)
    }

    pub fn shader(&self) -> Shader {
        let shader = Shader::new(format!(
            "{} {} to {} {:?}",
            self.row.op, self.input, self.output, self.layout
        ));
        let mut shader = vec4::bind_read(shader, "x", self.input);
        if !self.last {
            shader = shader.bind("best", F32);
        }
        shader
            .bind("y", self.output)
            .u32s(&["count", "extent", "inner", "segments"])
            .param("worst", Field::F32)
            .param("nan", Field::F32)
            .workgroup([self.workgroup, 1, 1])
            .define("BEATS", self.row.beats.replace('a', "v").replace('b', "best"))
            .define("OUTPUT", self.output.value())
            .define(
                "KEEP_BEST",
                if self.last { "" } else { "store_best(i, select(p.nan, best, found));" },
            )
            .define("MAIN", if self.layout == Layout::Rows { rows() } else { self.columns() })
            .body(include_str!("../../../../shaders/arg_vec4s.wgsl"))
    }

    fn columns(&self) -> String {
        let Layout::Columns(count) = self.layout else {
            unreachable!("rows have a text of their own")
        };
        let mut text = format!(
            "    let blocks = (p.inner + {block}u - 1u) / {block}u;\n    let run = t / {SPREAD}u \
             / blocks;\n    let column = t / {SPREAD}u % blocks * {block}u + t % {SPREAD}u;\n    \
             let s = run % p.segments;\n    var at = (run / p.segments * p.extent + s) * \
             p.inner;\n",
            block = SPREAD as u32 * count
        );
        for j in 0..count {
            // Columns past the last are looked at as that one, and not stored.
            let _ = writeln!(
                text,
                "    let c{j} = min(column + {}u, p.inner - 1u);\n    var best{j} = \
                 vec4(p.worst);\n    var index{j} = vec4(NONE);",
                j * SPREAD as u32
            );
        }
        text.push_str("    for (var r = s; r < p.extent; r += p.segments) {\n");
        for j in 0..count {
            let _ = writeln!(
                text,
                "        let v{j} = read_x(at + c{j});\n        let wins{j} = winners(v{j}, \
                 best{j}, index{j});\n        best{j} = select(best{j}, v{j}, wins{j});\n        \
                 index{j} = select(index{j}, vec4(r), wins{j});"
            );
        }
        text.push_str(
            "        at += p.segments * p.inner;\n    }\n    let first = run * p.inner;\n",
        );
        for j in 0..count {
            let stores: String = (0..4)
                .map(|k| {
                    format!(
                        "        finish(4u * (first + c{j}) + {k}u, best{j}[{k}], \
                         index{j}[{k}]);\n"
                    )
                })
                .collect();
            let _ = writeln!(
                text,
                "    if column + {}u < p.inner {{\n{stores}    }}",
                j * SPREAD as u32
            );
        }
        text
    }
}

/// The four places of a row's vec4s are compared as they come, and with each other at the end.
fn rows() -> String {
    let mut text =
        "    let s = t % p.segments;\n    let first = t / p.segments * p.extent;\n    var bests = \
         vec4(p.worst);\n    var indices = vec4(NONE);\n    for (var r = s; r < p.extent; r += \
         p.segments) {\n        let v = read_x(first + r);\n        let wins = winners(v, bests, \
         indices);\n        bests = select(bests, v, wins);\n        indices = select(indices, \
         vec4(r), wins);\n    }\n    indices = select(indices * 4u + vec4(0u, 1u, 2u, 3u), \
         vec4(NONE), indices == vec4(NONE));\n    var all = bests.x;\n    var index = indices.x;\n"
            .to_owned();
    for c in ["y", "z", "w"] {
        let _ = writeln!(
            text,
            "    let {c} = winners(vec4(bests.{c}), vec4(all), vec4(index)).x | ((bests.{c} == \
             all) & (indices.{c} < index));\n    all = select(all, bests.{c}, {c});\n    index = \
             select(index, indices.{c}, {c});"
        );
    }
    text.push_str("    finish(t, all, index);");
    text
}

/// Every text.
pub(in crate::kernels::reduce) fn shaders() -> Vec<Shader> {
    let mut out = Vec::new();
    for row in super::ARG_REDUCTIONS {
        for input in [F32, F16, BF16] {
            for layout in [Layout::Rows, Layout::Columns(1), Layout::Columns(8)] {
                for (output, last) in [(I32, true), (I64, true), (I32, false)] {
                    out.push(
                        Variant { row, input, output, last, layout, workgroup: WORKGROUP }.shader(),
                    );
                }
            }
        }
    }
    out
}
