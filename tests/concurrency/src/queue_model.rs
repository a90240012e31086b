//! Submitter and completion with a model of the GPU: a log of the submissions in their order. It
//! refuses one batch.

use std::time::Duration;

use shuttle::thread;

use crate::device::completion::{AfterWork, Completion, Load, Serial};
use crate::device::failures::Failures;
use crate::device::queue::Queue;
use crate::device::submitter::{Recorded, Submitter};
use crate::device::sync::{Arc, AtomicU64, Mutex, Ordering};
use crate::error::{Error, Result};

/// The outcomes of the read-backs, by their serials.
type Outcomes = Arc<Mutex<Vec<(Serial, bool)>>>;

/// A GPU whose batches are their serials.
struct Model {
    submitted: Mutex<Vec<Serial>>,
    refused: Option<Serial>,
    outcomes: Outcomes,
}

impl Queue for Model {
    type Batch = Serial;
    type Index = Serial;
    type Readback = Serial;

    fn submit(&self, batch: Serial) -> Result<Serial> {
        if self.refused == Some(batch) {
            return Err(Error::ResourceExhausted("no memory".into()));
        }
        self.submitted.lock().push(batch);
        Ok(batch)
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn wait(&self, index: Serial) -> Result<()> {
        assert!(self.submitted.lock().contains(&index));
        Ok(())
    }

    fn read(&self, readback: Serial, lost: Option<Error>) {
        let is_there = self.submitted.lock().contains(&readback);
        assert!(is_there || lost.is_some(), "a batch that did not run has no data");
        self.outcomes.lock().push((readback, lost.is_none()));
    }
}

const BYTE: Load = Load { staged: 1, work: 0, is_first: false };
const MUCH: Load = Load { staged: 600 << 20, work: 0, is_first: false };

/// A device whose recorder is a counter.
struct Runtime {
    queue: Arc<Model>,
    completion: Arc<Completion<Model>>,
    submitter: Arc<Submitter<Model>>,
    failures: Arc<Failures>,
    recorder: Mutex<Serial>,
    outcomes: Outcomes,
}

impl Runtime {
    fn new(refused: Option<Serial>) -> Arc<Self> {
        let outcomes = Outcomes::default();
        let queue =
            Arc::new(Model { submitted: Mutex::default(), refused, outcomes: outcomes.clone() });
        let failures = Arc::new(Failures::default());
        let completion = Completion::start(queue.clone(), failures.clone());
        let submitter = Submitter::start(queue.clone(), completion.clone(), failures.clone());
        Arc::new(Self { queue, completion, submitter, failures, recorder: Mutex::new(0), outcomes })
    }

    /// Hands a batch over, with a read-back.
    fn record(&self, load: Load, more: Option<AfterWork<Serial>>) -> Serial {
        let mut recorder = self.recorder.lock();
        *recorder += 1;
        let serial = *recorder;
        let after = more.into_iter().chain([AfterWork::Readback(serial)]).collect();
        self.submitter.push(Recorded { serial, batch: Ok(Some(serial)), after, load });
        serial
    }

    fn is_read(&self, serial: Serial) -> bool {
        self.outcomes.lock().iter().any(|(s, _)| *s == serial)
    }
}

/// Threads that record. Some wait, others leave the submission to the submitter's thread.
pub fn batches_run_in_order_and_who_waits_finds_them_done() {
    let runtime = Runtime::new(None);
    let threads: Vec<_> = (0..3)
        .map(|t| {
            let runtime = runtime.clone();
            thread::spawn(move || {
                for k in 0..3 {
                    let serial = runtime.record(BYTE, None);
                    if (t + k) % 2 == 0 {
                        runtime.submitter.wake();
                    } else {
                        runtime.submitter.submit();
                        assert!(
                            runtime.queue.submitted.lock().contains(&serial),
                            "it is submitted on return"
                        );
                    }
                    if t > 0 {
                        runtime.completion.wait(serial).unwrap();
                        assert!(runtime.is_read(serial) && runtime.completion.done() >= serial);
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    runtime.submitter.submit();
    runtime.completion.wait(9).unwrap();
    let in_order: Vec<_> = (1..=9).collect();
    assert_eq!(*runtime.queue.submitted.lock(), in_order);
    assert_eq!(*runtime.outcomes.lock(), in_order.iter().map(|s| (*s, true)).collect::<Vec<_>>());
}

/// From a batch that the GPU refuses on, every read-back is an error and every wait ends.
pub fn a_refused_batch_fails_every_later_read_back() {
    let runtime = Runtime::new(Some(3));
    let threads: Vec<_> = (0..2)
        .map(|t| {
            let runtime = runtime.clone();
            thread::spawn(move || {
                for _ in 0..3 {
                    let serial = runtime.record(BYTE, None);
                    if t == 0 {
                        runtime.submitter.submit();
                    } else {
                        runtime.submitter.wake();
                    }
                    runtime.completion.wait(serial).unwrap();
                    assert!(serial < 3 || runtime.failures.check().is_err());
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    let outcomes = runtime.outcomes.lock();
    assert_eq!(outcomes.iter().map(|(s, _)| *s).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    assert!(outcomes.iter().all(|(serial, is_data)| *serial < 3 || !is_data), "{outcomes:?}");
    assert!(
        matches!(runtime.failures.check(), Err(Error::Unavailable(m)) if m.contains("restart"))
    );
}

/// The load on its way stays within the limit, except for the batch that each thread is about to
/// add.
pub fn who_records_is_held_up_and_never_for_ever() {
    // The limits are 512 MiB, and the work that a GPU without measurements is expected to do in 400
    // ms.
    held_up(Load { staged: 200 << 20, work: 0, is_first: false });
    held_up(Load { staged: 0, work: 3_000_000, is_first: false });
}

fn held_up(load: Load) {
    let runtime = Runtime::new(None);
    let (held, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let (runtime, held, most) = (runtime.clone(), held.clone(), most.clone());
            thread::spawn(move || {
                for _ in 0..4 {
                    runtime.submitter.throttle();
                    let now = held.fetch_add(1, Ordering::SeqCst) + 1;
                    most.fetch_max(now, Ordering::SeqCst);
                    let done = held.clone();
                    let release = AfterWork::Callback(Box::new(move || {
                        done.fetch_sub(1, Ordering::SeqCst);
                    }));
                    runtime.record(load, Some(release));
                    runtime.submitter.wake();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    runtime.submitter.submit();
    runtime.completion.wait(8).unwrap();
    // The limit is two and a half of these batches; both threads may see two before they add
    // theirs.
    assert!(most.load(Ordering::SeqCst) <= 4, "{most:?}");
    assert_eq!(runtime.outcomes.lock().len(), 8);
}

/// A callback that waits, records, or panics: this is an error, a batch like any other, or the end
/// of the device. No wait lasts for ever.
pub fn callbacks_can_do_anything_but_wait() {
    let runtime = Runtime::new(None);
    let (inner, waited) = (runtime.clone(), Arc::new(Mutex::new(None)));
    let answer = waited.clone();
    let callback = move || {
        let serial = inner.record(MUCH, None);
        inner.submitter.throttle();
        *answer.lock() = Some(inner.completion.wait(serial));
        inner.submitter.submit();
    };
    let first = runtime.record(MUCH, Some(AfterWork::Callback(Box::new(callback))));
    runtime.submitter.wake();
    runtime.completion.wait(first).unwrap();
    assert!(matches!(*waited.lock(), Some(Err(Error::FailedPrecondition(_)))));
    let last = runtime.record(
        BYTE,
        Some(AfterWork::Callback(Box::new(|| std::panic::resume_unwind(Box::new("of a model"))))),
    );
    runtime.submitter.submit();
    runtime.completion.wait(last).unwrap();
    assert!(
        matches!(runtime.failures.check(), Err(Error::Internal(m)) if m.contains("of a model"))
    );
    let outcomes = runtime.outcomes.lock();
    assert_eq!(*outcomes, [(1, true), (2, true), (3, false)], "what follows the panic is lost");
}
