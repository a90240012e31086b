//! Chooses the members that become nodes together without a cycle.
//!
//! At first all members are treated as nodes at once. If that makes a cycle, all its members except
//! the first are taken apart, until no cycle is left. In a graph without cycles each member has a
//! level: the number of members before it on a path. Members of one level have no path between
//! them, and a path only ever leads from one level to a higher one. So any members of one level may
//! share a node, and this holds for all levels at the same time.

use super::member::Member;
use crate::optimizer::graph::{Graph, NodeId};

/// A graph with members as nodes.
struct Contracted<'g> {
    graph: &'g Graph,
    members: &'g [Member],
    /// For each node of the graph, the contracted node that holds it: its own number, or the sum of
    /// the graph's capacity and its member's number.
    of: Vec<u32>,
}

impl<'g> Contracted<'g> {
    fn new(graph: &'g Graph, members: &'g [Member]) -> Self {
        let capacity = graph.capacity() as u32;
        let mut of: Vec<u32> = (0..capacity).collect();
        for (number, member) in (capacity..).zip(members) {
            member.nodes.iter().for_each(|id| of[id.index()] = number);
        }
        Self { graph, members, of }
    }

    fn member(&self, node: u32) -> Option<&Member> {
        self.members.get((node as usize).checked_sub(self.of.len())?)
    }

    /// The inputs and control inputs of a node.
    fn used(&self, node: u32) -> Vec<u32> {
        let of = |used: NodeId| self.of[used.index()];
        let graph = self.graph;
        let Some(member) = self.member(node) else {
            let id = NodeId(node);
            return graph.used(id).filter(|used| !graph.is_back_edge(*used, id)).map(of).collect();
        };
        let mut used: Vec<u32> = Vec::new();
        for id in member.nodes.iter().copied() {
            // The member computes the new values that it reads itself; other readers of them wait
            // for it.
            let inputs = graph.node(id).inputs().iter().map(|input| input.node);
            used.extend(inputs.filter(|input| !member.before.contains(input)).map(of));
            used.extend(graph.node(id).controls().iter().copied().map(of));
        }
        used.extend(member.after.iter().copied().map(of));
        used.retain(|other| *other != node);
        used
    }

    /// The strongly connected components, each after the components of its inputs (Tarjan's
    /// algorithm, without recursion).
    fn components(&self, order: &[NodeId]) -> Vec<Vec<u32>> {
        const UNSEEN: u32 = u32::MAX;
        const DONE: u32 = u32::MAX - 1;
        let count = self.of.len() + self.members.len();
        // The time at which a node was first visited, and the earliest node on the stack that it
        // reaches.
        let (mut met, mut low) = (vec![UNSEEN; count], vec![0; count]);
        let (mut stack, mut components) = (Vec::new(), Vec::new());
        let mut clock = 0;
        for start in order.iter().map(|id| self.of[id.index()]) {
            let mut path: Vec<(u32, Vec<u32>)> = Vec::new();
            let mut next = (met[start as usize] == UNSEEN).then_some(start);
            loop {
                if let Some(node) = next.take() {
                    (met[node as usize], low[node as usize]) = (clock, clock);
                    clock += 1;
                    stack.push(node);
                    path.push((node, self.used(node)));
                }
                let Some((node, left)) = path.last_mut() else { break };
                let node = *node;
                if let Some(used) = left.pop() {
                    match met[used as usize] {
                        UNSEEN => next = Some(used),
                        DONE => {}
                        when => low[node as usize] = low[node as usize].min(when),
                    }
                    continue;
                }
                path.pop();
                if let Some((user, _)) = path.last() {
                    low[*user as usize] = low[*user as usize].min(low[node as usize]);
                }
                if low[node as usize] == met[node as usize] {
                    let at =
                        stack.iter().rposition(|n| *n == node).expect("the node is on the stack");
                    let component = stack.split_off(at);
                    component.iter().for_each(|n| met[*n as usize] = DONE);
                    components.push(component);
                }
            }
        }
        components
    }
}

/// The members that can all become nodes, with their levels. A member that cannot is replaced by
/// its `parts`.
pub fn legal(
    graph: &Graph,
    order: &[NodeId],
    mut members: Vec<Member>,
    parts: impl Fn(&Member) -> Vec<Member>,
) -> Vec<(Member, u32)> {
    loop {
        let contracted = Contracted::new(graph, &members);
        let components = contracted.components(order);
        let first_member = graph.capacity() as u32;
        let mut broken: Vec<usize> = Vec::new();
        for component in components.iter().filter(|c| c.len() > 1) {
            let mut inside: Vec<usize> = component
                .iter()
                .filter_map(|n| n.checked_sub(first_member))
                .map(|n| n as usize)
                .collect();
            inside.sort_unstable();
            // A member alone in a cycle cannot stay. Of several, the first may.
            let stays = usize::from(inside.len() > 1);
            broken.extend(inside.into_iter().skip(stays));
        }
        if broken.is_empty() {
            let levels = levels(&contracted, &components);
            return members.into_iter().zip(levels).collect();
        }
        broken.sort_unstable();
        let mut kept = Vec::new();
        for (number, member) in members.into_iter().enumerate() {
            match broken.binary_search(&number) {
                Ok(_) => kept.extend(parts(&member)),
                Err(_) => kept.push(member),
            }
        }
        members = kept;
    }
}

/// The levels of the members of a graph without cycles.
fn levels(contracted: &Contracted<'_>, components: &[Vec<u32>]) -> Vec<u32> {
    let first = contracted.of.len();
    let mut levels = vec![0u32; first + contracted.members.len()];
    for node in components.iter().flatten().copied() {
        let behind = |used: u32| levels[used as usize] + u32::from(used as usize >= first);
        levels[node as usize] = contracted.used(node).into_iter().map(behind).max().unwrap_or(0);
    }
    levels.split_off(first)
}
