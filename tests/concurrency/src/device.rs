//! The modules under test, unchanged, with the names around them that they expect.

#[path = "../../../src/device/completion.rs"]
pub mod completion;
#[path = "../../../src/device/failures.rs"]
pub mod failures;
#[path = "../../../src/device/pace.rs"]
pub mod pace;
#[path = "../../../src/device/pending.rs"]
pub mod pending;
#[path = "../../../src/device/poison.rs"]
pub mod poison;
#[path = "../../../src/device/queue.rs"]
pub mod queue;
#[path = "../../../src/device/submitter.rs"]
pub mod submitter;
#[path = "sync.rs"]
pub mod sync;

/// The parts of `src/device/program.rs` that pending dispatches use.
pub mod program {
    #[derive(Debug, Clone, Copy)]
    pub struct Binding {
        pub address: u64,
        pub bytes: u64,
    }
}
