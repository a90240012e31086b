//! The GPU's queue as the submitter and the completion thread see it: a batch is submitted, its end
//! is waited for, and bytes are read back. It is a trait, so that a model can stand for the GPU
//! (`tests/concurrency`).

use std::time::Duration;

use crate::error::{Error, Result};

/// A queue that runs batches in order.
pub(crate) trait Queue: Send + Sync + 'static {
    /// Recorded work.
    type Batch: Send + 'static;
    /// Identifies a submission.
    type Index: Send + 'static;
    /// A copy to the host that is part of a batch.
    type Readback: Send + 'static;

    /// Submits a batch. After an error, none of it or an unknown part of it runs.
    fn submit(&self, batch: Self::Batch) -> Result<Self::Index>;

    /// The time since a fixed moment in the past.
    fn now(&self) -> Duration;

    /// Blocks until a submission is done.
    fn wait(&self, index: Self::Index) -> Result<()>;

    /// Passes on the bytes of a copy whose submission is done. If there are none, passes on `lost`,
    /// the reason.
    fn read(&self, readback: Self::Readback, lost: Option<Error>);
}
