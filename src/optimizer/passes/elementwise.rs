//! Chains and bundles of elementwise nodes become one `_WgpuFusedElementwise` each.
//!
//! A group grows along edges from producers to consumers, then sideways to nodes that read the same large tensor. All that leaves
//! a group has one shape, that of its iteration. What is smaller may be computed within when it costs next to nothing again and
//! again; nothing larger is.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::fused::elementwise::{OP, fits};
use crate::kernels::fused::expression::{Expression, Value};
use crate::layout::broadcast_dims;
use crate::optimizer::clusters::Clusters;
use crate::optimizer::graph::{Graph, NewNode, NodeId, Output};
use crate::optimizer::scalars::{SameShapes, Scalar};

/// Most nodes of a group.
const MAX_NODES: usize = 64;
/// Most nodes of a group whose values are smaller than its iteration.
const MAX_SMALL: usize = 2;
/// Rounds of growing; a merge may make room for another.
const ROUNDS: usize = 3;

/// Runs the pass.
pub fn run(graph: &mut Graph) -> Result<()> {
    let Some(groups) = Groups::grow(graph) else { return Ok(()) };
    let regions: Vec<Region> = groups.regions();
    // What earlier regions gave is now a fused node's.
    let mut moved: FxHashMap<Output, Output> = FxHashMap::default();
    for mut region in regions {
        region.inputs.iter_mut().for_each(|input| *input = moved.get(input).copied().unwrap_or(*input));
        let fused = region.emit(graph)?;
        moved.extend(region.outputs.iter().zip(0..).map(|(old, port)| (*old, Output { node: fused, port })));
    }
    Ok(())
}

/// Groups of elementwise nodes, under way.
struct Groups<'g> {
    graph: &'g Graph,
    order: Vec<NodeId>,
    position: Vec<u32>,
    shapes: SameShapes<'g>,
    scalars: FxHashMap<NodeId, Scalar>,
    clusters: Clusters,
    /// By [`Clusters::group`].
    regions: FxHashMap<NodeId, Region>,
}

/// A group of nodes that one node can replace.
#[derive(Debug, Clone)]
struct Region {
    /// In topological order.
    members: Vec<NodeId>,
    /// What each member computes.
    scalars: Vec<Scalar>,
    /// A tensor of the iteration's shape.
    shape: Output,
    /// Tensors from outside, without those of [`Region::constants`].
    inputs: Vec<Output>,
    /// Constants that become parameters.
    constants: Vec<(Output, f32)>,
    /// Members' values that are used outside.
    outputs: Vec<Output>,
}

impl<'g> Groups<'g> {
    fn grow(graph: &'g Graph) -> Option<Self> {
        let order = graph.order()?;
        let mut position = vec![0; graph.capacity()];
        order.iter().enumerate().for_each(|(at, id)| position[id.index()] = at as u32);
        let shapes = SameShapes::new(graph, &order);
        let eligible =
            |id: &NodeId| !graph.is_preserved(*id) && graph.readers(Output { node: *id, port: 0 }).next().is_some();
        let scalars: FxHashMap<NodeId, Scalar> =
            order.iter().filter(|id| eligible(id)).filter_map(|id| Some((*id, Scalar::of(&shapes, *id)?))).collect();
        let clusters = Clusters::new(graph)?;
        let mut groups = Self { graph, order, position, shapes, scalars, clusters, regions: FxHashMap::default() };
        for id in groups.order.clone() {
            if groups.scalars.contains_key(&id)
                && let Some(region) = groups.region(vec![id], Output { node: id, port: 0 })
            {
                groups.regions.insert(id, region);
            }
        }
        for _ in 0..ROUNDS {
            let merged = groups.along_edges() + groups.sideways();
            if merged == 0 {
                break;
            }
        }
        Some(groups)
    }

    /// Merges producers into consumers; returns how often.
    fn along_edges(&mut self) -> usize {
        let mut merged = 0;
        for id in self.order.clone() {
            for input in self.graph.node(id).inputs() {
                merged += usize::from(self.try_merge(input.node, id, true));
            }
        }
        merged
    }

    /// Merges groups that iterate over the same shape and read the same tensor of that shape.
    fn sideways(&mut self) -> usize {
        let mut merged = 0;
        for id in self.order.clone() {
            let mut readers: Vec<(NodeId, u32)> = Vec::new();
            for user in self.graph.users(id) {
                let ports = self.graph.node(*user).inputs().iter().filter(|i| i.node == id).map(|i| i.port);
                readers.extend(ports.map(|port| (*user, port)));
            }
            readers.sort_unstable_by_key(|(user, port)| (*port, self.position[user.index()]));
            readers.dedup();
            for pair in readers.windows(2).filter(|w| w[0].1 == w[1].1) {
                let tensor = Output { node: id, port: pair[0].1 };
                let (a, b) = (pair[0].0, pair[1].0);
                let large = |r: &Region| self.shapes.same(r.shape, tensor);
                if self.region_of(a).is_some_and(large) && self.region_of(b).is_some_and(large) {
                    merged += usize::from(self.try_merge(a, b, false));
                }
            }
        }
        merged
    }

    fn region_of(&self, id: NodeId) -> Option<&Region> {
        self.regions.get(&self.clusters.group(id))
    }

    /// Merges the groups of two nodes if one node can replace both; `b` uses `a` if `vertical`.
    fn try_merge(&mut self, a: NodeId, b: NodeId, vertical: bool) -> bool {
        let (first, second) = (self.clusters.group(a), self.clusters.group(b));
        let (Some(x), Some(y)) = (self.regions.get(&first), self.regions.get(&second)) else { return false };
        if first == second || x.members.len() + y.members.len() > MAX_NODES {
            return false;
        }
        if self.graph.node(a).device() != self.graph.node(b).device() {
            return false;
        }
        if !vertical && !self.shapes.same(x.shape, y.shape) {
            return false;
        }
        let mut members = [&x.members[..], &y.members].concat();
        members.sort_unstable_by_key(|id| self.position[id.index()]);
        let Some(region) = self.region(members, y.shape) else { return false };
        if !self.clusters.merge(a, b) {
            return false;
        }
        self.regions.remove(&first);
        self.regions.remove(&second);
        self.regions.insert(self.clusters.group(a), region);
        true
    }

    /// The group of these nodes, which are in topological order; `None` where one node cannot replace them.
    fn region(&self, members: Vec<NodeId>, shape: Output) -> Option<Region> {
        let graph = self.graph;
        let inside: FxHashSet<NodeId> = members.iter().copied().collect();
        let mut small = 0;
        let (mut read, mut outputs) = (Vec::new(), Vec::new());
        let controls = outer_controls(graph, members[0], &inside);
        for id in &members {
            let value = Output { node: *id, port: 0 };
            let leaves = graph.readers(value).any(|(reader, _)| !inside.contains(&reader));
            if leaves {
                outputs.push(value);
            }
            if !self.shapes.same(value, shape) {
                small += 1;
                if leaves || !self.scalars[id].is_cheap() || small > MAX_SMALL {
                    return None;
                }
            }
            // What waits for something else may not run at all where the others do.
            if outer_controls(graph, *id, &inside) != controls {
                return None;
            }
            for input in graph.node(*id).inputs() {
                if !inside.contains(&input.node) && !read.contains(input) {
                    read.push(*input);
                }
            }
        }
        let (constants, inputs) = self.split(&read, shape);
        let scalars = members.iter().map(|id| self.scalars[id]).collect();
        fits(inputs.len(), outputs.len()).then_some(Region { members, scalars, shape, inputs, constants, outputs })
    }

    /// Constants that can become parameters, and all other inputs: a constant may have a shape when the others give the
    /// iteration its shape without it.
    fn split(&self, read: &[Output], shape: Output) -> (Vec<(Output, f32)>, Vec<Output>) {
        let values: Vec<Option<f32>> = read.iter().map(|o| uniform(self.graph, *o)).collect();
        let rank = |o: Output| self.graph.info(o).rank();
        let tensors: Vec<Output> = read.iter().zip(&values).filter(|(_, v)| v.is_none()).map(|(o, _)| *o).collect();
        let covered = self.covers(&tensors, shape);
        let (mut constants, mut inputs) = (Vec::new(), Vec::new());
        for (output, value) in read.iter().zip(values) {
            match value {
                Some(v) if covered || rank(*output) == Some(0) => constants.push((*output, v)),
                _ => inputs.push(*output),
            }
        }
        (constants, inputs)
    }

    /// Whether the tensors surely broadcast to the iteration's whole shape.
    fn covers(&self, tensors: &[Output], shape: Output) -> bool {
        if tensors.iter().any(|t| self.shapes.same(*t, shape)) {
            return true;
        }
        let dims = tensors.iter().map(|t| self.graph.info(*t).dims()).collect::<Option<Vec<_>>>();
        let (Some(dims), Some(want)) = (dims, self.graph.info(shape).dims()) else { return false };
        let both = dims.iter().try_fold(crate::tensor::Dims::new(), |all, d| broadcast_dims(&all, d));
        both.is_ok_and(|both| both[..] == want[..])
    }

    /// The groups that are worth a node of their own, in topological order.
    fn regions(self) -> Vec<Region> {
        let mut regions: Vec<Region> = self.regions.into_values().filter(|r| r.members.len() > 1).collect();
        regions.sort_unstable_by_key(|r| self.position[r.members[0].index()]);
        regions
    }
}

/// What a node waits for outside of its group.
fn outer_controls(graph: &Graph, id: NodeId, inside: &FxHashSet<NodeId>) -> Vec<NodeId> {
    let mut controls: Vec<NodeId> = graph.node(id).controls().iter().copied().filter(|c| !inside.contains(c)).collect();
    controls.sort_unstable();
    controls
}

/// The value of all elements of a tensor that is constant but perhaps for its shape, of a type that a parameter can stand for.
fn uniform(graph: &Graph, output: Output) -> Option<f32> {
    let is_float = |t: DType| matches!(t, DType::F32 | DType::F16 | DType::BF16);
    let node = graph.node(output.node);
    let of_type = |value| node.dtype("T").filter(|t| is_float(*t)).and(value);
    match node.op() {
        "ZerosLike" => return of_type(Some(0.0)),
        "OnesLike" => return of_type(Some(1.0)),
        "Fill" => return of_type(uniform(graph, *node.inputs().get(1)?)),
        "BroadcastTo" => return of_type(uniform(graph, *node.inputs().first()?)),
        _ => {}
    }
    let value = graph.constant(output).filter(|v| is_float(v.dtype))?;
    let first = value.bytes.get(..value.dtype.size())?;
    let same = value.bytes.chunks_exact(value.dtype.size()).all(|element| element == first);
    same.then(|| value.to_f64()[0] as f32)
}

impl Region {
    /// Puts the fused node in the place of the members.
    fn emit(&self, graph: &mut Graph) -> Result<NodeId> {
        let (expression, constants) = self.expression(graph)?;
        let root = graph.node(self.outputs[self.outputs.len() - 1].node);
        let new = NewNode {
            name: format!("{}/wgpu_fused", root.name()),
            op: OP.to_owned(),
            device: root.device().to_owned(),
            inputs: self.inputs.clone(),
            controls: self.constants.iter().flat_map(|(c, _)| graph.node(c.node).controls().to_vec()).collect(),
            attrs: vec![
                ("T_in", expression.inputs().into()),
                ("T_out", expression.output_types()[..].into()),
                ("constants", constants[..].into()),
                ("expression", expression.to_string().into()),
            ],
            infos: self.outputs.iter().map(|o| graph.info(*o)).collect(),
        };
        let outputs: Vec<(Output, u32)> = self.outputs.iter().zip(0..).map(|(o, port)| (*o, port)).collect();
        let fused = graph.replace_region(&self.members, new, &outputs);
        for (constant, _) in &self.constants {
            let id = constant.node;
            let unused = graph.contains(id) && graph.users(id).is_empty() && !graph.is_preserved(id);
            if unused && graph.node(id).on_wgpu() {
                graph.remove(id);
            }
        }
        Ok(fused)
    }

    /// The members' expression and its parameters.
    fn expression(&self, graph: &Graph) -> Result<(Expression, Vec<f32>)> {
        let mut expression = Expression::new();
        let mut values: FxHashMap<Output, Value> = FxHashMap::default();
        let mut parameters: Vec<f32> = Vec::new();
        let types = self.input_types(graph);
        for (input, dtype) in self.inputs.iter().zip(types) {
            values.insert(*input, expression.input(dtype));
        }
        let mut parameter = |expression: &mut Expression, value: f32| -> Value {
            let at = parameters.iter().position(|p| p.to_bits() == value.to_bits()).unwrap_or_else(|| {
                parameters.push(value);
                expression.constant();
                parameters.len() - 1
            });
            Value::Constant(at as u32)
        };
        for (constant, value) in &self.constants {
            values.insert(*constant, parameter(&mut expression, *value));
        }
        for (id, scalar) in self.members.iter().zip(&self.scalars) {
            let args: Vec<Value> = graph.node(*id).inputs().iter().map(|i| values[i]).collect();
            let arity = scalar.call.inputs().len();
            let mut call: Vec<Value> = args[..arity].to_vec();
            call.extend(scalar.attr.map(|a| parameter(&mut expression, a)));
            let mut value = expression.step(scalar.call, &call)?;
            for next in &args[arity..] {
                value = expression.step(scalar.call, &[value, *next])?;
            }
            values.insert(Output { node: *id, port: 0 }, value);
        }
        self.outputs.iter().for_each(|o| expression.output(values[o]));
        Ok((expression, parameters))
    }

    /// Types of the inputs, as the members that read them say.
    fn input_types(&self, graph: &Graph) -> Vec<DType> {
        let of = |input: &Output| {
            self.members.iter().zip(&self.scalars).find_map(|(id, scalar)| {
                let at = graph.node(*id).inputs().iter().position(|i| i == input)?;
                let types = scalar.call.inputs();
                Some(types[at.min(types.len() - 1)])
            })
        };
        self.inputs.iter().map(|i| of(i).expect("a member reads it")).collect()
    }
}
