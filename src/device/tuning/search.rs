//! The search for the fastest of several programs with the same result. It uses no clock and no
//! device: the caller supplies the times.

use smallvec::SmallVec;

use crate::error::{Error, Result};

/// The number of timings of each candidate. The least time counts: any disturbance makes a run
/// longer, and so does a program's first run.
const TIMINGS: u32 = 3;
/// By how many percent a candidate must beat the estimate's choice. A smaller difference is noise.
const MARGIN: u64 = 5;
/// A candidate that takes this many times the least time is not timed again.
const MOST_SLOWER: u64 = 2;
/// Nanoseconds after which no further round of timings begins.
const MOST_SPENT: u64 = 1_000_000_000;

/// The name of a candidate, the same in every process.
pub type Name = u64;
/// Names of candidates.
pub type Names = SmallVec<[Name; 8]>;

/// A candidate, and the percentage of the time of the estimate's choice that it takes.
pub type Fastest = (Name, u64);

/// The fastest of the candidates, of which the first is the estimate's choice. `time` returns the
/// nanoseconds of one. A candidate that does not run is left out. If the first one does not run,
/// there is nothing to compare with, and no result.
///
/// # Errors
/// Full memory and a lost device, which are not the fault of one candidate.
pub(super) fn fastest(
    names: &[Name],
    time: &mut dyn FnMut(Name) -> Result<u64>,
) -> Result<Option<Fastest>> {
    let mut least: SmallVec<[(Name, u64); 8]> = names.iter().map(|n| (*n, u64::MAX)).collect();
    let mut spent = 0_u64;
    for round in 0..TIMINGS {
        let best = least.iter().map(|(_, least)| *least).min().unwrap_or(u64::MAX);
        for (name, least) in &mut least {
            // All are compared with the first candidate.
            let is_first = *name == names[0];
            if round > 0 && !is_first && *least / MOST_SLOWER > best {
                continue;
            }
            match time(*name) {
                Ok(nanoseconds) => {
                    *least = nanoseconds.min(*least);
                    spent = spent.saturating_add(nanoseconds);
                }
                Err(e @ (Error::ResourceExhausted(_) | Error::Unavailable(_))) => return Err(e),
                Err(e) => {
                    log::debug!("candidate {name:#x} is left out: {e}");
                    *least = u64::MAX;
                }
            }
        }
        if least.first().is_none_or(|(_, estimated)| *estimated == u64::MAX) {
            return Ok(None);
        }
        least.retain(|(_, least)| *least < u64::MAX);
        if spent > MOST_SPENT {
            break;
        }
    }
    let first = least[0];
    let fastest = least.iter().min_by_key(|(_, least)| *least).copied().unwrap_or(first);
    let wins = u128::from(fastest.1) * 100 <= u128::from(first.1) * u128::from(100 - MARGIN);
    let (name, least) = if wins && fastest.1 < first.1 { fastest } else { first };
    let percent = u128::from(least) * 100 / u128::from(first.1.max(1));
    Ok(Some((name, u64::try_from(percent).unwrap_or(u64::MAX))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result with these times for each candidate, whose names are their indices.
    fn run(times: &[[u64; 3]]) -> Option<Fastest> {
        let names: Vec<Name> = (0..times.len() as u64).collect();
        let mut round = vec![0; times.len()];
        fastest(&names, &mut |name| {
            let name = name as usize;
            round[name] += 1;
            Ok(times[name][round[name] - 1])
        })
        .unwrap()
    }

    #[test]
    fn the_least_time_wins() {
        assert_eq!(run(&[[900, 500, 510], [300, 590, 800], [400, 400, 400]]), Some((1, 60)));
        assert_eq!(run(&[[100, 100, 100], [150, 150, 150]]), Some((0, 100)));
        assert_eq!(run(&[[7, 7, 7]]), Some((0, 100)));
    }

    #[test]
    fn less_than_five_percent_keep_the_estimate() {
        assert_eq!(run(&[[1000; 3], [951; 3], [960; 3]]), Some((0, 100)));
        assert_eq!(run(&[[1000; 3], [950; 3], [960; 3]]), Some((1, 95)));
        // The clock is too coarse for these times.
        assert_eq!(run(&[[0; 3], [0; 3]]), Some((0, 0)));
        assert_eq!(run(&[[u64::MAX - 1; 3], [u64::MAX / 2; 3]]), Some((1, 50)));
    }

    /// How often each of the candidates is timed if their times are `times`.
    fn counts(times: &[u64]) -> Vec<u32> {
        let names: Vec<Name> = (0..times.len() as u64).collect();
        let mut counts = vec![0; times.len()];
        let timed = fastest(&names, &mut |name| {
            counts[name as usize] += 1;
            Ok(times[name as usize])
        });
        timed.unwrap();
        counts
    }

    #[test]
    fn slow_candidates_are_timed_once() {
        assert_eq!(counts(&[100, 201, 199, 300]), [3, 3, 3, 1]);
        assert_eq!(counts(&[1000, 10, 10]), [3, 3, 3], "the estimate's choice");
        // Two seconds are enough.
        assert_eq!(counts(&[MOST_SPENT, MOST_SPENT]), [1, 1]);
    }

    #[test]
    fn a_candidate_that_does_not_run_is_left_out() {
        let mut calls = Vec::new();
        let found = fastest(&[4, 5, 6], &mut |name| {
            calls.push(name);
            if name == 5 { Err(Error::Internal("refused".into())) } else { Ok(name) }
        });
        assert_eq!(found, Ok(Some((4, 100))));
        assert_eq!(calls, [4, 5, 6, 4, 6, 4, 6]);
        let first = fastest(&[4, 5], &mut |name| {
            if name == 4 { Err(Error::Internal("refused".into())) } else { Ok(name) }
        });
        assert_eq!(first, Ok(None));
    }

    #[test]
    fn full_memory_and_a_lost_device_are_told() {
        for e in [Error::ResourceExhausted("full".into()), Error::Unavailable("lost".into())] {
            assert_eq!(fastest(&[1, 2], &mut |_| Err(e.clone())), Err(e.clone()));
        }
    }
}
