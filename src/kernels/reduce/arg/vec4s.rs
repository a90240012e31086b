//! ArgMax and ArgMin of types of at most 32 bits, four neighbouring elements at once: the first
//! step of [`super::super::arg`] if these elements lie in a row that is reduced, or belong to four
//! outputs.

use std::fmt::Write;

use super::values::{self, Constants, Values};
use super::{ArgParams, ArgReduction};
use crate::device::{declare_program, enum_key_parts};
use crate::dtype::DType::{self, *};
use crate::shader::{List, Shader};

/// The vec4s that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::kernels::reduce) enum Layout {
    /// Neighbours in a row that becomes one output.
    Rows,
    /// Neighbouring columns, which have an output each.
    Columns,
}

impl Layout {
    /// The layout for `[extent, inner]` of inputs that start at a multiple of four elements, if
    /// there is one. Its first step takes several hundred invocations.
    pub fn of(values: &Values, extent: usize, inner: usize) -> Option<Self> {
        let mut types = values.inputs().iter().copied().chain([values.dtype()]);
        match inner {
            // A row's vec4s are compared at the end, which is not worth it for few of them.
            _ if !types.all(DType::is_single) => None,
            1 => (extent.is_multiple_of(4) && extent >= 16).then_some(Self::Rows),
            _ => inner.is_multiple_of(4).then_some(Self::Columns),
        }
    }

    /// The extents in the shader's units.
    pub const fn units(self, extent: usize, inner: usize) -> [usize; 2] {
        match self {
            Self::Rows => [extent / 4, 1],
            Self::Columns => [extent, inner / 4],
        }
    }

    /// Invocations for the segments of each output: of a row, or of all columns.
    pub const fn invocations(self, inner: usize) -> usize {
        match self {
            Self::Rows => 1,
            Self::Columns => inner / 4,
        }
    }
}

enum_key_parts!(Layout);

declare_program! {
    /// The first step of a reduction by vec4s of `layout`, which may be the `last`. `worst` is the
    /// value that every number beats or equals.
    pub(in crate::kernels::reduce) struct ArgVec4s = "arg_vec4s"(
        row: &'static ArgReduction, values: &Values, output: DType, last: bool, layout: Layout
    );
    lists { x: List(values.bindings(true)) }
    bindings { y: output }
    optional { best: (!last).then_some(F32) }
    params {
        params: ArgParams, constants: Constants = values.constants(), worst: f32, nan: f32,
    }
}

impl ArgVec4s {
    fn shader(
        row: &'static ArgReduction,
        values: &Values,
        output: DType,
        last: bool,
        layout: Layout,
    ) -> Shader {
        let label = format!("{} {} to {output} {layout:?}", row.op, values.dtype());
        let keep = if last { "" } else { "store_best(i, select(p.nan, best, found));" };
        let shader = Self::declare(label, row, values, output, last, layout)
            .define("READ", values.read())
            .define("BEATS", row.beats.replace('a', "v").replace('b', "best"))
            .define("OUTPUT", output.value())
            .define("KEEP_BEST", keep)
            .define("MAIN", if layout == Layout::Rows { rows() } else { COLUMNS.to_owned() });
        values.define(shader).body(include_str!("../../../../shaders/arg_vec4s.wgsl"))
    }
}

/// Four columns are compared at once, and stored one by one.
const COLUMNS: &str = "    let run = t / p.inner;
    let column = t % p.inner;
    let s = run % p.segments;
    var at = (run / p.segments * p.extent + s) * p.inner + column;
    var best = vec4(p.worst);
    var index = vec4(NONE);
    for (var r = s; r < p.extent; r += p.segments) {
        let v = values(at);
        let wins = winners(v, best, index);
        best = select(best, v, wins);
        index = select(index, vec4(r), wins);
        at += p.segments * p.inner;
    }
    for (var k = 0u; k < 4u; k += 1u) {
        finish(4u * t + k, best[k], index[k]);
    }
";

/// The four places of a row's vec4s are compared as they come, and with each other at the end.
fn rows() -> String {
    let mut text =
        "    let s = t % p.segments;\n    let first = t / p.segments * p.extent;\n    var bests = \
         vec4(p.worst);\n    var indices = vec4(NONE);\n    for (var r = s; r < p.extent; r += \
         p.segments) {\n        let v = values(first + r);\n        let wins = winners(v, bests, \
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
        let tensors = [F32, F16, BF16].map(Values::of_tensor).into_iter();
        let single = |values: &Values| values.dtype().is_single();
        for values in tensors.chain(values::samples().into_iter().filter(single)) {
            for layout in [Layout::Rows, Layout::Columns] {
                for (output, last) in [(I32, true), (I64, true), (I32, false)] {
                    out.push(ArgVec4s::shader(row, &values, output, last, layout));
                }
            }
        }
    }
    out
}
