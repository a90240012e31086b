//! Finds out for many pairs of nodes at once whether a path connects them.
//!
//! Most of the pairs that passes ask about are the two ends of one edge. For the others, one sweep
//! over the graph follows the paths from several hundred nodes, with a bit for each. So memory is
//! linear in the graph. Time is too, up to a logarithm, because of a budget.

use super::{Graph, NodeId};

/// The number of words of bits for each node in a sweep.
const WORDS: usize = 8;
/// The number of nodes from which a sweep follows paths.
const SOURCES: usize = WORDS * 64;
/// The total number of edges visited, for each edge of the graph and each doubling of its nodes.
const BUDGET: usize = 32;

/// The place of a node that is not in the order.
const NONE: u32 = u32::MAX;

/// The places of a graph's nodes in one of its orders.
#[derive(Debug)]
pub struct Places<'g> {
    graph: &'g Graph,
    order: &'g [NodeId],
    place: Vec<u32>,
}

impl<'g> Places<'g> {
    /// The places of the nodes in this order, see [`Graph::order`].
    pub fn new(graph: &'g Graph, order: &'g [NodeId]) -> Self {
        let mut place = vec![NONE; graph.capacity()];
        for (at, id) in (0..).zip(order) {
            place[id.index()] = at;
        }
        Self { graph, order, place }
    }

    /// The place of a node, above the places of all its inputs.
    pub fn of(&self, id: NodeId) -> u32 {
        self.place[id.index()]
    }

    /// For each pair, whether a path certainly leads from the first node to the second. If the
    /// search would take too long, the answer is no.
    pub fn connected(&self, pairs: &[(NodeId, NodeId)]) -> Vec<bool> {
        let mut answers = vec![false; pairs.len()];
        let mut open = self.by_edges(pairs, &mut answers);
        open.sort_unstable_by_key(|at| (self.of(pairs[*at].0), self.of(pairs[*at].1)));
        let edges: usize = self.order.iter().map(|id| 1 + self.graph.used(*id).count()).sum();
        let doublings = usize::BITS - self.order.len().leading_zeros();
        let mut budget = BUDGET * edges * doublings as usize;
        let mut bits = vec![[0u64; WORDS]; if open.is_empty() { 0 } else { self.order.len() }];
        let mut rest = &open[..];
        while !rest.is_empty() && budget > 0 {
            let mut sources: Vec<NodeId> = Vec::new();
            let taken = rest.iter().take_while(|at| {
                let source = pairs[**at].0;
                if sources.last() != Some(&source) {
                    sources.push(source);
                }
                sources.len() <= SOURCES
            });
            let (now, later) = rest.split_at(taken.count());
            sources.truncate(SOURCES);
            budget =
                budget.saturating_sub(self.sweep(pairs, now, &sources, &mut bits, &mut answers));
            rest = later;
        }
        answers
    }

    /// Answers a pair if there is an edge, or if the order rules a path out. Returns the pairs that
    /// are left.
    fn by_edges(&self, pairs: &[(NodeId, NodeId)], answers: &mut [bool]) -> Vec<usize> {
        let mut by_end: Vec<usize> = (0..pairs.len()).collect();
        by_end.sort_unstable_by_key(|at| pairs[*at].1);
        // For each node, the end of the last pair that uses it.
        let mut marked = vec![NONE; self.graph.capacity()];
        let mut open = Vec::new();
        for group in by_end.chunk_by(|a, b| pairs[*a].1 == pairs[*b].1) {
            let end = pairs[group[0]].1;
            self.graph.used(end).for_each(|used| marked[used.index()] = end.0);
            for at in group.iter().copied() {
                let from = pairs[at].0;
                if self.of(from) < self.of(end) {
                    answers[at] = marked[from.index()] == end.0;
                    if !answers[at] {
                        open.push(at);
                    }
                }
            }
        }
        open
    }

    /// Follows all paths from `sources`, which come in order, as far as the pairs `asked` need.
    /// Returns the number of edges visited.
    fn sweep(
        &self,
        pairs: &[(NodeId, NodeId)],
        asked: &[usize],
        sources: &[NodeId],
        bits: &mut [[u64; WORDS]],
        answers: &mut [bool],
    ) -> usize {
        let first = self.of(sources[0]);
        let last = asked.iter().map(|at| self.of(pairs[*at].1)).max().unwrap_or(first);
        let mut seen = 0;
        let mut next = 0;
        for place in first..=last {
            let id = self.order[place as usize];
            let mut own = [0u64; WORDS];
            for used in self.graph.used(id) {
                seen += 1;
                // This also leaves out edges back into loops, which come from later nodes.
                let from = self.of(used);
                if (first..place).contains(&from) {
                    own.iter_mut()
                        .zip(&bits[from as usize])
                        .for_each(|(own, theirs)| *own |= theirs);
                }
            }
            if sources.get(next) == Some(&id) {
                own[next / 64] |= 1 << (next % 64);
                next += 1;
            }
            bits[place as usize] = own;
        }
        let mut source = 0;
        for at in asked.iter().copied() {
            let (from, to) = pairs[at];
            while sources[source] != from {
                source += 1;
            }
            answers[at] = bits[self.of(to) as usize][source / 64] >> (source % 64) & 1 == 1;
        }
        seen + (last - first) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests all pairs of random graphs against all paths.
    #[test]
    fn the_answers_are_those_of_all_paths() {
        let mut state = 11u64;
        let mut below = |n: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % n
        };
        for round in 0..40 {
            // Now and then there are more nodes than a sweep has sources.
            let n = if round % 10 == 0 { 700 } else { 20 };
            let edges: Vec<(usize, usize)> =
                (0..n + n / 4).map(|_| (below(n), below(n))).filter(|(a, b)| a < b).collect();
            let mut used: Vec<Vec<String>> = vec![Vec::new(); n];
            edges.iter().for_each(|(a, b)| used[*b].push(format!("^n{a}")));
            let line = |i: usize| format!("n{i} = A({})", used[i].join(", ")).replace("()", "");
            let text: Vec<String> = (0..n).rev().map(line).collect();
            let graph = Graph::from_text(&text.join("\n")).unwrap();
            let id: Vec<NodeId> = (0..n).map(|i| graph.find(&format!("n{i}")).unwrap()).collect();
            let mut path = vec![vec![false; n]; n];
            for b in 0..n {
                for a in edges.iter().filter(|e| e.1 == b).map(|e| e.0) {
                    path[a][b] = true;
                    (0..a).for_each(|k| path[k][b] |= path[k][a]);
                }
            }
            let order = graph.order().unwrap();
            let places = Places::new(&graph, &order);
            let all: Vec<(usize, usize)> =
                (0..n).flat_map(|a| (0..n).map(move |b| (a, b))).collect();
            let pairs: Vec<(NodeId, NodeId)> = all.iter().map(|(a, b)| (id[*a], id[*b])).collect();
            for ((a, b), answer) in all.iter().zip(places.connected(&pairs)) {
                assert_eq!(answer, path[*a][*b], "{a} to {b} of {edges:?}");
            }
        }
    }

    #[test]
    fn edges_back_into_loops_do_not_count() {
        let text = "x = Placeholder\nm = Merge(x, n)\ny = Exp(m)\nn = NextIteration(y)";
        let graph = Graph::from_text(text).unwrap();
        let id = |name: &str| graph.find(name).unwrap();
        let order = graph.order().unwrap();
        let pairs = [(id("x"), id("n")), (id("n"), id("y")), (id("y"), id("y"))];
        assert_eq!(Places::new(&graph, &order).connected(&pairs), [true, false, false]);
    }
}
