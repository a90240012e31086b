//! The recorded runs of a region.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::Mutex;

use super::record::{Forwards, Inputs, Log, Record};
use crate::device::Device;

/// The most records of a region.
const MOST: usize = 8;

/// The most records of a region with the same inputs, which differ in the inputs that become
/// outputs.
const MOST_ALIKE: usize = 2;

/// How many runs are recorded for nothing before the region is not recorded any more.
const MOST_FUTILE: u32 = 16;

/// How many replays in turn copy inputs before a record without these copies takes the place of
/// theirs. In the first iteration of a loop something outside may still refer to a carried value.
const MOST_COPYING: u32 = 2;

/// A record that is kept.
pub struct Kept {
    pub record: Record,
    /// Whether it was replayed.
    used: AtomicBool,
    /// How many replays in turn copied inputs since the record was made or chosen.
    copying: AtomicU32,
    /// Whether the next run with these inputs is recorded.
    is_stale: AtomicBool,
}

impl Kept {
    fn new(record: Record) -> Self {
        let (used, is_stale) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { record, used, copying: AtomicU32::new(0), is_stale }
    }

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

    /// Notes that a record was replayed, and which inputs became outputs. If other inputs than in
    /// the record become outputs several times in turn, another record takes its place.
    pub fn replayed(&self, kept: &Kept, forwards: &Forwards) {
        if kept.record.forwards == *forwards {
            kept.copying.store(0, Ordering::Relaxed);
            return;
        }
        if kept.copying.fetch_add(1, Ordering::Relaxed) + 1 < MOST_COPYING {
            return;
        }
        kept.copying.store(0, Ordering::Relaxed);
        if !prefer(&mut self.kept.lock(), &kept.record.inputs, forwards) {
            kept.is_stale.store(true, Ordering::Relaxed);
        }
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
        kept.back().filter(|kept| !kept.is_stale.swap(false, Ordering::Relaxed)).cloned()
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
        if prefer(&mut kept, &record.inputs, &record.forwards) {
            return;
        }
        // The inputs that become outputs may differ from run to run. Records of other shapes must
        // not go because of that.
        let alike = |kept: &Arc<Kept>| kept.record.inputs == record.inputs;
        if kept.iter().filter(|kept| alike(kept)).count() == MOST_ALIKE
            && let Some(oldest) = kept.iter().position(alike)
        {
            kept.remove(oldest);
        }
        if kept.len() == MOST
            && let Some(oldest) = kept.pop_front()
            && !oldest.used.load(Ordering::Relaxed)
        {
            self.futile.fetch_add(1, Ordering::Relaxed);
        }
        kept.push_back(Arc::new(Kept::new(record)));
    }
}

/// Makes the record with these inputs and forwards the most recently used one. Returns whether
/// there is one.
fn prefer(kept: &mut VecDeque<Arc<Kept>>, inputs: &Inputs, forwards: &Forwards) -> bool {
    let is_it =
        |kept: &Arc<Kept>| kept.record.forwards == *forwards && kept.record.inputs == *inputs;
    let found = kept.iter().position(is_it).and_then(|at| kept.remove(at));
    let is_found = found.is_some();
    kept.extend(found);
    is_found
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
