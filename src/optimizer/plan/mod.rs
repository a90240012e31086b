//! The one planner of fusions: a queue of candidates, of which those that save most come first.
//!
//! A pass tells the candidates, what each saves ([`cost`]), and whether it may be. The queue is
//! lazy and greedy: it asks for the saving again when a candidate's turn comes, because other
//! fusions may have changed its parts since. A candidate that was refused waits until one of its
//! parts has grown. The reason of every refusal goes into the graph's journal.

pub mod cost;
pub mod groups;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::FxHashMap;

use super::graph::{Graph, NodeId};
use super::refusal::Refusal;
use cost::Nanos;

/// The two parts of a candidate and their sizes. As long as they stay the same, so does the answer
/// whether the parts may be fused.
pub type Parts = [(usize, usize); 2];

/// What a fusion saves, in the order of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Saving {
    /// Whether it comes before all fusions of which this does not hold.
    pub comes_first: bool,
    /// The time.
    pub time: Nanos,
}

impl From<Nanos> for Saving {
    fn from(time: Nanos) -> Self {
        Self { comes_first: true, time }
    }
}

/// The fusions that a pass can make.
pub trait Fusions {
    /// Two neighbours, or a node that may take in its neighbours.
    type Candidate: Copy;
    /// The pass's name.
    const PASS: &'static str;

    /// The graph.
    fn graph(&self) -> &Graph;

    /// A node of each part, for the journal.
    fn nodes(&self, candidate: Self::Candidate) -> [NodeId; 2];

    /// The parts as they are now.
    fn parts(&self, candidate: Self::Candidate) -> Parts;

    /// The saving as it is now; `None` if there is nothing to fuse any more.
    fn saving(&self, candidate: Self::Candidate) -> Option<Saving>;

    /// Fuses the parts. Returns false if it is not their turn yet.
    ///
    /// # Errors
    /// The reason why they must stay apart.
    fn fuse(&mut self, candidate: Self::Candidate) -> Result<bool, Refusal>;
}

/// Fusions each of which begins at a node and takes in what is around it.
pub trait Seeds {
    /// The pass's name.
    const PASS: &'static str;

    /// The graph.
    fn graph(&self) -> &Graph;

    /// A neighbour of a node, for the journal.
    fn neighbour(&self, seed: NodeId) -> Option<NodeId>;

    /// What a fusion at a node saves, as far as that is known before the fusion.
    fn saving(&self, seed: NodeId) -> Nanos;

    /// Fuses a node with its neighbours.
    ///
    /// # Errors
    /// The reason why not.
    fn fuse(&mut self, seed: NodeId) -> Result<(), Refusal>;
}

impl<S: Seeds> Fusions for S {
    type Candidate = NodeId;
    const PASS: &'static str = S::PASS;

    fn graph(&self) -> &Graph {
        Seeds::graph(self)
    }

    fn nodes(&self, seed: NodeId) -> [NodeId; 2] {
        [seed, self.neighbour(seed).unwrap_or(seed)]
    }

    /// Each node is tried once.
    fn parts(&self, seed: NodeId) -> Parts {
        [(seed.index(), 1); 2]
    }

    fn saving(&self, seed: NodeId) -> Option<Saving> {
        // An earlier fusion may have taken the node in.
        Seeds::graph(self).contains(seed).then(|| Seeds::saving(self, seed).into())
    }

    fn fuse(&mut self, seed: NodeId) -> Result<bool, Refusal> {
        Seeds::fuse(self, seed).map(|()| true)
    }
}

/// The queue's knowledge of refused parts.
#[derive(Debug, Default)]
pub struct Planner {
    refused: FxHashMap<Parts, Refusal>,
}

impl Planner {
    /// Makes the fusions that save most, until no candidate is left that may be fused. Among equal
    /// savings, the first candidate comes first. Returns the number of fusions.
    pub fn fuse<F: Fusions>(&mut self, fusions: &mut F, candidates: &[F::Candidate]) -> usize {
        let mut fused = 0;
        let mut waiting: Vec<usize> = (0..candidates.len()).collect();
        loop {
            let before = fused;
            // What was refused is asked again if a part has grown.
            let (refused, asked): (Vec<usize>, Vec<usize>) = waiting
                .into_iter()
                .partition(|at| before > 0 && self.knows(fusions, candidates[*at]));
            waiting = refused;
            // Each saving, with its candidate and the number of fusions when it was found.
            let first = |at| Some((fusions.saving(candidates[at])?, Reverse(at), before));
            let mut queue: BinaryHeap<_> = asked.into_iter().filter_map(first).collect();
            while let Some((saving, Reverse(at), found)) = queue.pop() {
                let candidate = candidates[at];
                let now = if found == fused { Some(saving) } else { fusions.saving(candidate) };
                match now {
                    None => {}
                    Some(now) if now < saving => queue.push((now, Reverse(at), fused)),
                    Some(_) if self.try_to_fuse(fusions, candidate) => fused += 1,
                    Some(_) => waiting.push(at),
                }
            }
            if fused == before {
                return fused;
            }
        }
    }

    /// Whether the parts of a candidate were refused as they are.
    fn knows<F: Fusions>(&self, fusions: &F, candidate: F::Candidate) -> bool {
        self.refused.contains_key(&fusions.parts(candidate))
    }

    /// Fuses the parts of a candidate, or writes down why not. Returns whether it fused them.
    fn try_to_fuse<F: Fusions>(&mut self, fusions: &mut F, candidate: F::Candidate) -> bool {
        let parts = fusions.parts(candidate);
        let answer = match self.refused.get(&parts) {
            Some(refusal) => Err(*refusal),
            None => fusions.fuse(candidate),
        };
        answer.unwrap_or_else(|refusal| {
            self.refused.insert(parts, refusal);
            fusions.graph().refuse(F::PASS, fusions.nodes(candidate), refusal);
            false
        })
    }
}

#[cfg(test)]
mod tests {
    use super::groups::Groups;
    use super::*;

    /// Nodes with sizes. Two may be fused if both have less than four of them.
    struct Sizes<'g> {
        graph: &'g Graph,
        nodes: Vec<NodeId>,
        groups: Groups<u64>,
        asked: Vec<[usize; 2]>,
    }

    impl Fusions for Sizes<'_> {
        type Candidate = [usize; 2];
        const PASS: &'static str = "sizes";

        fn graph(&self) -> &Graph {
            self.graph
        }

        fn nodes(&self, pair: [usize; 2]) -> [NodeId; 2] {
            pair.map(|at| self.nodes[at])
        }

        fn parts(&self, pair: [usize; 2]) -> Parts {
            self.groups.parts(pair)
        }

        /// Small groups save more.
        fn saving(&self, pair: [usize; 2]) -> Option<Saving> {
            let [a, b] = self.groups.pair(pair)?;
            Some((20 - (a + b)).into())
        }

        fn fuse(&mut self, pair: [usize; 2]) -> Result<bool, Refusal> {
            self.asked.push(pair);
            let sum = self.groups.pair(pair).map_or(0, |[a, b]| a + b);
            if sum > 4 {
                return Err(Refusal::TooLarge(None));
            }
            self.groups.join(pair, sum);
            Ok(true)
        }
    }

    #[test]
    fn the_best_comes_first_and_stale_savings_are_asked_again() {
        let text = "a = A\nb = A(^a)\nc = A(^b)\nd = A(^c)";
        let mut graph = Graph::from_text(text).unwrap();
        graph.keep_journal();
        let nodes = ["a", "b", "c", "d"].map(|name| graph.find(name).unwrap()).to_vec();
        let groups = Groups::new(vec![2, 1, 1, 1]);
        let mut sizes = Sizes { graph: &graph, nodes, groups, asked: Vec::new() };
        let pairs = [[0, 1], [1, 2], [2, 3]];
        assert_eq!(Planner::default().fuse(&mut sizes, &pairs), 2);
        // The last two saved as much as the two before them, which had become larger when their
        // turn came. The first pair was refused, with its reason.
        assert_eq!(sizes.asked, [[1, 2], [2, 3], [0, 1]]);
        assert_eq!(sizes.groups.into_items().collect::<Vec<_>>(), [2, 3]);
        let apart = graph.journal().unwrap().apart("a").unwrap();
        assert_eq!((apart.pass, apart.refusal), ("sizes", Refusal::TooLarge(None)));
        assert!(graph.journal().unwrap().apart("d").is_none());
    }
}
