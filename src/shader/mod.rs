//! Shader text: a `.wgsl` body plus generated declarations.
//!
//! A kernel names its bindings with their types and its parameters; this module writes the `Params`
//! struct, the bindings, `load_*`/`store_*` accessors that hide packing and element offsets, and
//! `{{NAME}}` substitutions, and adds the libraries whose functions the body calls. The text
//! depends on exactly what the pipeline's key holds, never on a shape.
//!
//! A body may use, for a binding named `x` of type T:
//! - `load_x(i: u32) -> T.value()`: element `i`, counted from the tensor's first element;
//! - `store_x(i: u32, v)`: only for types of 32 bits and more;
//! - `store_x_word(w: u32, bits: u32)` and `pack_x(lane: u32, v) -> u32`: for packed types, whole
//!   words only;
//! - `p.off_x`: the tensor's element offset in the raw array `x`;
//! - `p.NAME`: the parameters; `linear_id(...)`, `WORKGROUP`;
//! - `rounds(n: u32) -> u32`: n, hidden from the compiler as a constant, so that it does not unroll
//!   a loop over it: for heavy bodies, whose copies would spill registers and take compilers
//!   seconds;
//! - `{{ENTRY}} { … }`: the entry point, which has `workgroup_id`, `num_workgroups` and
//!   `local_index`, and the values that [`Shader::builtin`] adds.

pub(crate) mod codec;
mod element;
mod hidden;
pub mod int64;
pub mod library;
mod matrices;
pub(crate) mod tokens;
pub(crate) mod unroll;
pub mod vec4;

use std::fmt::Write;

pub use element::{Access, Element, List, Raw, Storage};

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kind::Kind;
use library::Forms;

/// The extension of WGSL for 16-bit floats.
const FLOAT16: &str = "f16";

/// The default number of invocations in a workgroup.
pub const WORKGROUP: u32 = 256;

/// WGSL type of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// `u32`
    U32,
    /// `i32`
    I32,
    /// `f32`
    F32,
    /// `array<vec4<u32>, n>`, which holds lists of extents and strides.
    Vec4s(usize),
}

/// A shader under construction. Declaration order of bindings and parameters is the order of
/// [`crate::device::Program::bindings`] and [`crate::device::Params`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shader {
    label: String,
    extensions: Vec<&'static str>,
    bindings: Vec<(&'static str, Storage)>,
    params: Vec<(String, Field)>,
    defines: Vec<(&'static str, String)>,
    workgroup: [u32; 3],
    builtins: Vec<(&'static str, &'static str)>,
    body: String,
    matrices: Option<[u32; 3]>,
    kinds: Vec<Kind>,
    forms: Forms,
    is_in_parts: bool,
    is_copy: bool,
}

impl Shader {
    /// An empty shader; `label` appears in errors and GPU debuggers.
    pub fn new(label: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            extensions: Vec::new(),
            bindings: Vec::new(),
            params: Vec::new(),
            defines: Vec::new(),
            builtins: Vec::new(),
            workgroup: [WORKGROUP, 1, 1],
            body: String::new(),
            matrices: None,
            kinds: Kind::ALL.to_vec(),
            forms: Forms::default(),
            is_in_parts: false,
            is_copy: false,
        }
    }

    /// Says that the shader only copies memory; profiles list such dispatches with the copies.
    #[must_use]
    pub fn copying(mut self) -> Self {
        self.is_copy = true;
        self
    }

    /// Enables a language extension.
    #[must_use]
    pub fn enable(mut self, extension: &'static str) -> Self {
        self.extensions.push(extension);
        self
    }

    /// Declares the next binding with accessors for `dtype`.
    #[must_use]
    pub fn bind(mut self, name: &'static str, dtype: DType) -> Self {
        self.bindings.push((name, Storage::Typed(dtype)));
        self
    }

    /// Declares the next binding as a plain `array<wgsl_type>` without accessors, such as
    /// `vec4<f32>` of 16 bytes or `atomic<u32>` of 4. `p.off_NAME` counts elements of `wgsl_type`;
    /// the tensor's address must be a multiple of `size`.
    #[must_use]
    pub fn bind_raw(mut self, name: &'static str, wgsl_type: &'static str, size: u32) -> Self {
        self.bindings.push((name, Storage::Raw(wgsl_type, size)));
        self
    }

    /// Declares the next parameter.
    #[must_use]
    pub fn param(mut self, name: impl Into<String>, field: Field) -> Self {
        self.params.push((name.into(), field));
        self
    }

    /// Declares several `u32` parameters.
    #[must_use]
    pub fn u32s(mut self, names: &[&str]) -> Self {
        self.params.extend(names.iter().map(|n| ((*n).to_owned(), Field::U32)));
        self
    }

    /// Replaces `{{name}}` in the body.
    #[must_use]
    pub fn define(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.defines.push((name, value.into()));
        self
    }

    /// Invocations in a workgroup (default `[256, 1, 1]`). `WORKGROUP` is their product.
    #[must_use]
    pub fn workgroup(mut self, size: [u32; 3]) -> Self {
        self.workgroup = size;
        self
    }

    /// Adds a builtin value of type `u32` that the entry point takes as `name`, beside the builtin
    /// values of every program.
    #[must_use]
    pub fn builtin(mut self, builtin: &'static str, name: &'static str) -> Self {
        self.builtins.push((builtin, name));
        self
    }

    /// Gives cooperative matrices the sizes of a product of `m` by `k` times `k` by `n`, in place
    /// of the square types in the text.
    #[must_use]
    pub fn matrices(mut self, [m, n, k]: [u32; 3]) -> Self {
        self.matrices = Some([m, n, k]);
        self
    }

    /// Appends WGSL text.
    #[must_use]
    pub fn body(mut self, text: &str) -> Self {
        self.body.push_str(text);
        self.body.push('\n');
        self
    }

    /// Appends WGSL text whose innermost loops are unrolled by `times` steps.
    #[must_use]
    pub fn unrolled(self, times: u32, text: &str) -> Self {
        self.body(&unroll::innermost(text, times))
    }

    /// Appends the entry point of a map program: the body defines `fn value(i: u32) -> T` for one
    /// element of the output `output`, and each invocation computes one stored unit (an element, or
    /// a word of packed lanes). The first declared parameter must be the u32 `count`, the number of
    /// elements. Launch it with [`crate::device::Grid::map`].
    #[must_use]
    pub fn map(mut self, output: &'static str) -> Self {
        let dtype = self.dtype_of(output);
        debug_assert_eq!(
            self.params.first().map(|(n, f)| (n.as_str(), *f)),
            Some(("count", Field::U32))
        );
        let lanes = dtype.lanes();
        let body = if lanes == 1 {
            format!(
                "    if t >= p.count {{\n        return;\n    }}\n    store_{output}(t, \
                 value(t));\n"
            )
        } else {
            format!(
                "    let first = t * {lanes}u;\n    if first >= p.count {{\n        return;\n    \
                 }}\n    var bits = 0u;\n    for (var lane = 0u; lane < {lanes}u && first + lane \
                 < p.count; lane += 1u) {{\n        bits |= pack_{output}(lane, value(first + \
                 lane));\n    }}\n    store_{output}_word(t, bits);\n"
            )
        };
        let _ = write!(
            self.body,
            "\n{{{{ENTRY}}}} {{\n    let \
             t = linear_id(workgroup_id, num_workgroups, local_index);\n{body}}}\n"
        );
        self
    }

    /// The entry point up to the statements of its body.
    fn entry(&self) -> String {
        let [x, y, z] = self.workgroup;
        let mut text = format!("@compute @workgroup_size({x}, {y}, {z})\nfn main(\n");
        if self.is_in_parts {
            text += "    @builtin(workgroup_id) part_workgroup_id: vec3<u32>,\n";
        } else {
            text += "    @builtin(workgroup_id) workgroup_id: vec3<u32>,\n";
            text += "    @builtin(num_workgroups) num_workgroups: vec3<u32>,\n";
        }
        text += "    @builtin(local_invocation_index) local_index: u32,\n";
        for (builtin, name) in &self.builtins {
            let _ = writeln!(text, "    @builtin({builtin}) {name}: u32,");
        }
        text += ") {";
        if self.is_in_parts {
            text += "\n    let workgroup_id = part_workgroup_id + vec3<u32>(p.part_x, p.part_y, \
                     p.part_z);\n    let num_workgroups = vec3<u32>(p.groups_x, p.groups_y, \
                     p.groups_z);";
        }
        text
    }

    fn dtype_of(&self, binding: &str) -> DType {
        match self.bindings.iter().find(|(n, _)| *n == binding) {
            Some((_, Storage::Typed(t))) => *t,
            _ => panic!("{}: no typed binding named {binding}", self.label),
        }
    }

    /// Bytes of one element of each binding, the unit of its `off_` parameter.
    pub fn units(&self) -> Vec<u32> {
        self.bindings
            .iter()
            .map(|(_, e)| match e {
                Storage::Typed(t) => t.size() as u32,
                Storage::Raw(_, size) => *size,
            })
            .collect()
    }

    /// The names of its bindings.
    pub fn binding_names(&self) -> impl Iterator<Item = &'static str> {
        self.bindings.iter().map(|(name, _)| *name)
    }

    /// Limits this variant to kernels on adapters of these kinds. Under a profile that was forced
    /// upon an adapter, any kernel may choose it.
    #[must_use]
    pub fn only(mut self, kinds: impl IntoIterator<Item = Kind>) -> Self {
        self.kinds = kinds.into_iter().collect();
        self
    }

    /// Hides float64 constants from compilers: for GPUs with few registers, which would keep the
    /// constants in them.
    #[must_use]
    pub const fn hiding_constants(mut self) -> Self {
        self.forms.hides_constants = true;
        self
    }

    /// Converts to float16 as the adapter does, or by integer arithmetic, which is the default.
    #[must_use]
    pub const fn with_native_float16(mut self, is_native: bool) -> Self {
        self.forms.native_float16 = is_native;
        self
    }

    /// Whether it converts to float16 as the adapter does.
    pub const fn has_native_float16(&self) -> bool {
        self.forms.native_float16
    }

    /// The form in which a dispatch runs a part of all workgroups. Six more parameters are the
    /// first workgroup and the number of all workgroups, in each dimension; to the body the grid
    /// looks whole.
    #[must_use]
    pub fn in_parts(mut self) -> Self {
        self.is_in_parts = true;
        self.u32s(&["part_x", "part_y", "part_z", "groups_x", "groups_y", "groups_z"])
    }

    /// Whether its text has 64-bit floats.
    pub(crate) fn has_float64(&self) -> bool {
        self.render(0).contains("f64")
    }

    /// The kinds of adapters whose kernels choose this variant.
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// The label.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The whole text. `immediate_limit` is the adapter's size limit for immediates: larger
    /// parameter blocks come from a uniform buffer bound after the last binding.
    pub fn render(&self, immediate_limit: u32) -> String {
        let mut out = format!("// {}\n\n", self.label);
        let head = out.len();
        for extension in &self.extensions {
            let _ = writeln!(out, "enable {extension};");
        }
        let scalars = self.params.iter().filter(|(_, f)| !matches!(f, Field::Vec4s(_)));
        let vectors = self.params.iter().filter(|(_, f)| matches!(f, Field::Vec4s(_)));
        out.push_str("struct Params {\n");
        for (name, _) in &self.bindings {
            let _ = writeln!(out, "    off_{name}: u32,");
        }
        for (name, field) in scalars.chain(vectors) {
            let ty = match field {
                Field::U32 => "u32".to_owned(),
                Field::I32 => "i32".to_owned(),
                Field::F32 => "f32".to_owned(),
                Field::Vec4s(n) => format!("array<vec4<u32>, {}>", (*n).max(1)),
            };
            let _ = writeln!(out, "    {name}: {ty},");
        }
        out.push_str("}\n\n");
        if self.params_size() <= immediate_limit {
            out.push_str("var<immediate> p: Params;\n");
        } else {
            let _ = writeln!(
                out,
                "@group(0) @binding({}) var<uniform> p: Params;",
                self.bindings.len()
            );
        }
        for (i, (name, element)) in self.bindings.iter().enumerate() {
            let ty = match element {
                Storage::Typed(t) => t.storage(),
                Storage::Raw(ty, _) => ty,
            };
            let _ = writeln!(
                out,
                "@group(0) @binding({i}) var<storage, read_write> {name}: array<{ty}>;"
            );
        }
        let [x, y, z] = self.workgroup;
        let _ = writeln!(out, "\nconst WORKGROUP = {}u;\n", x * y * z);
        out.push_str(
            "fn linear_id(workgroup_id: vec3<u32>, num_workgroups: vec3<u32>, local_index: u32) \
             -> u32 {\n    return (workgroup_id.y * num_workgroups.x + workgroup_id.x) * \
             WORKGROUP + local_index;\n}\n\n",
        );
        for (name, element) in &self.bindings {
            if let Storage::Typed(t) = element {
                out.push_str(&accessors(name, *t));
            }
        }
        let mut body = self.body.clone();
        for (name, value) in &self.defines {
            body = body.replace(&format!("{{{{{name}}}}}"), value);
        }
        body.insert_str(0, &library::needed(&format!("{out}{body}"), self.forms));
        if body.contains("f32(f16(") && !self.extensions.contains(&FLOAT16) {
            out.insert_str(head, &format!("enable {FLOAT16};\n"));
        }
        if body.contains("hidden_f64(") {
            body.insert_str(0, hidden::FUNCTION);
        }
        if body.contains("rounds(") {
            // A tensor lies a few bytes behind the start of its binding.
            let (name, _) = self.bindings.first().expect("a shader has a binding");
            let _ = writeln!(
                out,
                "fn rounds(n: u32) -> u32 {{\n    return n + (p.off_{name} >> 31u);\n}}\n"
            );
        }
        for (value, bits) in [("f32", "u32"), ("f64", "u64")] {
            if body.contains(&format!("opaque_{value}(")) {
                let (name, _) = self.bindings.first().expect("a shader has a binding");
                let _ = writeln!(
                    out,
                    "fn opaque_{value}(v: {value}) -> {value} {{\n    return \
                     bitcast<{value}>(bitcast<{bits}>(v) ^ {bits}(p.off_{name} >> 31u));\n}}\n"
                );
            }
        }
        out.push_str(&body.replace("{{ENTRY}} {", &self.entry()));
        out
    }

    /// Whether [`Shader::module`] says more than [`Shader::render`].
    pub const fn exceeds_text(&self) -> bool {
        self.matrices.is_some()
    }

    /// The module of the text.
    pub fn module(&self, immediate_limit: u32) -> Result<naga::Module> {
        let text = self.render(immediate_limit);
        let mut module = naga::front::wgsl::parse_str(&text)
            .map_err(|e| Error::Internal(e.emit_to_string(&text)))?;
        if let Some(size) = self.matrices {
            matrices::resize(&mut module, size);
        }
        Ok(module)
    }

    /// Whether it only copies memory.
    pub const fn is_copy(&self) -> bool {
        self.is_copy
    }

    /// Invocations of a workgroup in each dimension.
    pub const fn workgroup_size(&self) -> [u32; 3] {
        self.workgroup
    }

    /// Bytes of the parameter block, with its padding.
    pub fn params_size(&self) -> u32 {
        let vec4s: usize = self
            .params
            .iter()
            .map(|(_, f)| if let Field::Vec4s(n) = f { (*n).max(1) } else { 0 })
            .sum();
        let scalars = self.bindings.len()
            + self.params.iter().filter(|(_, f)| !matches!(f, Field::Vec4s(_))).count();
        let head = 4 * scalars as u32;
        if vec4s == 0 { head } else { head.next_multiple_of(16) + 16 * vec4s as u32 }
    }
}

/// `load_`, `store_` and `pack_` functions of a binding.
fn accessors(x: &str, dtype: DType) -> String {
    let value = dtype.value();
    let lanes = dtype.lanes();
    if lanes == 1 {
        return format!(
            "fn load_{x}(i: u32) -> {value} {{\n    return {x}[p.off_{x} + i];\n}}\n\nfn \
             store_{x}(i: u32, v: {value}) {{\n    {x}[p.off_{x} + i] = v;\n}}\n\n"
        );
    }
    let (shift, load) = codec::lane(dtype);
    let (bits, width) = (codec::bits(dtype), 32 / lanes);
    format!(
        "fn load_{x}(i: u32) -> {value} {{\n    let j = p.off_{x} + i;\n    let word = {x}[j >> \
         {shift}u];\n    return {load};\n}}\n\nfn pack_{x}(lane: u32, v: {value}) -> u32 {{\n    \
         return ({bits}) << (lane * {width}u);\n}}\n\nfn store_{x}_word(w: u32, bits: u32) {{\n    \
         {x}[(p.off_{x} >> {shift}u) + w] = bits;\n}}\n\n"
    )
}
