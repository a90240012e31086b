//! The program of a region.

use rustc_hash::FxHashMap;

use super::member::{Extent, Role, parameter};
use super::region::{Region, Scene};
use crate::kernels::expression::{Call, Expression, Value};
use crate::kernels::fused::rowwise::OP;
use crate::kernels::fused::rowwise::program::{Action, Output as ProgramOutput, RowProgram, Stage};
use crate::kernels::fused::rowwise::walk::Shapes;
use crate::kernels::reduce::table::Reduction;
use crate::optimizer::attr::Attr;
use crate::optimizer::graph::{NewNode, NodeId, Output};
use crate::optimizer::shape::{Dim, TensorInfo};
use crate::tensor::Dims;

/// A node, and the tensors of the graph that its outputs replace.
pub struct Replacement {
    /// The node.
    pub node: NewNode,
    /// Each tensor, with the node's port that replaces it.
    pub outputs: Vec<(Output, u32)>,
}

/// The node of a region, and the region's tensors that it replaces; `None` if no program computes
/// the region.
pub fn build(scene: &Scene<'_>, region: &Region) -> Option<Replacement> {
    let mut builder = Builder::new(scene, region)?;
    let program = builder.program()?;
    let exports = scene.exports(region);
    if !means_the_same(scene, &program, &builder.inputs, &exports) {
        return None;
    }
    let graph = scene.graph;
    let last = graph.node(*exports.last()?);
    let infos: Vec<TensorInfo> = exports.iter().map(|id| graph.info(output(*id)).clone()).collect();
    let node = NewNode {
        name: format!("{}/fused_rowwise", last.name()),
        op: OP.to_owned(),
        device: last.device().to_owned(),
        attrs: vec![
            ("T_in", program.inputs().into()),
            ("T_out", Attr::from(&program.output_types()[..])),
            ("axes", Attr::from(&scene.space.axes[..])),
            ("constants", Attr::from(&builder.constants[..])),
            ("program", program.to_string().into()),
        ],
        inputs: builder.inputs,
        controls: Vec::new(),
        infos,
    };
    let outputs = exports.iter().enumerate().map(|(port, id)| (output(*id), port as u32)).collect();
    Some(Replacement { node, outputs })
}

fn output(id: NodeId) -> Output {
    Output { node: id, port: 0 }
}

/// Whether the kernel gives the outputs the shapes that TensorFlow knows. Unknown extents that are
/// known to be equal are replaced by unique numbers for this test.
fn means_the_same(
    scene: &Scene<'_>,
    program: &RowProgram,
    inputs: &[Output],
    exports: &[NodeId],
) -> bool {
    const SYMBOLS: usize = 1_000_003;
    let sample = |t: Output| -> Option<Dims> {
        let of = |d: &Dim| match d {
            Dim::Known(n) => Some(*n),
            Dim::Symbol(s) => Some(SYMBOLS + *s as usize),
            Dim::Unknown => None,
        };
        scene.graph.info(t).shape.as_ref()?.iter().map(of).collect()
    };
    let Some(dims) = inputs.iter().map(|t| sample(*t)).collect::<Option<Vec<_>>>() else {
        return false;
    };
    let wanted: Option<Vec<Dims>> = exports.iter().map(|id| sample(output(*id))).collect();
    let types: Option<Vec<_>> =
        exports.iter().map(|id| scene.graph.info(output(*id)).dtype).collect();
    let shapes = Shapes::infer(program, &dims, &scene.space.axes);
    shapes.is_ok_and(|shapes| Some(shapes.outputs) == wanted)
        && types == Some(program.output_types())
}

struct Builder<'s> {
    scene: &'s Scene<'s>,
    /// Members and copies, in topological order.
    nodes: Vec<NodeId>,
    exports: Vec<NodeId>,
    roles: FxHashMap<NodeId, (Role, Extent)>,
    /// The number of reductions on the longest path to a node.
    levels: FxHashMap<NodeId, usize>,
    inputs: Vec<Output>,
    constants: Vec<f32>,
    /// The indices of the row values.
    rows: FxHashMap<NodeId, usize>,
    /// The types of the row values.
    row_types: Vec<crate::dtype::DType>,
}

impl<'s> Builder<'s> {
    fn new(scene: &'s Scene<'s>, region: &Region) -> Option<Self> {
        let nodes = scene.nodes(region);
        let roles = nodes
            .iter()
            .map(|id| Some((*id, scene.role(*id)?)))
            .collect::<Option<FxHashMap<_, _>>>()?;
        let mut levels: FxHashMap<NodeId, usize> = FxHashMap::default();
        for id in &nodes {
            let behind = |input: &Output| {
                let is_reduced = matches!(roles.get(&input.node), Some((Role::Reduce(_), _)));
                levels.get(&input.node).map_or(0, |level| level + usize::from(is_reduced))
            };
            let level = scene.inputs(*id).iter().map(behind).max().unwrap_or(0);
            levels.insert(*id, level);
        }
        let mut builder = Self {
            scene,
            nodes,
            exports: scene.exports(region),
            roles,
            levels,
            inputs: scene.tensors(region),
            constants: Vec::new(),
            rows: FxHashMap::default(),
            row_types: Vec::new(),
        };
        builder.find_constants()?;
        Some(builder)
    }

    /// Lists the parameters: constants among the inputs, and attributes of functions.
    fn find_constants(&mut self) -> Option<()> {
        let graph = self.scene.graph;
        for id in self.nodes.clone() {
            if !matches!(self.roles[&id].0, Role::Call(_) | Role::Fold(_)) {
                continue;
            }
            let given = graph.node(id).inputs().iter().filter_map(|i| parameter(graph, id, *i));
            let mut values: Vec<f32> = given.collect();
            if let (Role::Call(call), _) = self.roles[&id]
                && call.has_attr()
            {
                values.push(self.attribute(id, call)?);
            }
            for value in values {
                if self.constant(value).is_none() {
                    self.constants.push(value);
                }
            }
        }
        Some(())
    }

    fn attribute(&self, id: NodeId, call: Call) -> Option<f32> {
        let Call::Row(row, _) = call else { return None };
        self.scene.graph.node(id).attr(row.attr?)?.float()
    }

    fn constant(&self, value: f32) -> Option<Value> {
        let at = self.constants.iter().position(|c| c.to_bits() == value.to_bits())?;
        Some(Value::Constant(at as u32))
    }

    /// An expression with the inputs and the row values so far.
    fn expression(&self) -> Option<Expression> {
        let mut e = Expression::new();
        for input in &self.inputs {
            e.input(self.scene.graph.info(*input).dtype?);
        }
        for dtype in &self.row_types {
            e.input(*dtype);
        }
        for _ in &self.constants {
            e.constant();
        }
        Some(e)
    }

    /// The tensor that is passed on as `input` by copies.
    fn source(&self, input: Output) -> Output {
        match self.roles.get(&input.node) {
            Some((Role::Copy, _)) => self.source(self.scene.graph.node(input.node).inputs()[0]),
            _ => input,
        }
    }

    /// The value of a tensor in `e`.
    fn value(
        &self,
        e: &mut Expression,
        known: &mut FxHashMap<NodeId, Value>,
        tensor: Output,
    ) -> Option<Value> {
        let tensor = self.source(tensor);
        let id = tensor.node;
        if let Some(row) = self.rows.get(&id) {
            return Some(Value::Input((self.inputs.len() + row) as u32));
        }
        let Some((role, _)) = self.roles.get(&id) else {
            return Some(Value::Input(self.inputs.iter().position(|i| *i == tensor)? as u32));
        };
        if let Some(value) = known.get(&id) {
            return Some(*value);
        }
        let graph = self.scene.graph;
        let mut args = Vec::new();
        for input in graph.node(id).inputs() {
            args.push(match parameter(graph, id, *input) {
                Some(constant) => self.constant(constant)?,
                None => self.value(e, known, *input)?,
            });
        }
        let value = match *role {
            Role::Call(call) => {
                if call.has_attr() {
                    args.push(self.constant(self.attribute(id, call)?)?);
                }
                e.step(call, &args).ok()?
            }
            Role::Fold(call) => {
                let mut terms = args.into_iter();
                let first = terms.next()?;
                terms.try_fold(first, |sum, term| e.step(call, &[sum, term]).ok())?
            }
            // A reduction that is not a row value yet.
            Role::Reduce(_) | Role::Copy => return None,
        };
        known.insert(id, value);
        Some(value)
    }

    /// Appends a stage that computes `tensors`, if there are any.
    fn stage(&self, stages: &mut Vec<Stage>, action: Action, tensors: &[Output]) -> Option<()> {
        if tensors.is_empty() {
            return Some(());
        }
        let mut e = self.expression()?;
        let mut known = FxHashMap::default();
        for tensor in tensors {
            let value = self.value(&mut e, &mut known, *tensor)?;
            e.output(value);
        }
        stages.push(Stage { action, expression: e });
        Some(())
    }

    fn add_rows(&mut self, ids: &[NodeId]) -> Option<()> {
        for id in ids {
            self.rows.insert(*id, self.row_types.len());
            self.row_types.push(self.scene.graph.info(output(*id)).dtype?);
        }
        Some(())
    }

    /// Whether a row value is used after the stage that computes it.
    fn is_kept(&self, id: NodeId) -> bool {
        let level = self.levels[&id];
        let within = |user: &NodeId| match self.roles.get(user) {
            Some((Role::Call(_) | Role::Fold(_), extent)) => {
                *extent != Extent::Full && self.levels[user] == level
            }
            _ => false,
        };
        self.exports.contains(&id) || !self.scene.graph.users(id).iter().all(within)
    }

    fn program(&mut self) -> Option<RowProgram> {
        let mut stages = Vec::new();
        let deepest = self.levels.values().max().copied()?;
        for level in 0..=deepest {
            let at: Vec<NodeId> =
                self.nodes.iter().filter(|id| self.levels[id] == level).copied().collect();
            let is_row = |id: &NodeId| {
                let (role, extent) = self.roles[id];
                extent != Extent::Full
                    && matches!(role, Role::Call(_) | Role::Fold(_))
                    && self.is_kept(*id)
            };
            let rows: Vec<NodeId> = at.iter().filter(|id| is_row(id)).copied().collect();
            self.stage(
                &mut stages,
                Action::Row,
                &rows.iter().map(|id| output(*id)).collect::<Vec<_>>(),
            )?;
            self.add_rows(&rows)?;
            let reduced: Vec<(NodeId, &'static Reduction)> = (at.iter())
                .filter_map(|id| {
                    if let Role::Reduce(r) = self.roles[id].0 { Some((*id, r)) } else { None }
                })
                .collect();
            let operands: Vec<Output> =
                reduced.iter().map(|(id, _)| self.scene.graph.node(*id).inputs()[0]).collect();
            let action = Action::Reduce(reduced.iter().map(|(_, r)| *r).collect());
            self.stage(&mut stages, action, &operands)?;
            self.add_rows(&reduced.iter().map(|(id, _)| *id).collect::<Vec<_>>())?;
        }
        let is_full = |id: &&NodeId| self.roles[id].1 == Extent::Full;
        let full: Vec<NodeId> = self.exports.iter().filter(is_full).copied().collect();
        self.stage(
            &mut stages,
            Action::Full,
            &full.iter().map(|id| output(*id)).collect::<Vec<_>>(),
        )?;
        let mut outputs = Vec::new();
        for id in &self.exports {
            outputs.push(match full.iter().position(|f| f == id) {
                Some(at) => ProgramOutput::Full(at as u32),
                None => {
                    let value = *self.rows.get(&self.source(output(*id)).node)? as u32;
                    ProgramOutput::Row { value, flat: self.roles[id].1 == Extent::Flat }
                }
            });
        }
        RowProgram::new(stages, outputs).ok()
    }
}
