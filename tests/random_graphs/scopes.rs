//! The loops and branches around a node that is being written, and the ways in which values enter
//! them.

use tensorflow_wgpu::DType::{Bool, F32, I32};

use super::functions::Range;
use super::generate::{Generator, Value};

/// A step of a loop, or a branch.
#[derive(Debug, Clone)]
pub struct Scope {
    number: usize,
    /// A node that runs if and only if the step or the branch does.
    pivot: String,
    kind: Kind,
    /// The values of the scope around it.
    around: Vec<Value>,
    statements: Vec<String>,
    /// Exact scalars of int32: counters.
    pub counters: Vec<Value>,
    /// The names of entered values, with their values outside.
    brought: Vec<(String, Value)>,
}

#[derive(Debug, Clone)]
pub enum Kind {
    /// Frame and condition.
    Loop(String, String),
    /// The decision, a bool or an index; the branch's number; and the number of branches.
    Branch(Value, usize, usize),
}

/// All scopes around a node, and the scope of each node that was written.
#[derive(Debug, Clone, Default)]
pub struct Scopes {
    open: Vec<Scope>,
    /// By node: the scope's number; nothing for nodes that are the frame of loops and branches.
    of: Vec<Option<usize>>,
    /// For each scope, by number: the scope around it, if a node may wait for a node of that scope.
    waits: Vec<Option<usize>>,
    /// Frames of loops and branches are being written.
    pub is_frame: bool,
}

impl Scopes {
    pub fn is_outside(&self) -> bool {
        self.open.is_empty()
    }

    /// Whether the graph has loops or branches with scopes.
    pub fn were_open(&self) -> bool {
        !self.waits.is_empty()
    }

    pub fn depth(&self) -> usize {
        self.open.len()
    }

    pub fn innermost(&mut self) -> Option<&mut Scope> {
        self.open.last_mut()
    }

    /// The control edge of nodes without inputs.
    pub fn pivot(&self) -> Option<&str> {
        self.open.last().map(|scope| scope.pivot.as_str())
    }

    /// Notes the scope of a new node.
    pub fn note(&mut self) {
        let number = self.open.last().map_or(0, |scope| scope.number);
        self.of.push((!self.is_frame).then_some(number));
    }

    /// Whether the node `second` may wait for the earlier node `first`: it is in the same scope, or
    /// in a branch inside that scope.
    pub fn may_wait(&self, second: usize, first: usize) -> bool {
        let (Some(mut own), Some(wanted)) = (self.of[second], self.of[first]) else { return false };
        while own != wanted {
            let Some(around) = own.checked_sub(1).and_then(|at| self.waits[at]) else {
                return false;
            };
            own = around;
        }
        true
    }
}

impl Generator {
    /// Opens a scope of these values; `pivot` has its `^`.
    pub fn open(&mut self, pivot: String, kind: Kind, values: Vec<Value>, counters: Vec<Value>) {
        let around = self.scopes.open.last().map_or(0, |scope| scope.number);
        let is_branch = matches!(kind, Kind::Branch(..));
        self.scopes.waits.push(is_branch.then_some(around));
        self.scopes.open.push(Scope {
            number: self.scopes.waits.len(),
            pivot,
            kind,
            around: std::mem::replace(&mut self.values, values),
            statements: std::mem::take(&mut self.statements),
            counters,
            brought: Vec::new(),
        });
    }

    /// Closes the innermost scope.
    pub fn close(&mut self) {
        let scope = self.scopes.open.pop().expect("a scope is open");
        self.values = scope.around;
        self.statements = scope.statements;
    }

    /// Writes a node outside of all scopes, and brings its value in.
    pub fn read_outside(&mut self, write: impl FnOnce(&mut Self) -> Value) -> Value {
        let open = std::mem::take(&mut self.scopes.open);
        let values = std::mem::take(&mut self.values);
        let value = write(self);
        self.scopes.open = open;
        self.values = values;
        self.bring(value, 0)
    }

    /// A float of some scope around the innermost one, brought into it.
    pub fn captured(&mut self) -> Value {
        let depth = self.random.below(self.scopes.depth());
        let value = self.random.pick_of(&self.scopes.open[depth].around);
        self.bring(value, depth)
    }

    /// A bool of the innermost scope: fed, or a comparison of a counter.
    pub fn test(&mut self) -> String {
        let counters = self.scopes.innermost().map(|scope| scope.counters.clone());
        let counters = counters.unwrap_or_default();
        if counters.is_empty() || self.random.below(2) == 0 {
            let made = self.read_outside(|g| {
                let name = g.condition();
                Value { name, dtype: Bool, dims: Vec::new(), range: Range::exact(0.0, 1.0) }
            });
            self.values.retain(|value| value.name != made.name);
            return made.name;
        }
        let counter = self.random.pick_of(&counters);
        let limit = self.random.below(4);
        let limit = self.axis(limit);
        self.emit("Less", &[&counter.name, &limit.name], "T: int32", Bool, &[])
    }

    /// Brings a value, of the scope around the one of this depth, into the innermost one.
    pub fn bring(&mut self, mut value: Value, depth: usize) -> Value {
        let is_frame = std::mem::replace(&mut self.scopes.is_frame, true);
        for depth in depth..self.scopes.depth() {
            value = self.bring_in(value, depth);
        }
        self.scopes.is_frame = is_frame;
        if value.dtype.is_float() && !self.values.iter().any(|known| known.name == value.name) {
            self.values.push(value.clone());
        }
        value
    }

    fn bring_in(&mut self, value: Value, depth: usize) -> Value {
        let scope = self.scopes.open[depth].clone();
        let known: Vec<_> =
            scope.brought.iter().filter(|known| known.0 == value.name).cloned().collect();
        if !known.is_empty() && self.random.below(2) == 0 {
            return self.random.pick_of(&known).1;
        }
        let attrs = format!("T: {}", value.dtype);
        let name = match &scope.kind {
            Kind::Loop(frame, condition) => self.enter_step(&value, frame, condition),
            Kind::Branch(decision, at, of) => self.decide(&value, decision, *at, *of),
        };
        let inner = Value { name, ..value.clone() };
        // The output of a Switch inside a scope exists only inside.
        let inner = if inner.name.contains(':') && self.random.below(2) == 0 {
            let name = self.emit("Identity", &[&inner.name], &attrs, inner.dtype, &inner.dims);
            Value { name, ..inner }
        } else {
            inner
        };
        self.scopes.open[depth].brought.push((value.name, inner.clone()));
        inner
    }

    /// A value that is the same in every step: entered as a constant and read directly or through a
    /// `Switch`, or carried from step to step.
    fn enter_step(&mut self, value: &Value, frame: &str, condition: &str) -> String {
        let form = self.random.below(3);
        let attrs = format!("T: {}", value.dtype);
        let enter = self.enter(value, frame, form != 0);
        let (dtype, dims) = (value.dtype, &value.dims[..]);
        let from = match form {
            0 => self.merge_with_next(&enter, value),
            1 => enter,
            _ => return enter,
        };
        let switch = self.emit_all("Switch", &[&from, condition], &attrs, dtype, dims, 2);
        let step = format!("{switch}:1");
        if form == 0 {
            self.next(&from, &step, value);
        }
        step
    }

    pub fn enter(&mut self, value: &Value, frame: &str, is_constant: bool) -> String {
        let attrs = format!(
            "T: {}, frame_name: {frame:?}, is_constant: {is_constant}, parallel_iterations: 10",
            value.dtype
        );
        self.emit("Enter", &[&value.name], &attrs, value.dtype, &value.dims)
    }

    /// The `Merge` of a value with that of the next step, which [`Self::next`] writes.
    pub fn merge_with_next(&mut self, enter: &str, value: &Value) -> String {
        // The name of the later node can be derived from this one's.
        let name = format!("{enter}_merge");
        let attrs = format!("N: 2, T: {}", value.dtype);
        let outputs = [(value.dtype, &value.dims[..]), (I32, &[])];
        self.emit_as(&name, "Merge", &[enter, &format!("{name}_next")], &attrs, &outputs);
        name
    }

    pub fn next(&mut self, merge: &str, from: &str, value: &Value) {
        let attrs = format!("T: {}", value.dtype);
        let outputs = [(value.dtype, &value.dims[..])];
        self.emit_as(&format!("{merge}_next"), "NextIteration", &[from], &attrs, &outputs);
    }

    /// One output of a `Switch`, or of a `_SwitchN`.
    pub fn decide(&mut self, value: &Value, decision: &Value, at: usize, of: usize) -> String {
        let (dtype, dims) = (value.dtype, &value.dims[..]);
        let inputs = [value.name.as_str(), decision.name.as_str()];
        let name = if decision.dtype == Bool {
            self.emit_all("Switch", &inputs, &format!("T: {dtype}"), dtype, dims, 2)
        } else {
            let attrs = format!("T: {dtype}, num_outs: {of}");
            self.emit_all("_SwitchN", &inputs, &attrs, dtype, dims, of)
        };
        if at == 0 { name } else { format!("{name}:{at}") }
    }

    /// A float with the value of a counter.
    pub fn counted(&mut self, counter: &Value) -> Value {
        let attrs = "SrcT: int32, DstT: float32, Truncate: false";
        let name = self.emit("Cast", &[&counter.name], attrs, F32, &[]);
        self.value(name, F32, &[], Range::exact(0.0, 4.0))
    }
}
