//! One member of an update: assignments to variables of one shape that build on each other, with
//! all elementwise nodes between them.

use rustc_hash::{FxHashMap, FxHashSet};

use super::view::View;
use crate::kernels::expression::Value;
use crate::kernels::fused::cost;
use crate::kernels::fused::update;
use crate::optimizer::emit::Draft;
use crate::optimizer::graph::{NodeId, Output};
use crate::optimizer::history::Writer;
use crate::optimizer::legality::check;
use crate::optimizer::meaning::{Engine, Scalar, number};
use crate::optimizer::refusal::Refusal;
use crate::optimizer::variables::Variable;

/// A part of a fused node, which replaces some nodes.
#[derive(Debug, Clone)]
pub struct Member {
    /// The assignments, in their order.
    pub assigns: Vec<NodeId>,
    /// The place of the last assignment in the order of the graph's nodes.
    pub place: u32,
    /// The nodes to remove: assignments, and the calls and reads that only they need.
    pub nodes: Vec<NodeId>,
    /// Reads that stay and see values that the member overwrites. The member must run after them.
    pub after: Vec<NodeId>,
    /// Reads that stay and see values that the member writes. They wait for it, although some of
    /// its nodes read them.
    pub before: Vec<NodeId>,
    /// The variables.
    pub handles: Vec<Output>,
    /// Inputs of the variables' shape, or with one element.
    pub tensors: Vec<Output>,
    /// Inputs with one element that members may share.
    pub scalars: Vec<Output>,
    /// The new values, computed from the old ones, the tensors and the scalars.
    pub draft: Draft,
    /// The number of its nodes that take a dispatch without fusion.
    pub dispatches: usize,
}

/// The source of a value.
enum Source {
    /// The variable's value before the member.
    Old(Variable),
    /// The value that an assignment of the member gave its variable.
    New(NodeId),
    Constant(f32),
    Tensor(Output),
    Scalar(Output),
    Call(NodeId, Scalar),
}

/// The largest number of steps in an expression.
const MAX_STEPS: usize = 96;

/// Builds the member for some assignments.
pub struct Builder<'v, 'g> {
    view: &'v View<'g>,
    /// The assignments, in their order.
    assigns: &'v [NodeId],
    dims: Vec<usize>,
    /// The assignments that pass a value to another one.
    linked: FxHashSet<NodeId>,
    /// Calls that nodes outside need too. They stay, and the member reads them.
    outside: FxHashSet<NodeId>,
    /// Whether scalars count as tensors.
    own_scalars: bool,
    roles: Roles,
}

#[derive(Default)]
struct Roles {
    variables: Vec<Variable>,
    tensors: Vec<Output>,
    scalars: Vec<Output>,
    /// Calls, and reads of old and new values.
    inside: Vec<NodeId>,
    seen: FxHashSet<NodeId>,
}

impl<'v, 'g> Builder<'v, 'g> {
    /// A builder for assignments in their order, all of which are candidates.
    pub fn new(view: &'v View<'g>, assigns: &'v [NodeId], own_scalars: bool) -> Option<Self> {
        let dims = view.dims(assigns[0])?;
        let alike = assigns.iter().all(|a| {
            view.dims(*a).as_ref() == Some(&dims) && view.together(assigns[0], *a).is_ok()
        });
        alike.then_some(Self {
            view,
            assigns,
            linked: linked(view, assigns, &dims),
            dims,
            outside: FxHashSet::default(),
            own_scalars,
            roles: Roles::default(),
        })
    }

    /// The member, or nothing if it would not be legal.
    pub fn build(mut self) -> Option<Member> {
        loop {
            self.find_roles()?;
            let shared: Vec<NodeId> = self.calls().filter(|n| self.is_needed_outside(*n)).collect();
            if shared.is_empty() {
                break;
            }
            shared.iter().for_each(|id| self.refuse(*id, Refusal::ReadElsewhere));
            self.outside.extend(shared);
        }
        let reads: Vec<NodeId> = self
            .roles
            .inside
            .iter()
            .copied()
            .filter(|n| self.view.graph.node(*n).op() == "ReadVariableOp")
            .collect();
        let (kept, own): (Vec<_>, Vec<_>) = reads
            .into_iter()
            .partition(|r| self.view.graph.is_preserved(*r) || self.is_needed_outside(*r));
        let mut nodes: Vec<NodeId> =
            self.assigns.iter().copied().chain(self.calls()).chain(own).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let (before, after): (Vec<_>, Vec<_>) =
            kept.into_iter().partition(|r| matches!(self.source_of_read(*r), Source::New(_)));
        before.iter().all(|r| self.sees_the_end(*r)).then_some(())?;
        let handles =
            self.roles.variables.iter().map(|v| self.handle(v)).collect::<Option<Vec<_>>>()?;
        let draft = self.draft()?;
        let types = draft.expression.inputs().to_vec();
        let (old, others) = types.split_at(handles.len());
        let (own, shared) = others.split_at(self.roles.tensors.len());
        let takes = |n: &&NodeId| {
            !matches!(self.view.graph.node(**n).op(), "ReadVariableOp" | "AssignVariableOp")
        };
        let member = Member {
            assigns: self.assigns.to_vec(),
            place: self.assigns.last().map_or(0, |last| self.view.places.of(*last)),
            dispatches: nodes.iter().filter(takes).count(),
            nodes,
            after,
            before,
            handles,
            tensors: self.roles.tensors.clone(),
            scalars: self.roles.scalars.clone(),
            draft,
        };
        let legal = check(update::fits(old, own, shared), Refusal::TooManyTensors)
            .and_then(|()| {
                Refusal::check_size(cost::elementwise(cost::expression(&member.draft.expression)))
            })
            .and_then(|()| {
                let other = types.iter().find(|dtype| !Engine::Update.holds(**dtype));
                other.map_or(Ok(()), |dtype| Err(Refusal::Type(*dtype)))
            });
        if let Err(refusal) = legal {
            self.calls().for_each(|id| self.refuse(id, refusal));
        }
        legal.ok().map(|()| member)
    }

    /// Writes down why the update does not compute a node.
    fn refuse(&self, id: NodeId, refusal: Refusal) {
        self.view.graph.refuse("update", [id, self.assigns[0]], refusal);
    }

    fn calls(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.roles
            .inside
            .iter()
            .copied()
            .filter(|n| self.view.graph.node(*n).op() != "ReadVariableOp")
    }

    /// Whether a node outside the member reads this one.
    fn is_needed_outside(&self, id: NodeId) -> bool {
        let inside = |n: NodeId| self.assigns.contains(&n) || self.roles.seen.contains(&n);
        self.view
            .graph
            .readers_in_any_order(Output { node: id, port: 0 })
            .any(|(reader, _)| !inside(reader))
    }

    /// Whether a read of a new value sees the member's final value, not one that it overwrites
    /// again.
    fn sees_the_end(&self, read: NodeId) -> bool {
        let variable = self.view.variable(read);
        let last = self.assigns.iter().rev().find(|a| self.view.variable(**a) == variable);
        last.is_some_and(|last| self.view.last_writer(read) == Writer::Node(*last))
    }

    fn find_roles(&mut self) -> Option<()> {
        self.roles = Roles::default();
        // Visits assignments from the last one backwards, so that equal members name equal values
        // alike, in whatever order their nodes come.
        let assigns = self.assigns;
        let mut done = FxHashSet::default();
        for assign in assigns.iter().rev() {
            if !self.linked.contains(assign) {
                self.visit_assign(*assign, &mut done)?;
            }
        }
        (done.len() == assigns.len() && self.roles.inside.len() <= MAX_STEPS).then_some(())
    }

    fn visit_assign(&mut self, assign: NodeId, done: &mut FxHashSet<NodeId>) -> Option<()> {
        if !done.insert(assign) {
            return Some(());
        }
        let before = self.view.last_writer(assign);
        match before {
            Writer::Unknown => return None,
            Writer::Node(w) if self.assigns.contains(&w) => self.visit_assign(w, done)?,
            // The member must be the first to write the old value.
            _ => {}
        }
        self.visit(self.view.value(assign), done)?;
        let variable = self.view.variable(assign)?.clone();
        if !self.roles.variables.contains(&variable) {
            self.roles.variables.push(variable);
        }
        Some(())
    }

    fn visit(&mut self, tensor: Output, done: &mut FxHashSet<NodeId>) -> Option<()> {
        match self.source(tensor)? {
            Source::Constant(_) => {}
            Source::Tensor(t) => push(&mut self.roles.tensors, t),
            Source::Scalar(t) => push(&mut self.roles.scalars, t),
            Source::Old(_) => self.take_in(tensor.node),
            Source::New(assign) => {
                self.take_in(tensor.node);
                self.visit_assign(assign, done)?;
            }
            Source::Call(id, _) => {
                if self.roles.seen.contains(&id) {
                    return Some(());
                }
                self.take_in(id);
                if self.roles.inside.len() > MAX_STEPS {
                    return None;
                }
                for input in self.view.graph.node(id).inputs() {
                    self.visit(*input, done)?;
                }
            }
        }
        Some(())
    }

    fn take_in(&mut self, id: NodeId) {
        if self.roles.seen.insert(id) {
            self.roles.inside.push(id);
        }
    }

    /// The source of a value; `None` for a value that an update cannot take.
    fn source(&self, tensor: Output) -> Option<Source> {
        let view = self.view;
        if let Some(number) = number(view.graph, tensor) {
            return Some(Source::Constant(number.value));
        }
        let info = view.graph.info(tensor);
        let full = info.has_dims(&self.dims);
        if full && tensor.port == 0 && !self.outside.contains(&tensor.node) {
            let is_read = view.graph.node(tensor.node).op() == "ReadVariableOp";
            match view.together(tensor.node, self.assigns[0]) {
                Ok(()) if is_read => return Some(self.source_of_read(tensor.node)),
                legal => match legal.and_then(|()| view.call(tensor.node, &self.dims)) {
                    Ok(scalar) => return Some(Source::Call(tensor.node, scalar)),
                    Err(refusal) => self.refuse(tensor.node, refusal),
                },
            }
        }
        if !view.fits(info, &self.dims) {
            return None;
        }
        Some(if full || self.own_scalars { Source::Tensor(tensor) } else { Source::Scalar(tensor) })
    }

    /// The source of a read of the variables' shape.
    fn source_of_read(&self, read: NodeId) -> Source {
        let view = self.view;
        let tensor = Source::Tensor(Output { node: read, port: 0 });
        let (writer, Some(variable)) = (view.last_writer(read), view.variable(read)) else {
            return tensor;
        };
        let first = self.assigns.iter().copied().find(|a| view.variable(*a) == Some(variable));
        match (writer, first) {
            (Writer::Unknown, _) | (_, None) => tensor,
            (Writer::Node(w), _) if self.assigns.contains(&w) => Source::New(w),
            // The same number of writers comes before the read and the assignment, and all others
            // certainly come after the read: the assignment is the next writer.
            (w, Some(first))
                if view.last_writer(first) == w
                    && view.history.place(first) == view.history.place(read) =>
            {
                Source::Old(variable.clone())
            }
            _ => tensor,
        }
    }

    /// The handle of a variable, taken from the first assignment.
    fn handle(&self, variable: &Variable) -> Option<Output> {
        let first = self.assigns.iter().find(|a| self.view.variable(**a) == Some(variable))?;
        Some(self.view.graph.node(*first).inputs()[0])
    }

    /// The computation of the new values.
    fn draft(&self) -> Option<Draft> {
        let view = self.view;
        let mut draft = Draft::default();
        let mut known = FxHashMap::default();
        let mut old = FxHashMap::default();
        for variable in &self.roles.variables {
            let first = self.assigns.iter().find(|a| view.variable(**a) == Some(variable))?;
            old.insert(variable.clone(), draft.input(view.graph.node(*first).dtype("dtype")?));
        }
        let mut inputs = FxHashMap::default();
        for tensor in self.roles.tensors.iter().chain(&self.roles.scalars) {
            inputs.insert(*tensor, draft.input(view.graph.info(*tensor).dtype?));
        }
        // The values of variables so far, and the value that each assignment gave.
        let mut new: FxHashMap<NodeId, Value> = FxHashMap::default();
        for assign in self.assigns {
            let node = view.graph.node(*assign);
            let (dtype, variable) = (node.dtype("dtype")?, view.variable(*assign)?);
            let before = match view.last_writer(*assign) {
                Writer::Node(w) if self.assigns.contains(&w) => *new.get(&w)?,
                _ => old[variable],
            };
            let given = Given { old: &old, inputs: &inputs, new: &new };
            let value = self.evaluate(view.value(*assign), &mut draft, &mut known, &given)?;
            let result = match node.op() {
                "AssignAddVariableOp" => draft.row("AddV2", dtype, &[before, value])?,
                "AssignSubVariableOp" => draft.row("Sub", dtype, &[before, value])?,
                // Only if the old value has been read is it certain that the variable has a value
                // of this shape.
                _ if self.reads_old(variable) => value,
                _ => return None,
            };
            (draft.expression.dtype(result).ok()? == Some(dtype)).then_some(())?;
            new.insert(*assign, result);
        }
        for variable in &self.roles.variables {
            let last = self.assigns.iter().rev().find(|a| view.variable(**a) == Some(variable))?;
            draft.output(new[last]);
        }
        Some(draft)
    }

    /// Whether the member reads a variable's old value or adds to it.
    fn reads_old(&self, variable: &Variable) -> bool {
        let adds = |a: &NodeId| self.view.graph.node(*a).op() != "AssignVariableOp";
        let first = self.assigns.iter().find(|a| self.view.variable(**a) == Some(variable));
        first.is_some_and(adds)
            || self.roles.inside.iter().any(|n| {
                self.view.variable(*n) == Some(variable)
                    && matches!(self.source_of_read(*n), Source::Old(_))
            })
    }

    fn evaluate(
        &self,
        tensor: Output,
        draft: &mut Draft,
        known: &mut FxHashMap<NodeId, Value>,
        given: &Given<'_>,
    ) -> Option<Value> {
        match self.source(tensor)? {
            Source::Constant(value) => Some(draft.constant(value)),
            Source::Tensor(t) | Source::Scalar(t) => given.inputs.get(&t).copied(),
            Source::Old(variable) => given.old.get(&variable).copied(),
            Source::New(assign) => given.new.get(&assign).copied(),
            Source::Call(id, scalar) => {
                if let Some(value) = known.get(&id) {
                    return Some(*value);
                }
                let mut args = Vec::with_capacity(4);
                for input in self.view.graph.node(id).inputs() {
                    args.push(self.evaluate(*input, draft, known, given)?);
                }
                let value = draft.scalar(&scalar, &args)?;
                known.insert(id, value);
                Some(value)
            }
        }
    }
}

/// The values from outside an expression, and those that assignments gave their variables.
struct Given<'a> {
    old: &'a FxHashMap<Variable, Value>,
    inputs: &'a FxHashMap<Output, Value>,
    new: &'a FxHashMap<NodeId, Value>,
}

/// The assignments of a member on which another one builds.
fn linked(view: &View<'_>, assigns: &[NodeId], dims: &[usize]) -> FxHashSet<NodeId> {
    let mut linked = FxHashSet::default();
    for assign in assigns.iter().copied() {
        for user in view.reads_of(assign, dims).into_iter().chain([assign]) {
            if let Writer::Node(writer) = view.last_writer(user)
                && writer != assign
            {
                linked.insert(writer);
            }
        }
    }
    linked
}

fn push(list: &mut Vec<Output>, tensor: Output) {
    if !list.contains(&tensor) {
        list.push(tensor);
    }
}

impl View<'_> {
    /// The reads of the variables' shape from which an assignment's value follows by elementwise
    /// calls.
    pub fn reads_of(&self, assign: NodeId, dims: &[usize]) -> Vec<NodeId> {
        let (mut reads, mut seen) = (Vec::new(), FxHashSet::default());
        let mut stack = vec![self.value(assign)];
        while let Some(tensor) = stack.pop() {
            let together = self.together(tensor.node, assign).is_ok();
            if tensor.port != 0 || !together || !seen.insert(tensor.node) {
                continue;
            }
            if self.graph.node(tensor.node).op() == "ReadVariableOp" {
                if self.graph.info(tensor).has_dims(dims) {
                    reads.push(tensor.node);
                }
            } else if seen.len() <= 2 * MAX_STEPS && self.call(tensor.node, dims).is_ok() {
                stack.extend(self.graph.node(tensor.node).inputs());
            }
        }
        reads
    }
}
