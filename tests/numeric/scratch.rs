//! A directory for a test's files, also for tests within the crate.

use std::path::PathBuf;

/// A directory of one test, removed at its end.
pub(super) struct Scratch(pub(super) PathBuf);

impl Scratch {
    /// An empty path that no test of another module, name or process uses.
    pub(super) fn new(name: &str) -> Self {
        let of = module_path!().replace("::", "-");
        let path = std::env::temp_dir().join(format!("{of}-{}-{name}", std::process::id()));
        drop(std::fs::remove_dir_all(&path));
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}
