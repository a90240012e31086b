//! Writes random graphs in the optimizer's text format.

use std::collections::HashSet;
use std::fmt::Write;

use tensorflow_wgpu::DType::{self, *};
use tensorflow_wgpu::HostTensor;
use tensorflow_wgpu::layout::broadcast_dims;

use super::super::numeric::Random;
use super::flow;
use super::functions::{BINARY, Range, UNARY, binary, unary};
use super::patterns;
use super::scopes::Scopes;

/// What a graph may hold.
#[derive(Debug, Clone, Copy, Default)]
pub struct Profile {
    /// Reductions, normalizations, products, attention, variables: what only a device evaluates
    /// here.
    pub device: bool,
    /// Branches, of which one runs, and nodes that have effects.
    pub branches: bool,
    /// Loops and branches of TensorFlow 1, in each other.
    pub loops: bool,
    /// Many layers, their gradients, and rotary embeddings.
    pub layers: bool,
    /// Most random nodes, patterns counted as one.
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

/// A variable; whoever reads it waits for the last write, whoever writes it for all reads since
/// then.
#[derive(Debug, Clone)]
pub struct Variable {
    pub value: Value,
    written: Option<String>,
    read: Vec<String>,
}

/// The extent that stands for an unknown one where a graph has one; no other extent is as large.
const SYMBOL: usize = 6;

pub struct Generator {
    pub random: Random,
    base: Vec<usize>,
    shapes: Shapes,
    names: usize,
    pub values: Vec<Value>,
    pub variables: Vec<Variable>,
    /// The nodes of branches, by number: of those, nobody outside may use any but the `Merge`s.
    conditional: Vec<std::ops::Range<usize>>,
    /// Nodes that the end of the graph waits for, as it does for the last writes.
    pub statements: Vec<String>,
    /// The loops and branches around the nodes that are written now.
    pub scopes: Scopes,
    pub case: Case,
}

/// How much the graph says of its tensors' shapes.
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
    /// A random node, or nothing where the choice does not fit.
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
            match self.random.below(3) {
                0 => drop(patterns::dense(self)),
                1 => drop(patterns::rotary(self)),
                _ => drop(patterns::layers(self)),
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

    /// The same for a node of several outputs, which are alike.
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
        // A constant has no inputs that say where it is.
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

    /// A node of float values; its own rounding is added to the error of `range`. Nothing where
    /// values or errors grow too large.
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

    fn unary(&mut self) {
        let x = self.any_value();
        let op = self.random.pick(UNARY);
        self.apply(op, &x);
    }

    pub fn apply(&mut self, op: &str, x: &Value) -> Option<Value> {
        let attrs =
            format!("T: {}{}", x.dtype, if op == "LeakyRelu" { ", alpha: 0.25" } else { "" });
        self.node(op, &[x], &attrs, x.dtype, &x.dims, unary(op, x.range)?)
    }

    fn binary(&mut self) {
        let x = self.any_value();
        let fitting: Vec<Value> =
            self.values.iter().filter(|y| y.dtype == x.dtype).cloned().collect();
        let at = self.random.below(fitting.len());
        let op = self.random.pick(BINARY);
        self.combine(op, &x, &fitting[at]);
    }

    pub fn combine(&mut self, op: &str, x: &Value, y: &Value) -> Option<Value> {
        let dims = broadcast_dims(&x.dims, &y.dims).ok()?;
        if op.ends_with("Grad") && x.dims != y.dims {
            return None;
        }
        self.node(
            op,
            &[x, y],
            &format!("T: {}", x.dtype),
            x.dtype,
            &dims,
            binary(op, x.range, y.range)?,
        )
    }

    /// `SelectV2` by a comparison of values that are exact, for another rounding must not choose
    /// otherwise.
    fn choice(&mut self) {
        let exact: Vec<Value> =
            self.values.iter().filter(|v| v.range.error == 0.0).cloned().collect();
        if exact.is_empty() {
            return;
        }
        let x = exact[self.random.below(exact.len())].clone();
        let y = exact[self.random.below(exact.len())].clone();
        let (Ok(dims), true) = (broadcast_dims(&x.dims, &y.dims), x.dtype == y.dtype) else {
            return;
        };
        let op = self.random.pick(&["Less", "GreaterEqual", "Equal"]);
        let attrs = format!(
            "T: {}{}",
            x.dtype,
            if op == "Equal" { ", incompatible_shape_error: true" } else { "" }
        );
        let test = self.emit(op, &[&x.name, &y.name], &attrs, Bool, &dims);
        let (a, b) = (self.any_value(), self.any_value());
        let all = broadcast_dims(&a.dims, &b.dims).and_then(|d| broadcast_dims(&d, &dims));
        if let (Ok(all), true) = (all, a.dtype == b.dtype) {
            let range = Range {
                low: a.range.low.min(b.range.low),
                high: a.range.high.max(b.range.high),
                error: a.range.error.max(b.range.error),
            };
            let test = Value {
                name: test,
                dtype: Bool,
                dims: dims.to_vec(),
                range: Range::exact(0.0, 1.0),
            };
            self.node(
                "SelectV2",
                &[&test, &a, &b],
                &format!("T: {}", a.dtype),
                a.dtype,
                &all,
                range,
            );
        }
    }

    fn cast(&mut self) {
        let x = self.any_value();
        let to = self.random.pick(&[F32, F16, BF16]);
        let attrs = format!("SrcT: {}, DstT: {to}, Truncate: false", x.dtype);
        self.node("Cast", &[&x], &attrs, to, &x.dims, x.range);
    }

    /// A small constant: a scalar, or a tensor of equal elements.
    fn scalar(&mut self) {
        let dtype = self.any_value().dtype;
        let dims = if self.random.below(3) == 0 { self.dims() } else { Vec::new() };
        let value = self.random.pick(&[0.5, 2.0, -1.0, 1.0, 0.044_715, 0.0]);
        self.constant(dtype, &dims, value);
    }

    /// What does not change values: other ops, or another device.
    fn pass(&mut self) {
        let x = self.any_value();
        let op = self.random.pick(&["Identity", "StopGradient", "Neg"]);
        let range = if op == "Neg" { unary(op, x.range) } else { Some(x.range) };
        let Some(made) = self.node(
            op,
            &[&x],
            &format!("T: {}", x.dtype),
            x.dtype,
            &x.dims,
            range.unwrap_or(x.range),
        ) else {
            return;
        };
        if self.random.below(2) == 0 {
            let line = format!("{} = {op}({}) {{T: {}}}", made.name, x.name, x.dtype);
            self.case.text = self.case.text.replace(&line, &format!("{line} @CPU:0"));
        }
    }

    fn reshape(&mut self) {
        let x = self.any_value();
        let count: usize = x.dims.iter().product();
        let dims =
            if self.random.below(2) == 0 { vec![count] } else { [&[1], &x.dims[..]].concat() };
        let shape = self.indices(&dims.iter().map(|d| *d as i64).collect::<Vec<_>>());
        let attrs = format!("T: {}, Tshape: int32", x.dtype);
        let shape = Value { name: shape, dtype: I32, dims: vec![dims.len()], range: x.range };
        self.node("Reshape", &[&x, &shape], &attrs, x.dtype, &dims, x.range);
    }

    fn reduction(&mut self) {
        let x = self.any_value();
        let axes: Vec<i64> =
            (0..x.dims.len() as i64).filter(|_| self.random.below(2) == 0).collect();
        let op = self.random.pick(&["Sum", "Mean", "Max", "Min"]);
        let keep = self.random.below(2) == 0;
        self.reduce(op, &x, &axes, keep);
    }

    pub fn reduce(&mut self, op: &str, x: &Value, axes: &[i64], keep: bool) -> Option<Value> {
        if x.dims.contains(&0) {
            return None;
        }
        let reduced = |i: usize| axes.contains(&(i as i64));
        let count: usize = (0..x.dims.len()).filter(|i| reduced(*i)).map(|i| x.dims[i]).product();
        let dims: Vec<usize> = (0..x.dims.len())
            .filter(|i| keep || !reduced(*i))
            .map(|i| if reduced(i) { 1 } else { x.dims[i] })
            .collect();
        // Sums are rounded on the way; 16-bit types are summed in f32.
        let sum = x.range.times(count as f64);
        let sum = Range { error: sum.error + 1e-6 * sum.size(), ..sum };
        let range = match op {
            "Sum" => sum,
            "Mean" => sum.times(1.0 / count as f64),
            _ => x.range,
        };
        let axes: Vec<i64> = axes
            .iter()
            .map(|a| if self.random.below(2) == 0 { *a } else { a - x.dims.len() as i64 })
            .collect();
        let name = self.indices(&axes);
        let index = Value { name, dtype: I32, dims: vec![axes.len()], range };
        let attrs = format!("T: {}, Tidx: int32, keep_dims: {keep}", x.dtype);
        self.node(op, &[x, &index], &attrs, x.dtype, &dims, range)
    }

    /// A control edge from an earlier node to a later one.
    fn wait(&mut self) {
        let (mut first, mut second) =
            (self.random.below(self.names), self.random.below(self.names));
        if first > second {
            std::mem::swap(&mut first, &mut second);
        }
        if self.conditional.iter().any(|nodes| nodes.contains(&first))
            || !self.scopes.may_wait(second, first)
        {
            return;
        }
        let start = format!("n{second} = ");
        let Some(at) = self.case.text.find(&format!("\n{start}")) else { return };
        let line_start = at + 1 + start.len();
        let line = &self.case.text[line_start..];
        let line = &line[..line.find('\n').unwrap_or(line.len())];
        let control = format!("^n{first}");
        if first == second
            || line.contains(&format!("{control},"))
            || line.contains(&format!("{control})"))
        {
            return;
        }
        let op = line.find([' ', '(']).unwrap_or(line.len());
        let inserted = if line[op..].starts_with('(') {
            let close = line.find(')').unwrap();
            format!("{}, {control}{}", &line[..close], &line[close..])
        } else {
            format!("{}({control}){}", &line[..op], &line[op..])
        };
        self.case.text.replace_range(line_start..line_start + line.len(), &inserted);
    }

    /// Reads or writes a variable, perhaps a new one.
    fn variable(&mut self) {
        if self.variables.len() < 2 || self.random.below(4) == 0 {
            let dims = self.dims();
            self.new_variable(&dims, 2.0);
        }
        let at = self.random.below(self.variables.len());
        let x = self.any_value();
        match self.random.below(2) {
            0 => drop(self.read(at)),
            _ => {
                let op = self.random.pick(&[
                    "AssignVariableOp",
                    "AssignAddVariableOp",
                    "AssignSubVariableOp",
                ]);
                self.write(op, at, &x);
            }
        }
    }

    /// Adds a variable and returns its number.
    pub fn new_variable(&mut self, dims: &[usize], size: f64) -> usize {
        let values: Vec<f64> = (0..dims.iter().product())
            .map(|_| (self.random.below(2001) as f64 / 1000.0 - 1.0) * size)
            .collect();
        let attrs = format!(
            "dtype: float32, shape: shape {dims:?}, shared_name: \"v{}\"",
            self.variables.len()
        );
        let name = self.emit("VarHandleOp", &[], &attrs, Resource, &[]);
        self.case.variables.push((name.clone(), HostTensor::floats(F32, dims, &values)));
        let value =
            Value { name, dtype: F32, dims: dims.to_vec(), range: Range::exact(-size, size) };
        self.variables.push(Variable { value, written: None, read: Vec::new() });
        self.variables.len() - 1
    }

    /// The variable's value as the writes before left it.
    pub fn read(&mut self, at: usize) -> Value {
        let Variable { value, written, .. } = self.variables[at].clone();
        let control = written.map(|w| format!("^{w}"));
        let inputs: Vec<&str> =
            std::iter::once(value.name.as_str()).chain(control.as_deref()).collect();
        let name = self.emit("ReadVariableOp", &inputs, "dtype: float32", F32, &value.dims);
        self.variables[at].read.push(name.clone());
        self.value(name, F32, &value.dims, value.range)
    }

    /// Writes a variable, where `x` has its type and shape and values stay small.
    pub fn write(&mut self, op: &str, at: usize, x: &Value) -> Option<()> {
        let Variable { value, written, read } = self.variables[at].clone();
        let range = match op {
            "AssignAddVariableOp" => binary("AddV2", value.range, x.range)?,
            "AssignSubVariableOp" => binary("Sub", value.range, x.range)?,
            _ => x.range,
        };
        let error = range.error + if op == "AssignVariableOp" { 0.0 } else { 2e-6 * range.size() };
        let range = Range { error, ..range };
        if x.dtype != F32
            || x.dims != value.dims
            || range.size() > 100.0
            || error > 0.05 * range.size().max(1.0)
        {
            return None;
        }
        let controls: Vec<String> =
            read.iter().chain(&written).map(|name| format!("^{name}")).collect();
        let inputs: Vec<&str> = [value.name.as_str(), &x.name]
            .into_iter()
            .chain(controls.iter().map(String::as_str))
            .collect();
        let attrs = if op == "AssignVariableOp" {
            "dtype: float32, validate_shape: false"
        } else {
            "dtype: float32"
        };
        let name = self.statement(op, &inputs, attrs);
        let variable = &mut self.variables[at];
        variable.value.range = range;
        variable.written = Some(name);
        variable.read.clear();
        Some(())
    }

    /// A boolean that the graph is fed with.
    pub fn condition(&mut self) -> String {
        if !self.scopes.is_outside() {
            return self.test();
        }
        let name = self.emit("Placeholder", &[], "dtype: bool", Bool, &[]);
        let value = HostTensor {
            dtype: Bool,
            dims: [].as_slice().into(),
            bytes: vec![self.random.below(2) as u8],
        };
        self.case.feeds.push((name.clone(), value));
        name
    }

    /// What `nodes` makes of one output of a `Switch` of `x`. Only the last value comes out of the
    /// branch, with the nodes that make it.
    pub fn in_branch(&mut self, x: &Value, switch: &str, port: usize) -> Value {
        let (values, names) = (self.values.len(), self.names);
        let name = if port == 0 { switch.to_owned() } else { format!("{switch}:{port}") };
        let mut last = self.value(name, x.dtype, &x.dims, x.range);
        for _ in 0..self.random.between(1, 4) {
            let op = self.random.pick(UNARY);
            let outside = self.values[self.random.below(values)].clone();
            let next = match self.random.below(5) {
                0 | 1 => self.apply(op, &last),
                2 => self.node(
                    "CheckNumerics",
                    &[&last],
                    "T: float32, message: \"m\"",
                    F32,
                    &last.dims,
                    last.range,
                ),
                _ if outside.dtype == last.dtype => self.combine("Mul", &outside, &last),
                _ => None,
            };
            last = next.filter(|next| next.dims == x.dims).unwrap_or(last);
        }
        self.values.truncate(values);
        self.conditional.push(names..self.names);
        last
    }

    /// A node without outputs that runs though nobody reads anything of it.
    pub fn effect(&mut self, op: &str, inputs: &[&str], attrs: &str) {
        let name = self.statement(op, inputs, attrs);
        self.statements.push(name);
    }

    /// The `Switch` of a value.
    pub fn switch(&mut self, x: &Value, condition: &str) -> String {
        let name = self.emit(
            "Switch",
            &[&x.name, condition],
            &format!("T: {}", x.dtype),
            x.dtype,
            &x.dims,
        );
        if let Some(shape) =
            self.case.text.trim_end().rsplit_once(" -> ").map(|(_, shape)| shape.to_owned())
            && self.shapes != Shapes::Unknown
        {
            self.case.text.truncate(self.case.text.trim_end().len());
            let _ = writeln!(self.case.text, ", {shape}");
        }
        self.conditional.push(self.names - 1..self.names);
        name
    }

    /// A node without outputs.
    pub fn statement(&mut self, op: &str, inputs: &[&str], attrs: &str) -> String {
        let shapes = std::mem::replace(&mut self.shapes, Shapes::Unknown);
        let name = self.emit(op, inputs, attrs, F32, &[]);
        self.shapes = shapes;
        name
    }

    /// Makes some tensors the graph's results: through nodes of their own, or directly.
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
        // As in a function, the last writes run because its end waits for them.
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
        // Decisions that nothing needs are of no interest.
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

/// The nodes that a node uses, by data and control, each with the node's own name.
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

/// The graph without nodes that no preserved one needs: TensorFlow prunes them before.
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
