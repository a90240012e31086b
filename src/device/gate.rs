//! The recorder's lock, and the dispatches that wait in front of it for their pipelines.
//!
//! A dispatch whose pipeline is still being compiled does not block its caller: it waits here, and so do all that come after
//! it, until it can be recorded. Whoever takes the lock for something else waits for them first, so that nothing overtakes.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};

use super::pipelines::Planned;
use super::recorder::{Dispatch, Recorder};
use crate::error::{Error, Result};

/// Dispatches that may wait; the next one waits itself for the first.
const MAX_WAITING: usize = 4096;

/// A dispatch and the pipeline that it waits for.
pub(crate) struct Waiting {
    pub pipeline: Arc<Planned>,
    pub dispatch: Dispatch,
}

pub(crate) struct Gate {
    inner: Mutex<Inner>,
}

struct Inner {
    recorder: Recorder,
    waiting: VecDeque<Waiting>,
    /// Told of pipelines that could not be compiled, for the calls that wanted them have returned.
    failed: Box<dyn Fn(Error) + Send + Sync>,
}

impl Gate {
    pub fn new(recorder: Recorder, failed: impl Fn(Error) + Send + Sync + 'static) -> Self {
        Self { inner: Mutex::new(Inner { recorder, waiting: VecDeque::new(), failed: Box::new(failed) }) }
    }

    /// The recorder, after every dispatch so far is recorded. Waits for their pipelines, without the lock.
    pub fn lock(&self) -> MappedMutexGuard<'_, Recorder> {
        loop {
            let mut inner = self.inner.lock();
            inner.record_ready();
            let Some(first) = inner.waiting.front() else { return MutexGuard::map(inner, |i| &mut i.recorder) };
            let pipeline = first.pipeline.clone();
            drop(inner);
            // Its error is told when the dispatch leaves the queue.
            let _ = pipeline.wait();
        }
    }

    /// The recorder with what is recorded by now, unless somebody else has it.
    pub fn try_lock(&self) -> Option<MappedMutexGuard<'_, Recorder>> {
        let mut inner = self.inner.try_lock()?;
        inner.record_ready();
        Some(MutexGuard::map(inner, |i| &mut i.recorder))
    }

    /// Whether nothing waits for a pipeline, as far as can be told without waiting for anybody.
    pub fn is_clear(&self) -> bool {
        self.inner.try_lock().is_some_and(|mut inner| {
            inner.record_ready();
            inner.waiting.is_empty()
        })
    }

    /// Records a dispatch after all earlier ones, now or as soon as its pipeline and theirs are compiled.
    pub fn dispatch(&self, dispatch: Waiting) -> Result<()> {
        if let Some(Err(e)) = dispatch.pipeline.get() {
            return Err(e.clone());
        }
        let mut inner = self.inner.lock();
        inner.record_ready();
        if inner.waiting.is_empty()
            && let Some(Ok(_)) = dispatch.pipeline.get()
        {
            inner.record(&dispatch);
            return Ok(());
        }
        inner.waiting.push_back(dispatch);
        let full = inner.waiting.len() > MAX_WAITING;
        drop(inner);
        if full {
            drop(self.lock());
        }
        Ok(())
    }
}

impl Inner {
    /// Records what waits, up to the first dispatch whose pipeline is not there yet.
    fn record_ready(&mut self) {
        while self.waiting.front().is_some_and(|first| first.pipeline.get().is_some()) {
            let dispatch = self.waiting.pop_front().expect("it has a front");
            self.record(&dispatch);
        }
    }

    fn record(&mut self, waiting: &Waiting) {
        match waiting.pipeline.wait() {
            Ok(pipeline) => self.recorder.dispatch(pipeline, &waiting.dispatch),
            Err(e) => (self.failed)(e.clone()),
        }
    }
}
