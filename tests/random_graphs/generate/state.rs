//! Variables, control edges and branches, which make the order of nodes matter.

use std::fmt::Write;

use tensorflow_wgpu::DType::*;
use tensorflow_wgpu::HostTensor;

use super::super::functions::{Range, UNARY, binary};
use super::{Generator, Shapes, Value, Variable};

impl Generator {
    /// A control edge from an earlier node to a later one.
    pub(super) fn wait(&mut self) {
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
    pub(super) fn variable(&mut self) {
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

    /// Reads the variable's value after the earlier writes.
    pub fn read(&mut self, at: usize) -> Value {
        let Variable { value, written, .. } = self.variables[at].clone();
        let control = written.map(|w| format!("^{w}"));
        let inputs: Vec<&str> =
            std::iter::once(value.name.as_str()).chain(control.as_deref()).collect();
        let name = self.emit("ReadVariableOp", &inputs, "dtype: float32", F32, &value.dims);
        self.variables[at].read.push(name.clone());
        self.value(name, F32, &value.dims, value.range)
    }

    /// Writes a variable, if `x` has its type and shape and values stay small.
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

    /// The result of `nodes` on one output of a `Switch` of `x`. Only the last value leaves the
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

    /// A node without outputs that runs though it has no readers.
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
}
