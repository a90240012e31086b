//! The node that stands for a region.

use prost::Message;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

use super::member::{Member, Place, Role};
use crate::attr::Attr;
use crate::dtype::DType;
use crate::kernels::fused::region::OP;
use crate::kernels::fused::region::members::TYPES;
use crate::optimizer::emit::fused;
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::outside::Outside;
use crate::optimizer::proto::{AttrValue, NodeDef};

/// A region under construction.
#[derive(Default)]
struct Region {
    /// The NodeDefs of members and constants.
    nodes: Vec<NodeDef>,
    /// The number of each of them.
    numbers: FxHashMap<NodeId, usize>,
    /// The tensors from outside.
    tensors: Vec<Output>,
    /// The inputs in host memory.
    hosts: Vec<Output>,
    /// The handles of variables.
    handles: Vec<Output>,
    /// The texts of the inputs from outside.
    known: FxHashMap<(Output, Place), String>,
    /// The nodes of constants.
    constants: Vec<NodeId>,
}

/// Replaces nodes by a region that holds them, and `checks` its replays. Returns its name.
///
/// # Errors
/// The reason why there is no region.
pub fn replace(graph: &mut Graph, members: &[Member], checks: bool) -> Result<Arc<str>, Outside> {
    let ids: Vec<NodeId> = members.iter().map(|member| member.id).collect();
    let mut region = Region::default();
    for member in members {
        region.add(graph, member);
    }
    let mut outputs: Vec<(Output, u32)> = Vec::new();
    for id in &ids {
        let last = graph.last_port_read(*id).map(|(port, _)| port);
        for port in last.into_iter().flat_map(|last| 0..=last) {
            let output = Output { node: *id, port };
            let is_outside = |(reader, _): (NodeId, usize)| !region.numbers.contains_key(&reader);
            if graph.readers_in_any_order(output).any(is_outside) {
                outputs.push((output, outputs.len() as u32));
            }
        }
    }
    let is_update = members.iter().any(|member| member.role == Role::Changes);
    // TensorFlow removes nodes whose results are not read.
    let last = match outputs.last() {
        Some((last, _)) => last.node,
        None if is_update => ids[ids.len() - 1],
        None => return Err(Outside::Unread),
    };
    let types = |all: &mut dyn Iterator<Item = Output>| -> Option<Vec<DType>> {
        all.map(|output| graph.info(output).dtype).collect()
    };
    let (Some(tensors), Some(hosts), Some(made)) = (
        types(&mut region.tensors.iter().copied()),
        types(&mut region.hosts.iter().copied()),
        types(&mut outputs.iter().map(|(output, _)| *output)),
    ) else {
        return Err(Outside::NoType);
    };
    let places = outputs
        .iter()
        .flat_map(|(output, _)| [region.numbers[&output.node] as i64, i64::from(output.port)]);
    let places: Vec<i64> = places.collect();
    let nodes: Vec<Vec<u8>> = region.nodes.iter().map(Message::encode_to_vec).collect();
    let mut attrs = vec![
        ("Ttensors", Attr::from(&tensors[..])),
        ("Thost", Attr::from(&hosts[..])),
        ("NR", Attr::from(region.handles.len() as i64)),
        ("Tout", Attr::from(&made[..])),
        ("nodes", Attr::from(nodes)),
        ("outputs", Attr::from(&places[..])),
    ];
    if checks {
        attrs.push(("check", Attr::from(true)));
    }
    let all = [&region.tensors, &region.hosts, &region.handles];
    let inputs = all.into_iter().flatten().copied().collect();
    let infos = outputs.iter().map(|(output, _)| graph.info(*output).clone()).collect();
    let mut new = fused(graph, last, "region", OP, inputs, attrs, infos);
    let waited = region.constants.iter().flat_map(|id| graph.node(*id).controls());
    new.controls = waited.copied().filter(|id| !region.numbers.contains_key(id)).collect();
    let (names, gone): (Vec<NodeId>, Vec<NodeId>) =
        ids.iter().partition(|id| graph.is_preserved(**id));
    new.controls.extend(detach(graph, &names, &ids));
    let id = graph.replace_region(&gone, new, &outputs);
    for name in names {
        graph.set_no_op(name);
        graph.add_control(name, id);
    }
    for id in region.constants {
        graph.remove_unused(id);
    }
    Ok(graph.original(id).name)
}

/// Removes the waits between members whose names must stay and other members, and what the former
/// read and wait for. Returns the nodes outside for which they waited.
fn detach(graph: &mut Graph, names: &[NodeId], members: &[NodeId]) -> Vec<NodeId> {
    let mut waited = Vec::new();
    let inside: FxHashSet<NodeId> = members.iter().copied().collect();
    for name in names {
        let waiters: Vec<NodeId> = graph.waiters(*name).filter(|w| inside.contains(w)).collect();
        waiters.into_iter().for_each(|waiter| graph.remove_control(waiter, *name));
    }
    for name in names {
        for control in graph.node(*name).controls().to_vec() {
            graph.remove_control(*name, control);
            if !inside.contains(&control) {
                waited.push(control);
            }
        }
        graph.set_inputs(*name, Vec::new());
    }
    waited
}

impl Region {
    /// Adds a member, whose members among its inputs were added before.
    fn add(&mut self, graph: &Graph, member: &Member) {
        let node = graph.node(member.id);
        let inputs = node.inputs().iter().zip(&member.places);
        let inputs = inputs.map(|(input, place)| self.input(graph, *input, *place)).collect();
        let types: Vec<DType> = node.infos().iter().map_while(|info| info.dtype).collect();
        let own = node.attrs().iter().filter(|(name, _)| !name.starts_with('_'));
        let own = own.map(|(name, attr)| (name.clone(), attr.value().cloned()));
        let defaults =
            member.defaults.iter().map(|(name, attr)| (name.clone(), attr.value().cloned()));
        let types = std::iter::once((TYPES.to_owned(), Attr::from(&types[..]).value().cloned()));
        let attr =
            own.chain(defaults).chain(types).map(|(name, value)| (name, AttrValue { value }));
        self.push(
            member.id,
            NodeDef {
                name: node.name().to_owned(),
                op: node.op().to_owned(),
                input: inputs,
                attr: attr.collect(),
                ..NodeDef::default()
            },
        );
    }

    fn push(&mut self, id: NodeId, node: NodeDef) {
        self.numbers.insert(id, self.nodes.len());
        self.nodes.push(node);
    }

    /// The text of a member's input.
    fn input(&mut self, graph: &Graph, input: Output, place: Place) -> String {
        if let Some(number) = self.numbers.get(&input.node).filter(|_| place == Place::Device) {
            return format!("{number}:{}", input.port);
        }
        if let Some(text) = self.known.get(&(input, place)) {
            return text.clone();
        }
        let text = match graph.constant(input).filter(|_| place == Place::Host) {
            Some(value) => {
                let node = graph.node(input.node);
                self.constants.push(input.node);
                let value = Attr::from(&value).value().cloned();
                let attr = ("value".to_owned(), AttrValue { value });
                self.nodes.push(NodeDef {
                    name: node.name().to_owned(),
                    op: "Const".to_owned(),
                    attr: [attr].into(),
                    ..NodeDef::default()
                });
                format!("{}:0", self.nodes.len() - 1)
            }
            None => {
                let (list, letter) = match place {
                    Place::Device => (&mut self.tensors, 't'),
                    Place::Host => (&mut self.hosts, 'h'),
                    Place::Handle => (&mut self.handles, 'v'),
                };
                list.push(input);
                format!("{letter}{}", list.len() - 1)
            }
        };
        self.known.insert((input, place), text.clone());
        text
    }
}
