//! Shader text of a step: types, arithmetic, the variables' state, and the source of the scalars.

use std::fmt::Write;

use super::table::Rule;
use crate::device::{Key, KeyPart};
use crate::dtype::DType;
use crate::shader::{Access, Shader, vec4};

/// One rule for one type.
#[derive(Clone, Copy)]
pub struct TypedRule {
    /// The optimizer.
    pub rule: &'static Rule,
    /// The elements' type.
    pub dtype: DType,
    /// The value of the rule's attribute.
    pub flag: bool,
    /// [`Rule::operations`].
    pub operations: usize,
}

/// The names of the variables' bindings. A binding named `v` would be hidden by the parameters of
/// its own accessors.
pub const BINDING_NAMES: [&str; 4] = ["x0", "x1", "x2", "x3"];

/// The lanes of a unit of four elements.
const LANES: [&str; 4] = ["x", "y", "z", "w"];

/// Name of variable `name` in WGSL, where `var` is a keyword.
fn wgsl(name: &'static str) -> &'static str {
    if name == "var" { "w" } else { name }
}

impl KeyPart for TypedRule {
    fn add_to(&self, key: Key) -> Key {
        key.name(self.rule.op).dtype(self.dtype).number(u32::from(self.flag))
    }
}

impl TypedRule {
    /// `rule` for `dtype`.
    pub fn new(rule: &'static Rule, dtype: DType, flag: bool) -> Self {
        Self { rule, dtype, flag, operations: rule.operations() }
    }

    fn variables(&self) -> impl Iterator<Item = &'static str> {
        self.rule.variables.iter().map(|n| wgsl(n))
    }

    /// Binding and name of each variable.
    fn bindings(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        BINDING_NAMES.into_iter().zip(self.variables())
    }

    /// The bindings of the variables and the gradient, in single elements or `vec4s`, and of the
    /// scalars: one for each, or one for all, packed by [`super::scalars`].
    pub fn operands(self, vec4s: bool, packed: bool) -> Vec<(&'static str, Access)> {
        let variable = Access::update(self.dtype, vec4s);
        let mut all: Vec<_> = self.bindings().map(|(x, _)| (x, variable)).collect();
        all.push(("g", Access::read(self.dtype, vec4s)));
        if packed {
            all.push(("packed", Access::Each(self.dtype.accumulator())));
        } else {
            all.extend(self.rule.scalars().map(|name| (name, Access::Each(self.dtype))));
        }
        all
    }

    /// Whether `addresses`, of the variables and the gradient, are those of whole vec4s.
    pub fn in_vec4s(&self, mut addresses: impl Iterator<Item = u64>) -> bool {
        let unit = u64::from(vec4::unit(self.dtype));
        vec4::supports(self.dtype) && addresses.all(|address| address.is_multiple_of(unit))
    }

    /// Appends `State`, `Scalars`, `scalars` and `step`.
    pub fn functions(&self, shader: Shader, packed: bool) -> Shader {
        let (value, part) = match self.dtype {
            DType::C64 => ("vec2<f32>", "f32"),
            DType::C128 => ("vec2<f64>", "f64"),
            DType::F64 => ("f64", "f64"),
            _ => ("f32", "f32"),
        };
        let mut text = format!("alias T = {value};\nalias P = {part};\n");
        if let Some(flag) = self.rule.flag {
            let _ = writeln!(text, "const {flag} = {};", self.flag);
        }
        let fields = |names: &mut dyn Iterator<Item = &'static str>| {
            names.fold(String::new(), |mut text, n| {
                let _ = writeln!(text, "    {n}: T,");
                text
            })
        };
        let _ = writeln!(text, "\nstruct State {{\n{}}}", fields(&mut self.variables()));
        let _ = writeln!(text, "\nstruct Scalars {{\n{}}}", fields(&mut self.rule.scalars()));
        let scalars: Vec<_> = self
            .rule
            .scalars()
            .enumerate()
            .map(
                |(k, n)| {
                    if packed { format!("load_packed({k}u)") } else { format!("load_{n}(0u)") }
                },
            )
            .collect();
        let _ = writeln!(
            text,
            "\nfn scalars() -> Scalars {{\n    return Scalars({});\n}}\n",
            scalars.join(", ")
        );
        text.push_str(if self.dtype.is_complex() {
            include_str!("../../../shaders/training/complex.wgsl")
        } else {
            include_str!("../../../shaders/training/real.wgsl")
        });
        if self.rule.has_powers {
            text.push('\n');
            text.push_str(include_str!("../../../shaders/training/power.wgsl"));
        }
        text.push_str("\nfn step(s: State, g: T, c: Scalars) -> State {\n");
        for n in self.variables() {
            let _ = writeln!(text, "    var {n} = s.{n};");
        }
        for n in self.rule.scalars() {
            let _ = writeln!(text, "    let {n} = c.{n};");
        }
        let names: Vec<_> = self.variables().collect();
        let _ =
            writeln!(text, "    {}\n    return State({});\n}}", self.rule.step, names.join(", "));
        shader.define("SUFFIX", part).body(&text)
    }

    /// `load_state` of an element.
    pub fn load_state(&self) -> String {
        let loads: Vec<_> = self.bindings().map(|(x, _)| format!("load_{x}(i)")).collect();
        format!("fn load_state(i: u32) -> State {{\n    return State({});\n}}\n", loads.join(", "))
    }

    /// Defines `LOAD`, `STEP` and `STORE`: statements that read the states of unit `at`, apply the
    /// steps by the gradient's unit `g_v`, and store them.
    pub fn vec4s(&self, shader: Shader) -> Shader {
        let (mut load, mut step, mut store) = (String::new(), String::new(), String::new());
        for (x, _) in self.bindings() {
            let _ = writeln!(load, "    let {x}_v = read_{x}(at);");
        }
        for lane in LANES {
            let state: Vec<_> = self.bindings().map(|(x, _)| format!("{x}_v.{lane}")).collect();
            let _ = writeln!(load, "    var s_{lane} = State({});", state.join(", "));
            let _ = writeln!(step, "    s_{lane} = step(s_{lane}, g_v.{lane}, c);");
        }
        for (x, n) in self.bindings() {
            let lanes = LANES.map(|lane| format!("s_{lane}.{n}")).join(", ");
            let _ = writeln!(store, "    write_{x}(at, vec4({lanes}), 4u);");
        }
        shader.define("LOAD", load).define("STEP", step).define("STORE", store)
    }

    /// Statements that compute and store the unit that begins at element `first`; `element` gives
    /// the state of element `i`.
    pub fn store_unit(&self, element: &str) -> String {
        let lanes = self.dtype.lanes();
        let mut text = String::new();
        if lanes == 1 {
            let _ = writeln!(text, "    let i = t;\n    let s = {element};");
            text.push_str(&self.store("i"));
            return text;
        }
        for n in self.variables() {
            let _ = writeln!(text, "    var bits_{n} = 0u;");
        }
        let _ = writeln!(
            text,
            "    for (var lane = 0u; lane < {lanes}u && first + lane < p.count; lane += 1u) \
                 {{\n        let i = first + lane;\n        let s = {element};"
        );
        for (x, n) in self.bindings() {
            let _ = writeln!(text, "        bits_{n} |= pack_{x}(lane, s.{n});");
        }
        text.push_str("    }\n");
        for (x, n) in self.bindings() {
            let _ = writeln!(text, "    store_{x}_word(t, bits_{n});");
        }
        text
    }

    /// Statements that store the state `s` of the element `at`.
    pub fn store(&self, at: &str) -> String {
        self.bindings().fold(String::new(), |mut text, (x, n)| {
            let _ = writeln!(text, "    store_{x}({at}, s.{n});");
            text
        })
    }
}
