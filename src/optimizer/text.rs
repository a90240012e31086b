//! Graphs as text, with a node in each line, for dumps and tests.
//!
//! ```text
//! preserve y
//! x = Placeholder {dtype: float32} -> float32[?2, 4]
//! c = Const {dtype: float32, value: tensor float32[] [0.5]} -> float32[]
//! y = Mul(x, c, ^z) {T: float32} -> float32[?2, 4]
//! z = NoOp @CPU:0
//! ```
//!
//! A node that is wider than [`WIDTH`] has a line for each attribute, and for each step of an
//! expression, so that a comparison of two texts shows what changed. Brackets that are open at the
//! end of a line go on in the next, and neighbouring strings are one:
//!
//! ```text
//! y = _WgpuFusedElementwise(x) {
//!     constants: [0.5],
//!     expression:
//!         "x: float32; "
//!         "c: 1; "
//!         "s0 = Mul<float32>(x0, c0); "
//!         "return s0",
//! } -> float32[?2, 4]
//! ```
//!
//! A node without `@` is on `WGPU:0`; `@` alone means no device, and `@CPU:0` is short for
//! `/job:localhost/replica:0/task:0/device:CPU:0`. The known types and shapes of the outputs stand
//! after `->`: `?` is an unknown extent, `?2` an unknown extent equal to every other `?2`,
//! `float32` without extents an unknown rank, and `?` instead of a type an unknown type. Values
//! without a syntax in this format, such as long tensors, are abbreviated with `…`; only people can
//! read such a text. Strings are JSON strings.

use std::fmt::Write;

use bytes::Bytes;
use prost::Message;

use super::attr::{Attr, constant};
use super::graph::{Graph, Node};
use super::proto::attr_value::{ListValue, Value};
use super::proto::{
    AttrValue, NameAttrList, NodeDef, TensorProto, TensorShapeProto, tensor_shape_proto,
};
use super::shape::{Dim, TensorInfo};
use super::wire;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::fused::region;
use crate::tensor::HostTensor;

const DEVICES: &str = "/job:localhost/replica:0/task:0/device:";
const DEFAULT: &str = "WGPU:0";
/// The widest line with a whole node: its tests indent it.
const WIDTH: usize = 88;
/// The largest number of a tensor's elements that are written.
const MAX_ELEMENTS: usize = 16;

impl Graph {
    /// The graph as text, with nodes in the order of the GraphDef.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        let mut preserved: Vec<&str> = self.preserved().iter().map(String::as_str).collect();
        preserved.sort_unstable();
        if !preserved.is_empty() {
            let _ = writeln!(out, "preserve {}", preserved.join(", "));
        }
        for id in self.ids() {
            out.push_str(&self.line(self.node(id)));
            out.push('\n');
        }
        out
    }

    /// A node, in one line if that is not too wide.
    fn line(&self, node: &Node) -> String {
        let whole = self.node_text(node, false);
        if whole.chars().count() <= WIDTH { whole } else { self.node_text(node, true) }
    }

    fn node_text(&self, node: &Node, is_broken: bool) -> String {
        let mut out = format!("{} = {}", node.name(), node.op());
        let data = node.inputs().iter().map(|i| match i.port {
            0 => self.node(i.node).name().to_owned(),
            port => format!("{}:{port}", self.node(i.node).name()),
        });
        let controls = node.controls().iter().map(|c| format!("^{}", self.node(*c).name()));
        let inputs: Vec<String> = data.chain(controls).collect();
        if !inputs.is_empty() {
            let width = out.len() + inputs.iter().map(|input| input.len() + 2).sum::<usize>();
            out.push_str(&bracketed(["(", ")"], &inputs, is_broken && width > WIDTH));
        }
        if !node.attrs().is_empty() {
            let attrs: Vec<String> = (node.attrs().iter())
                .map(|(name, attr)| match is_broken {
                    true if node.op() == region::OP && name == "nodes" => members(attr),
                    true => format!("{name}:{}", broken_attr(attr)),
                    false => format!("{name}: {}", attr_text(attr)),
                })
                .collect();
            out.push(' ');
            out.push_str(&bracketed(["{", "}"], &attrs, is_broken));
        }
        match node.device().strip_prefix(DEVICES) {
            Some(DEFAULT) => {}
            Some(device) => {
                let _ = write!(out, " @{device}");
            }
            None => {
                let _ = write!(out, " @{}", node.device());
            }
        }
        if !node.infos.is_empty() {
            let infos: Vec<String> = node.infos.iter().map(info_text).collect();
            let _ = write!(out, " -> {}", infos.join(", "));
        }
        out
    }

    /// Reads the text that [`Graph::to_text`] writes. Empty lines and lines that start with `#` are
    /// ignored.
    ///
    /// # Errors
    /// `InvalidArgument` names the line that is not understood.
    pub fn from_text(text: &str) -> Result<Self> {
        let mut bytes = Vec::new();
        let mut infos = Vec::new();
        let mut preserved = Vec::new();
        for line in statements(text) {
            if let Some(names) = line.strip_prefix("preserve ") {
                preserved.extend(names.split(',').map(|n| n.trim().to_owned()));
                continue;
            }
            let bad = |e: Error| Error::InvalidArgument(format!("in the line {line:?}: {e}"));
            let (node, known) = Parser { rest: &line }.node().map_err(bad)?;
            wire::put(&mut bytes, 1, &node);
            infos.push(known);
        }
        let mut graph = Self::parse(&Bytes::from(bytes))?;
        graph.preserve(preserved);
        let ids: Vec<_> = graph.ids().collect();
        for (id, infos) in ids.into_iter().zip(infos) {
            graph.set_infos(id, infos);
        }
        Ok(graph)
    }
}

/// Items in brackets: in one line, or each in a line of its own.
fn bracketed([open, close]: [&str; 2], items: &[String], is_broken: bool) -> String {
    if !is_broken {
        return format!("{open}{}{close}", items.join(", "));
    }
    let lines: String = items.iter().map(|item| format!("    {item},\n")).collect();
    format!("{open}\n{lines}{close}")
}

/// The nodes of a region, in a line each.
fn members(attr: &Attr) -> String {
    let mut text = "nodes: [".to_owned();
    for (number, bytes) in attr.byte_strings().into_iter().flatten().enumerate() {
        let Ok(node) = NodeDef::decode(&**bytes) else { continue };
        let NodeDef { name, op, input, attr, .. } = node;
        let value = |(name, attr): (String, AttrValue)| {
            attr.value.map(|value| format!("{name}: {}", attr_text(&Attr::from(value))))
        };
        let attrs: Vec<String> = attr.into_iter().filter_map(value).collect();
        let (input, attrs) = (input.join(", "), attrs.join(", "));
        let _ = write!(text, "\n        {number}: {name} = {op}({input}) {{{attrs}}},");
    }
    text + "\n    ]"
}

/// An attribute's value behind its name: a string of several parts has a line for each.
fn broken_attr(attr: &Attr) -> String {
    let parts: Vec<&str> = attr.string().map_or_else(Vec::new, |text| {
        text.split_inclusive("; ").flat_map(|part| part.split_inclusive(" | ")).collect()
    });
    if parts.len() < 2 {
        return format!(" {}", attr_text(attr));
    }
    parts.iter().map(|part| format!("\n        {}", quoted(part))).collect()
}

/// The lines of a text, joined where brackets are open at their end, without empty lines and
/// comments.
fn statements(text: &str) -> Vec<String> {
    let mut statements = Vec::new();
    let (mut statement, mut depth) = (String::new(), 0i32);
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
        let (mut is_string, mut is_escaped) = (false, false);
        for c in line.chars() {
            match c {
                '"' if !is_escaped => is_string = !is_string,
                '(' | '[' | '{' if !is_string => depth += 1,
                ')' | ']' | '}' if !is_string => depth -= 1,
                _ => {}
            }
            is_escaped = c == '\\' && !is_escaped;
        }
        if !statement.is_empty() {
            statement.push(' ');
        }
        statement.push_str(line);
        if depth <= 0 {
            statements.push(std::mem::take(&mut statement));
            depth = 0;
        }
    }
    statements.extend((!statement.is_empty()).then_some(statement));
    statements
}

fn info_text(info: &TensorInfo) -> String {
    let dtype = info.dtype.map_or("?", DType::name);
    let Some(shape) = &info.shape else { return dtype.to_owned() };
    let dim = |d: &Dim| match d {
        Dim::Known(n) => n.to_string(),
        Dim::Symbol(n) => format!("?{n}"),
        Dim::Unknown => "?".to_owned(),
    };
    format!("{dtype}[{}]", shape.iter().map(dim).collect::<Vec<_>>().join(", "))
}

/// An attribute's value as text.
pub fn attr_text(attr: &Attr) -> String {
    match attr.value() {
        Some(Value::List(list)) => list_text(list),
        Some(value) => value_text(value),
        None => "…".to_owned(),
    }
}

/// A string in JSON's syntax.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn dtype_text(number: i32) -> String {
    DType::from_tf(number).map_or_else(|| format!("dtype{number}"), |t| t.name().to_owned())
}

fn value_text(value: &Value) -> String {
    match value {
        Value::S(s) => match std::str::from_utf8(s) {
            Ok(s) => quoted(s),
            Err(_) => format!("…{} bytes", s.len()),
        },
        Value::I(v) => v.to_string(),
        Value::F(v) => format!("{v:?}"),
        Value::B(v) => v.to_string(),
        Value::Type(t) => dtype_text(*t),
        Value::Shape(s) => shape_text(s),
        Value::Tensor(t) => tensor_text(t),
        Value::Func(f) => format!("@{}{}", f.name, if f.attr.is_empty() { "" } else { "{…}" }),
        Value::Placeholder(p) => format!("${p}"),
        Value::List(list) => list_text(list),
    }
}

fn list_text(list: &ListValue) -> String {
    let items: Vec<String> = (list.s.iter().map(|v| value_text(&Value::S(v.clone()))))
        .chain(list.i.iter().map(|v| value_text(&Value::I(*v))))
        .chain(list.f.iter().map(|v| value_text(&Value::F(*v))))
        .chain(list.b.iter().map(|v| value_text(&Value::B(*v))))
        .chain(list.r#type.iter().map(|v| dtype_text(*v)))
        .chain(list.shape.iter().map(shape_text))
        .chain(list.tensor.iter().map(tensor_text))
        .chain(list.func.iter().map(|v| value_text(&Value::Func(v.clone()))))
        .collect();
    format!("[{}]", items.join(", "))
}

fn shape_text(shape: &TensorShapeProto) -> String {
    if shape.unknown_rank {
        return "shape ?".to_owned();
    }
    let dim =
        |d: &tensor_shape_proto::Dim| if d.size < 0 { "?".to_owned() } else { d.size.to_string() };
    format!("shape [{}]", shape.dim.iter().map(dim).collect::<Vec<_>>().join(", "))
}

fn tensor_text(tensor: &TensorProto) -> String {
    let extents: Vec<String> =
        tensor.tensor_shape.iter().flat_map(|s| &s.dim).map(|d| d.size.to_string()).collect();
    let head = format!("tensor {}[{}]", dtype_text(tensor.dtype), extents.join(", "));
    let Some(value) = constant(tensor) else { return format!("{head} […]") };
    let items: Vec<String> = if value.dtype.is_float() {
        value.to_f64().iter().map(|v| format!("{v:?}")).collect()
    } else if value.dtype.is_complex() {
        return format!("{head} […]");
    } else if matches!(value.dtype, DType::I64) {
        value.values::<i64>().iter().map(ToString::to_string).collect()
    } else if matches!(value.dtype, DType::U64) {
        value.values::<u64>().iter().map(ToString::to_string).collect()
    } else {
        value.to_f64().iter().map(ToString::to_string).collect()
    };
    // A value that all elements share is written once.
    let items = if items.windows(2).all(|w| w[0] == w[1]) {
        &items[..items.len().min(1)]
    } else {
        &items[..]
    };
    if items.len() > MAX_ELEMENTS {
        return format!("{head} [{}, …]", items[..MAX_ELEMENTS].join(", "));
    }
    format!("{head} [{}]", items.join(", "))
}

/// Reads a line from start to end.
struct Parser<'t> {
    rest: &'t str,
}

impl<'t> Parser<'t> {
    fn skip(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// Takes `token` if it comes next, and returns whether it did.
    fn eat(&mut self, token: &str) -> bool {
        self.skip();
        self.rest.strip_prefix(token).map(|rest| self.rest = rest).is_some()
    }

    fn expect(&mut self, token: &str) -> Result<()> {
        if self.eat(token) { Ok(()) } else { Err(self.error(&format!("expected {token:?}"))) }
    }

    fn error(&self, what: &str) -> Error {
        Error::InvalidArgument(format!("{what} at {:?}", self.rest))
    }

    /// The text up to a character that ends a word.
    fn word(&mut self) -> &'t str {
        self.skip();
        let end = self.rest.find(|c: char| " ,(){}[]:".contains(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    /// `item, item, …` up to `end`, which a comma may precede.
    fn list<T>(
        &mut self,
        end: &str,
        mut item: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut items = Vec::new();
        while !self.eat(end) {
            if !items.is_empty() {
                self.expect(",")?;
                if self.eat(end) {
                    break;
                }
            }
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// A whole line: an encoded NodeDef, and the known types and shapes of its outputs.
    fn node(&mut self) -> Result<(Vec<u8>, Vec<TensorInfo>)> {
        let mut out = Vec::new();
        let name = self.word();
        self.expect("=")?;
        let op = self.word();
        if name.is_empty() || op.is_empty() {
            return Err(self.error("expected NAME = OP"));
        }
        wire::put(&mut out, 1, name.as_bytes());
        wire::put(&mut out, 2, op.as_bytes());
        if self.eat("(") {
            let inputs = self.list(")", |p| {
                let name = p.word();
                Ok(if p.eat(":") { format!("{name}:{}", p.word()) } else { name.to_owned() })
            })?;
            inputs.iter().for_each(|i| wire::put(&mut out, 3, i.as_bytes()));
        }
        let mut attrs = Vec::new();
        if self.eat("{") {
            attrs = self.list("}", |p| {
                let name = p.word();
                p.expect(":")?;
                Ok((name, p.attr()?))
            })?;
        }
        let device = if self.eat("@") {
            let end = self.rest.find(' ').unwrap_or(self.rest.len());
            let (device, rest) = self.rest.split_at(end);
            self.rest = rest;
            device
        } else {
            DEFAULT
        };
        if device.is_empty() || device.starts_with('/') {
            wire::put(&mut out, 4, device.as_bytes());
        } else {
            wire::put(&mut out, 4, format!("{DEVICES}{device}").as_bytes());
        }
        for (name, value) in attrs {
            let mut entry = Vec::new();
            wire::put(&mut entry, 1, name.as_bytes());
            wire::put(&mut entry, 2, Attr::from(value).raw());
            wire::put(&mut out, 5, &entry);
        }
        let infos = if self.eat("->") { self.infos()? } else { Vec::new() };
        self.skip();
        if self.rest.is_empty() { Ok((out, infos)) } else { Err(self.error("expected the end")) }
    }

    fn infos(&mut self) -> Result<Vec<TensorInfo>> {
        let mut infos = Vec::new();
        loop {
            let dtype = match self.word() {
                "?" => None,
                name => Some(dtype(name).ok_or_else(|| self.error(&format!("no type {name:?}")))?),
            };
            let shape = if self.eat("[") {
                let dims = self.list("]", |p| match p.word() {
                    "?" => Ok(Dim::Unknown),
                    word => match word.strip_prefix('?') {
                        Some(symbol) => {
                            symbol.parse().map(Dim::Symbol).map_err(|_| p.error("bad extent"))
                        }
                        None => word.parse().map(Dim::Known).map_err(|_| p.error("bad extent")),
                    },
                })?;
                Some(dims.into_iter().collect())
            } else {
                None
            };
            infos.push(TensorInfo { dtype, shape });
            if !self.eat(",") {
                return Ok(infos);
            }
        }
    }

    fn attr(&mut self) -> Result<Value> {
        if !self.eat("[") {
            return self.value();
        }
        let mut list = ListValue::default();
        for value in self.list("]", Self::value)? {
            match value {
                Value::S(v) => list.s.push(v),
                Value::I(v) => list.i.push(v),
                Value::F(v) => list.f.push(v),
                Value::B(v) => list.b.push(v),
                Value::Type(v) => list.r#type.push(v),
                Value::Shape(v) => list.shape.push(v),
                Value::Tensor(v) => list.tensor.push(v),
                Value::Func(v) => list.func.push(v),
                _ => return Err(self.error("no item of a list")),
            }
        }
        Ok(Value::List(list))
    }

    fn value(&mut self) -> Result<Value> {
        self.skip();
        if self.rest.starts_with('"') {
            return self.quoted().map(|s| Value::S(s.into_bytes()));
        }
        if self.eat("@") {
            return Ok(Value::Func(NameAttrList {
                name: self.word().to_owned(),
                ..Default::default()
            }));
        }
        match self.word() {
            "true" => Ok(Value::B(true)),
            "false" => Ok(Value::B(false)),
            "shape" => self.shape().map(Value::Shape),
            "tensor" => self.tensor().map(Value::Tensor),
            word => {
                if let Some(dtype) = dtype(word) {
                    return Ok(Value::Type(dtype as i32));
                }
                if let Some(number) = word.strip_prefix("dtype").and_then(|n| n.parse().ok()) {
                    return Ok(Value::Type(number));
                }
                if let Ok(int) = word.parse() {
                    return Ok(Value::I(int));
                }
                word.parse().map(Value::F).map_err(|_| self.error(&format!("no value {word:?}")))
            }
        }
    }

    /// A string in JSON's syntax, or several, which are one.
    fn quoted(&mut self) -> Result<String> {
        let mut text = String::new();
        while self.rest.starts_with('"') {
            let mut strings = serde_json::Deserializer::from_str(self.rest).into_iter();
            let part: Option<String> = strings.next().and_then(std::result::Result::ok);
            text += &part.ok_or_else(|| self.error("a bad string"))?;
            self.rest = self.rest[strings.byte_offset()..].trim_start();
        }
        Ok(text)
    }

    fn shape(&mut self) -> Result<TensorShapeProto> {
        if self.eat("?") {
            return Ok(TensorShapeProto { unknown_rank: true, ..Default::default() });
        }
        self.expect("[")?;
        let dim = self.list("]", |p| {
            let size = match p.word() {
                "?" => -1,
                n => n.parse().map_err(|_| p.error("bad extent"))?,
            };
            Ok(tensor_shape_proto::Dim { size, name: String::new() })
        })?;
        Ok(TensorShapeProto { dim, unknown_rank: false })
    }

    fn tensor(&mut self) -> Result<TensorProto> {
        let name = self.word();
        let dtype = dtype(name).ok_or_else(|| self.error(&format!("no type {name:?}")))?;
        let shape = self.shape()?;
        self.expect("[")?;
        let items = self.list("]", |p| {
            let word = p.word();
            word.parse::<f64>()
                .map(|v| (v, word.parse::<i64>().unwrap_or(v as i64)))
                .map_err(|_| p.error("bad element"))
        })?;
        let count: usize = shape.dim.iter().map(|d| d.size as usize).product();
        let items: Vec<_> = (0..count)
            .map(|i| items.get(i).or(items.last()).copied().unwrap_or_default())
            .collect();
        let dims: Vec<usize> = shape.dim.iter().map(|d| d.size as usize).collect();
        let floats: Vec<f64> = items.iter().map(|i| i.0).collect();
        let value = if dtype.is_float() {
            HostTensor::floats(dtype, &dims, &floats)
        } else {
            let bytes =
                items.iter().flat_map(|i| i.1.to_le_bytes()[..dtype.size()].to_vec()).collect();
            HostTensor { dtype, dims: dims.into_iter().collect(), bytes }
        };
        match Attr::from(&value).tensor() {
            Some(tensor) => {
                Ok(TensorProto::decode(&tensor.encode_to_vec()[..]).expect("just encoded"))
            }
            None => Err(self.error("no tensor")),
        }
    }
}

fn dtype(name: &str) -> Option<DType> {
    DType::ALL.into_iter().find(|t| t.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"preserve y
x = Placeholder {dtype: float32, shape: shape [?, 4]} -> float32[?2, 4]
c = Const {dtype: float32, value: tensor float32[] [0.5]} -> float32[]
i = Const {dtype: int64, value: tensor int64[3] [1, -2, 3]} @CPU:0 -> int64[3]
n = NoOp(^x) @
y = Mul(x, c, ^n) {
    T: float32,
    _class: ["loc:@x"],
    a: [1, 2],
    f: 1.5,
    g: @body,
    l: [],
    s: "a \"{b\"",
    t: [float32, bool],
} -> float32[?2, 4]
e = _WgpuFusedElementwise(x) {
    T_in: [float32],
    T_out: [float32],
    constants: [],
    expression:
        "x: float32; "
        "c: 0; "
        "s0 = Neg<float32>(x0); "
        "return s0",
} -> float32[?2, 4]
z = Split(c, y:1) {num_split: 2} @/job:worker/device:GPU:1 -> ?[?, 4], float32
"#;

    #[test]
    fn text_and_graph_are_inverse() {
        assert_eq!(Graph::from_text(TEXT).unwrap().to_text(), TEXT);
    }

    #[test]
    fn bytes_and_graph_are_inverse() {
        let bytes = Bytes::from(Graph::from_text(TEXT).unwrap().to_bytes());
        let graph = Graph::parse(&bytes).unwrap();
        assert!(!graph.is_changed());
        assert_eq!(graph.to_bytes(), bytes);
    }

    #[test]
    fn bad_lines_are_named() {
        for line in [
            "x",
            "x = ",
            "x = A(",
            "x = A {a: }",
            "x = A -> foo[2]",
            "x = A(b)",
            "x = A {",
            "x = A {a: \"b\" c}",
        ] {
            assert!(Graph::from_text(line).is_err(), "{line}");
        }
    }
}
