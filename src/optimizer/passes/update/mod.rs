//! Turns assignments into updates in place, and equal updates of many variables into one.
//!
//! First, assignments that build on each other (Adam's moments and the variable that they move)
//! become one [`member::Member`], with all elementwise nodes between them. Then independent members
//! with the same expression are fused into one `_WgpuFusedUpdate`, whatever their shapes.
//!
//! Automatic control dependencies order the reads and writes of each variable. This pass relies
//! only on that order, and leaves a variable alone if an unordered node reads or writes it. It also
//! leaves variables in loops of TensorFlow 1 alone.

mod levels;
mod member;
mod view;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::Result;
use crate::kernels::fused::update;
use crate::optimizer::attr::Attr;
use crate::optimizer::branches::{Branches, Conditions};
use crate::optimizer::emit::fused;
use crate::optimizer::graph::paths::Places;
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::history::{History, Writer};
use crate::optimizer::unions::Unions;
use crate::optimizer::variables::{ASSIGNS, Variables};
use member::{Builder, Member};
use view::View;

/// The largest number of members in one node.
const MAX_MEMBERS: usize = 1024;

/// The largest number of assignments in one member. A longer chain becomes several members.
const MAX_ASSIGNS: usize = 32;

/// Runs the pass.
pub fn run(graph: &mut Graph) -> Result<()> {
    if !graph.ids().any(|id| ASSIGNS.contains(&graph.node(id).op()) && graph.node(id).on_wgpu()) {
        return Ok(());
    }
    let Some(order) = graph.order() else { return Ok(()) };
    for batch in batches(graph, &order) {
        if batch.len() > 1 || is_worth_it(&batch[0]) {
            replace(graph, &batch);
        }
    }
    Ok(())
}

/// The members of a graph, in groups that one node can replace.
fn batches(graph: &Graph, order: &[NodeId]) -> Vec<Vec<Member>> {
    let places = Places::new(graph, order);
    let branches = Branches::of(graph, order);
    let variables = Variables::of(graph);
    let history = History::of(graph, &places, &variables);
    let view = View {
        graph,
        places: &places,
        history: &history,
        branches: &branches,
        variables: &variables,
    };
    let alone = |member: &Member| {
        let assigns = member.assigns.iter().filter(|_| member.assigns.len() > 1);
        assigns.filter_map(|assign| build(&view, std::slice::from_ref(assign))).collect()
    };
    let members = levels::legal(graph, order, find(&view), alone);
    let mut batches: Vec<Vec<Member>> = Vec::new();
    for group in groups(graph, &branches, members) {
        let mut used: FxHashSet<Output> = FxHashSet::default();
        let mut batch: Vec<Member> = Vec::new();
        for member in group {
            let apart = !member.handles.iter().any(|handle| used.contains(handle));
            if !(apart && batch.len() < MAX_MEMBERS) {
                batches.push(std::mem::take(&mut batch));
                used.clear();
            }
            used.extend(&member.handles);
            batch.push(member);
        }
        batches.push(batch);
    }
    batches
}

/// The members of a graph: assignments that use each other's values together, or each alone.
fn find(view: &View<'_>) -> Vec<Member> {
    let mut assigns: Vec<NodeId> = view.graph.ids().filter(|id| view.is_candidate(*id)).collect();
    assigns.sort_by_key(|id| view.places.of(*id));
    let place: FxHashMap<NodeId, usize> =
        assigns.iter().enumerate().map(|(k, id)| (*id, k)).collect();
    // The first assignment of a group stands for it.
    let mut groups = Unions::new(assigns.len());
    for (k, assign) in assigns.iter().enumerate() {
        let Some(dims) = view.dims(*assign) else { continue };
        let reads = view.reads_of(*assign, &dims);
        for user in reads.into_iter().chain([*assign]) {
            if let Writer::Node(w) = view.last_writer(user)
                && let Some(other) = place.get(&w)
                && view.dims(w).as_ref() == Some(&dims)
                && view.together(w, *assign).is_ok()
            {
                let (a, b) = (groups.root(k), groups.root(*other));
                groups.join(a.min(b), a.max(b));
            }
        }
    }
    let mut components: Vec<Vec<NodeId>> = vec![Vec::new(); assigns.len()];
    for (k, assign) in assigns.iter().enumerate() {
        components[groups.root(k)].push(*assign);
    }
    let mut members = Vec::new();
    for component in components.iter().flat_map(|c| c.chunks(MAX_ASSIGNS)) {
        match build(view, component) {
            Some(member) => members.push(member),
            None if component.len() > 1 => {
                members
                    .extend(component.iter().filter_map(|a| build(view, std::slice::from_ref(a))));
            }
            None => {}
        }
    }
    members
}

/// The member for some assignments, if there is one.
fn build(view: &View<'_>, assigns: &[NodeId]) -> Option<Member> {
    [false, true].into_iter().find_map(|own| Builder::new(view, assigns, own)?.build())
}

/// Members that one node may serve, in groups, the largest first. The members of a group are alike
/// and of one level, so that no path leads between them.
fn groups(graph: &Graph, branches: &Branches, members: Vec<(Member, u32)>) -> Vec<Vec<Member>> {
    type Key = (String, Vec<u32>, Vec<Output>, String, Conditions, u32);
    let mut keys: FxHashMap<Key, usize> = FxHashMap::default();
    let mut groups: Vec<Vec<Member>> = Vec::new();
    for (member, level) in members {
        let key = (
            member.draft.expression.to_string(),
            member.draft.constants.iter().map(|c| c.to_bits()).collect(),
            member.scalars.clone(),
            graph.node(member.nodes[0]).device().to_owned(),
            branches.conditions(member.nodes[0]),
            level,
        );
        let at = *keys.entry(key).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[at].push(member);
    }
    groups.sort_by_key(|g| std::cmp::Reverse(g.len()));
    groups
}

/// Whether a single member is worth a node of ours, which has to upload a table to the device.
const fn is_worth_it(member: &Member) -> bool {
    member.dispatches > 1
}

/// Replaces the members by one node.
fn replace(graph: &mut Graph, members: &[Member]) {
    let nodes: Vec<NodeId> = members.iter().flat_map(|m| m.nodes.iter().copied()).collect();
    let draft = &members[0].draft;
    let (_, others) = draft.expression.inputs().split_at(members[0].handles.len());
    let (own, shared) = others.split_at(members[0].tensors.len());
    let types = vec![own; members.len()].concat();
    let handles: Vec<Output> = members.iter().flat_map(|m| m.handles.iter().copied()).collect();
    let last = members.iter().max_by_key(|m| m.place).and_then(|m| m.assigns.last()).copied();
    let last = last.expect("a member has assignments");
    let (kept, gone): (Vec<NodeId>, Vec<NodeId>) =
        nodes.iter().partition(|n| graph.is_preserved(**n));
    let waited = detach(graph, &kept, &nodes);
    let mut attrs = vec![
        ("N", Attr::from(members.len() as i64)),
        ("NR", Attr::from(handles.len() as i64)),
        ("Ttensors", Attr::from(&types[..])),
        ("Tscalars", Attr::from(shared)),
    ];
    attrs.extend(draft.attrs());
    let inputs = handles
        .into_iter()
        .chain(members.iter().flat_map(|m| m.tensors.iter().copied()))
        .chain(members[0].scalars.iter().copied())
        .collect();
    let mut new = fused(graph, last, "update", update::OP, inputs, attrs, Vec::new());
    new.controls = members.iter().flat_map(|m| m.after.iter().copied()).chain(waited).collect();
    let id = graph.replace_region(&gone, new, &[]);
    for name in kept {
        graph.add_control(name, id);
    }
}

/// Turns assignments whose names must stay into mere names, and removes the waits of inner nodes
/// for them. Returns the nodes for which they waited.
fn detach(graph: &mut Graph, kept: &[NodeId], nodes: &[NodeId]) -> Vec<NodeId> {
    let mut waited = Vec::new();
    let inside: FxHashSet<NodeId> = nodes.iter().copied().collect();
    for id in kept {
        let waiters: Vec<NodeId> = graph.waiters(*id).filter(|w| inside.contains(w)).collect();
        waiters.into_iter().for_each(|waiter| graph.remove_control(waiter, *id));
    }
    for id in kept {
        let controls = graph.node(*id).controls().to_vec();
        for control in controls {
            graph.remove_control(*id, control);
            if !inside.contains(&control) {
                waited.push(control);
            }
        }
        graph.set_no_op(*id);
    }
    waited
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::optimizer::refusal::Refusal;

    #[test]
    fn a_value_tells_why_the_update_does_not_compute_it() {
        let text = "preserve out
            v = VarHandleOp {dtype: float32, shape: shape [4]} -> resource
            x = Placeholder -> float32[4]
            k = Square(x) {T: float32} -> float32[4]
            b = Square(x) {T: float32} @CPU:0 -> float32[4]
            d = Mul(k, b) {T: float32} -> float32[4]
            assign = AssignSubVariableOp(v, d) {dtype: float32}
            out = Custom(k, ^assign)";
        let mut graph = Graph::from_text(text).unwrap();
        graph.keep_journal();
        run(&mut graph).unwrap();
        let apart = |name: &str| {
            let apart = graph.journal().unwrap().apart(name).unwrap();
            (apart.neighbour.to_string(), apart.refusal)
        };
        assert_eq!(apart("k"), ("assign".to_owned(), Refusal::ReadElsewhere));
        assert_eq!(apart("b"), ("assign".to_owned(), Refusal::OtherDevice));
    }
}
