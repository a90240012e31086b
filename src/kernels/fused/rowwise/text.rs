//! The shader of a row program.
//!
//! `LANES` neighbouring invocations share a row; in each stage they go over its columns, `UNIT` at
//! a time, and combine their values through workgroup memory. Values of rows are kept in registers,
//! elements are read again in each stage that uses them.

use std::fmt::Write;

use super::program::{Action, Output, RowProgram, Stage};
use super::walk::RowWalk;
use crate::device::{Key, Params};
use crate::dtype::DType;
use crate::kernels::expression::Expression;
use crate::kernels::expression::wgsl::{Ends, Sink};
use crate::kernels::reduce::table::{Combine, Finish, Identity, Reduction};
use crate::shader::{Field, Shader, codec, unroll, vec4};

/// Names of the inputs' bindings.
const INPUTS: [&str; 7] = ["in0", "in1", "in2", "in3", "in4", "in5", "in6"];
/// Names of the outputs' bindings.
const OUTPUTS: [&str; 7] = ["out0", "out1", "out2", "out3", "out4", "out5", "out6"];
/// The most inputs and outputs of one program: with a buffer of parameters, eight bindings.
pub const MAX_TENSORS: usize = INPUTS.len();

/// How a tensor is read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Once for each row.
    Row,
    /// Element by element.
    Each,
    /// Four neighbouring elements at once.
    Four,
}

/// The properties that the shader's text depends on.
pub struct RowVariant<'a> {
    /// The op's name.
    pub name: &'static str,
    /// The program.
    pub program: &'a RowProgram,
    /// Its text, for the key.
    pub text: &'a str,
    /// How each tensor is read. If the program has an input more, that input is the column's
    /// number.
    pub inputs: Vec<Access>,
    /// How each output is written, and its type in memory.
    pub outputs: Vec<(Access, DType)>,
    /// Dimensions of the walk over rows.
    pub row_rank: usize,
    /// Dimensions of the walk over columns.
    pub column_rank: usize,
    /// Columns at a time: 1 or 4.
    pub unit: u32,
    /// Invocations that share a row.
    pub lanes: u32,
    /// Invocations in a workgroup.
    pub workgroup: u32,
    /// Units that an iteration takes.
    pub steps: u32,
}

/// Extents or strides as parameters: one scalar, or lists.
fn declare(mut shader: Shader, name: &str, rank: usize) -> Shader {
    if rank > 1 {
        shader = shader.param(name, Field::Vec4s(rank.div_ceil(4)));
    } else {
        shader = shader.param(name, Field::U32);
    }
    shader
}

fn give(params: Params, values: &[i64], rank: usize) -> Params {
    let values: Vec<u32> = values.iter().map(|v| *v as u32).collect();
    if rank > 1 { params.list(&values) } else { params.u32(values.first().copied().unwrap_or(0)) }
}

/// `fn NAME(i: u32) -> u32`: the offset of index `i` of a walk over `dims` by `strides`, both
/// parameters.
fn index_function(name: &str, dims: &str, strides: &str, rank: usize) -> String {
    let mut text = format!("fn {name}(i: u32) -> u32 {{\n");
    if rank <= 1 {
        let _ = writeln!(text, "    return i * p.{strides};\n}}\n");
        return text;
    }
    let lane =
        |list: &str, d: usize| format!("p.{list}[{}].{}", d / 4, ["x", "y", "z", "w"][d % 4]);
    text.push_str("    var rest = i;\n    var at = 0u;\n");
    for d in (1..rank).rev() {
        let extent = lane(dims, d);
        let _ = writeln!(
            text,
            "    at += (rest % {extent}) * {};\n    rest = rest / {extent};",
            lane(strides, d)
        );
    }
    let _ = writeln!(text, "    return at + rest * {};\n}}\n", lane(strides, 0));
    text
}

impl RowVariant<'_> {
    /// The pipeline's key.
    pub fn key(&self) -> Key {
        let mut key = Key::new("fused_rowwise").name(self.name).name(self.text);
        for access in &self.inputs {
            key = key.number(*access as u32);
        }
        for (access, dtype) in &self.outputs {
            key = key.number(*access as u32).dtype(*dtype);
        }
        key.number(self.row_rank as u32)
            .number(self.column_rank as u32)
            .number(self.unit)
            .number(self.lanes)
            .number(self.workgroup)
            .number(self.steps)
    }

    /// Parameters in the order in which [`RowVariant::shader`] declares them.
    pub fn params(&self, walk: &RowWalk, rows: usize, columns: usize, constants: &[f32]) -> Params {
        let mut params = Params::new().u32(rows).u32(columns).f32(f32::NEG_INFINITY);
        params = constants.iter().fold(params, |params, c| params.f32(*c));
        let extents = |dims: &[usize]| dims.iter().map(|d| *d as i64).collect::<Vec<_>>();
        params = give(params, &extents(walk.rows.dims()), self.row_rank);
        params = give(params, &extents(walk.columns.dims()), self.column_rank);
        for k in 0..self.inputs.len() + self.outputs.len() {
            params = give(params, walk.rows.strides(k), self.row_rank);
            params = give(params, walk.columns.strides(k), self.column_rank);
        }
        params
    }

    /// The shader.
    pub fn shader(&self) -> Shader {
        let mut shader = Shader::new(format!(
            "{}, {} lanes of {}: {}",
            self.name, self.lanes, self.unit, self.text
        ))
        .u32s(&["rows", "columns"])
        .param("lowest", Field::F32)
        .workgroup([self.workgroup, 1, 1])
        .define("LANES", self.lanes.to_string())
        .define("UNIT", self.unit.to_string());
        for c in 0..self.program.constants() {
            shader = shader.param(format!("c{c}"), Field::F32);
        }
        shader =
            declare(declare(shader, "row_dims", self.row_rank), "column_dims", self.column_rank);
        let mut indices = String::new();
        let names = INPUTS[..self.inputs.len()].iter().chain(&OUTPUTS[..self.outputs.len()]);
        for name in names {
            shader = declare(shader, &format!("{name}_rows"), self.row_rank);
            shader = declare(shader, &format!("{name}_columns"), self.column_rank);
            let (rows, columns) = (format!("{name}_rows"), format!("{name}_columns"));
            indices += &index_function(&format!("row_{name}"), "row_dims", &rows, self.row_rank);
            indices += &index_function(
                &format!("column_{name}"),
                "column_dims",
                &columns,
                self.column_rank,
            );
        }
        for ((name, access), dtype) in INPUTS.iter().zip(&self.inputs).zip(self.program.inputs()) {
            shader = match access {
                Access::Four => vec4::bind_read(shader, name, *dtype),
                _ => shader.bind(name, *dtype),
            };
        }
        for (name, (access, dtype)) in OUTPUTS.iter().zip(&self.outputs) {
            shader = match access {
                Access::Four => vec4::bind_write(shader, name, *dtype),
                _ => shader.bind(name, *dtype),
            };
        }
        let names: Vec<String> =
            (0..self.program.stages().len()).map(|i| format!("stage{i}")).collect();
        let stages: Vec<(&str, &Expression, Ends)> = names
            .iter()
            .zip(self.program.stages())
            .map(|(n, s)| (n.as_str(), &s.expression, Ends { sums: 0, sink: sink(&s.action) }))
            .collect();
        let functions = Expression::wgsl_all(&stages);
        let main = unroll::innermost(&self.main(), self.steps);
        shader
            .body(&indices)
            .body(&functions.text)
            .body(&self.reductions())
            .define("MAIN", main)
            .body(include_str!("../../../../shaders/fused/rowwise.wgsl"))
    }

    /// Functions of the reductions that the program uses, one set for each type.
    fn reductions(&self) -> String {
        let mut wanted: Vec<(&Reduction, DType)> = Vec::new();
        for stage in self.program.stages() {
            if let Action::Reduce(reductions) = &stage.action {
                wanted.extend(
                    reductions
                        .iter()
                        .zip(stage.expression.output_types())
                        .map(|(r, dtype)| (*r, dtype.accumulator())),
                );
            }
        }
        wanted.sort_unstable_by_key(|(r, t)| (r.op, *t));
        wanted.dedup();
        let mut types: Vec<&str> = wanted.iter().map(|(_, dtype)| dtype.value()).collect();
        types.sort_unstable();
        types.dedup();
        let mut text = String::new();
        for t in types.iter().filter(|_| self.lanes > 1) {
            let _ = writeln!(text, "var<workgroup> partials_{t}: array<{t}, WORKGROUP>;\n");
        }
        for (reduction, dtype) in wanted {
            let (op, t) = (reduction.op, dtype.value());
            // There are no short circuits, which would be branches.
            let is_nan = match dtype {
                DType::F32 => "(bitcast<u32>(b) & 0x7fffffffu) > 0x7f800000u",
                _ => "b != b",
            };
            let identity = match reduction.identity {
                Identity::Zero => "0.0",
                Identity::One => "1.0",
                Identity::Lowest => "p.lowest",
                Identity::Highest => "-p.lowest",
            };
            let combine = match reduction.combine {
                Combine::Greater => &format!("select(a, b, (b > a) | ({is_nan}))"),
                Combine::Lesser => &format!("select(a, b, (b < a) | ({is_nan}))"),
                combine => combine.wgsl(),
            };
            let _ = write!(
                text,
                "fn {op}_identity_{t}() -> {t} {{\n    return {t}({identity});\n}}\n\nfn \
                 {op}_{t}(a: {t}, b: {t}) -> {t} {{\n    return {combine};\n}}\n\n"
            );
            if self.lanes > 1 {
                let lanes = include_str!("../../../../shaders/fused/rowwise_lanes.wgsl");
                text += &lanes.replace("{{OP}}", op).replace("{{TYPE}}", t);
            }
        }
        text
    }

    /// The statements of `main` for a row.
    fn main(&self) -> String {
        let program = self.program;
        let mut text = String::new();
        for (i, access) in self.inputs.iter().enumerate() {
            let name = INPUTS[i];
            let _ = writeln!(text, "    let base_{name} = row_{name}(at);");
            if *access == Access::Row {
                let _ = writeln!(text, "    let value_{name} = load_{name}(base_{name});");
            }
        }
        for name in &OUTPUTS[..self.outputs.len()] {
            let _ = writeln!(text, "    let base_{name} = row_{name}(at);");
        }
        let mut rows = 0;
        for (s, stage) in program.stages().iter().enumerate() {
            match &stage.action {
                Action::Reduce(reductions) => {
                    self.reduce(&mut text, s, stage, reductions, rows);
                    rows += reductions.len();
                }
                Action::Row => {
                    let _ = writeln!(text, "    let v{s} = {};", self.call(s, stage, rows, None));
                    let outputs = stage.expression.outputs().len();
                    for k in 0..outputs {
                        let _ =
                            writeln!(text, "    let r{} = v{s}{};", rows + k, member(outputs, k));
                    }
                    rows += outputs;
                }
                Action::Full => self.full(&mut text, s, stage, rows),
            }
        }
        let mut stores = String::new();
        for (o, output) in program.outputs().iter().enumerate() {
            if let Output::Row { value, .. } = output {
                let (name, stored) = (OUTPUTS[o], self.outputs[o].1);
                let dtype = program.row_types()[*value as usize];
                let v = self.stored(&format!("r{value}"), dtype, stored);
                let _ = match stored.lanes() {
                    1 => writeln!(stores, "        store_{name}(base_{name}, {v});"),
                    // There is one row.
                    _ => writeln!(stores, "        store_{name}_word(0u, pack_{name}(0u, {v}));"),
                };
            }
        }
        if !stores.is_empty() {
            let _ = writeln!(text, "    if lane == 0u && is_row {{\n{stores}    }}");
        }
        text
    }

    /// `value` of type `dtype` in the type `stored` in which memory holds it.
    fn stored(&self, value: &str, dtype: DType, stored: DType) -> String {
        match (dtype, stored) {
            (DType::Bool, DType::U32) => format!("select(0u, 1u, {value})"),
            _ => value.to_owned(),
        }
    }

    /// A call of the function of stage `s`, for one of the current columns or, without one, for the
    /// row.
    fn call(&self, s: usize, stage: &Stage, rows: usize, column: Option<usize>) -> String {
        let types = self.program.inputs();
        let mut args: Vec<String> = Vec::new();
        for (i, access) in self.inputs.iter().enumerate() {
            args.push(match (access, column) {
                _ if !RowProgram::uses(stage, i) => format!("{}()", types[i].value()),
                (Access::Row, _) | (_, None) => format!("value_{}", INPUTS[i]),
                (_, Some(_)) if self.unit == 1 => format!("element_{}", INPUTS[i]),
                (_, Some(k)) => format!("element_{}.{}", INPUTS[i], ["x", "y", "z", "w"][k]),
            });
        }
        if types.len() > self.inputs.len() {
            args.push(column.map_or_else(|| "0u".to_owned(), |k| format!("c + {k}u")));
        }
        args.extend((0..rows).map(|r| format!("r{r}")));
        args.extend((0..self.program.constants()).map(|c| format!("p.c{c}")));
        format!("stage{s}({})", args.join(", "))
    }

    /// Statements that read the elements at column `c` that `stage` uses.
    fn reads(&self, text: &mut String, stage: &Stage) {
        let types = self.program.inputs();
        for (i, access) in
            self.inputs.iter().enumerate().filter(|(i, _)| RowProgram::uses(stage, *i))
        {
            let (name, dtype) = (INPUTS[i], types[i]);
            let each = |k: u32| format!("load_{name}(base_{name} + column_{name}(c + {k}u))");
            let value = match access {
                Access::Row => continue,
                Access::Four => format!("read_{name}((base_{name} + column_{name}(c)) / 4u)"),
                Access::Each if self.unit == 1 => each(0),
                Access::Each => {
                    format!(
                        "vec4<{}>({})",
                        dtype.value(),
                        (0..4).map(each).collect::<Vec<_>>().join(", ")
                    )
                }
            };
            let _ = writeln!(text, "            let element_{name} = {value};");
        }
        for k in 0..self.unit as usize {
            let _ = writeln!(text, "            let v{k} = CALL{k};");
        }
    }

    /// The reads of `stage` and its values `v0` to `v3` for the current columns.
    fn elements(&self, s: usize, stage: &Stage, rows: usize) -> String {
        let mut text = String::new();
        self.reads(&mut text, stage);
        (0..self.unit as usize).fold(text, |text, k| {
            text.replace(&format!("CALL{k};"), &format!("{};", self.call(s, stage, rows, Some(k))))
        })
    }

    fn reduce(
        &self,
        text: &mut String,
        s: usize,
        stage: &Stage,
        reductions: &[&Reduction],
        rows: usize,
    ) {
        let types = stage.expression.output_types();
        let n = reductions.len();
        let each = |f: &dyn Fn(usize, &str, &str) -> String| -> String {
            (0..n).map(|k| f(k, reductions[k].op, types[k].value())).collect()
        };
        text.push_str(&each(&|k, op, t| format!("    var total{s}_{k} = {op}_identity_{t}();\n")));
        text.push_str(
            "    for (var begin = lane * UNIT; begin < columns; begin += BLOCK * LANES * UNIT) {\n",
        );
        text.push_str("        let end = min(columns, begin + BLOCK * LANES * UNIT);\n");
        text.push_str(&each(&|k, op, t| format!("        var block{k} = {op}_identity_{t}();\n")));
        text.push_str("        for (var c = begin; c < end; c += LANES * UNIT) {\n");
        text.push_str(&self.elements(s, stage, rows));
        text.push_str(&each(&|k, op, t| {
            let m = member(n, k);
            let values = match self.unit {
                1 => format!("v0{m}"),
                _ => format!("{op}_{t}({op}_{t}(v0{m}, v1{m}), {op}_{t}(v2{m}, v3{m}))"),
            };
            format!("            block{k} = {op}_{t}(block{k}, {values});\n")
        }));
        text.push_str("        }\n");
        text.push_str(&each(&|k, op, t| {
            format!("        total{s}_{k} = {op}_{t}(total{s}_{k}, block{k});\n")
        }));
        text.push_str("    }\n");
        text.push_str(&each(&|k, op, t| {
            let all = match self.lanes {
                1 => format!("total{s}_{k}"),
                _ => format!("{op}_of_lanes_{t}(total{s}_{k}, lane, local_index)"),
            };
            let count = match reductions[k].finish {
                Finish::Mean => &format!(" / {t}(p.columns)"),
                _ => "",
            };
            let value = match codec::rounding(types[k]) {
                Some(round) => format!("{round}({all}{count})"),
                None => format!("opaque_{t}({all}{count})"),
            };
            format!("    let r{} = {value};\n", rows + k)
        }));
    }

    fn full(&self, text: &mut String, s: usize, stage: &Stage, rows: usize) {
        let types = stage.expression.output_types();
        text.push_str("    for (var c = lane * UNIT; c < columns; c += LANES * UNIT) {\n");
        text.push_str(&self.elements(s, stage, rows).replace("            let", "        let"));
        for (o, output) in self.program.outputs().iter().enumerate() {
            let Output::Full(value) = output else { continue };
            let (name, (access, dtype)) = (OUTPUTS[o], self.outputs[o]);
            let m = member(types.len(), *value as usize);
            let value_type = types[*value as usize];
            let value = |k: usize| self.stored(&format!("v{k}{m}"), value_type, dtype);
            if access == Access::Four {
                let values: Vec<String> = (0..4).map(value).collect();
                let all = format!("vec4<{}>({})", dtype.value(), values.join(", "));
                let _ = writeln!(
                    text,
                    "        write_{name}((base_{name} + column_{name}(c)) / 4u, {all}, 4u);"
                );
            } else {
                for k in 0..self.unit as usize {
                    let at = format!("base_{name} + column_{name}(c + {k}u)");
                    let _ = writeln!(text, "        store_{name}({at}, {});", value(k));
                }
            }
        }
        text.push_str("    }\n");
    }
}

/// Where the values of a stage go.
const fn sink(action: &Action) -> Sink {
    match action {
        Action::Reduce(_) => Sink::Reduction,
        Action::Row => Sink::Expression,
        Action::Full => Sink::Memory,
    }
}

/// How value `k` of `n` is taken from the result of an expression's function.
fn member(n: usize, k: usize) -> String {
    if n == 1 { String::new() } else { format!(".y{k}") }
}
