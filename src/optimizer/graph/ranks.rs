//! A topological order that is kept up to date: the one place that decides whether a path exists.
//!
//! Each node has a rank above the ranks of its inputs. A new node gets a rank between those of its
//! inputs and its users; only nodes between the two in the old order move (Pearce and Kelly, "A
//! dynamic topological sort algorithm for directed acyclic graphs", 2006). Searches for paths need
//! not look beyond the ranks of the paths' ends. The nodes are those of a [`Graph`], or groups of
//! them ([`super::clusters`]).

use std::ops::RangeInclusive;

use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use super::Graph;
use super::node::NodeId;

/// The distance between the ranks of the initial nodes. It is small in tests, so that free ranks
/// run out.
const GAP: u64 = if cfg!(test) { 4 } else { 1 << 32 };
/// The largest number of nodes that a search for a path visits in each direction. If a search needs
/// more, the path counts as found, so that time stays linear.
const MAX_SEARCHED: usize = 1 << 12;
/// The number of nodes that the search from the smaller set visits before the other one begins.
const ALONE: usize = 32;
/// The rank of a node that is not in the order.
const NONE: u64 = u64::MAX;

/// A set of nodes.
pub type Nodes = FxHashSet<NodeId>;

/// Edges in both directions.
pub trait Edges {
    /// The nodes behind a node.
    fn after(&self, id: NodeId) -> impl Iterator<Item = NodeId>;
    /// The nodes in front of a node.
    fn before(&self, id: NodeId) -> impl Iterator<Item = NodeId>;
}

/// Without edges back into loops of TensorFlow 1.
impl Edges for Graph {
    fn after(&self, id: NodeId) -> impl Iterator<Item = NodeId> {
        self.following(id).filter(move |next| !self.is_back_edge(id, *next))
    }

    fn before(&self, id: NodeId) -> impl Iterator<Item = NodeId> {
        self.preceding(id).filter(move |next| !self.is_back_edge(*next, id))
    }
}

/// The ranks of nodes.
#[derive(Debug, Clone)]
pub struct Ranks {
    rank: Vec<u64>,
    /// The ranks that were given between initial ones: no two nodes have the same rank.
    given: FxHashSet<u64>,
    /// Nodes that are new, or whose new inputs have higher ranks.
    misplaced: Vec<NodeId>,
}

impl Ranks {
    /// The ranks of nodes in this order, whose numbers are below `capacity`.
    pub fn new(order: &[NodeId], capacity: usize) -> Self {
        let mut rank = vec![NONE; capacity];
        for (at, id) in (1..).zip(order) {
            rank[id.index()] = at * GAP;
        }
        Self { rank, given: FxHashSet::default(), misplaced: Vec::new() }
    }

    /// The rank of a node; none for a new node.
    pub fn get(&self, id: NodeId) -> Option<u64> {
        self.rank.get(id.index()).copied().filter(|rank| *rank != NONE)
    }

    /// Notes a new node.
    pub(super) fn add(&mut self, id: NodeId) {
        self.misplaced.push(id);
    }

    /// Notes a new edge.
    pub(super) fn link(&mut self, from: NodeId, to: NodeId) {
        if let Some((from, own)) = self.get(from).zip(self.get(to))
            && from >= own
        {
            self.misplaced.push(to);
        }
    }

    /// Finds the place of every new node. `None` if that takes too long, or if there is a cycle.
    fn settle(&mut self, graph: &Graph) -> Option<()> {
        self.rank.resize(graph.capacity(), NONE);
        let misplaced = std::mem::take(&mut self.misplaced);
        misplaced.iter().for_each(|id| self.rank[id.index()] = NONE);
        for id in misplaced.into_iter().filter(|id| graph.contains(*id)) {
            let (used, users): (Vec<_>, Vec<_>) =
                (graph.before(id).collect(), graph.after(id).collect());
            self.place(graph, id, &used, &users)?;
        }
        Some(())
    }

    /// Gives `first` the place of itself and of `second`, which comes after it and will cease to
    /// exist. Changes nothing if that would close a cycle, or takes too long; returns `None` then.
    pub(super) fn merge(
        &mut self,
        edges: &impl Edges,
        first: NodeId,
        second: NodeId,
    ) -> Option<()> {
        let is_other = |id: &NodeId| *id != first && *id != second;
        let used: Vec<_> =
            edges.before(first).chain(edges.before(second)).filter(is_other).collect();
        let users: Vec<_> =
            edges.after(first).chain(edges.after(second)).filter(is_other).collect();
        let old = [first, second].map(|id| self.rank[id.index()]);
        self.place(edges, first, &used, &users)?;
        self.rank[second.index()] = NONE;
        for rank in old.into_iter().filter(|rank| *rank != self.rank[first.index()]) {
            self.given.remove(&rank);
        }
        Some(())
    }

    /// Gives a node a rank between the nodes that it uses and its users.
    fn place(
        &mut self,
        edges: &impl Edges,
        id: NodeId,
        used: &[NodeId],
        users: &[NodeId],
    ) -> Option<()> {
        let ranks = |ids: &[NodeId]| ids.iter().filter_map(|n| self.get(*n)).collect::<Vec<_>>();
        let mut below = ranks(used).into_iter().max().unwrap_or(0);
        let mut above = ranks(users).into_iter().min().unwrap_or(below + 2 * GAP);
        if above <= below {
            let behind = self.near(edges, users, above..=below, true)?;
            let before = self.near(edges, used, above..=below, false)?;
            if behind.iter().any(|n| before.contains(n)) {
                return None;
            }
            (below, above) = self.part(before, behind);
        }
        let middle = below + (above - below) / 2;
        // Nodes at the same place begin to search for a free rank at different ones.
        let start = middle + u64::from(id.0) % (above - middle);
        match (start..above).find(|rank| rank % GAP != 0 && !self.given.contains(rank)) {
            Some(rank) => {
                self.given.insert(rank);
                self.rank[id.index()] = rank;
                Some(())
            }
            None => {
                self.spread();
                self.place(edges, id, used, users)
            }
        }
    }

    /// The nodes with these ranks on paths from `start`, which lead to users if `down`, and to
    /// inputs otherwise. `None` if there are too many.
    fn near(
        &self,
        edges: &impl Edges,
        start: &[NodeId],
        ranks: RangeInclusive<u64>,
        down: bool,
    ) -> Option<Nodes> {
        let within = |n: &NodeId| self.get(*n).is_some_and(|rank| ranks.contains(&rank));
        let mut seen: Nodes = start.iter().copied().filter(within).collect();
        let mut stack: Vec<NodeId> = seen.iter().copied().collect();
        while let Some(id) = stack.pop().filter(|_| seen.len() <= MAX_SEARCHED) {
            stack
                .extend(next(edges, id, down).into_iter().filter(|n| within(n) && seen.insert(*n)));
        }
        (seen.len() <= MAX_SEARCHED).then_some(seen)
    }

    /// Deals the ranks of two sets of nodes out anew: `before` gets the lower ones, `behind` the
    /// upper ones. Returns the two ranks where the sets meet.
    fn part(&mut self, before: Nodes, behind: Nodes) -> (u64, u64) {
        let sorted = |nodes: Nodes| {
            let mut nodes: Vec<NodeId> = nodes.into_iter().collect();
            nodes.sort_unstable_by_key(|n| self.rank[n.index()]);
            nodes
        };
        let (before, behind) = (sorted(before), sorted(behind));
        let nodes = [&before[..], &behind].concat();
        let mut ranks: Vec<u64> = nodes.iter().map(|n| self.rank[n.index()]).collect();
        ranks.sort_unstable();
        for (node, rank) in nodes.iter().zip(&ranks) {
            self.rank[node.index()] = *rank;
        }
        (ranks[before.len() - 1], ranks[before.len()])
    }

    /// Makes room between all ranks.
    fn spread(&mut self) {
        let mut ranked: Vec<usize> =
            (0..self.rank.len()).filter(|at| self.rank[*at] != NONE).collect();
        ranked.sort_unstable_by_key(|at| self.rank[*at]);
        (1..).zip(ranked).for_each(|(rank, at)| self.rank[at] = rank * GAP);
        self.given.clear();
    }

    /// Whether a path leads from a node of `from` to a node of `to` over at least one other node,
    /// the last of which is one that the end `needs`. Paths over nodes of `left_out` do not count.
    /// The answer is also yes if the search would take too long.
    fn connect<I: IntoIterator<Item = NodeId>>(
        &self,
        graph: &Graph,
        [from, to, left_out]: [&Nodes; 3],
        needs: impl Fn(NodeId) -> I,
    ) -> bool {
        let rank = |id: &NodeId| self.get(*id);
        let (Some(first), Some(last)) =
            (from.iter().filter_map(rank).min(), to.iter().filter_map(rank).max())
        else {
            return false;
        };
        let is_near = |id: &NodeId| {
            rank(id).is_some_and(|rank| (first..=last).contains(&rank)) && !left_out.contains(id)
        };
        let is_between = |id: &NodeId| is_near(id) && !from.contains(id) && !to.contains(id);
        let start = |way: usize| -> Nodes {
            if way == 0 {
                from.iter().flat_map(|id| graph.after(*id)).filter(is_between).collect()
            } else {
                to.iter().flat_map(|id| needs(*id)).filter(is_between).collect()
            }
        };
        let ends = |way: usize, id: NodeId, at: NodeId| match way {
            0 => to.contains(&at) && needs(at).into_iter().any(|needed| needed == id),
            _ => from.contains(&at),
        };
        // Searches down and up. Whichever finishes first decides. The one from the smaller set
        // begins, for it often ends soon; then the two advance in turn.
        let smaller = usize::from(from.len() >= to.len());
        let (mut seen, mut stacks): ([Nodes; 2], [Vec<NodeId>; 2]) = Default::default();
        for step in 0..MAX_SEARCHED {
            for way in [smaller, 1 - smaller].into_iter().take(1 + usize::from(step >= ALONE)) {
                if step == 0 || step == ALONE && way != smaller {
                    seen[way] = start(way);
                    stacks[way] = seen[way].iter().copied().collect();
                    if seen[way].iter().any(|id| seen[1 - way].contains(id)) {
                        return true;
                    }
                }
                let Some(id) = stacks[way].pop() else { return false };
                for at in next(graph, id, way == 0) {
                    if ends(way, id, at) || seen[1 - way].contains(&at) {
                        return true;
                    }
                    if is_between(&at) && seen[way].insert(at) {
                        stacks[way].push(at);
                    }
                }
            }
        }
        true
    }
}

/// The nodes behind a node if `down`, and those in front of it otherwise.
fn next(edges: &impl Edges, id: NodeId, down: bool) -> SmallVec<[NodeId; 8]> {
    if down { edges.after(id).collect() } else { edges.before(id).collect() }
}

impl Graph {
    /// Answers a question with the current ranks; `None` for a graph with a cycle.
    fn ranked<A>(&self, answer: impl Fn(&Ranks) -> A) -> Option<A> {
        let is_settled =
            self.ranks.borrow().as_ref().is_some_and(|ranks| ranks.misplaced.is_empty());
        let settles = || self.ranks.borrow_mut().as_mut()?.settle(self);
        if !is_settled && settles().is_none() {
            *self.ranks.borrow_mut() = None;
            self.order()?;
        }
        self.ranks.borrow().as_ref().map(answer)
    }

    /// The place of a node in a topological order, which begins as [`Self::order`]. New nodes get
    /// places between their inputs and their users.
    pub fn place(&self, id: NodeId) -> Option<u64> {
        self.ranked(|ranks| ranks.get(id))?
    }

    /// Whether some path leads from a node of `from` to one of `to`, without nodes of `avoid`
    /// between the two. The answer is also yes if the search would take too long.
    pub fn reaches(&self, from: &[NodeId], to: &Nodes, avoid: &Nodes) -> bool {
        let direct = from.iter().any(|id| self.after(*id).any(|user| to.contains(&user)));
        let from: Nodes = from.iter().copied().collect();
        direct || self.connects([&from, to, avoid], |id| self.before(id))
    }

    /// Whether a path leads from a node of `from` to one of `to` over other nodes, the last of
    /// which is one that this end `needs`, or may do so.
    pub fn detours<I: IntoIterator<Item = NodeId>>(
        &self,
        from: &Nodes,
        to: &Nodes,
        needs: impl Fn(NodeId) -> I,
    ) -> bool {
        self.connects([from, to, &Nodes::default()], needs)
    }

    /// [`Ranks::connect`]; yes for a graph with a cycle.
    fn connects<I: IntoIterator<Item = NodeId>>(
        &self,
        sets: [&Nodes; 3],
        needs: impl Fn(NodeId) -> I,
    ) -> bool {
        self.ranked(|ranks| ranks.connect(self, sets, &needs)).unwrap_or(true)
    }

    /// Whether it is certain that no path leaves the region and comes back. Only then can one node
    /// replace the region.
    pub fn is_convex(&self, region: &[NodeId]) -> bool {
        self.is_convex_without(region, &Nodes::default())
    }

    /// Like [`Self::is_convex`], without the nodes `left_out`, none of which is in the region.
    pub fn is_convex_without(&self, region: &[NodeId], left_out: &Nodes) -> bool {
        let inside: Nodes = region.iter().copied().collect();
        !self.connects([&inside, &inside, left_out], |id| self.before(id))
    }

    /// Whether it is certain that no path leads from one of the nodes to another one.
    pub fn are_independent(&self, nodes: &[NodeId]) -> bool {
        let is_one = |id: NodeId| nodes.contains(&id);
        !nodes.iter().any(|id| self.after(*id).any(is_one)) && self.is_convex(nodes)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::optimizer::graph::NewNode;

    /// Whether every node's rank is above the ranks of its inputs.
    fn holds(graph: &Graph) -> bool {
        graph.ids().all(|id| {
            graph.used(id).all(|used| graph.place(used).unwrap() < graph.place(id).unwrap())
        })
    }

    /// Whether a search without ranks finds no path that leaves the region and comes back.
    fn is_closed(graph: &Graph, region: &[NodeId]) -> bool {
        let mut stack: Vec<NodeId> =
            region.iter().flat_map(|id| graph.users(*id)).copied().collect();
        stack.retain(|id| !region.contains(id));
        while let Some(id) = stack.pop() {
            if graph.users(id).iter().any(|user| region.contains(user)) {
                return false;
            }
            stack.extend(graph.users(id));
        }
        true
    }

    /// Random convex regions of random graphs become nodes. Both tests for convexity must agree.
    #[test]
    fn the_order_follows_replacements() {
        let mut state = 3u64;
        let mut below = |n: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % n
        };
        let (mut replaced, mut refused) = (0, 0);
        for _ in 0..150 {
            let n = 24;
            let edges: BTreeSet<(usize, usize)> =
                (0..40).map(|_| (below(n), below(n))).filter(|(a, b)| a < b).collect();
            let line = |i: usize| {
                let inputs: Vec<_> =
                    edges.iter().filter(|e| e.1 == i).map(|e| format!("^n{}", e.0)).collect();
                if inputs.is_empty() {
                    format!("n{i} = A")
                } else {
                    format!("n{i} = A({})", inputs.join(", "))
                }
            };
            let text: Vec<String> = (0..n).rev().map(line).collect();
            let mut graph = Graph::from_text(&text.join("\n")).unwrap();
            for step in 0..8 {
                let left: Vec<NodeId> = graph.ids().collect();
                let mut region: Vec<NodeId> =
                    (0..1 + below(5)).map(|_| left[below(left.len())]).collect();
                region.sort_unstable();
                region.dedup();
                let convex = graph.is_convex(&region);
                assert_eq!(convex, is_closed(&graph, &region));
                if convex {
                    let new =
                        NewNode { name: format!("m{step}"), op: "A".into(), ..NewNode::default() };
                    graph.replace_region(&region, new, &[]);
                    assert!(holds(&graph));
                    replaced += 1;
                } else {
                    refused += 1;
                }
            }
        }
        assert!(replaced > 100 && refused > 100, "{replaced} {refused}");
    }

    #[test]
    fn a_cycle_is_seen() {
        let mut graph = Graph::from_text("a = A\nb = A(^a)\nc = A(^b)").unwrap();
        let id = |graph: &Graph, name: &str| graph.find(name).unwrap();
        assert!(graph.place(id(&graph, "a")) < graph.place(id(&graph, "c")));
        let (a, c) = (id(&graph, "a"), id(&graph, "c"));
        let new = graph.add(NewNode {
            name: "d".into(),
            op: "A".into(),
            controls: vec![c],
            ..NewNode::default()
        });
        graph.add_control(a, new);
        assert_eq!(graph.place(new), None);
        assert!(!graph.is_convex(&[a, c]));
    }
}
