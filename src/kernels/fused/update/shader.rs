//! The shader of an update: how it reads and writes values in windows of raw words.

use std::fmt::Write;

use smallvec::SmallVec;

use crate::device::Key;
use crate::dtype::DType;
use crate::kernels::expression::Expression;
use crate::shader::{Shader, WORKGROUP, codec, vec4};

/// The most windows of one dispatch: with the table, seven of eight bindings.
pub const MAX_WINDOWS: usize = 6;

/// Units of elements that an invocation updates, one unit after the other.
const UNITS: u32 = 4;
/// The same for vec4s: finding a variable's places takes as long as updating a few elements.
const UNITS_OF_VEC4S: u32 = 8;

const NAMES: [&str; MAX_WINDOWS] = ["w0", "w1", "w2", "w3", "w4", "w5"];

/// How a window's memory is declared. The same memory may be seen through windows of several
/// types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WindowType {
    /// Words that hold types of at most 32 bits.
    Word,
    /// A type of 64 bits.
    Double(DType),
}

impl WindowType {
    /// The window through which values of `dtype` are seen; `None` for types that cannot be
    /// updated.
    pub const fn of(dtype: DType) -> Option<Self> {
        match dtype {
            DType::F32 | DType::I32 | DType::U32 | DType::F16 | DType::BF16 | DType::Bool => {
                Some(Self::Word)
            }
            DType::F64 | DType::I64 | DType::U64 => Some(Self::Double(dtype)),
            _ => None,
        }
    }

    /// The element type of its array.
    pub const fn storage(self) -> &'static str {
        match self {
            Self::Word => "u32",
            Self::Double(dtype) => dtype.storage(),
        }
    }

    /// Bytes of one element of its array.
    pub const fn unit(self) -> u32 {
        match self {
            Self::Word => 4,
            Self::Double(_) => 8,
        }
    }
}

/// How an update's elements are read and written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// One element at a time, or all elements of a word.
    Single,
    /// Four at once, where they lie side by side: `splats` tells for which inputs one element
    /// serves all. The other inputs are of 32 bits, and start at multiples of 16 bytes.
    Vec4s { splats: SmallVec<[bool; 8]> },
}

impl Access {
    /// Elements that one invocation updates at once, so that it writes whole words of packed types.
    fn lanes(&self, expression: &Expression) -> u32 {
        match self {
            Self::Single => expression.each_output_type().map(DType::lanes).max().unwrap_or(1),
            Self::Vec4s { .. } => vec4::WIDTH,
        }
    }

    const fn units(&self) -> u32 {
        match self {
            Self::Single => UNITS,
            Self::Vec4s { .. } => UNITS_OF_VEC4S,
        }
    }

    /// Elements that one workgroup updates.
    pub fn elements_of_group(&self, expression: &Expression) -> u32 {
        WORKGROUP * self.units() * self.lanes(expression)
    }

    /// The element type of the array of a window of `window_type`.
    const fn storage(&self, window_type: WindowType) -> &'static str {
        match (self, window_type) {
            (Self::Vec4s { .. }, WindowType::Word) => "vec4<u32>",
            _ => window_type.storage(),
        }
    }

    /// Bytes of one element of the array of a window of `window_type`.
    pub const fn unit(&self, window_type: WindowType) -> u32 {
        match (self, window_type) {
            (Self::Vec4s { .. }, WindowType::Word) => 16,
            _ => window_type.unit(),
        }
    }
}

/// Words of a row of the table.
pub fn row_words(expression: &Expression) -> usize {
    2 + 2 * expression.inputs().len()
}

/// The key of the pipeline of the expression `text`, whose first inputs are the variables. It
/// depends on the types of the windows, and on the window of each input.
///
/// The table does not hold the windows: to select one takes a branch for each access. That costs
/// little on a GPU, where all invocations of a workgroup take the same side, but a software adapter
/// executes every side.
pub fn key(text: &str, windows: &[WindowType], homes: &[usize], access: &Access) -> Key {
    let key = Key::new("fused_update").name(text);
    let key = windows.iter().fold(key, |key, c| key.name(access.storage(*c)));
    let key = homes.iter().fold(key, |key, home| key.number(*home as u32));
    match access {
        Access::Single => key,
        Access::Vec4s { splats } => {
            splats.iter().fold(key, |key, splat| key.number(u32::from(*splat)))
        }
    }
}

/// Its shader.
pub fn shader(
    expression: &Expression,
    windows: &[WindowType],
    homes: &[usize],
    access: &Access,
) -> Shader {
    let window_types: String = windows.iter().map(|c| format!(" {}", access.storage(*c))).collect();
    let mut shader =
        Shader::new(format!("fused update {expression}; windows{window_types} {homes:?}")).u32s(&[
            "rows",
            "jump",
            "constants",
        ]);
    let mut text = String::new();
    for (k, dtype) in expression.inputs().iter().enumerate() {
        let words = windows[homes[k]] == WindowType::Word;
        text.push_str(&match access {
            Access::Vec4s { splats } if !splats[k] => load_four(k, *dtype, NAMES[homes[k]]),
            Access::Vec4s { .. } if words => {
                load(k, *dtype, NAMES[homes[k]], &|at| format!("[({at}) >> 2u][({at}) & 3u]"))
            }
            _ => load(k, *dtype, NAMES[homes[k]], &|at| {
                format!("[p.off_{} + ({at})]", NAMES[homes[k]])
            }),
        });
    }
    let function = expression.wgsl("new_values");
    let lanes = access.lanes(expression);
    shader = shader.bind_raw("table", "u32", 4);
    for (name, window_type) in NAMES.iter().zip(windows) {
        shader = shader.bind_raw(name, access.storage(*window_type), access.unit(*window_type));
    }
    let steps = match access {
        Access::Single => steps(expression, lanes, homes),
        Access::Vec4s { splats } => steps_of_vec4s(expression, homes, splats),
    };
    shader
        .body(&text)
        .body(&function.text)
        .define("UNITS", access.units().to_string())
        .define("LANES", lanes.to_string())
        .define("ROW", row_words(expression).to_string())
        .define("PLACES", places(expression, access))
        .define("STEPS", steps)
        .body(include_str!("../../../../shaders/fused/update.wgsl"))
}

/// The function that reads element `i` of the expression's input `k` in `window`; `index` picks a
/// word of it.
fn load(k: usize, dtype: DType, window: &str, index: &dyn Fn(&str) -> String) -> String {
    let (shift, value) = codec::lane(dtype);
    let at = if shift == 0 { "j".to_owned() } else { format!("j >> {shift}u") };
    format!(
        "fn load_x{k}(at: vec2<u32>, i: u32) -> {} {{\n    let j = at.x + i * at.y;\n    let word \
         = {window}{};\n    return {value};\n}}\n\n",
        dtype.value(),
        index(&at)
    )
}

/// The function that reads the words of elements `i` to `i + 3` of input `k`.
fn load_four(k: usize, dtype: DType, window: &str) -> String {
    format!(
        "fn words_x{k}(at: vec2<u32>, i: u32) -> vec4<u32> {{\n    return {window}[(at.x + i) >> \
         2u];\n}}\n\nfn load_x{k}(words: vec4<u32>) -> vec4<{0}> {{\n    return \
         bitcast<vec4<{0}>>(words);\n}}\n\n",
        dtype.value()
    )
}

/// The places of the inputs and the constants, read once by an invocation.
fn places(expression: &Expression, access: &Access) -> String {
    let inputs = (0..expression.inputs().len()).map(|k| {
        let splat = match access {
            Access::Vec4s { splats } if splats[k] => {
                format!("    let x{k} = load_x{k}(at{k}, 0u);\n")
            }
            _ => String::new(),
        };
        format!("    let at{k} = place(row, {k}u);\n{splat}")
    });
    let constants = (0..expression.constants()).map(|k| {
        format!("    let c{k} = bitcast<f32>(table[p.off_table + p.constants + {k}u]);\n")
    });
    inputs.chain(constants).collect()
}

/// One vec4. The last one may reach beyond its variable's end. Nothing else lies there, since every
/// variable starts at a multiple of 16 bytes; splats are read element by element.
fn steps_of_vec4s(expression: &Expression, homes: &[usize], splats: &[bool]) -> String {
    const COMPONENTS: [&str; 4] = ["x", "y", "z", "w"];
    let mut text = String::new();
    for k in (0..splats.len()).filter(|k| !splats[*k]) {
        let _ = writeln!(
            text,
            "        let words{k} = words_x{k}(at{k}, i);\n        let x{k} = load_x{k}(words{k});"
        );
    }
    for (lane, c) in COMPONENTS.iter().enumerate() {
        let arguments: Vec<String> = (splats.iter().enumerate())
            .map(|(k, splat)| if *splat { format!("x{k}") } else { format!("x{k}.{c}") })
            .chain((0..expression.constants()).map(|k| format!("c{k}")))
            .collect();
        let _ = writeln!(text, "        let v{lane} = new_values({});", arguments.join(", "));
    }
    text.push_str("        let live = vec4(i) + vec4(0u, 1u, 2u, 3u) < vec4(count);\n");
    let types = expression.output_types();
    for (k, dtype) in types.iter().enumerate() {
        let member = if types.len() == 1 { String::new() } else { format!(".y{k}") };
        let values: Vec<String> = (0..4).map(|lane| format!("v{lane}{member}")).collect();
        let _ = writeln!(
            text,
            "        {}[(at{k}.x + i) >> 2u] = select(words{k}, bitcast<vec4<u32>>(vec4<{}>({})), \
             live);",
            NAMES[homes[k]],
            dtype.value(),
            values.join(", ")
        );
    }
    text
}

/// One unit: computes the new values of its lanes, then writes them.
fn steps(expression: &Expression, lanes: u32, homes: &[usize]) -> String {
    let mut text = String::new();
    for lane in 0..lanes {
        let at = if lane == 0 { "i".to_owned() } else { format!("min(i + {lane}u, count - 1u)") };
        let arguments: Vec<String> = (0..expression.inputs().len())
            .map(|k| format!("load_x{k}(at{k}, {at})"))
            .chain((0..expression.constants()).map(|k| format!("c{k}")))
            .collect();
        let _ = writeln!(text, "        let v{lane} = new_values({});", arguments.join(", "));
    }
    let types = expression.output_types();
    for (k, dtype) in types.iter().enumerate() {
        let value =
            |lane: u32| if types.len() == 1 { format!("v{lane}") } else { format!("v{lane}.y{k}") };
        let window = NAMES[homes[k]];
        match dtype {
            DType::F16 | DType::BF16 => {
                let bits = if *dtype == DType::F16 { "f16_bits" } else { "bf16_bits" };
                // Behind the last element a zero fills its word.
                let _ = writeln!(
                    text,
                    "        {window}[p.off_{window} + ((at{k}.x + i) >> 1u)] = {bits}({}) | \
                     select(0u, {bits}({}) << 16u, i + 1u < count);",
                    value(0),
                    value(1)
                );
            }
            _ => {
                for lane in 0..lanes {
                    let bits = match dtype {
                        DType::F32 | DType::I32 => format!("bitcast<u32>({})", value(lane)),
                        _ => value(lane),
                    };
                    let put = format!("{window}[p.off_{window} + at{k}.x + i + {lane}u] = {bits};");
                    let _ = if lane == 0 {
                        writeln!(text, "        {put}")
                    } else {
                        writeln!(
                            text,
                            "        if i + {lane}u < count {{\n            {put}\n        }}"
                        )
                    };
                }
            }
        }
    }
    text
}
