//! The program of a region.

use rustc_hash::FxHashMap;

use super::member::{Extent, Role, parameter};
use super::region::{Region, Scene};
use crate::kernels::expression::Value;
use crate::kernels::fused::rowwise::OP;
use crate::kernels::fused::rowwise::program::{Action, Output as ProgramOutput, RowProgram, Stage};
use crate::kernels::fused::rowwise::walk::Shapes;
use crate::kernels::reduce::table::Reduction;
use crate::optimizer::attr::Attr;
use crate::optimizer::emit::{Draft, fused};
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
    let infos: Vec<TensorInfo> = exports.iter().map(|id| graph.info(output(*id)).clone()).collect();
    let attrs = vec![
        ("T_in", program.inputs().into()),
        ("T_out", Attr::from(&program.output_types()[..])),
        ("axes", Attr::from(&scene.space.axes[..])),
        ("constants", Attr::from(&builder.parameters.constants[..])),
        ("program", program.to_string().into()),
    ];
    let last = *exports.last()?;
    let node = fused(graph, last, "fused_rowwise", OP, builder.inputs, attrs, infos);
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
    /// The parameters of all stages, without any computation.
    parameters: Draft,
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
            parameters: Draft::default(),
            rows: FxHashMap::default(),
            row_types: Vec::new(),
        };
        builder.find_parameters();
        Some(builder)
    }

    /// Lists the parameters: constants among the inputs, and attributes of functions.
    fn find_parameters(&mut self) {
        let graph = self.scene.graph;
        for id in self.nodes.clone() {
            let Role::Call(scalar) = self.roles[&id].0 else { continue };
            let given = graph.node(id).inputs().iter().filter_map(|i| parameter(graph, id, *i));
            given.chain(scalar.attr).for_each(|value| {
                self.parameters.constant(value);
            });
        }
    }

    /// The start of a stage: the inputs and the row values so far, and all parameters.
    fn start(&self) -> Option<Draft> {
        let mut draft = self.parameters.clone();
        for input in &self.inputs {
            draft.input(self.scene.graph.info(*input).dtype?);
        }
        for dtype in &self.row_types {
            draft.input(*dtype);
        }
        Some(draft)
    }

    /// The tensor that is passed on as `input` by copies.
    fn source(&self, input: Output) -> Output {
        match self.roles.get(&input.node) {
            Some((Role::Copy, _)) => self.source(self.scene.graph.node(input.node).inputs()[0]),
            _ => input,
        }
    }

    /// The value of a tensor in a stage.
    fn value(
        &self,
        draft: &mut Draft,
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
        // A reduction that is not a row value yet has no value.
        let Role::Call(scalar) = role else { return None };
        let mut args = Vec::new();
        for input in graph.node(id).inputs() {
            args.push(match parameter(graph, id, *input) {
                Some(constant) => draft.constant(constant),
                None => self.value(draft, known, *input)?,
            });
        }
        let value = draft.scalar(scalar, &args)?;
        known.insert(id, value);
        Some(value)
    }

    /// Appends a stage that computes `tensors`, if there are any.
    fn stage(&self, stages: &mut Vec<Stage>, action: Action, tensors: &[Output]) -> Option<()> {
        if tensors.is_empty() {
            return Some(());
        }
        let mut draft = self.start()?;
        let mut known = FxHashMap::default();
        for tensor in tensors {
            let value = self.value(&mut draft, &mut known, *tensor)?;
            draft.output(value);
        }
        stages.push(Stage { action, expression: draft.expression });
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
            Some((Role::Call(_), extent)) => !extent.is_per_element() && self.levels[user] == level,
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
                !extent.is_per_element() && matches!(role, Role::Call(_)) && self.is_kept(*id)
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
