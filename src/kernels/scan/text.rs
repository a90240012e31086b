//! The shader of scans.

use super::{Pass, Row, Vec4s};
use crate::device::Key;
use crate::dtype::DType;
use crate::shader::{Shader, library, vec4};

/// The properties that a program's text depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Variant {
    pub row: &'static Row,
    /// The op's type, which decides the identity.
    pub dtype: DType,
    pub loaded: DType,
    pub stored: DType,
    pub pass: Pass,
    pub exclusive: bool,
    pub vec4s: Vec4s,
}

impl Variant {
    pub fn key(&self) -> Key {
        Key::new("scan")
            .name(self.row.op)
            .dtype(self.dtype)
            .dtype(self.loaded)
            .dtype(self.stored)
            .number(self.pass as u32)
            .number(u32::from(self.exclusive))
            .number(self.vec4s as u32)
    }

    /// Whether x, y and the starts are accessed in vec4s.
    pub fn in_vec4s(&self) -> [bool; 3] {
        match self.vec4s {
            Vec4s::None => [false; 3],
            Vec4s::Lines => [true; 3],
            Vec4s::Elements => [true, self.pass != Pass::Totals, false],
        }
    }

    pub fn shader(&self) -> Shader {
        let Self { row, loaded, stored, pass, exclusive, vec4s, .. } = *self;
        let computed = self.dtype.accumulator();
        let [x, y, starts] = self.in_vec4s();
        let read = |shader: Shader, name, dtype, in_vec4s| {
            if in_vec4s { vec4::bind_read(shader, name, dtype) } else { shader.bind(name, dtype) }
        };
        let shader = Shader::new(format!("{} {loaded} {pass:?} {vec4s:?}", row.op));
        let shader = read(shader, "x", loaded, x);
        let mut shader =
            if y { vec4::bind_write(shader, "y", stored) } else { shader.bind("y", stored) };
        let start = match (pass, starts) {
            (Pass::Apply, true) => "read_starts(place)",
            (Pass::Apply, false) => "load_starts(place)",
            _ => "State(identity())",
        };
        if pass == Pass::Apply {
            shader = read(shader, "starts", computed, starts);
        }
        if let Some(library) = row.library {
            shader = shader.library(library::of_type(library, computed));
        }
        let store = |at: &str, value: &str| {
            if y {
                format!("write_y({at}, {value}, 4u);")
            } else {
                format!("store_y({at}, {value});")
            }
        };
        let keeps = pass != Pass::Totals;
        let keep = |at: &str, value: &str| if keeps { store(at, value) } else { String::new() };
        let step = match vec4s {
            Vec4s::Elements => {
                let results =
                    if exclusive { "vec4(state, s0, s1, s2)" } else { "vec4(s0, s1, s2, s3)" };
                let keep =
                    keep("at", &format!("select({results}, ({results}).wzyx, p.reverse != 0u)"));
                format!(
                    "        let four = read_x(at);\n        let v = select(four, four.wzyx, \
                     p.reverse != 0u);\n        let s0 = combine(state, v.x);\n        let s1 = \
                     combine(s0, v.y);\n        let s2 = combine(s1, v.z);\n        let s3 = \
                     combine(s2, v.w);\n        {keep}\n        state = s3;"
                )
            }
            _ => format!(
                "        let next = combine(state, {}_x(at));\n        {}\n        state = next;",
                if x { "read" } else { "load" },
                keep("at", if exclusive { "state" } else { "next" })
            ),
        };
        let finish = format!("    {}", store("place", "state"));
        let each = |c| format!("combine_values(a.{c}, b.{c})");
        let (state, combine) = match vec4s {
            Vec4s::Lines => (
                format!("vec4<{}>", computed.value()),
                format!("State({})", ["x", "y", "z", "w"].map(each).join(", ")),
            ),
            _ => (computed.value().to_owned(), "combine_values(a, b)".to_owned()),
        };
        shader
            .u32s(&["count", "n", "inner", "chunks", "chunk", "reverse", "minus_infinity"])
            .define("VALUE", computed.value())
            .define("STATE", state)
            .define("IDENTITY", (row.identity)(self.dtype))
            .define("COMBINE", row.combine.replace("{T}", computed.value()))
            .define("COMBINE_STATES", combine)
            .define("START", start)
            .define("STEP", step)
            .define("FINISH", if keeps { String::new() } else { finish })
            .body(include_str!("../../../shaders/scan.wgsl"))
    }
}
