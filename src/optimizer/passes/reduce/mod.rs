//! Fuses reductions with the elementwise nodes around them, and several reductions of the same
//! tensors, into one node each.
//!
//! A mean and a variance as TensorFlow writes them become one pass over their input. Elementwise
//! nodes of the reduced tensor's shape become part of the node if they have no other readers. A
//! conversion with other readers is recomputed if that means reading less. Reductions over the same
//! axes of the same shape share a pass if they read a common tensor, or tensors that one node
//! makes, and neither depends on the other. Nodes that follow from the results and have the same
//! elements are the node's epilogue. A reduction of a reduction is one reduction, and the gradient
//! of a bias is a sum.

pub mod ends;
mod epilogue;
mod roots;
mod sequence;
mod shapes;
mod siblings;
mod values;

use rustc_hash::FxHashSet;

use crate::error::Result;
use crate::kernels::expression::Call;
use crate::kernels::fused::cost;
use crate::kernels::fused::reduce::{MAX_INPUTS, MAX_OUTPUTS, MAX_PLANES, MOMENTS, OP, States};
use crate::optimizer::branches::Branches;
use crate::optimizer::emit::{Draft, fused};
use crate::optimizer::graph::{Graph, NewNode, NodeId, Output};
use crate::optimizer::legality::{Legal, check};
use crate::optimizer::meaning::Scalar;
use crate::optimizer::refusal::Refusal;
use crate::optimizer::shape::TensorInfo;

use epilogue::{EpilogueNodes, Scene, Search};
use roots::{ReducedAxes, Root, moments, reduction};
use values::{Element, Translation, Values, elementwise};

/// Runs the pass.
pub fn run(graph: &mut Graph) -> Result<()> {
    let Some(order) = graph.order() else { return Ok(()) };
    shapes::read_further_up(graph, &order);
    sequence::join(graph, &order)?;
    let Some(order) = graph.order() else { return Ok(()) };
    let branches = Branches::of(graph, &order);
    let mut regions: Vec<Region> = Vec::new();
    let mut taken: FxHashSet<NodeId> = FxHashSet::default();
    for found in [moments, reduction] {
        for id in order.iter() {
            if let Some((root, over)) = found(graph, *id)
                && root.nodes.iter().all(|n| !taken.contains(n))
                && root.nodes.iter().all(|n| branches.agree(*id, *n))
            {
                taken.extend(&root.nodes);
                let space = graph.info(root.tensor(graph)).clone();
                regions.push(Region { roots: vec![root], over, space });
            }
        }
    }
    let updates = epilogue::updates(graph, &order);
    let regions = Scene { graph, branches: &branches, updates: &updates }.merged(regions);
    for region in regions {
        let scene = Scene { graph, branches: &branches, updates: &updates };
        let Ok(plan) = region.plan(graph).map(|plan| region.with_epilogue(&scene, plan)) else {
            continue;
        };
        if plan.is_worth_it() {
            region.replace(graph, plan);
        }
    }
    Ok(())
}

/// Reductions that share a pass.
#[derive(Clone)]
struct Region {
    roots: Vec<Root>,
    over: ReducedAxes,
    /// The known type and shape of the space that they reduce.
    space: TensorInfo,
}

/// The fused node that replaces a region.
struct Replacement {
    /// The nodes that it replaces.
    members: Vec<NodeId>,
    /// Whether elementwise nodes take part.
    computes: bool,
    states: States,
    values: Translation,
    /// The epilogue on the results.
    epilogue: Option<EpilogueNodes>,
}

impl Replacement {
    const fn is_worth_it(&self) -> bool {
        self.members.len() > 1 || self.computes || self.epilogue.is_some()
    }
}

impl Region {
    /// The node that can replace the region.
    ///
    /// # Errors
    /// The reason why there is none.
    fn plan(&self, graph: &Graph) -> Result<Replacement, Refusal> {
        let names: Vec<&str> = self.roots.iter().map(|r| r.name).collect();
        let dtypes: Vec<_> = self.roots.iter().map(|r| r.dtype).collect();
        let states = States::new(&names.join(","), &dtypes).map_err(|_| Refusal::Operand)?;
        holds(&[&states])?;
        let roots: FxHashSet<NodeId> =
            self.roots.iter().flat_map(|r| r.nodes.iter().copied()).collect();
        let wanted: Vec<_> = self.roots.iter().map(|r| (r.tensor(graph), r.dtype)).collect();
        let translate = |inside: &FxHashSet<NodeId>| {
            let values = Values::translate(graph, &self.space, inside, &wanted)?;
            check(values.inputs.len() <= MAX_INPUTS, Refusal::TooManyTensors).map(|()| values)
        };
        let mut inside = FxHashSet::default();
        let mut values = translate(&inside)?;
        let mut refused: FxHashSet<NodeId> = FxHashSet::default();
        while let Some(next) = values.inputs.iter().map(|i| i.node).find(|n| !refused.contains(n)) {
            let wider = self.absorbs(graph, next, &roots, &inside).and_then(|()| {
                inside.insert(next);
                let wider = translate(&inside)?;
                check(self.covers(graph, &wider), Refusal::OtherShape).map(|()| wider)
            });
            match wider {
                Ok(wider) => {
                    values = wider;
                    // Another reader of a refused node may be inside now.
                    refused.clear();
                }
                Err(refusal) => {
                    graph.refuse("reduce", [next, self.roots[0].reader], refusal);
                    inside.remove(&next);
                    refused.insert(next);
                }
            }
        }
        let mut members: Vec<NodeId> =
            roots.iter().copied().chain(vanishing(graph, &roots, &inside)).collect();
        members.sort_unstable();
        check(!values.inputs.iter().any(|i| members.contains(&i.node)), Refusal::Cycle)?;
        graph.is_one_node(&members)?;
        let computes = !inside.is_empty();
        Ok(Replacement { members, computes, states, values, epilogue: None })
    }

    /// The node with the nodes that follow the region and can be computed with it.
    fn with_epilogue(&self, scene: &Scene, plan: Replacement) -> Replacement {
        // All results of an epilogue must have the same shape.
        if self.squeezed().next().is_some() {
            return plan;
        }
        let results: Vec<_> = self.results().into_iter().zip(plan.states.types()).collect();
        let kept = scene.graph.info(results[results.len() - 1].0);
        let reduced = cost::expression(&plan.values.draft.expression);
        let search = Search { scene, reduced, results: &results, region: &plan.members, kept };
        Replacement { epilogue: search.find(), ..plan }
    }

    /// The results of the reductions.
    fn results(&self) -> Vec<Output> {
        self.roots
            .iter()
            .flat_map(|r| r.outputs.iter().map(|node| Output { node: *node, port: 0 }))
            .collect()
    }

    /// The ports of results without the reduced axes, in a node that keeps these axes.
    fn squeezed(&self) -> impl Iterator<Item = u32> + '_ {
        let keeps = self.roots.iter().flat_map(|r| r.outputs.iter().map(|_| r.keep_dims));
        keeps.zip(0..).filter(|(keeps, _)| self.over.keep_dims && !keeps).map(|(_, port)| port)
    }

    /// Checks that it is better to compute the node's output than to read it.
    fn absorbs(
        &self,
        graph: &Graph,
        id: NodeId,
        roots: &FxHashSet<NodeId>,
        inside: &FxHashSet<NodeId>,
    ) -> Result<(), Refusal> {
        let node = graph.node(id);
        let output = Output { node: id, port: 0 };
        check(node.on_wgpu() && node.device() == self.over.device, Refusal::OtherDevice)?;
        check(graph.info(output).same_shape(&self.space), Refusal::OtherShape)?;
        let gone: FxHashSet<NodeId> = vanishing(graph, roots, inside).into_iter().collect();
        let inside = |reader| roots.contains(&reader) || gone.contains(&reader);
        let alone = graph.may_go(id).and_then(|()| graph.stays_inside(output, inside));
        // A node with other readers is recomputed only if it reads a single tensor, and perhaps a
        // shape.
        if node.inputs().len() > 2 {
            alone?;
        }
        let element = elementwise(graph, id, &self.space)?;
        let narrow = match element {
            Element::Call(Scalar { call: Call::Cast(from, to), .. }) => from.size() < to.size(),
            Element::Call(_) => false,
            Element::Same => !graph.info(node.inputs()[0]).same_shape(&self.space),
        };
        if narrow { Ok(()) } else { alone }
    }

    /// Whether each value has an input of the whole shape: a value of broadcast inputs only would
    /// be reduced over too few elements.
    fn covers(&self, graph: &Graph, values: &Translation) -> bool {
        let expression = &values.draft.expression;
        expression.outputs().iter().all(|value| {
            let (_, inputs) = expression.select(&[*value]);
            inputs.iter().any(|i| graph.info(values.inputs[*i]).same_shape(&self.space))
        })
    }

    /// Replaces the region by the node.
    fn replace(&self, graph: &mut Graph, plan: Replacement) {
        let Replacement { mut members, states, values, epilogue, .. } = plan;
        let results = self.results();
        // The results of one reduction have the same shape. Only a mean without readers may keep
        // other axes.
        let mut infos: Vec<TensorInfo> = (self.roots.iter())
            .flat_map(|r| {
                let last = Output { node: r.outputs[r.outputs.len() - 1], port: 0 };
                vec![graph.info(last).clone(); r.outputs.len()]
            })
            .collect();
        let squeezed: Vec<(u32, TensorInfo)> =
            self.squeezed().map(|port| (port, infos[port as usize].clone())).collect();
        if let Some(keeps) = self.roots.iter().find(|r| r.keep_dims) {
            let kept = graph.info(Output { node: keeps.outputs[0], port: 0 }).shape.clone();
            squeezed.iter().for_each(|(port, _)| infos[*port as usize].shape.clone_from(&kept));
        }
        let names: Vec<&str> = self.roots.iter().map(|r| r.name).collect();
        let mut types = states.types();
        let last = results[results.len() - 1].node;
        let (mut inputs, mut outputs, mut extras) = (values.inputs, results, Vec::new());
        let (mut text, mut parameters) = (String::new(), Vec::new());
        if let Some(epilogue) = epilogue {
            epilogue.reshape(graph);
            let Draft { expression, constants } = epilogue.values.draft;
            extras = expression.inputs()[types.len()..].to_vec();
            types = expression.output_types();
            let kept = infos.pop().and_then(|info| info.shape);
            infos =
                types.iter().map(|t| TensorInfo { dtype: Some(*t), shape: kept.clone() }).collect();
            inputs.extend(epilogue.values.inputs);
            (text, parameters) = (expression.to_string(), constants);
            members.extend(epilogue.members);
            outputs = epilogue.outputs;
        }
        let mut attrs = vec![
            ("T_in", values.draft.expression.inputs().into()),
            ("T_extra", extras[..].into()),
            ("T_out", types[..].into()),
            ("epilogue", text.into()),
            ("epilogue_constants", parameters[..].into()),
            ("reductions", names.join(",").into()),
            ("axes", self.over.axes[..].into()),
            ("whole", self.over.whole.into()),
            ("keep_dims", self.over.keep_dims.into()),
        ];
        attrs.extend(values.draft.attrs());
        let suffix = if names.contains(&MOMENTS) { "moments" } else { "reduce" };
        let new = fused(graph, last, suffix, OP, inputs, attrs, infos);
        let read: Vec<NodeId> =
            members.iter().flat_map(|m| graph.node(*m).inputs()).map(|i| i.node).collect();
        let ports: Vec<_> = outputs.into_iter().zip(0..).collect();
        let id = graph.replace_region(&members, new, &ports);
        for (port, info) in squeezed {
            self.squeeze(graph, Output { node: id, port }, info);
        }
        for id in read {
            // Axes and parameters without other readers are removed.
            if graph.contains(id) && graph.node(id).op() == "Const" {
                graph.remove_unused(id);
            }
        }
    }

    /// Drops the reduced axes of a result for all its readers.
    fn squeeze(&self, graph: &mut Graph, result: Output, info: TensorInfo) {
        let readers: Vec<_> = graph.readers(result).collect();
        let dtype = info.dtype.expect("results have types");
        let node = graph.add(NewNode {
            name: format!("{}/squeezed", graph.node(result.node).name()),
            op: "Squeeze".to_owned(),
            device: self.over.device.clone(),
            inputs: vec![result],
            controls: Vec::new(),
            attrs: vec![("T", dtype.into()), ("squeeze_dims", self.over.axes[..].into())],
            infos: vec![info],
        });
        for (reader, index) in readers {
            graph.set_input(reader, index, Output { node, port: 0 });
        }
    }
}

/// Checks that one node may hold all these states and give their results.
fn holds(states: &[&States]) -> Legal {
    let planes: usize = states.iter().map(|states| states.planes()).sum();
    let results: usize = states.iter().map(|states| states.types().len()).sum();
    check(planes <= MAX_PLANES && results <= MAX_OUTPUTS, Refusal::TooManyTensors)
}

/// The nodes of `inside` that only `roots` and such nodes read.
fn vanishing(graph: &Graph, roots: &FxHashSet<NodeId>, inside: &FxHashSet<NodeId>) -> Vec<NodeId> {
    let mut gone: Vec<NodeId> =
        inside.iter().copied().filter(|id| !graph.is_preserved(*id)).collect();
    gone.sort_unstable();
    loop {
        let inside = |user| roots.contains(&user) || gone.contains(&user);
        let read_outside =
            |id: &NodeId| graph.stays_inside(Output { node: *id, port: 0 }, inside).is_err();
        let Some(at) = gone.iter().position(read_outside) else { return gone };
        gone.remove(at);
    }
}
