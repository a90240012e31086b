//! The search for the fastest of several programs that give the same result: which is timed next,
//! and which has won. No clock, no device, no lock: timings are numbers that somebody brings.
//!
//! Timings of other shapes say little, so a search sticks to the shape that began it, until that
//! does not come again.

use smallvec::SmallVec;

/// Timings of each candidate. The least counts: whatever disturbs one makes it longer, and so does
/// a program's first run.
const TIMINGS: u32 = 3;
/// By how many percent the estimate's choice must be beaten. Less is noise.
const MARGIN: u64 = 5;
/// Timings that may come to nothing, after which nothing is timed any more.
const MOST_LOST: u32 = 12;
/// Calls of other shapes after which the search begins anew with theirs.
const PATIENCE: u32 = 64;

/// What stands for a candidate, in every process.
pub type Name = u64;
/// Names of candidates.
pub type Names = SmallVec<[Name; 8]>;
/// Whatever sizes decide how much there is to do: timings of one shape are compared.
pub type Shape = [usize; 5];

/// A search under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Search {
    shape: Shape,
    /// The estimate's choice first.
    candidates: SmallVec<[Candidate; 8]>,
    /// Calls of other shapes since the last one of this.
    elsewhere: u32,
    lost: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Candidate {
    name: Name,
    /// Timings begun. A timing that came to nothing does not count.
    begun: u32,
    done: u32,
    /// Nanoseconds.
    least: u64,
}

/// How a search has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// With the winner, and how many percent of the time of the estimate's choice it took.
    Winner(Name, u64),
    /// Without an answer.
    None,
}

impl Search {
    /// A search among `names`, of which the first is the estimate's choice.
    pub fn new(shape: Shape, names: &[Name]) -> Self {
        let candidate = |name: &Name| Candidate { name: *name, begun: 0, done: 0, least: u64::MAX };
        Self { shape, candidates: names.iter().map(candidate).collect(), elsewhere: 0, lost: 0 }
    }

    /// Notes a call. Whether it can be timed.
    pub fn meet(&mut self, shape: Shape) -> bool {
        self.elsewhere = if shape == self.shape { 0 } else { self.elsewhere + 1 };
        shape == self.shape
    }

    /// Whether its shape does not come again.
    pub const fn is_abandoned(&self) -> bool {
        self.elsewhere > PATIENCE
    }

    /// Whose timings are missing, in the order in which they should be made: in turn, so that all
    /// see the same of what changes slowly.
    pub fn wanted(&self) -> Names {
        let mut wanted: SmallVec<[&Candidate; 8]> =
            self.candidates.iter().filter(|c| c.begun < TIMINGS).collect();
        wanted.sort_by_key(|c| c.begun);
        wanted.iter().map(|c| c.name).collect()
    }

    /// Begins a timing, unless it is not wanted any more.
    pub fn begin(&mut self, shape: Shape, name: Name) -> bool {
        let wanted = shape == self.shape;
        match self.candidate(name).filter(|c| wanted && c.begun < TIMINGS) {
            Some(candidate) => {
                candidate.begun += 1;
                true
            }
            None => false,
        }
    }

    /// Takes a timing.
    pub fn end(&mut self, shape: Shape, name: Name, nanoseconds: u64) {
        let current = shape == self.shape;
        if let Some(candidate) = self.candidate(name).filter(|_| current) {
            candidate.done += 1;
            candidate.least = candidate.least.min(nanoseconds);
        }
    }

    /// A timing came to nothing.
    pub fn lose(&mut self, shape: Shape, name: Name) {
        let current = shape == self.shape;
        if let Some(candidate) = self.candidate(name).filter(|_| current) {
            candidate.begun = candidate.begun.saturating_sub(1);
            self.lost += 1;
        }
    }

    /// Leaves a candidate out, for the adapter cannot run it. Without the estimate's choice there
    /// is nothing to compare with.
    pub fn exclude(&mut self, name: Name) {
        if self.candidates.first().is_some_and(|first| first.name == name) {
            self.lost = MOST_LOST;
        } else {
            self.candidates.retain(|c| c.name != name);
        }
    }

    /// How it has ended, once it has.
    pub fn outcome(&self) -> Option<Outcome> {
        let first = self.candidates.first()?;
        if self.lost >= MOST_LOST {
            return Some(Outcome::None);
        }
        if self.candidates.iter().any(|c| c.done < TIMINGS) {
            return None;
        }
        let fastest = self.candidates.iter().min_by_key(|c| c.least)?;
        let wins =
            u128::from(fastest.least) * 100 <= u128::from(first.least) * u128::from(100 - MARGIN);
        let winner = if wins && fastest.least < first.least { fastest } else { first };
        let percent = u128::from(winner.least) * 100 / u128::from(first.least.max(1));
        Some(Outcome::Winner(winner.name, u64::try_from(percent).unwrap_or(u64::MAX)))
    }

    fn candidate(&mut self, name: Name) -> Option<&mut Candidate> {
        self.candidates.iter_mut().find(|c| c.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = [64, 64, 1, 64, 1];
    const OTHER: Shape = [65, 64, 1, 64, 1];

    /// Runs a search to its end with these times for each candidate's timings, whose names are
    /// their indices.
    fn run(times: &[[u64; 3]]) -> Outcome {
        let names: Vec<Name> = (0..times.len() as u64).collect();
        let mut search = Search::new(SHAPE, &names);
        for round in 0..3 {
            for (name, times) in names.iter().zip(times) {
                assert_eq!(search.outcome(), None);
                assert_eq!(search.wanted()[0], *name, "in turn");
                assert!(search.meet(SHAPE) && search.begin(SHAPE, *name));
                search.end(SHAPE, *name, times[round]);
            }
        }
        assert!(search.wanted().is_empty() && !search.begin(SHAPE, 0));
        search.outcome().expect("everything was timed")
    }

    #[test]
    fn the_least_time_wins() {
        assert_eq!(
            run(&[[900, 500, 510], [300, 9000, 800], [400, 400, 400]]),
            Outcome::Winner(1, 60)
        );
        assert_eq!(run(&[[100, 100, 100], [300, 300, 300]]), Outcome::Winner(0, 100));
        assert_eq!(run(&[[7, 7, 7]]), Outcome::Winner(0, 100));
    }

    #[test]
    fn less_than_five_percent_keep_the_estimate() {
        assert_eq!(run(&[[1000; 3], [951; 3], [960; 3]]), Outcome::Winner(0, 100));
        assert_eq!(run(&[[1000; 3], [950; 3], [960; 3]]), Outcome::Winner(1, 95));
        // A clock too coarse for any of it.
        assert_eq!(run(&[[0; 3], [0; 3]]), Outcome::Winner(0, 0));
        assert_eq!(run(&[[u64::MAX; 3], [u64::MAX / 2; 3]]), Outcome::Winner(1, 49));
    }

    #[test]
    fn timings_of_other_shapes_do_not_count() {
        let mut search = Search::new(SHAPE, &[4, 5]);
        assert!(!search.meet(OTHER) && !search.begin(OTHER, 4));
        assert!(search.begin(SHAPE, 4));
        let before = search.clone();
        search.end(OTHER, 4, 10);
        search.lose(OTHER, 4);
        search.end(SHAPE, 99, 10);
        assert_eq!(search, before);
    }

    #[test]
    fn a_shape_that_does_not_come_again_is_abandoned() {
        let mut search = Search::new(SHAPE, &[4, 5]);
        for _ in 0..PATIENCE {
            search.meet(OTHER);
        }
        assert!(!search.is_abandoned());
        search.meet(SHAPE);
        for _ in 0..=PATIENCE {
            search.meet(OTHER);
        }
        assert!(search.is_abandoned());
    }

    #[test]
    fn lost_timings_are_repeated_but_not_for_ever() {
        let mut search = Search::new(SHAPE, &[4, 5]);
        for lost in 0..MOST_LOST {
            assert_eq!(search.outcome(), None, "{lost} lost");
            assert!(search.begin(SHAPE, 4));
            search.lose(SHAPE, 4);
        }
        assert_eq!(search.outcome(), Some(Outcome::None));
    }

    #[test]
    fn what_does_not_run_is_left_out() {
        let mut search = Search::new(SHAPE, &[4, 5]);
        search.exclude(5);
        search.exclude(99);
        assert_eq!(search.wanted()[..], [4]);
        assert_eq!(search.outcome(), None);
        search.exclude(4);
        assert_eq!(search.outcome(), Some(Outcome::None));
    }
}
