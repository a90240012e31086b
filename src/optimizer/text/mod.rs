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

mod parser;

use std::fmt::Write;

use bytes::Bytes;
use prost::Message;

use super::attr::{Attr, constant};
use super::graph::{Graph, Node};
use super::proto::attr_value::{ListValue, Value};
use super::proto::{AttrValue, NodeDef, TensorProto, TensorShapeProto, tensor_shape_proto};
use super::shape::{Dim, TensorInfo};
use super::wire;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::fused::region;
use parser::{Parser, statements};

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
