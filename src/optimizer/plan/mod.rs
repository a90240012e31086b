//! The planner of fusions: a queue of candidates in the order of what they save, the largest saving
//! first.
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

use super::graph::NodeId;
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

/// For passes that know no other order than that of time.
impl From<Nanos> for Saving {
    fn from(time: Nanos) -> Self {
        Self { comes_first: true, time }
    }
}

/// The fusions that a pass can make.
pub trait Fusions {
    /// Two neighbours.
    type Candidate: Copy;

    /// Writes down why the parts of a candidate stay apart.
    fn refuse(&self, candidate: Self::Candidate, refusal: Refusal);

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

/// Nodes that take in what is around them, in the order of what that saves. Nodes of equal savings
/// keep their order.
pub fn by_saving(mut seeds: Vec<NodeId>, saving: impl Fn(NodeId) -> Nanos) -> Vec<NodeId> {
    seeds.sort_by_cached_key(|id| Reverse(saving(*id)));
    seeds
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
            fusions.refuse(candidate, refusal);
            false
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::groups::Groups;
    use super::*;

    /// Sizes that are added up to four. Small ones save more.
    struct Sizes {
        groups: Groups<u64>,
        asked: Vec<[usize; 2]>,
        refused: RefCell<Vec<[usize; 2]>>,
    }

    impl Fusions for Sizes {
        type Candidate = [usize; 2];

        fn refuse(&self, pair: [usize; 2], _: Refusal) {
            self.refused.borrow_mut().push(pair);
        }

        fn parts(&self, pair: [usize; 2]) -> Parts {
            self.groups.parts(pair)
        }

        fn saving(&self, pair: [usize; 2]) -> Option<Saving> {
            let [a, b] = self.groups.pair(pair)?;
            Some((20 - (a + b)).into())
        }

        fn fuse(&mut self, pair: [usize; 2]) -> Result<bool, Refusal> {
            self.asked.push(pair);
            let sum = self.groups.pair(pair).map_or(0, |[a, b]| a + b);
            Refusal::check_size(if sum > 4 { u32::MAX } else { 0 })?;
            self.groups.join(pair, sum);
            Ok(true)
        }
    }

    #[test]
    fn the_best_comes_first_and_stale_savings_are_asked_again() {
        let groups = Groups::new(vec![2, 1, 1, 1]);
        let mut sizes = Sizes { groups, asked: Vec::new(), refused: RefCell::default() };
        assert_eq!(Planner::default().fuse(&mut sizes, &[[0, 1], [1, 2], [2, 3]]), 2);
        // The last pair saved as much as the one before it, but had become larger when its turn
        // came. The first pair was refused once.
        assert_eq!(sizes.asked, [[1, 2], [2, 3], [0, 1]]);
        assert_eq!(*sizes.refused.borrow(), [[0, 1]]);
        assert_eq!(sizes.groups.into_items().collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn what_was_refused_is_asked_again_once_a_part_has_grown() {
        // The first pair saves most, and must wait until the second one has grown to four.
        struct Late(Sizes);
        impl Fusions for Late {
            type Candidate = [usize; 2];

            fn refuse(&self, pair: [usize; 2], refusal: Refusal) {
                self.0.refuse(pair, refusal);
            }

            fn parts(&self, pair: [usize; 2]) -> Parts {
                self.0.parts(pair)
            }

            fn saving(&self, pair: [usize; 2]) -> Option<Saving> {
                self.0.saving(pair)
            }

            fn fuse(&mut self, pair: [usize; 2]) -> Result<bool, Refusal> {
                let is_early = pair == [0, 1] && self.0.groups.parts([1, 2])[0].1 == 1;
                if is_early { Err(Refusal::Operand) } else { self.0.fuse(pair) }
            }
        }
        let groups = Groups::new(vec![1, 1, 2]);
        let sizes = Sizes { groups, asked: Vec::new(), refused: RefCell::default() };
        let mut late = Late(sizes);
        assert_eq!(Planner::default().fuse(&mut late, &[[0, 1], [1, 2]]), 2);
        assert_eq!(late.0.asked, [[1, 2], [0, 1]]);
        assert_eq!(late.0.groups.into_items().collect::<Vec<_>>(), [4]);
    }
}
