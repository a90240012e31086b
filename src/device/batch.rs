//! Decides when recorded work goes to the GPU though no thread waits for it.

use std::time::{Duration, Instant};

/// The number of dispatches after which a batch is submitted: a submission costs the host as much
/// as recording dozens of them.
const DISPATCHES: u32 = 64;
/// The number of dispatches that are worth a submission while the GPU is idle.
const IDLE_DISPATCHES: u32 = 16;
/// How long an idle GPU waits for more dispatches.
const IDLE_AGE: Duration = Duration::from_millis(1);
/// A number of bytes. Dispatches that touch this much keep an idle GPU busy for about as long as a
/// submission takes the host.
const IDLE_BYTES: u64 = 64 << 20;
/// The longest time that a batch may be expected to keep the GPU busy. Drivers end submissions that
/// run for seconds; the rest is a margin for errors of the estimate.
const LONGEST: Duration = Duration::from_millis(100);
/// The bytes of uploads after which a batch is submitted, so that staging memory returns to its
/// pool.
const UPLOADED: u64 = 32 << 20;

/// The work recorded since the last submission.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Batch {
    pub dispatches: u32,
    /// The bytes that the dispatches read and write.
    pub bytes: u64,
    /// The bytes that are copied from the host.
    pub uploaded: u64,
    /// The batch's work, as `pace` counts it.
    pub work: u64,
    /// Whether a pipeline is used for the first time.
    pub is_first: bool,
    /// When the first dispatch was recorded.
    since: Option<Instant>,
}

impl Batch {
    /// Counts a dispatch that touches `bytes`, by a pipeline that may not have run before.
    pub fn dispatch(&mut self, bytes: u64, work: u64, is_first: bool) {
        self.is_first |= is_first;
        self.dispatches += 1;
        self.work = self.work.saturating_add(work);
        self.bytes = self.bytes.saturating_add(bytes);
        self.since.get_or_insert_with(Instant::now);
    }

    /// Whether the batch should be submitted before work is added with which it would keep the GPU
    /// busy for `expected`.
    pub fn is_full(&self, expected: Duration) -> bool {
        self.work > 0 && expected > LONGEST
    }

    /// Whether the batch should be submitted now. `expected` is how long it will keep the GPU busy.
    /// `idle` says that the GPU has finished all earlier submissions.
    pub fn is_due(&self, expected: Duration, idle: bool) -> bool {
        // The clock is read only if the answer depends on it.
        let age = || self.since.map_or(Duration::ZERO, |since| since.elapsed());
        let waits = idle && self.dispatches >= IDLE_DISPATCHES && self.dispatches < DISPATCHES;
        self.is_due_at(expected, idle, if waits { age() } else { Duration::ZERO })
    }

    /// A batch is submitted when it holds enough dispatches, work or uploads. While the GPU is
    /// idle, less is enough: work that lasts longer than the submission takes, or some dispatches
    /// that have waited for [`IDLE_AGE`].
    fn is_due_at(&self, expected: Duration, idle: bool, age: Duration) -> bool {
        self.dispatches >= DISPATCHES
            || expected >= LONGEST
            || self.uploaded >= UPLOADED
            || idle
                && (self.bytes >= IDLE_BYTES
                    || self.dispatches >= IDLE_DISPATCHES && age >= IDLE_AGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Duration = Duration::from_secs(1);
    const SHORT: Duration = Duration::from_micros(1);

    fn batch(dispatches: u32, bytes: u64, uploaded: u64) -> Batch {
        Batch { dispatches, bytes, uploaded, ..Batch::default() }
    }

    #[test]
    fn a_busy_gpu_gets_full_batches() {
        assert!(!batch(63, u64::MAX, UPLOADED - 1).is_due_at(LONGEST - SHORT, false, OLD));
        assert!(batch(64, 0, 0).is_due_at(SHORT, false, Duration::ZERO));
        assert!(batch(1, 0, 0).is_due_at(LONGEST, false, Duration::ZERO));
        assert!(batch(0, 0, UPLOADED).is_due_at(SHORT, false, Duration::ZERO));
    }

    #[test]
    fn only_a_dispatch_alone_may_be_longer() {
        let mut batch = Batch::default();
        assert!(!batch.is_full(2 * LONGEST), "there is nothing to submit");
        batch.dispatch(0, 7, false);
        assert!(!batch.is_full(LONGEST));
        assert!(batch.is_full(LONGEST + SHORT));
    }

    #[test]
    fn an_idle_gpu_gets_what_is_worth_a_submission() {
        assert!(batch(1, IDLE_BYTES, 0).is_due_at(SHORT, true, Duration::ZERO));
        assert!(batch(16, 0, 0).is_due_at(SHORT, true, OLD));
        assert!(!batch(16, 0, 0).is_due_at(SHORT, true, IDLE_AGE / 2), "more will come soon");
        assert!(
            !batch(15, IDLE_BYTES - 1, 0).is_due_at(SHORT, true, OLD),
            "it costs more than it brings"
        );
    }

    #[test]
    fn dispatches_add_up() {
        let mut batch = Batch::default();
        for k in 1..=64 {
            assert!(!batch.is_due(SHORT, false), "after {} dispatches", batch.dispatches);
            batch.dispatch(5, 7, k == 3);
            let counts = (batch.dispatches, batch.bytes, batch.work);
            assert_eq!(counts, (k, 5 * u64::from(k), 7 * u64::from(k)));
            assert_eq!(batch.is_first, k >= 3);
        }
        assert!(batch.is_due(SHORT, false) && batch.is_due(SHORT, true));
        batch.dispatch(u64::MAX, u64::MAX, false);
        assert_eq!((batch.bytes, batch.work), (u64::MAX, u64::MAX));
    }
}
