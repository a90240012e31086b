//! The recorded runs of a region.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::Mutex;

use super::record::{Inputs, Log, Record};
use crate::device::Device;

/// The most records of a region.
const MOST: usize = 8;

/// How many runs are recorded for nothing before the region is not recorded any more.
const MOST_FUTILE: u32 = 16;

/// A record that is kept.
pub struct Kept {
    pub record: Record,
    /// Whether it was replayed.
    used: AtomicBool,
}

impl Kept {
    /// Notes that it is replayed. Returns whether this is the first time.
    pub fn is_first_use(&self) -> bool {
        !self.used.load(Ordering::Relaxed) && !self.used.swap(true, Ordering::Relaxed)
    }
}

/// The records of a region, the least recently used first.
#[derive(Default)]
pub struct Records {
    kept: Mutex<VecDeque<Arc<Kept>>>,
    /// The runs that were recorded for nothing.
    futile: AtomicU32,
    /// Whether inputs become outputs in some runs and not in others.
    copies: AtomicBool,
}

impl Records {
    /// Whether runs on this device may be recorded and replayed now. Traces show each member, and
    /// while memory lacks values, errors do.
    pub fn are_open(&self, device: &Device) -> bool {
        self.may_pay() && !device.is_traced() && !device.is_attentive()
    }

    /// Whether some of the runs that were recorded may be repeated.
    fn may_pay(&self) -> bool {
        self.futile.load(Ordering::Relaxed) < MOST_FUTILE
    }

    /// Whether inputs may become outputs.
    pub fn forward(&self) -> bool {
        !self.copies.load(Ordering::Relaxed)
    }

    /// Notes that an input could not become an output, as it did when the run was recorded. From
    /// now on none does, so that no replay copies inputs.
    pub fn stop_forwarding(&self) {
        self.copies.store(true, Ordering::Relaxed);
        self.kept.lock().clear();
    }

    /// The record of a run with these inputs.
    pub fn find(&self, device: &Device, inputs: &Inputs) -> Option<Arc<Kept>> {
        self.recall(inputs).filter(|kept| !device.is_cut(kept.record.work))
    }

    /// The record with these inputs, which becomes the most recently used one.
    fn recall(&self, inputs: &Inputs) -> Option<Arc<Kept>> {
        let mut kept = self.kept.lock();
        let at = kept.iter().rposition(|kept| kept.record.inputs == *inputs)?;
        if at + 1 < kept.len() {
            let found = kept.remove(at)?;
            kept.push_back(found);
        }
        kept.back().cloned()
    }

    /// Keeps the record of a run, if it can be repeated.
    pub fn keep(&self, device: &Device, node: &str, log: Log) {
        // Some pipelines were not compiled yet, so that kernels may have had no choice.
        if device.is_attentive() {
            return;
        }
        match log.end(device) {
            Ok(record) => self.insert(record),
            Err(why) => {
                self.futile.fetch_add(1, Ordering::Relaxed);
                log::debug!("the region at node {node} is not replayed: {why}");
            }
        }
    }

    /// Keeps a record in place of the least recently used one, unless another thread has recorded
    /// the same run.
    fn insert(&self, record: Record) {
        let mut kept = self.kept.lock();
        if kept.iter().any(|kept| kept.record.inputs == record.inputs) {
            return;
        }
        if kept.len() == MOST
            && let Some(oldest) = kept.pop_front()
            && !oldest.used.load(Ordering::Relaxed)
        {
            self.futile.fetch_add(1, Ordering::Relaxed);
        }
        kept.push_back(Arc::new(Kept { record, used: AtomicBool::new(false) }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recalled(records: &Records, numbers: std::ops::Range<u32>) -> Vec<u32> {
        numbers.filter(|n| records.recall(&Inputs::numbered(*n)).is_some()).collect()
    }

    #[test]
    fn the_least_recently_used_record_goes_first() {
        let records = Records::default();
        (0..MOST as u32).for_each(|n| records.insert(Record::numbered(n)));
        assert!(records.recall(&Inputs::numbered(0)).is_some_and(|kept| kept.is_first_use()));
        records.insert(Record::numbered(100));
        records.insert(Record::numbered(100));
        assert_eq!(recalled(&records, 0..MOST as u32), [0, 2, 3, 4, 5, 6, 7]);
        assert!(records.recall(&Inputs::numbered(0)).is_some_and(|kept| !kept.is_first_use()));
        assert!(records.recall(&Inputs::numbered(100)).is_some());
    }

    #[test]
    fn a_region_whose_runs_differ_is_not_recorded_any_more() {
        let records = Records::default();
        (0..MOST as u32 + MOST_FUTILE - 1).for_each(|n| records.insert(Record::numbered(n)));
        assert!(records.may_pay());
        records.insert(Record::numbered(1000));
        assert!(!records.may_pay());
        // Records that were replayed were worth it.
        let records = Records::default();
        for n in 0..100 {
            records.insert(Record::numbered(n));
            records.recall(&Inputs::numbered(n)).unwrap().is_first_use();
        }
        assert!(records.may_pay());
    }
}
