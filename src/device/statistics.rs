//! What a device has done so far, for benchmarks and tests.

/// Counts since the device was opened. Work counts when it is recorded, not when the GPU has done
/// it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Dispatches, those of copies and fills included.
    pub dispatches: u64,
    /// Bytes that dispatches read and write by their programs' descriptions: the sum of their
    /// bindings' lengths, or of the tensors in them where these are windows of memory. A program
    /// that reads part of a tensor counts all of it, one that reads and writes the same memory by
    /// two bindings counts it twice.
    pub bytes: u64,
    /// Dispatches that wgpu keeps apart from earlier ones of their pass, for a buffer is common.
    pub barriers: u64,
    /// Those that read what an earlier one of the pass writes, or write what it reads or writes, as
    /// far as that is known: until a program's text is analysed, it counts as if it wrote all that
    /// it binds.
    pub barriers_needed: u64,
    /// Submissions to the queue.
    pub submissions: u64,
    /// Copies from the host.
    pub uploads: u64,
    /// Bytes copied from the host.
    pub uploaded: u64,
    /// Copies to the host.
    pub downloads: u64,
    /// Bytes copied to the host.
    pub downloaded: u64,
    /// Copies within the device.
    pub copies: u64,
    /// Pipelines compiled, or refused by the driver.
    pub pipelines: u64,
    /// Bind groups made. A step that binds what the steps before it did makes none.
    pub bind_groups: u64,
    /// Bind groups kept at the moment: the one number that may fall.
    pub bind_groups_held: u64,
}

impl Statistics {
    /// Names and values, in the order of declaration.
    pub const fn rows(&self) -> [(&'static str, u64); 13] {
        [
            ("dispatches", self.dispatches),
            ("bytes", self.bytes),
            ("barriers", self.barriers),
            ("barriers_needed", self.barriers_needed),
            ("submissions", self.submissions),
            ("uploads", self.uploads),
            ("uploaded", self.uploaded),
            ("downloads", self.downloads),
            ("downloaded", self.downloaded),
            ("copies", self.copies),
            ("pipelines", self.pipelines),
            ("bind_groups", self.bind_groups),
            ("bind_groups_held", self.bind_groups_held),
        ]
    }
}
