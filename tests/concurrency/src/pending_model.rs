//! The queue of pending dispatches, with pipelines that a thread compiles, some of which fail, and
//! a recorder that computes at once: memory is words, each dispatch adds one to a word and stores
//! it in another.

use std::collections::BTreeMap;

use shuttle::thread;

use crate::device::pending::{
    Effort, PendingDispatches, Plan, Record, Together, Uses, Waiting,
};
use crate::device::program::Binding;
use crate::device::sync::{Arc, AtomicBool, AtomicU64, Condvar, Mutex, Ordering};
use crate::error::{Error, Result};

struct Pipeline {
    compiled: Mutex<Option<Result<()>>>,
    changed: Condvar,
    replaced: AtomicBool,
}

impl Pipeline {
    fn new() -> Arc<Self> {
        let replaced = AtomicBool::new(false);
        Arc::new(Self { compiled: Mutex::new(None), changed: Condvar::new(), replaced })
    }

    fn finish(&self, is_right: bool) {
        let broken = || Err(Error::Internal("broken".into()));
        *self.compiled.lock() = Some(if is_right { Ok(()) } else { broken() });
        self.changed.notify_all();
    }
}

impl Plan for Pipeline {
    fn outcome(&self, _: Effort) -> Option<Result<()>> {
        self.compiled.lock().clone()
    }

    fn wait_for_it(&self, _: Effort) -> Result<()> {
        let mut compiled = self.compiled.lock();
        loop {
            if let Some(outcome) = &*compiled {
                return outcome.clone();
            }
            self.changed.wait(&mut compiled);
        }
    }

    fn uses(&self) -> Uses {
        Uses { read: 0b01, written: 0b10 }
    }

    fn replaced(&self, _: &Error) {
        self.replaced.store(true, Ordering::SeqCst);
    }
}

#[derive(Default)]
struct Words(BTreeMap<u64, u64>);

impl Record for Words {
    type Plan = Pipeline;
    type Dispatch = (u64, u64);

    fn record(&mut self, plan: &Pipeline, (from, to): &(u64, u64)) -> Result<()> {
        assert_eq!(plan.outcome(Effort::Any), Some(Ok(())), "only what is compiled is recorded");
        let value = self.0.get(from).copied().unwrap_or_default();
        self.0.insert(*to, value + 1);
        Ok(())
    }
}

fn pending() -> (Arc<PendingDispatches<Words>>, Arc<AtomicU64>) {
    let failures = Arc::new(AtomicU64::new(0));
    let counter = failures.clone();
    let pending = PendingDispatches::new(Words::default(), move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    (Arc::new(pending), failures)
}

fn waiting(pipeline: &Arc<Pipeline>, from: u64, to: u64) -> Waiting<Words> {
    let bindings = [from, to].map(|address| Binding { address, bytes: 1 });
    Waiting {
        pipeline: pipeline.clone(),
        dispatch: (from, to),
        bindings: bindings.into_iter().collect(),
    }
}

fn add(
    pending: &PendingDispatches<Words>,
    pipeline: &Arc<Pipeline>,
    from: u64,
    to: u64,
) -> Result<()> {
    pending.dispatch(waiting(pipeline, from, to))
}

fn read(pending: &PendingDispatches<Words>, at: u64) -> Result<u64> {
    pending.lock_to_read(&(at..at + 1)).map(|words| words.0.get(&at).copied().unwrap_or_default())
}

/// Pipelines that become ready in any order: the dispatches of each thread keep their order.
pub fn nothing_overtakes_a_dispatch_that_waits() {
    let (pending, failures) = pending();
    let pipelines = [Pipeline::new(), Pipeline::new(), Pipeline::new()];
    let compiler = {
        let pipelines = pipelines.clone();
        thread::spawn(move || [2, 0, 1].map(|k: usize| pipelines[k].finish(true)))
    };
    let threads: Vec<_> = [10, 20]
        .into_iter()
        .map(|base| {
            let (pending, pipelines) = (pending.clone(), pipelines.clone());
            thread::spawn(move || {
                for (k, pipeline) in (0..).zip(&pipelines) {
                    add(&pending, pipeline, base + k, base + k + 1).unwrap();
                }
                assert_eq!(read(&pending, base + 3), Ok(3), "each saw the one before");
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    compiler.join().unwrap();
    assert_eq!(failures.load(Ordering::SeqCst), 0);
}

/// A pipeline that cannot be compiled: reads of memory that depends on its dispatch return an
/// error, and no other reads do, whether the calls came before the failure was known or after.
pub fn what_depends_on_a_failed_dispatch_is_no_data() {
    let (pending, failures) = pending();
    let (right, broken) = (Pipeline::new(), Pipeline::new());
    let compiler = {
        let (right, broken) = (right.clone(), broken.clone());
        thread::spawn(move || {
            right.finish(true);
            broken.finish(false);
        })
    };
    let other = {
        let (pending, right) = (pending.clone(), right.clone());
        thread::spawn(move || {
            add(&pending, &right, 40, 41).unwrap();
            assert_eq!(read(&pending, 41), Ok(1), "it depends on nothing that failed");
        })
    };
    // A call that is refused changes nothing. A call that returned before the failure was known
    // spoils the memory that it should have written.
    let first = add(&pending, &broken, 10, 11);
    let second = add(&pending, &right, 11, 12);
    let third = add(&pending, &right, 12, 13);
    let spoiled = [
        first.is_ok(),
        second.is_ok() && first.is_ok(),
        third.is_ok() && second.is_ok() && first.is_ok(),
    ];
    for (at, is_spoiled) in (11..).zip(spoiled) {
        assert_eq!(read(&pending, at).is_err(), is_spoiled, "{at}");
    }
    assert_eq!(read(&pending, 10), Ok(0), "an operand stays what it was");
    assert_eq!(failures.load(Ordering::SeqCst) > 0, first.is_ok());
    // A new life of the same memory.
    pending.refresh(11..13);
    add(&pending, &right, 10, 11).unwrap();
    assert_eq!(read(&pending, 11), Ok(1));
    other.join().unwrap();
    compiler.join().unwrap();
}

/// Memory begins a new life while a dispatch to its old life waits: the new contents are right,
/// whatever became of the old ones.
pub fn a_new_life_begins_behind_the_dispatches_of_the_old() {
    let (pending, _) = pending();
    let (right, broken) = (Pipeline::new(), Pipeline::new());
    let compiler = {
        let (right, broken) = (right.clone(), broken.clone());
        thread::spawn(move || {
            broken.finish(false);
            right.finish(true);
        })
    };
    let _ = add(&pending, &broken, 10, 11);
    pending.refresh(11..12);
    add(&pending, &right, 10, 11).unwrap();
    assert_eq!(read(&pending, 11), Ok(1));
    compiler.join().unwrap();
}

/// Two dispatches with another one in reserve: their pipelines may be refused at any time, and
/// later dispatches see the results of the dispatches that ran.
pub fn a_refused_dispatch_is_replaced_with_all_that_belongs_to_it() {
    for refused in [None, Some(0), Some(1)] {
        let (pending, failures) = pending();
        let (pipelines, spare) = ([Pipeline::new(), Pipeline::new()], Pipeline::new());
        let compiler = {
            let (pipelines, spare) = (pipelines.clone(), spare.clone());
            thread::spawn(move || {
                spare.finish(true);
                for (k, pipeline) in pipelines.iter().enumerate() {
                    pipeline.finish(Some(k) != refused);
                }
            })
        };
        let first: Together<Words> =
            [waiting(&pipelines[0], 10, 11), waiting(&pipelines[1], 11, 12)].into_iter().collect();
        let second: Together<Words> = std::iter::once(waiting(&spare, 20, 12)).collect();
        pending.dispatch_either(first, second);
        add(&pending, &spare, 12, 13).unwrap();
        let by_first = refused.is_none();
        assert_eq!(read(&pending, 13), Ok(if by_first { 3 } else { 2 }));
        assert_eq!(read(&pending, 11), Ok(u64::from(by_first)), "all of one, none of the other");
        for (k, pipeline) in pipelines.iter().enumerate() {
            assert_eq!(pipeline.replaced.load(Ordering::SeqCst), Some(k) == refused);
        }
        compiler.join().unwrap();
        assert_eq!(failures.load(Ordering::SeqCst), 0);
    }
}
