//! The recorder's lock, and the dispatches that wait in front of it for their pipelines.
//!
//! A dispatch whose pipeline is still being compiled does not block its caller: it waits here, and
//! so do all later dispatches, until it can be recorded. A thread that takes the lock for other
//! work waits for them first, so that nothing overtakes them. If a dispatch cannot be recorded
//! after its call has returned, the memory that it should have written is poisoned.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut, Range};

use smallvec::SmallVec;

use super::poison::Poison;
use super::program::Binding;
use super::sync::{Arc, AtomicBool, Mutex, MutexGuard, Ordering};
use crate::error::{Error, Result};

/// The number of dispatches that may wait. The caller of the next one waits for the first.
const MAX_WAITING: usize = 4096;

/// The forms that are tried for a pipeline that the driver refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// All forms that keep the driver's optimizations.
    Optimized,
    /// All forms.
    Any,
}

/// The operations that this queue needs of a pipeline that is compiled, or will be.
pub(crate) trait Plan {
    /// Whether the pipeline can be used, if that is known by now.
    fn outcome(&self, effort: Effort) -> Option<Result<()>>;

    /// Waits until the pipeline can be used, or is known to have failed.
    fn wait_for_it(&self, effort: Effort) -> Result<()>;

    /// The program's bindings that it reads and writes.
    fn uses(&self) -> Uses;

    /// Takes note that other pipelines are used in place of this one, which was refused.
    fn replaced(&self, refusal: &Error);
}

/// The operations that this queue needs of a recorder.
pub(crate) trait Record {
    type Plan: Plan;
    type Dispatch;

    /// Records a dispatch whose pipeline can be used.
    fn record(&mut self, plan: &Self::Plan, dispatch: &Self::Dispatch) -> Result<()>;
}

/// Bindings that are read and written, as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Uses {
    pub read: u64,
    pub written: u64,
}

impl Uses {
    /// The uses of an unknown program: it may read and write all bindings.
    pub const ALL: Self = Self { read: u64::MAX, written: u64::MAX };

    /// Whether the binding of this number is read.
    pub const fn reads(self, binding: usize) -> bool {
        has(self.read, binding)
    }

    /// Whether the binding of this number is written.
    pub const fn writes(self, binding: usize) -> bool {
        has(self.written, binding)
    }
}

/// Bindings without a bit of their own count as used.
const fn has(bits: u64, binding: usize) -> bool {
    match bits.checked_shr(binding as u32) {
        Some(rest) => rest & 1 == 1,
        None => true,
    }
}

/// A dispatch, its bindings, and the pipeline that it waits for.
pub(crate) struct Waiting<R: Record> {
    pub pipeline: Arc<R::Plan>,
    pub dispatch: R::Dispatch,
    pub bindings: SmallVec<[Binding; 8]>,
}

impl<R: Record> Waiting<R> {
    /// The addresses that the dispatch writes. Waits until the program's text is analysed.
    pub fn written(&self) -> impl Iterator<Item = Range<u64>> {
        used(&self.bindings, self.pipeline.uses().written)
    }
}

/// Dispatches that belong together, in order.
pub(crate) type Together<R> = SmallVec<[Waiting<R>; 1]>;

/// An entry of the queue.
enum Entry<R: Record> {
    Dispatch(Waiting<R>),
    /// The first dispatches, or the second ones if the driver refuses a pipeline of the first.
    Either(Box<[Together<R>; 2]>),
    /// This memory begins a new life.
    Fresh(Range<u64>),
}

pub(crate) struct PendingDispatches<R: Record> {
    inner: Mutex<Inner<R>>,
    /// Whether an entry waits or some memory is poisoned. Changed only with the lock held.
    attentive: AtomicBool,
}

struct Inner<R: Record> {
    recorder: R,
    waiting: VecDeque<Entry<R>>,
    poison: Poison,
    /// Called with the error of a dispatch that could not be recorded after its call had returned.
    failed: Box<dyn Fn(Error) + Send + Sync>,
}

/// The recorder, locked.
pub(crate) struct Locked<'a, R: Record>(MutexGuard<'a, Inner<R>>);

impl<R: Record> Deref for Locked<'_, R> {
    type Target = R;

    fn deref(&self) -> &R {
        &self.0.recorder
    }
}

impl<R: Record> DerefMut for Locked<'_, R> {
    fn deref_mut(&mut self) -> &mut R {
        &mut self.0.recorder
    }
}

impl<R: Record> PendingDispatches<R> {
    pub fn new(recorder: R, failed: impl Fn(Error) + Send + Sync + 'static) -> Self {
        let inner = Inner {
            recorder,
            waiting: VecDeque::new(),
            poison: Poison::default(),
            failed: Box::new(failed),
        };
        Self { inner: Mutex::new(inner), attentive: AtomicBool::new(false) }
    }

    /// Locks the recorder after every dispatch so far is recorded. Waits for their pipelines
    /// without holding the lock.
    pub fn lock(&self) -> Locked<'_, R> {
        loop {
            let mut inner = self.inner.lock();
            self.record_ready(&mut inner);
            let Some(first) = inner.waiting.front() else { return Locked(inner) };
            let awaited = first.awaited();
            drop(inner);
            if let Some((pipeline, effort)) = awaited {
                // Its error is reported when the dispatch leaves the queue.
                let _ = pipeline.wait_for_it(effort);
            }
        }
    }

    /// Locks the recorder for a read of `range`. Fails if work that should have written `range`
    /// failed.
    pub fn lock_to_read(&self, range: &Range<u64>) -> Result<Locked<'_, R>> {
        let locked = self.lock();
        locked.0.poison.check(range)?;
        Ok(locked)
    }

    /// Locks the recorder after recording the dispatches that are ready, unless another thread
    /// holds the lock.
    pub fn try_lock(&self) -> Option<Locked<'_, R>> {
        let mut inner = self.inner.try_lock()?;
        self.record_ready(&mut inner);
        Some(Locked(inner))
    }

    /// Records a dispatch after all earlier ones, now or as soon as its pipeline and theirs are
    /// compiled.
    pub fn dispatch(&self, dispatch: Waiting<R>) -> Result<()> {
        if let Some(Err(e)) = dispatch.pipeline.outcome(Effort::Any) {
            return Err(e);
        }
        let mut inner = self.inner.lock();
        self.record_ready(&mut inner);
        if inner.waiting.is_empty()
            && let Some(Ok(())) = dispatch.pipeline.outcome(Effort::Any)
        {
            return inner.record(&dispatch);
        }
        self.push(inner, Entry::Dispatch(dispatch));
        Ok(())
    }

    /// Records `first`, or `second` if the driver refuses a pipeline of `first`, as soon as that is
    /// known.
    pub fn dispatch_either(&self, first: Together<R>, second: Together<R>) {
        self.push(self.inner.lock(), Entry::Either(Box::new([first, second])));
    }

    fn push(&self, mut inner: MutexGuard<'_, Inner<R>>, entry: Entry<R>) {
        inner.waiting.push_back(entry);
        self.attentive.store(true, Ordering::Release);
        let full = inner.waiting.len() > MAX_WAITING;
        drop(inner);
        if full {
            drop(self.lock());
        }
    }

    /// Whether an entry waits or some memory is poisoned.
    pub fn is_attentive(&self) -> bool {
        self.attentive.load(Ordering::Acquire)
    }

    /// Notes that memory begins a new life: its old contents will not be read.
    pub fn refresh(&self, range: Range<u64>) {
        if !self.is_attentive() {
            return;
        }
        let mut inner = self.inner.lock();
        self.record_ready(&mut inner);
        if inner.waiting.is_empty() {
            inner.poison.clear(range);
            self.note(&inner);
        } else {
            inner.waiting.push_back(Entry::Fresh(range));
        }
    }

    /// Notes that work which was to write `range` failed.
    pub fn spoil(&self, range: Range<u64>, error: &Error) {
        let mut locked = self.lock();
        locked.0.poison.add(range, error);
        self.note(&locked.0);
    }

    /// Records the waiting dispatches, up to the first one whose pipeline is not compiled yet.
    fn record_ready(&self, inner: &mut Inner<R>) {
        if inner.waiting.is_empty() {
            return;
        }
        while inner.waiting.front().is_some_and(|entry| entry.awaited().is_none()) {
            match inner.waiting.pop_front() {
                Some(Entry::Dispatch(dispatch)) => inner.record_late(&dispatch, Effort::Any),
                Some(Entry::Either(either)) => inner.record_either(*either),
                Some(Entry::Fresh(range)) => inner.poison.clear(range),
                None => {}
            }
        }
        self.note(inner);
    }

    fn note(&self, inner: &Inner<R>) {
        self.attentive
            .store(!inner.waiting.is_empty() || !inner.poison.is_empty(), Ordering::Release);
    }
}

/// The first pipeline that is known to be refused, and the refusal.
fn refusal<R: Record>(dispatches: &[Waiting<R>]) -> Option<(&R::Plan, Error)> {
    dispatches.iter().find_map(|d| match d.pipeline.outcome(Effort::Optimized) {
        Some(Err(e)) => Some((&*d.pipeline, e)),
        _ => None,
    })
}

impl<R: Record> Entry<R> {
    /// The pipeline that the entry waits for, and the effort for it.
    fn awaited(&self) -> Option<(Arc<R::Plan>, Effort)> {
        let of = |dispatches: &[Waiting<R>], effort| {
            let waits = |d: &&Waiting<R>| d.pipeline.outcome(effort).is_none();
            dispatches.iter().find(waits).map(|d| (d.pipeline.clone(), effort))
        };
        match self {
            Self::Dispatch(dispatch) => of(std::slice::from_ref(dispatch), Effort::Any),
            Self::Either(either) if refusal(&either[0]).is_some() => None,
            Self::Either(either) => of(&either[0], Effort::Optimized),
            Self::Fresh(_) => None,
        }
    }
}

impl<R: Record> Inner<R> {
    /// Records a dispatch, unless it reads poisoned memory. The caller returns the error.
    fn record(&mut self, waiting: &Waiting<R>) -> Result<()> {
        if !self.poison.is_empty() {
            for range in used(&waiting.bindings, waiting.pipeline.uses().read) {
                self.poison.check(&range)?;
            }
        }
        self.recorder.record(&waiting.pipeline, &waiting.dispatch)
    }

    /// Records a dispatch whose call has returned. On failure, poisons the memory that it writes.
    fn record_late(&mut self, waiting: &Waiting<R>, effort: Effort) {
        let usable = waiting.pipeline.wait_for_it(effort);
        if let Err(e) = usable.and_then(|()| self.record(waiting)) {
            for range in used(&waiting.bindings, waiting.pipeline.uses().written) {
                self.poison.add(range, &e);
            }
            (self.failed)(e);
        }
    }

    /// Records the first dispatches, or puts the second ones at the front of the queue.
    fn record_either(&mut self, [first, second]: [Together<R>; 2]) {
        if let Some((refused, e)) = refusal(&first) {
            refused.replaced(&e);
            for dispatch in second.into_iter().rev() {
                self.waiting.push_front(Entry::Dispatch(dispatch));
            }
            return;
        }
        first.iter().for_each(|dispatch| self.record_late(dispatch, Effort::Optimized));
    }
}

/// The addresses of the bindings whose bit is set.
fn used(bindings: &[Binding], bits: u64) -> impl Iterator<Item = Range<u64>> {
    bindings
        .iter()
        .enumerate()
        .filter(move |(i, _)| has(bits, *i))
        .map(|(_, b)| b.address..b.address + b.bytes)
}
