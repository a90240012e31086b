//! Which members may become nodes together, without a cycle.
//!
//! All members are taken for nodes at once. Where that makes a cycle, those of it but the first
//! fall apart, until there is none. In a graph without cycles each member has a level: how many
//! members lie before it on a path. Members of one level have no path between them, and a path only
//! ever leads from one level to a higher one. So members of one level may be one node each,
//! whichever they are, all at the same time.

use super::member::Member;
use crate::optimizer::graph::{Graph, NodeId};

/// A graph with members as nodes.
struct Contracted<'g> {
    graph: &'g Graph,
    members: &'g [Member],
    /// For each node of the graph, the node that it is part of: its own number, or the graph's
    /// capacity and the member's number.
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

    /// What a node uses.
    fn used(&self, node: u32) -> Vec<u32> {
        let of = |used: NodeId| self.of[used.index()];
        let graph = self.graph;
        let Some(member) = self.member(node) else {
            let id = NodeId(node);
            return graph.used(id).filter(|used| !graph.is_back_edge(*used, id)).map(of).collect();
        };
        let mut used: Vec<u32> = Vec::new();
        for id in member.nodes.iter().copied() {
            // What it reads of its own new values it computes; who else reads them waits for it.
            let inputs = graph.node(id).inputs().iter().map(|input| input.node);
            used.extend(inputs.filter(|input| !member.before.contains(input)).map(of));
            used.extend(graph.node(id).controls().iter().copied().map(of));
        }
        used.extend(member.after.iter().copied().map(of));
        used.retain(|other| *other != node);
        used
    }

    /// The strongly connected components, each behind its inputs' components (Tarjan's algorithm,
    /// without recursion).
    fn components(&self, order: &[NodeId]) -> Vec<Vec<u32>> {
        const UNSEEN: u32 = u32::MAX;
        const DONE: u32 = u32::MAX - 1;
        let count = self.of.len() + self.members.len();
        // When a node was met first; the earliest node on the stack that it leads to.
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

/// The members that can all become nodes, with their levels. Of one that cannot, `parts` are tried
/// instead.
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
            // One alone cannot stay. Of several, the first may.
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
