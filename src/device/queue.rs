//! The GPU's queue as the submitter and the completion thread see it: a batch goes in, its end is
//! waited for, bytes come out. A trait, so that a model can stand for the GPU
//! (`tests/concurrency`).

use std::time::Duration;

use crate::error::{Error, Result};

/// A queue that runs batches in order.
pub(crate) trait Queue: Send + Sync + 'static {
    /// Recorded work.
    type Batch: Send + 'static;
    /// Names a submission.
    type Index: Send + 'static;
    /// A copy to the host that is a part of a batch.
    type Readback: Send + 'static;

    /// Submits a batch. An error says that none of it, or nobody knows which part, will run.
    fn submit(&self, batch: Self::Batch) -> Result<Self::Index>;

    /// The time since some moment in the past.
    fn now(&self) -> Duration;

    /// Blocks until a submission is done.
    fn wait(&self, index: Self::Index) -> Result<()>;

    /// Hands out the bytes of a copy whose submission is done, or `lost`, the reason why there are
    /// none.
    fn read(&self, readback: Self::Readback, lost: Option<Error>);
}
