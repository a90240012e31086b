//! The shaders of softmax and the cross entropies: how rows are shared among invocations, and how
//! many columns are read at once.

use super::{SOFTMAXES, SPARSE_TYPES, TYPES};
use crate::device::{Grid, Key, Profile};
use crate::dtype::DType::{self, F32, F64, I32, I64};
use crate::error::Result;
use crate::kernels::iterations::STEPS;
use crate::kernels::lanes::Lanes;
use crate::shader::{Field, Shader, WORKGROUP, vec4};

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    let mut out = Vec::new();
    for (lanes, vec4s) in [(1, false), (8, false), (256, false), (1, true), (8, true), (256, true)]
    {
        let rows =
            Rows { lanes, workgroup: if lanes == 8 { 8 } else { WORKGROUP }, vec4s, steps: 1 };
        for &input in TYPES.iter().filter(|t| !vec4s || vec4::supports(**t)) {
            for output in [input, input.accumulator()] {
                out.extend(
                    SOFTMAXES.iter().map(|(op, result)| rows.softmax(op, result, input, output)),
                );
                let labels: &[DType] =
                    if SPARSE_TYPES.contains(&input) { &[input, I32, I64] } else { &[input] };
                out.extend(labels.iter().map(|labels| rows.cross_entropy(input, *labels, output)));
            }
        }
    }
    for steps in &STEPS[1..] {
        let rows = Rows { lanes: 256, workgroup: WORKGROUP, vec4s: false, steps: *steps };
        out.extend(SOFTMAXES.iter().map(|(op, result)| rows.softmax(op, result, F32, F32)));
        out.extend([F32, I32].map(|labels| rows.cross_entropy(F32, labels, F32)));
    }
    out
}

/// How rows are shared among invocations.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows {
    lanes: u32,
    workgroup: u32,
    /// Whether four columns are read and written at once. Columns and strides of parameters then
    /// count vec4s.
    pub vec4s: bool,
    /// The number of columns, or vec4s of them, that an iteration takes.
    steps: u32,
}

/// The number of columns that a partial sum of a lane covers: `BLOCK` in the shader.
const BLOCK: usize = 256;

impl Rows {
    /// How `rows` rows of `cols` columns are shared.
    pub fn of(profile: Profile, rows: usize, cols: usize, vec4s: bool) -> Result<Self> {
        let units = if vec4s { cols / 4 } else { cols };
        let (lanes, steps) = Lanes::within(profile, rows, units, |steps| {
            if steps == 1 {
                // Up to four loops go over a lane's columns.
                return (profile.loop_limit / 4).saturating_sub(300);
            }
            // Three loops do, and one goes over blocks of columns.
            profile.loop_limit.saturating_sub(1000) / (3 * BLOCK.div_ceil(steps) + 1) * BLOCK
        })?;
        Ok(Self { lanes: lanes.count, workgroup: lanes.workgroup, vec4s, steps })
    }

    /// Columns, or a stride, in the units of the parameters.
    pub const fn units(self, columns: usize) -> usize {
        if self.vec4s { columns / 4 } else { columns }
    }

    pub fn key(self, family: &str) -> Key {
        Key::new(family)
            .number(self.lanes)
            .number(self.workgroup)
            .number(u32::from(self.vec4s))
            .number(self.steps)
    }

    pub fn grid(self, rows: usize) -> Grid {
        Grid::linear(rows * self.lanes as usize, self.workgroup)
    }

    fn finish(self, shader: Shader, dtype: DType) -> Shader {
        let (shader, exp, log) = match dtype {
            F64 => (shader.library("exp_f64").library("log_f64"), "exp_f64", "log_f64"),
            _ => (shader, "exp", "log"),
        };
        let (unit, sum, largest) = match self.vec4s {
            true => {
                ("vec4<Value>", "(v.x + v.y) + (v.z + v.w)", "max(max(v.x, v.y), max(v.z, v.w))")
            }
            false => ("Value", "v", "v"),
        };
        shader
            .define("VALUE", dtype.value())
            .define("LOGITS", unit)
            .define("SUM_OF", sum)
            .define("LARGEST_OF", largest)
            .define("EXP", exp)
            .define("LOG", log)
            .workgroup([self.workgroup, 1, 1])
            .define("LANES", self.lanes.to_string())
            .unrolled(self.steps, include_str!("../../../shaders/softmax_row.wgsl"))
    }

    fn read(self, shader: Shader, name: &'static str, dtype: DType) -> Shader {
        if self.vec4s { vec4::bind_read(shader, name, dtype) } else { shader.bind(name, dtype) }
    }

    fn write(self, shader: Shader, name: &'static str, dtype: DType) -> Shader {
        if self.vec4s { vec4::bind_write(shader, name, dtype) } else { shader.bind(name, dtype) }
    }

    /// WGSL that reads unit `at` of a binding.
    fn load(self, name: &str, at: &str) -> String {
        format!("{}_{name}({at})", if self.vec4s { "read" } else { "load" })
    }

    /// Columns, or vec4s, that are stored at once: those of a word.
    fn unit(self, dtype: DType) -> u32 {
        if self.vec4s { 1 } else { dtype.lanes() }
    }

    pub fn softmax(self, op: &str, result: &str, input: DType, output: DType) -> Shader {
        let shader = Shader::new(format!(
            "{op} {input} to {output}, {} lanes, vec4s: {}, by {}",
            self.lanes, self.vec4s, self.steps
        ));
        let shader = self.write(self.read(shader, "x", input), "y", output);
        let shader = shader
            .u32s(&["rows", "cols"])
            .param("lowest", Field::F32)
            .define("LOAD", self.load("x", "row * p.cols + c"))
            .define("RESULT", result)
            .define("UNIT", self.unit(output).to_string())
            .define("STORE", self.store("y", output, "result"));
        let text = include_str!("../../../shaders/softmax.wgsl");
        self.finish(shader, input).unrolled(self.steps, text)
    }

    pub fn cross_entropy(self, logits: DType, labels: DType, backprop: DType) -> Shader {
        let sparse = labels.is_integer();
        let shader = Shader::new(format!(
            "cross entropy {logits}, labels {labels}, {} lanes, vec4s: {}, by {}",
            self.lanes, self.vec4s, self.steps
        ));
        let shader = self.read(shader, "logits", logits);
        let shader = if sparse {
            shader.bind("labels", labels)
        } else {
            self.read(shader, "labels", labels)
        };
        let shader = shader.bind("loss", logits.accumulator());
        let unit = self.unit(backprop);
        let add = |l: u32| {
            format!(
                "own += sum_of(label(row, c + {l}u) * (log_sum - (logit(row, c + {l}u) - \
                 largest)));"
            )
        };
        let shader = self
            .write(shader, "backprop", backprop)
            .u32s(&["rows", "cols", "logits_row", "logits_col", "labels_row", "labels_col"])
            .param("lowest", Field::F32)
            .param("nan", Field::F32)
            .define("LOAD", self.load("logits", "row * p.logits_row + c * p.logits_col"))
            .define("LABEL", if sparse { self.sparse_label(labels) } else { self.dense_label() })
            .define(
                "ADD_LABEL",
                if sparse { "own = loss_of_label(row, lane, largest, log_sum);" } else { "" },
            )
            .define(
                "ADD_LOSS",
                if sparse {
                    String::new()
                } else {
                    (0..unit).map(add).collect::<Vec<_>>().join("\n        ")
                },
            )
            .define("UNIT", unit.to_string())
            .define("STORE", self.store("backprop", backprop, "gradient"));
        let text = include_str!("../../../shaders/cross_entropy.wgsl");
        self.finish(shader, logits).unrolled(self.steps, text)
    }

    fn dense_label(self) -> String {
        format!(
            "fn is_invalid(row: u32) -> bool {{\n    return false;\n}}\n\nfn label(row: u32, c: \
             u32) -> Logits {{\n    return {};\n}}",
            self.load("labels", "row * p.labels_row + c * p.labels_col")
        )
    }

    fn sparse_label(self, labels: DType) -> String {
        let index = labels.value();
        let (cols, hits, own) = match self.vec4s {
            true => (
                "p.cols * 4u",
                "vec4(c * 4u, c * 4u + 1u, c * 4u + 2u, c * 4u + 3u)",
                "logit(row, at / 4u)[at % 4u]",
            ),
            false => ("p.cols", "c", "logit(row, at)"),
        };
        // The lower 32 bits decide between columns; a label with other bits set is invalid.
        let class =
            if self.vec4s { "vec4(u32(load_labels(row)))" } else { "u32(load_labels(row))" };
        format!(
            "fn is_invalid(row: u32) -> bool {{\n    let class_of_row = load_labels(row);\n    \
             return class_of_row < {index}(0) || class_of_row >= {index}({cols});\n}}\n\nfn \
             label(row: u32, c: u32) -> Logits {{\n    let hits = select(Logits(Value(0.0)), \
             Logits(Value(1.0)), {class} == {hits});\n    return select(hits, \
             Logits(Value(p.nan)), is_invalid(row));\n}}\n\n// The label's own logit alone \
             counts, even where others are infinite.\nfn loss_of_label(row: u32, lane: u32, \
             largest: Value, log_sum: Value) -> Value {{\n    if lane != 0u || row >= p.rows || \
             is_invalid(row) {{\n        return Value(0.0);\n    }}\n    let at = \
             u32(load_labels(row));\n    return log_sum - ({own} - largest);\n}}"
        )
    }

    /// Statements that store one unit of the output from column `c` of `row` on.
    fn store(self, name: &str, dtype: DType, value: &str) -> String {
        let lanes = dtype.lanes();
        let at = "row * p.cols + c";
        if self.vec4s {
            return format!("write_{name}({at}, {value}(row, c, largest, sum), 4u);");
        }
        if lanes == 1 {
            return format!("store_{name}({at}, {value}(row, c, largest, sum));");
        }
        let packed: Vec<_> = (0..lanes)
            .map(|l| format!("pack_{name}({l}u, {value}(row, c + {l}u, largest, sum))"))
            .collect();
        format!("store_{name}_word(({at}) / {lanes}u, {});", packed.join(" | "))
    }
}
