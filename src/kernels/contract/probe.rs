//! Whether cooperative matrices are worth it: the order in which they are tried, and when to give
//! up. A [`Trial`] does the trying; nothing here needs a device.
//!
//! Some drivers list matrices that they compute a thousand times slower than the vector units. So
//! small products come first, and each is a reason to stop.

use crate::device::{Finding, Policy, Verdict};
use crate::error::{Error, Result};

/// The measurements that a probe asks of a device.
pub(super) trait Trial {
    /// Computes product number `product` of those with known results, by programs for subgroups of
    /// `lanes` lanes. Returns the nanoseconds that it took, or None if there is no such product.
    fn check(&mut self, lanes: u32, product: usize) -> Result<Option<u64>>;

    /// Returns the nanoseconds of a product of `n` by `n` by `n`, by programs for subgroups of
    /// `lanes` lanes, or by the vector units.
    fn time(&mut self, n: usize, lanes: Option<u32>) -> Result<u64>;
}

/// The most nanoseconds that all products with known results may take together. Most of that time
/// is the host's.
const MOST_CHECKED: u64 = 500_000_000;
/// Extents of the products that are timed. The last one decides.
const SIZES: [usize; 3] = [128, 512, 1024];
/// Timings of each; the least counts.
const TIMINGS: usize = 3;
/// The most nanoseconds of one timing.
const MOST_TIMED: u64 = 250_000_000;
/// For a product that does not decide, matrices may take this many times as long as the vector
/// units: small products leave most of a GPU idle.
const MOST_SLOWER: u64 = 4;
/// Percent of the vector units' time below which matrices pay.
const PAYS: u64 = 95;

/// Runs `trial` and returns the finding. Programs may be for subgroups of each of `lanes`, the
/// adapter's largest size first. `timed` tells whether times mean anything on this adapter.
pub(super) fn finding(
    trial: &mut dyn Trial,
    lanes: &[u32],
    policy: Policy,
    timed: bool,
) -> (Finding, Option<Error>) {
    match attempt(trial, lanes, policy, timed) {
        Ok(verdict) => (Finding::Verdict(verdict), None),
        Err(e) => {
            let finding = match e {
                Error::ResourceExhausted(_) => Finding::Nothing,
                Error::Unavailable(_) => Finding::Lost,
                _ => Finding::Verdict(Verdict::Wrong),
            };
            (finding, Some(e))
        }
    }
}

fn attempt(trial: &mut dyn Trial, lanes: &[u32], policy: Policy, timed: bool) -> Result<Verdict> {
    let first = lanes[0];
    let (slower, mut spent) = (Verdict::Slower { lanes: first }, 0_u64);
    for product in 0.. {
        let Some(nanoseconds) = trial.check(first, product)? else { break };
        spent = spent.saturating_add(nanoseconds);
        if spent > MOST_CHECKED && policy == Policy::Probed {
            return Ok(slower);
        }
    }
    if !timed {
        return Ok(if policy == Policy::Probed { slower } else { Verdict::Pays { lanes: first } });
    }
    let mut left = lanes.to_vec();
    for n in SIZES {
        // The first timing of each is a warm-up, too.
        let vectors = least(trial, n, None, u64::MAX)?.max(1);
        let mut times = Vec::new();
        for lanes in &left {
            let most = vectors.saturating_mul(MOST_SLOWER).min(MOST_TIMED);
            times.push((least(trial, n, Some(*lanes), most)?, *lanes));
        }
        times.retain(|(time, _)| *time <= MOST_TIMED && time / MOST_SLOWER <= vectors);
        let Some((time, lanes)) = times.iter().min().copied() else { return Ok(slower) };
        if n == SIZES[SIZES.len() - 1] {
            let pays = u128::from(time) * 100 <= u128::from(vectors) * u128::from(PAYS);
            return Ok(if pays { Verdict::Pays { lanes } } else { Verdict::Slower { lanes } });
        }
        left = times.into_iter().map(|(_, lanes)| lanes).collect();
    }
    Ok(slower)
}

/// The least of several timings. A timing above `most` may be that of a program's first run, so it
/// is taken twice, but not more often. A timing far beyond `most` or above [`MOST_TIMED`] is not
/// repeated.
fn least(trial: &mut dyn Trial, n: usize, lanes: Option<u32>, most: u64) -> Result<u64> {
    let mut least = u64::MAX;
    for timing in 0..TIMINGS {
        least = least.min(trial.time(n, lanes)?);
        let is_hopeless = least > MOST_TIMED || least / MOST_SLOWER > most;
        if is_hopeless || timing > 0 && least > most {
            break;
        }
    }
    Ok(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Matrices that take `percent` of the vector units' time for subgroups of 32, and half of that
    /// for those of 8.
    struct Fake {
        percent: u64,
        vectors: u64,
        checks: Vec<Result<u64>>,
        failure: Option<Error>,
        /// The products that were timed: extents, and whether by matrices.
        timed: Vec<(usize, bool)>,
    }

    fn fake(percent: u64) -> Fake {
        let checks = vec![Ok(1000); 4];
        Fake { percent, vectors: 10_000, checks, failure: None, timed: Vec::new() }
    }

    fn told(finding: Finding) -> Option<Verdict> {
        match finding {
            Finding::Verdict(verdict) => Some(verdict),
            Finding::Lost | Finding::Nothing => None,
        }
    }

    impl Trial for Fake {
        fn check(&mut self, _: u32, product: usize) -> Result<Option<u64>> {
            self.checks.get(product).cloned().transpose()
        }

        fn time(&mut self, n: usize, lanes: Option<u32>) -> Result<u64> {
            self.timed.push((n, lanes.is_some()));
            if let (Some(e), Some(_)) = (&self.failure, lanes) {
                return Err(e.clone());
            }
            let scale = (n / 128).pow(3) as u64;
            Ok(match lanes {
                None => self.vectors * scale,
                Some(lanes) => self.vectors * scale * self.percent / 100 * u64::from(lanes) / 32,
            })
        }
    }

    impl Fake {
        fn verdict(&mut self, lanes: &[u32]) -> Option<Verdict> {
            told(finding(self, lanes, Policy::Probed, true).0)
        }

        /// How often matrices were timed.
        fn tries(&self) -> usize {
            self.timed.iter().filter(|(_, matrices)| *matrices).count()
        }
    }

    #[test]
    fn matrices_pay_where_they_are_faster() {
        let pays = |lanes| Some(Verdict::Pays { lanes });
        let slower = |lanes| Some(Verdict::Slower { lanes });
        assert_eq!(fake(20).verdict(&[32]), pays(32));
        assert_eq!(fake(95).verdict(&[32]), pays(32));
        assert_eq!(fake(96).verdict(&[32]), slower(32));
        assert_eq!(fake(300).verdict(&[32]), slower(32));
        // For smaller subgroups, as Intel's compiler takes them.
        assert_eq!(fake(120).verdict(&[32, 8]), pays(8));
        assert_eq!(fake(396).verdict(&[32, 8]), slower(8));
    }

    #[test]
    fn what_is_far_slower_is_given_up_at_once() {
        let mut far = fake(100_000);
        assert_eq!(far.verdict(&[32]), Some(Verdict::Slower { lanes: 32 }));
        assert!(far.tries() == 1 && far.timed.iter().all(|(n, _)| *n == 128), "{:?}", far.timed);
        // Whatever the vector units take.
        let mut slow = Fake { vectors: MOST_TIMED, ..fake(200) };
        assert_eq!(slow.verdict(&[32]), Some(Verdict::Slower { lanes: 32 }));
        assert_eq!(slow.tries(), 1);
        // One kind of subgroups may be hopeless, and not the other.
        let mut one = fake(600);
        assert_eq!(one.verdict(&[32, 4]), Some(Verdict::Pays { lanes: 4 }));
        assert_eq!(one.timed.iter().filter(|(n, _)| *n == 1024).count(), 2 * TIMINGS);
    }

    #[test]
    fn products_that_take_long_end_a_probe() {
        let mut slow = Fake { checks: vec![Ok(MOST_CHECKED + 1), Ok(1)], ..fake(20) };
        assert_eq!(slow.verdict(&[32]), Some(Verdict::Slower { lanes: 32 }));
        assert_eq!(slow.timed, []);
        let forced = told(finding(&mut slow, &[32], Policy::Forced, false).0);
        assert_eq!(forced, Some(Verdict::Pays { lanes: 32 }), "a user who forces them waits");
    }

    #[test]
    fn wrong_numbers_and_programs_that_do_not_compile_are_wrong() {
        for e in [Error::Internal("5, not 4".into()), Error::Unimplemented("no".into())] {
            let mut wrong = Fake { checks: vec![Ok(1), Err(e.clone())], ..fake(20) };
            let found = finding(&mut wrong, &[32], Policy::Forced, true);
            assert_eq!(found, (Finding::Verdict(Verdict::Wrong), Some(e.clone())));
            assert_eq!(wrong.timed, []);
            let mut late = Fake { failure: Some(e.clone()), ..fake(20) };
            assert_eq!(late.verdict(&[32]), Some(Verdict::Wrong), "{e}");
        }
    }

    #[test]
    fn full_memory_tells_nothing_and_a_lost_device_is_told() {
        for (e, wanted) in [
            (Error::ResourceExhausted("memory".into()), Finding::Nothing),
            (Error::Unavailable("lost".into()), Finding::Lost),
        ] {
            let mut first = Fake { checks: vec![Err(e.clone())], ..fake(20) };
            let found = finding(&mut first, &[32], Policy::Probed, true);
            assert_eq!(found, (wanted, Some(e.clone())));
            let mut late = Fake { failure: Some(e), ..fake(20) };
            assert_eq!(finding(&mut late, &[32], Policy::Probed, true).0, wanted);
        }
    }

    #[test]
    fn without_times_only_force_gets_them() {
        let with = |policy| told(finding(&mut fake(20), &[32, 8], policy, false).0);
        assert_eq!(with(Policy::Forced), Some(Verdict::Pays { lanes: 32 }));
        assert_eq!(with(Policy::Probed), Some(Verdict::Slower { lanes: 32 }));
    }
}
