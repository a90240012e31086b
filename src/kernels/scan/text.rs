//! The program of scans.

use super::{Row, ScanPass, Vec4s};
use crate::device::{Key, KeyPart, declare_program, enum_key_parts};
use crate::dtype::DType;
use crate::shader::{Access, Shader};

/// The properties that a program's text depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScanVariant {
    pub row: &'static Row,
    /// The op's type, which decides the identity.
    pub dtype: DType,
    pub loaded: DType,
    pub stored: DType,
    pub pass: ScanPass,
    pub exclusive: bool,
    pub vec4s: Vec4s,
}

enum_key_parts!(ScanPass, Vec4s);

impl KeyPart for ScanVariant {
    fn add_to(&self, key: Key) -> Key {
        let key = key.name(self.row.op).dtype(self.dtype).dtype(self.loaded).dtype(self.stored);
        self.vec4s.add_to(self.exclusive.add_to(self.pass.add_to(key)))
    }
}

declare_program! {
    /// Scans chunks of lines. `starts` holds the values in front of the chunks of
    /// [`ScanPass::Apply`].
    pub(super) struct ScanProgram = "scan"(variant: ScanVariant);
    bindings {
        x: Access::read(variant.loaded, variant.in_vec4s()[0]),
        y: Access::write(variant.stored, variant.in_vec4s()[1]),
    }
    optional { starts: variant.starts() }
    params {
        count: usize, n: usize, inner: usize, chunks: usize, chunk: usize, reverse: bool,
        minus_infinity: u32,
    }
}

impl ScanVariant {
    /// Whether x, y and the starts are accessed in vec4s.
    pub fn in_vec4s(&self) -> [bool; 3] {
        match self.vec4s {
            Vec4s::None => [false; 3],
            Vec4s::Lines => [true; 3],
            Vec4s::Elements => [true, self.pass != ScanPass::Totals, false],
        }
    }

    fn starts(&self) -> Option<Access> {
        let in_vec4s = self.in_vec4s()[2];
        (self.pass == ScanPass::Apply).then(|| Access::read(self.dtype.accumulator(), in_vec4s))
    }
}

impl ScanProgram {
    pub fn shader(variant: ScanVariant) -> Shader {
        let ScanVariant { row, dtype, loaded, pass, exclusive, vec4s, .. } = variant;
        let computed = dtype.accumulator();
        let [x, y, starts] = variant.in_vec4s();
        let shader = Self::declare(format!("{} {loaded} {pass:?} {vec4s:?}", row.op), variant);
        let start = match (pass, starts) {
            (ScanPass::Apply, true) => "read_starts(place)",
            (ScanPass::Apply, false) => "load_starts(place)",
            _ => "State(identity())",
        };
        let store = |at: &str, value: &str| {
            if y {
                format!("write_y({at}, {value}, 4u);")
            } else {
                format!("store_y({at}, {value});")
            }
        };
        let keeps = pass != ScanPass::Totals;
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
            .define("VALUE", computed.value())
            .define("STATE", state)
            .define("IDENTITY", (row.identity)(dtype))
            .define("COMBINE", row.combine.replace("{T}", computed.value()))
            .define("COMBINE_STATES", combine)
            .define("START", start)
            .define("STEP", step)
            .define("FINISH", if keeps { String::new() } else { finish })
            .body(include_str!("../../../shaders/scan.wgsl"))
    }
}
