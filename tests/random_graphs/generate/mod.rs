//! Writes random graphs in the optimizer's text format.

use std::collections::HashSet;
use std::fmt::Write;

use tensorflow_wgpu::DType::{self, *};
use tensorflow_wgpu::HostTensor;

use super::super::numeric::Random;
use super::flow;
use super::functions::Range;
use super::patterns;
use super::scopes::Scopes;

mod ops;
mod state;

/// The kinds of nodes in a graph.
#[derive(Debug, Clone, Copy, Default)]
pub struct Profile {
    /// Reductions, normalizations, products, attention, variables: here only a device evaluates
    /// them.
    pub device: bool,
    /// Branches, of which one runs, and nodes that have effects.
    pub branches: bool,
    /// Loops and branches of TensorFlow 1, nested.
    pub loops: bool,
    /// Many layers, their gradients, and rotary embeddings.
    pub layers: bool,
    /// The most random nodes; a pattern counts as one.
    pub nodes: usize,
}

/// A tensor of the graph.
#[derive(Debug, Clone)]
pub struct Value {
    pub name: String,
    pub dtype: DType,
    pub dims: Vec<usize>,
    pub range: Range,
}

/// A graph with its feeds, its variables' first values, and the tolerances of its fetches and of
/// its variables' last values.
#[derive(Debug, Clone, Default)]
pub struct Case {
    pub text: String,
    pub feeds: Vec<(String, HostTensor)>,
    pub variables: Vec<(String, HostTensor)>,
    pub fetches: Vec<(String, f64)>,
    pub tolerances: Vec<f64>,
}

/// A variable. A read waits for the last write, a write waits for all reads since then.
#[derive(Debug, Clone)]
pub struct Variable {
    pub value: Value,
    written: Option<String>,
    read: Vec<String>,
}

/// The extent that stands for an unknown one, if a graph has one; no other extent has this value.
const SYMBOL: usize = 6;

pub struct Generator {
    pub random: Random,
    base: Vec<usize>,
    shapes: Shapes,
    names: usize,
    pub values: Vec<Value>,
    pub variables: Vec<Variable>,
    /// The nodes of branches, by number. Of these, nodes outside may use only the `Merge`s.
    conditional: Vec<std::ops::Range<usize>>,
    /// Nodes that the end of the graph waits for, as it does for the last writes.
    pub statements: Vec<String>,
    /// The loops and branches around the nodes that are written now.
    pub scopes: Scopes,
    pub case: Case,
}

/// How much the graph's text contains about its tensors' shapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shapes {
    Known,
    Symbolic,
    Unknown,
}

/// The graph of a seed: always the same.
pub fn case(seed: u64, profile: Profile) -> Case {
    let mut random = Random::new(seed);
    // The first numbers of neighbouring seeds are alike.
    (0..8).for_each(|_| {
        random.below(2);
    });
    let shapes = random.pick(&[
        Shapes::Known,
        Shapes::Known,
        Shapes::Known,
        Shapes::Symbolic,
        Shapes::Unknown,
    ]);
    let mut base: Vec<usize> =
        (0..random.between(1, 3)).map(|_| random.pick(&[1, 2, 3, 4, 5, 8])).collect();
    match (random.below(20), shapes) {
        (0, Shapes::Known) => base[0] = 0,
        (1..=3, Shapes::Known) if profile.device => {
            *base.last_mut().unwrap() = random.pick(&[33, 70, 257])
        }
        (_, Shapes::Symbolic) => base[0] = SYMBOL,
        _ => {}
    }
    let mut g = Generator {
        random,
        base,
        shapes,
        names: 0,
        values: Vec::new(),
        variables: Vec::new(),
        conditional: Vec::new(),
        statements: Vec::new(),
        scopes: Scopes::default(),
        case: Case::default(),
    };
    for _ in 0..g.random.between(1, 4) {
        let dtype = g.random.pick(&[F32, F32, F32, F32, F32, F16, BF16]);
        let dims = g.dims();
        g.feed(dtype, &dims, 2.0);
    }
    let full = g.base.clone();
    g.feed(F32, &full, 2.0);
    for _ in 0..g.random.between(2, profile.nodes) {
        g.any(profile);
    }
    if profile.loops {
        flow::repeated(&mut g, profile);
        g.any(profile);
    }
    g.finish()
}

impl Generator {
    /// Adds a random node, or none if the choice does not fit.
    pub fn any(&mut self, profile: Profile) {
        if profile.loops && self.random.below(4) == 0 {
            flow::any(self, profile);
            return;
        }
        if profile.branches && self.random.below(4) == 0 {
            match self.random.below(3) {
                0 | 1 => drop(patterns::branch(self)),
                _ => drop(patterns::effect(self)),
            }
            return;
        }
        if profile.layers && self.random.below(4) == 0 {
            match self.random.below(9) {
                0..=1 => drop(patterns::dense(self)),
                2..=3 => drop(patterns::rotary(self)),
                4..=5 => drop(patterns::layers(self)),
                6..=7 => drop(patterns::adapters(self)),
                _ => drop(patterns::farthest(self)),
            }
            return;
        }
        match self.random.below(if profile.device { 34 } else { 21 }) {
            0..=6 => self.unary(),
            7..=13 => self.binary(),
            14 => self.choice(),
            15 => self.cast(),
            16 => self.scalar(),
            17 => self.pass(),
            18 => self.reshape(),
            19 => drop(patterns::gelu(self)),
            20 => self.wait(),
            21..=23 => self.reduction(),
            24 => drop(patterns::softmax(self)),
            25 => drop(patterns::layer_norm(self)),
            26 => drop(patterns::dense(self)),
            27 => drop(patterns::attention(self)),
            28 if self.scopes.is_outside() => drop(patterns::adam(self)),
            29..=30 => drop(patterns::repeat(self)),
            _ if self.scopes.is_outside() => self.variable(),
            _ => {}
        }
    }

    /// A shape that broadcasts to the graph's base shape.
    fn dims(&mut self) -> Vec<usize> {
        let from = self.random.below(self.base.len() + 1);
        let mut dims =
            if self.random.below(2) == 0 { self.base.clone() } else { self.base[from..].to_vec() };
        for dim in &mut dims {
            if self.random.below(4) == 0 {
                *dim = 1;
            }
        }
        dims
    }

    /// An input of the graph with values of at most `size`.
    pub fn feed(&mut self, dtype: DType, dims: &[usize], size: f64) -> Value {
        if !self.scopes.is_outside() {
            return self.read_outside(|g| g.feed(dtype, dims, size));
        }
        let values: Vec<f64> = (0..dims.iter().product())
            .map(|_| (self.random.below(2001) as f64 / 1000.0 - 1.0) * size)
            .collect();
        let name = self.emit("Placeholder", &[], &format!("dtype: {dtype}"), dtype, dims);
        self.case.feeds.push((name.clone(), HostTensor::floats(dtype, dims, &values)));
        self.value(name, dtype, dims, Range::exact(-size, size))
    }

    /// A constant with one value everywhere.
    pub fn constant(&mut self, dtype: DType, dims: &[usize], value: f64) -> Value {
        let rounded = HostTensor::floats(dtype, &[], &[value]).to_f64()[0];
        let attrs = format!("dtype: {dtype}, value: tensor {dtype}{dims:?} [{rounded:?}]");
        let name = self.emit("Const", &[], &attrs, dtype, dims);
        self.value(name, dtype, dims, Range::exact(rounded, rounded))
    }

    /// A vector of int32, for axes and shapes.
    pub fn indices(&mut self, values: &[i64]) -> String {
        let attrs = format!("dtype: int32, value: tensor int32[{}] {values:?}", values.len());
        self.emit("Const", &[], &attrs, I32, &[values.len()])
    }

    /// Writes a line and returns the node's name.
    pub fn emit(
        &mut self,
        op: &str,
        inputs: &[&str],
        attrs: &str,
        dtype: DType,
        dims: &[usize],
    ) -> String {
        self.emit_all(op, inputs, attrs, dtype, dims, 1)
    }

    /// Writes a line for a node of several outputs, which have the same type and shape.
    pub fn emit_all(
        &mut self,
        op: &str,
        inputs: &[&str],
        attrs: &str,
        dtype: DType,
        dims: &[usize],
        outputs: usize,
    ) -> String {
        let name = format!("n{}", self.names);
        self.names += 1;
        self.scopes.note();
        self.emit_as(&name, op, inputs, attrs, &vec![(dtype, dims); outputs]);
        name
    }

    /// Writes a line for a node of this name.
    pub fn emit_as(
        &mut self,
        name: &str,
        op: &str,
        inputs: &[&str],
        attrs: &str,
        outputs: &[(DType, &[usize])],
    ) {
        // A constant has no inputs that place it in a scope.
        let pivot = self.scopes.pivot().filter(|_| op == "Const" && inputs.is_empty());
        let pivot: Vec<&str> = pivot.into_iter().collect();
        let inputs = if pivot.is_empty() { inputs } else { &pivot };
        let inputs =
            if inputs.is_empty() { String::new() } else { format!("({})", inputs.join(", ")) };
        let attrs = if attrs.is_empty() { String::new() } else { format!(" {{{attrs}}}") };
        let _ = write!(self.case.text, "{name} = {op}{inputs}{attrs}");
        let fixed = op == "Const";
        if self.shapes != Shapes::Unknown || fixed {
            let dim = |d: &usize| {
                if *d == SYMBOL && self.shapes == Shapes::Symbolic && !fixed {
                    format!("?{d}")
                } else {
                    d.to_string()
                }
            };
            let output = |(dtype, dims): &(DType, &[usize])| {
                format!("{dtype}[{}]", dims.iter().map(dim).collect::<Vec<_>>().join(", "))
            };
            let outputs: Vec<String> = outputs.iter().map(output).collect();
            let _ = write!(self.case.text, " -> {}", outputs.join(", "));
        }
        self.case.text.push('\n');
    }

    /// The halves of a tensor's last axis, which has an even extent and is not the first one.
    pub fn halves(&mut self, x: &Value) -> Option<[Value; 2]> {
        let (last, lead) = x.dims.split_last()?;
        if !last.is_multiple_of(2) || *last == 0 || lead.is_empty() || *last == SYMBOL {
            return None;
        }
        let dims = [lead, &[last / 2]].concat();
        let axis = self.axis(lead.len());
        let attrs = format!("T: {}, num_split: 2", x.dtype);
        let name = self.emit_all("Split", &[&axis.name, &x.name], &attrs, x.dtype, &dims, 2);
        let half = |name| Value { name, dtype: x.dtype, dims: dims.clone(), range: x.range };
        Some([half(name.clone()), half(format!("{name}:1"))])
    }

    /// The constant number of an axis.
    pub fn axis(&mut self, axis: usize) -> Value {
        let attrs = format!("dtype: int32, value: tensor int32[] [{axis}]");
        let name = self.emit("Const", &[], &attrs, I32, &[]);
        Value { name, dtype: I32, dims: Vec::new(), range: Range::exact(0.0, 8.0) }
    }

    pub fn value(&mut self, name: String, dtype: DType, dims: &[usize], range: Range) -> Value {
        let value = Value { name, dtype, dims: dims.to_vec(), range };
        self.values.push(value.clone());
        value
    }

    /// A node of float values; its own rounding is added to the error of `range`. None if values or
    /// errors grow too large.
    pub fn node(
        &mut self,
        op: &str,
        inputs: &[&Value],
        attrs: &str,
        dtype: DType,
        dims: &[usize],
        range: Range,
    ) -> Option<Value> {
        let step = match dtype {
            F16 => 1e-3,
            BF16 => 8e-3,
            _ => 2e-6,
        };
        let exact = matches!(
            op,
            "Neg"
                | "Abs"
                | "Relu"
                | "Maximum"
                | "Minimum"
                | "Identity"
                | "Reshape"
                | "SelectV2"
                | "Tile"
        );
        let error = range.error + if exact { 0.0 } else { step * range.size() };
        let range = Range { error, ..range };
        if range.size() > 200.0
            || error > 0.05 * range.size().max(1.0)
            || dims.iter().product::<usize>() > 5000
        {
            return None;
        }
        let names: Vec<&str> = inputs.iter().map(|i| i.name.as_str()).collect();
        let name = self.emit(op, &names, attrs, dtype, dims);
        Some(self.value(name, dtype, dims, range))
    }

    /// A random tensor, more often a late one.
    pub fn any_value(&mut self) -> Value {
        let n = self.values.len();
        let i = self.random.below(n).max(self.random.below(n));
        self.values[i].clone()
    }

    /// Makes some tensors the graph's results: through additional nodes, or directly.
    fn finish(mut self) -> Case {
        let mut fetched: Vec<Value> = Vec::new();
        for value in self.values.clone() {
            let is_used = inputs(&self.case.text).any(|(_, name)| name == value.name);
            // Most of a loop would be pruned otherwise.
            let unused = if self.scopes.were_open() { 1 } else { 2 };
            if self.random.below(if is_used { 8 } else { unused }) == 0 {
                fetched.push(value);
            }
        }
        let mut preserved: Vec<String> =
            self.case.feeds.iter().map(|(name, _)| name.clone()).collect();
        for value in fetched {
            let name = if self.random.below(3) == 0 {
                value.name.clone()
            } else {
                self.emit(
                    "Identity",
                    &[&value.name],
                    &format!("T: {}", value.dtype),
                    value.dtype,
                    &value.dims,
                )
            };
            if !preserved.contains(&name) {
                preserved.push(name.clone());
            }
            self.case.fetches.push((name, 4.0 * value.range.error));
        }
        // As in a function, the last writes run because the end of the graph waits for them.
        let written: Vec<String> = self
            .variables
            .iter()
            .filter_map(|v| Some(format!("^{}", v.written.as_ref()?)))
            .collect();
        let written: Vec<String> = written
            .into_iter()
            .chain(self.statements.iter().map(|name| format!("^{name}")))
            .collect();
        if !written.is_empty() {
            let written: Vec<&str> = written.iter().map(String::as_str).collect();
            preserved.push(self.statement("NoOp", &written, ""));
        }
        self.case.tolerances = self.variables.iter().map(|v| 4.0 * v.value.range.error).collect();
        // Decisions without readers are removed.
        let decides = |name: &String| {
            let feed = self.case.feeds.iter().find(|feed| feed.0 == *name);
            feed.is_some_and(|(_, value)| !value.dtype.is_float())
        };
        let needed: Vec<String> = preserved.iter().filter(|name| !decides(name)).cloned().collect();
        let text = pruned(&self.case.text, &needed);
        preserved.retain(|name| text.contains(&format!("{name} = ")));
        self.case.text = format!("preserve {}\n{text}", preserved.join(", "));
        self.case
    }
}

/// The nodes that a node uses, by data and control edges, each with the node's own name.
fn inputs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().flat_map(|line| {
        let (name, rest) = line.split_once(" = ").unwrap();
        let end = rest.find([' ', '(']).unwrap_or(rest.len());
        let list =
            rest[end..].strip_prefix('(').map_or("", |list| &list[..list.find(')').unwrap()]);
        list.split(", ")
            .filter(|i| !i.is_empty())
            .map(move |i| (name, i.trim_start_matches('^').split(':').next().unwrap()))
    })
}

/// The graph without nodes that no preserved node needs: TensorFlow prunes them first.
fn pruned(text: &str, preserved: &[String]) -> String {
    let mut needed: HashSet<&str> = preserved.iter().map(String::as_str).collect();
    let edges: Vec<(&str, &str)> = inputs(text).collect();
    // Edges back into loops are found in another round.
    let mut before = 0;
    while needed.len() > before {
        before = needed.len();
        for (user, used) in edges.iter().rev() {
            if needed.contains(user) {
                needed.insert(used);
            }
        }
    }
    text.lines()
        .filter(|line| needed.contains(line.split_once(" = ").unwrap().0))
        .fold(String::new(), |kept, line| kept + line + "\n")
}
