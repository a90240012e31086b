//! Spans of the host's work, from the beginning to the end of a scope, with their op.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use super::{HostWork, Tracer};
use crate::sys::threads;

/// An op of a graph, or one that was called outside a graph.
#[derive(Debug, PartialEq, Eq)]
pub struct Origin {
    /// Its op, such as `MatMul`.
    pub op: String,
    /// Its node's name.
    pub node: String,
    /// The ops that a fused op replaces, such as `MatMul, BiasAdd, Relu`; empty for other ops.
    pub holds: String,
}

/// A thread of the process.
#[derive(Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its name, which may be empty.
    pub name: String,
    /// Its id in the system: pthread_t, or the id on Windows.
    pub id: u64,
}

thread_local! {
    static THREAD: Arc<Thread> = Arc::new(Thread {
        name: std::thread::current().name().map_or_else(threads::name, str::to_owned),
        id: threads::id(),
    });
    /// The op whose kernel runs, and its number.
    static OP: RefCell<Option<(Arc<Origin>, u64)>> = const { RefCell::new(None) };
}

impl Thread {
    /// This thread.
    pub(super) fn current() -> Arc<Self> {
        THREAD.with(Arc::clone)
    }
}

/// The op whose kernel this thread runs, and its number.
pub fn current_op() -> Option<(Arc<Origin>, u64)> {
    OP.with_borrow(Clone::clone)
}

/// Work of the host, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct HostSpan {
    tracer: Arc<Tracer>,
    work: Option<HostWork>,
    begin: Instant,
}

impl HostSpan {
    pub(super) fn begin(tracer: &Arc<Tracer>, work: HostWork) -> Self {
        Self { tracer: tracer.clone(), work: Some(work), begin: Instant::now() }
    }
}

impl Drop for HostSpan {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.tracer.host(work, self.begin, 0);
        }
    }
}

/// The time in which an op's kernel runs. A nested op takes its place, and it continues afterwards.
#[derive(Debug)]
pub(crate) struct OpSpan {
    tracer: Arc<Tracer>,
    before: Option<(Arc<Origin>, u64)>,
    begin: Instant,
}

impl OpSpan {
    pub(super) fn begin(tracer: &Arc<Tracer>, origin: Arc<Origin>) -> Self {
        let op = Some((origin, tracer.correlation()));
        let before = OP.with_borrow_mut(|current| std::mem::replace(current, op));
        Self { tracer: tracer.clone(), before, begin: Instant::now() }
    }
}

impl Drop for OpSpan {
    fn drop(&mut self) {
        let before = self.before.take();
        let ended = OP.with_borrow_mut(|current| std::mem::replace(current, before));
        if let Some((origin, correlation)) = ended {
            self.tracer.host(HostWork::Op(origin), self.begin, correlation);
        }
    }
}
