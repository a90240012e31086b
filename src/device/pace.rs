//! Estimates how long the GPU will be busy, from the times of earlier submissions.
//!
//! The work of a dispatch or a copy is counted in nanoseconds of a reference GPU, the slowest that
//! is supported. One factor converts them to times of this GPU. It is learned from each submission
//! that took long enough to be measured. Batches are cut by it, since drivers end a submission that
//! runs for seconds. It also limits the work that the host may be ahead of the GPU: a thread that
//! waits for the GPU in TensorFlow cannot handle Ctrl-C.

use std::time::Duration;

use super::sync::{AtomicBool, AtomicU64, Ordering};

/// Bytes that the reference GPU moves in a nanosecond: 30 GB/s.
const BYTES: u64 = 30;
/// Floating-point operations that the reference GPU does in a nanosecond: 0.4 TFLOP/s.
const FLOPS: u64 = 400;
/// Nanoseconds that any dispatch takes on the reference GPU.
const LAUNCH: u64 = 2000;
/// The factor before any measurement: the first batches are short on every GPU.
const FIRST: f64 = 50.0;
/// The shortest time that is measured by itself. The real time of a shorter submission is
/// uncertain: a part of it is the time in which threads wake up.
const SHORTEST: Duration = Duration::from_millis(2);
/// Bounds of the factor: a GPU a thousand times as fast as the reference, and one a thousand times
/// slower.
const FACTORS: (f64, f64) = (1e-3, 1e3);
/// How far one submission may raise the factor: something else may have held it up.
const RISE: f64 = 4.0;
/// How far one submission may lower the factor until the factor is settled: the end of a submission
/// may be seen late, and the next one then seems to take no time.
const FIRST_FALL: f64 = 0.5;
/// How far one submission may lower the factor from then on. Kernels reach different shares of a
/// GPU's peak, and the factor follows the slow kernels: a kernel that was slow in one step of a
/// training is slow in the next step, too.
const FALL: f64 = 0.97;

/// The work of a dispatch that touches `bytes` and does `flops` operations.
pub(crate) const fn of_dispatch(bytes: u64, flops: u64) -> u64 {
    of_work(bytes, flops).saturating_add(LAUNCH)
}

/// The same work without the launch.
pub(crate) const fn of_work(bytes: u64, flops: u64) -> u64 {
    of_copy(bytes).saturating_add(flops / FLOPS)
}

/// The work of a copy.
pub(crate) const fn of_copy(bytes: u64) -> u64 {
    bytes / BYTES
}

/// The measurements of one GPU.
#[derive(Debug)]
pub(crate) struct Pace {
    /// The factor as the bits of an `f64`.
    factor: AtomicU64,
    /// Work and nanoseconds of submissions that were too short to learn from.
    short: [AtomicU64; 2],
    /// Whether the factor has come down from the first one to what was measured.
    is_settled: AtomicBool,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            factor: AtomicU64::new(FIRST.to_bits()),
            short: Default::default(),
            is_settled: AtomicBool::new(false),
        }
    }
}

impl Pace {
    /// The time that `work` is expected to take.
    pub fn expected(&self, work: u64) -> Duration {
        Duration::from_nanos((work as f64 * self.factor()) as u64)
    }

    /// Learns from a submission of `work` that kept the GPU busy for `took`. Only one thread calls
    /// this.
    pub fn learn(&self, work: u64, took: Duration) {
        let [short_work, short_time] =
            [&self.short[0], &self.short[1]].map(|count| count.load(Ordering::Relaxed));
        let (all_work, time) =
            (short_work.saturating_add(work), short_time + took.as_nanos() as u64);
        if all_work == 0 || time < SHORTEST.as_nanos() as u64 {
            self.short[0].store(all_work, Ordering::Relaxed);
            self.short[1].store(time, Ordering::Relaxed);
            return;
        }
        self.short.iter().for_each(|count| count.store(0, Ordering::Relaxed));
        let measured = (time as f64 / all_work as f64).clamp(FACTORS.0, FACTORS.1);
        let before = self.factor();
        // Much of the time of many short submissions may be the time in which threads wake up.
        if measured <= before || took >= SHORTEST {
            let is_settled = self.is_settled.load(Ordering::Relaxed);
            let lowest = before * if is_settled { FALL } else { FIRST_FALL };
            self.factor.store(measured.clamp(lowest, before * RISE).to_bits(), Ordering::Relaxed);
            if measured >= lowest {
                self.is_settled.store(true, Ordering::Relaxed);
            }
        }
    }

    /// How many times slower than the reference the GPU is; 1 for a faster one, and until enough is
    /// measured.
    pub fn slowness(&self) -> f64 {
        if self.is_settled.load(Ordering::Relaxed) { self.factor().max(1.0) } else { 1.0 }
    }

    fn factor(&self) -> f64 {
        f64::from_bits(self.factor.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A pace that was learned from one-second submissions of the reference GPU.
    fn reference() -> Pace {
        let pace = Pace::default();
        (0..20).for_each(|_| pace.learn(SECOND, Duration::from_secs(1)));
        pace
    }

    #[test]
    fn work_counts_bytes_operations_and_the_launch() {
        assert_eq!(of_copy(30_000_000_000), SECOND);
        assert_eq!(of_dispatch(0, 400_000_000_000), SECOND + LAUNCH);
        assert_eq!(of_dispatch(u64::MAX, u64::MAX), u64::MAX / BYTES + u64::MAX / FLOPS + LAUNCH);
    }

    #[test]
    fn nothing_is_taken_for_fast_at_first() {
        assert_eq!(Pace::default().expected(SECOND), Duration::from_secs(50));
    }

    #[test]
    fn a_few_submissions_teach_the_pace_of_a_gpu() {
        for (factor, submissions) in [(0.01, 13), (1.0, 6), (200.0, 1), (1000.0, 3)] {
            let pace = Pace::default();
            let took = Duration::from_nanos((SECOND as f64 * factor) as u64);
            (0..submissions).for_each(|_| pace.learn(SECOND, took));
            let ratio = pace.expected(SECOND).as_secs_f64() / took.as_secs_f64();
            assert!((0.99..1.1).contains(&ratio), "{factor}: {ratio}");
        }
    }

    #[test]
    fn slow_is_what_was_measured() {
        assert_eq!(Pace::default().slowness(), 1.0);
        for (factor, slowness) in [(0.01, 1.0), (3.0, 3.0)] {
            let pace = Pace::default();
            let took = Duration::from_nanos((SECOND as f64 * factor) as u64);
            for _ in 0..20 {
                pace.learn(SECOND, took);
                // A fast GPU is never taken for a slow one while the factor falls.
                assert!(pace.slowness() <= 2.0 * slowness, "{factor}: {}", pace.slowness());
            }
            assert!((pace.slowness() - slowness).abs() < 0.1, "{}", pace.slowness());
        }
    }

    #[test]
    fn a_stall_is_forgotten() {
        let pace = reference();
        pace.learn(SECOND, Duration::from_secs(100));
        assert_eq!(pace.expected(SECOND), Duration::from_secs(4));
        (0..50).for_each(|_| pace.learn(SECOND, Duration::from_secs(1)));
        assert_eq!(pace.expected(SECOND), Duration::from_secs(1));
    }

    #[test]
    fn a_slow_kernel_in_each_step_is_remembered() {
        let pace = reference();
        for _ in 0..10 {
            pace.learn(SECOND, Duration::from_secs(8));
            (0..12).for_each(|_| pace.learn(SECOND, Duration::from_secs(1)));
        }
        assert!(pace.expected(SECOND) > Duration::from_secs(5));
    }

    #[test]
    fn an_end_that_is_seen_late_makes_no_gpu_fast() {
        let pace = reference();
        for _ in 0..20 {
            pace.learn(SECOND, Duration::from_secs(2));
            pace.learn(SECOND, Duration::from_micros(1));
            assert!(pace.expected(SECOND) >= Duration::from_millis(990));
        }
    }

    #[test]
    fn short_submissions_make_no_gpu_slow_and_do_make_one_fast() {
        let pace = reference();
        (0..100).for_each(|_| pace.learn(10, Duration::from_micros(500)));
        pace.learn(0, Duration::from_secs(1));
        assert_eq!(pace.expected(SECOND), Duration::from_secs(1));
        (0..20_000).for_each(|_| pace.learn(100_000, Duration::from_micros(10)));
        assert_eq!(pace.expected(SECOND), Duration::from_millis(100));
    }
}
