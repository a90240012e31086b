//! The text of weights: their bindings, and the functions that load and decode them.

use std::fmt::Write;
use std::sync::Arc;

use super::{CodePacking, Decoder, Extents, MOST_PARAMETERS, WeightsForm};
use crate::device::Key;
use crate::dtype::DType;
use crate::kernels::contract::element::lane;
use crate::shader::Shader;

/// Names of the parameters' bindings.
const NAMES: [&str; MOST_PARAMETERS] = ["q1", "q2", "q3", "q4"];
/// Names of the numbers that the text reads.
const NUMBERS: [&str; 7] = [
    "code_row",
    "code_rows",
    "code_columns",
    "code_groups",
    "first_row",
    "first_column",
    "skipped_rows",
];

impl Extents {
    /// The index of the element for row `r`, column `c` and group `g`.
    fn index(self, c: &str, g: &str) -> String {
        match self {
            Self::Row => "r".to_owned(),
            Self::Column => c.to_owned(),
            Self::GroupColumn => format!("{g} * p.code_columns + {c}"),
            Self::ColumnGroup => format!("({c}) * p.code_groups + {g}"),
            Self::RowGroup => format!("r * p.code_groups + {g}"),
            Self::GroupRow => format!("{g} * p.code_rows + r"),
        }
    }
}

impl WeightsForm {
    /// Sample number `at` for the list of variants: each packing with each decoder in turn.
    pub fn sample(at: usize, four: bool, by_columns: bool) -> Self {
        let decoders = ["", "/ c", "/ r", "- gc, * gc", "- cg, * cg", "- rg, * rg", "- gr, * gr"];
        let decoder: Decoder = decoders[at % decoders.len()].parse().expect("a decoder");
        let vec4s = |of: Extents| four && of == Extents::Column;
        let parameters = decoder.steps.iter().map(|(_, of)| (DType::F32, vec4s(*of)));
        let index = decoder.grouped().map(|axis| (DType::F32, four && axis == 1 && at % 2 == 1));
        Self {
            packing: CodePacking::ALL[at % CodePacking::ALL.len()].1,
            by_columns,
            has_heads: at % 4 == 3,
            codes: [DType::I8, DType::U8][at / 2 % 2],
            parameters: parameters.chain(index).collect(),
            decoder: Arc::new(decoder),
        }
    }

    /// Adds the properties to a pipeline's key.
    pub fn key(&self, key: Key) -> Key {
        let key = key
            .name(&self.decoder.text)
            .number(
                self.packing as u32
                    | u32::from(self.by_columns) << 2
                    | u32::from(self.has_heads) << 3,
            )
            .dtype(self.codes);
        let of = |key: Key, (t, four): &(DType, bool)| key.dtype(*t).number(u32::from(*four));
        self.parameters.iter().fold(key, of)
    }

    /// Binds the codes and the parameters, and declares `load_b(k, n)` or, for lanes of four,
    /// `load4_b(k, n)`: the weights of four neighbouring columns of codes. `bind_vec4s` binds a
    /// parameter of which four elements are loaded at once.
    pub fn bind(
        &self,
        shader: Shader,
        four: bool,
        bind_vec4s: impl Fn(Shader, &'static str, DType) -> Shader,
    ) -> Shader {
        let mut shader = shader.bind_raw("b", "u32", 1);
        for ((dtype, four), name) in self.parameters.iter().zip(NAMES) {
            shader = match four {
                true => bind_vec4s(shader, name, *dtype),
                false => shader.bind(name, *dtype),
            };
        }
        let text = if four { self.load_four() } else { self.load() };
        shader.body(&(self.group() + &text))
    }

    /// Declares the numbers.
    pub fn declare(&self, shader: Shader) -> Shader {
        let shader = shader.u32s(&NUMBERS);
        if self.has_heads { shader.u32s(&["head"]) } else { shader }
    }

    /// `fn code_group(i)`: the group of row or column `i`, or of four columns from `i` on if these
    /// are loaded at once. Negative groups count from the end. An index that is out of range counts
    /// as the last group, so that no other memory is read.
    fn group(&self) -> String {
        let Some((_, four)) = self.parameters.get(self.decoder.steps.len()) else {
            return String::new();
        };
        let [load, signed, unsigned] = match four {
            true => ["load4", "vec4<i32>", "vec4<u32>"],
            false => ["load", "i32", "u32"],
        };
        let index = NAMES[self.decoder.steps.len()];
        format!(
            "fn code_group(i: u32) -> {unsigned} {{\n    let group = \
             {signed}({load}_{index}(i));\n    let counted = group + i32(p.code_groups);\n    \
             let own = {unsigned}(select(group, counted, group < {signed}()));\n    return \
             min(own, {unsigned}(p.code_groups - 1u));\n}}\n\n"
        )
    }

    /// The head of a load: the row and the column of the code and its word. A byte's address is in
    /// `at`.
    fn head(&self) -> String {
        let [row, column] = if self.by_columns { ["n", "k"] } else { ["k", "n"] };
        let (byte_row, byte_column) = match self.packing {
            CodePacking::Bytes => ("r", "c"),
            CodePacking::Rows => ("(r >> 1u)", "c"),
            CodePacking::Columns => ("r", "(c >> 1u)"),
        };
        let place = if self.has_heads {
            // A head's rows follow one another, and have the columns of a head.
            format!(
                "    let row = {row} + p.first_row;\n    let column = {column} + \
                 p.first_column;\n    let before = column / p.head * p.code_rows + row;\n    let \
                 place = before * p.head + column % p.head;\n    let r = place / \
                 p.code_columns;\n    let c = place % p.code_columns;\n"
            )
        } else {
            format!("    let r = {row} + p.first_row;\n    let c = {column} + p.first_column;\n")
        };
        format!(
            "{place}    let at = p.off_b + ({byte_row} - p.skipped_rows) * p.code_row + \
             {byte_column};\n    let word = b[at >> 2u];\n"
        )
    }

    const fn is_signed(&self) -> bool {
        matches!(self.codes, DType::I8)
    }

    /// The load of one weight.
    fn load(&self) -> String {
        let (width, nibble) = match self.packing {
            CodePacking::Bytes => (8, ""),
            CodePacking::Rows => (4, " + (r & 1u) * 4u"),
            CodePacking::Columns => (4, " + (c & 1u) * 4u"),
        };
        let word = if self.is_signed() { "bitcast<i32>(word)" } else { "word" };
        let mut text = format!(
            "fn load_b(k: u32, n: u32) -> Scalar {{\n{}    var weight = \
             f32(extractBits({word}, (at & 3u) * 8u{nibble}, {width}u));\n",
            self.head()
        );
        for ((op, of), name) in self.decoder.steps.iter().zip(NAMES) {
            let group = ["code_group(r)", "code_group(c)"][of.grouped().unwrap_or(0)];
            let index = of.index("c", group);
            let _ = writeln!(text, "    weight = weight {op} f32(load_{name}({index}));");
        }
        text + "    return weight;\n}\n"
    }

    /// The load of four weights of one row of codes. A word holds all of them.
    fn load_four(&self) -> String {
        let (width, apart, first) = match self.packing {
            CodePacking::Bytes => (8, 8, "0u"),
            CodePacking::Rows => (4, 8, "(r & 1u) * 4u"),
            CodePacking::Columns => (4, 4, "(at & 2u) * 8u"),
        };
        let shifts = |of: &dyn Fn(u32) -> u32| {
            (0..4).map(|j| format!("{}u", of(j))).collect::<Vec<_>>().join(", ")
        };
        let codes = if self.is_signed() {
            let up = shifts(&|j| 32 - width - j * apart);
            format!(
                "(vec4<i32>(bitcast<i32>(codes)) << vec4<u32>({up})) >> vec4<u32>({}u)",
                32 - width
            )
        } else {
            let down = shifts(&|j| j * apart);
            format!("(vec4<u32>(codes) >> vec4<u32>({down})) & vec4<u32>({}u)", (1 << width) - 1)
        };
        let mut text = format!(
            "fn load4_b(k: u32, n: u32) -> Vec4 {{\n{}    let codes = word >> ({first});\n    var \
             weight = vec4<f32>({codes});\n",
            self.head()
        );
        match self.decoder.grouped() {
            None => text += &self.steps_of_four("    ", "g", false),
            Some(0) => {
                text += "    let g = code_group(r);\n";
                text += &self.steps_of_four("    ", "g", false);
            }
            Some(_) => {
                let (_, four) = self.parameters[self.decoder.steps.len()];
                let each = (0..4).map(|j| format!("code_group(c + {j}u)"));
                let groups = match four {
                    true => "code_group(c)".to_owned(),
                    false => format!("vec4<u32>({})", each.collect::<Vec<_>>().join(", ")),
                };
                // Neighbours are mostly of one group.
                let own = self.steps_of_four("        ", "g.x", false);
                let apart = self.steps_of_four("        ", "g", true);
                let _ = writeln!(text, "    let g = {groups};\n    if all(g == g.xxxx) {{");
                let _ = writeln!(text, "{own}    }} else {{\n{apart}    }}");
            }
        }
        text + "    return weight;\n}\n"
    }

    /// The decoder's steps for four columns of group `g`, or `apart` for columns of the groups in
    /// `g`.
    fn steps_of_four(&self, indent: &str, g: &str, apart: bool) -> String {
        let mut text = String::new();
        let steps = self.decoder.steps.iter().zip(NAMES).zip(&self.parameters);
        for (((op, of), name), (_, four)) in steps {
            let by_group = of.grouped() == Some(1);
            let load = if *four {
                format!("load4_{name}({})", of.index("c", g))
            } else if *of == Extents::Row || by_group && !apart {
                format!("f32(load_{name}({}))", of.index("c", g))
            } else {
                let each = (0..4).map(|j| {
                    let g = if by_group { format!("{g}.{}", lane(j)) } else { g.to_owned() };
                    format!("f32(load_{name}({}))", of.index(&format!("c + {j}u"), &g))
                });
                each.collect::<Vec<_>>().join(", ")
            };
            let _ = writeln!(text, "{indent}weight = weight {op} vec4<f32>({load});");
        }
        text
    }
}
