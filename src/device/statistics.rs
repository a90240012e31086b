//! Counts of a device's work so far, for benchmarks and tests.

/// Counts since the device was opened. Work is counted when it is recorded, not when the GPU has
/// done it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Dispatches, including those of copies and fills.
    pub dispatches: u64,
    /// Bytes that dispatches read and write by their programs' descriptions: the sum of their
    /// bindings' lengths, or of the tensors in them if the bindings are windows of memory. A
    /// program that reads part of a tensor counts all of it; a program that reads and writes the
    /// same memory through two bindings counts it twice.
    pub bytes: u64,
    /// Dispatches with a barrier before them: by wgpu's rule, because an earlier dispatch of their
    /// pass binds the same buffer; with `own_barriers`, because they need one.
    pub barriers: u64,
    /// Dispatches that need a barrier: they read bytes that an earlier dispatch of the pass writes,
    /// or write bytes that it reads or writes. Until a program's text is analysed, it counts as if
    /// it wrote all its bindings.
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
    /// Copies from and to the host without a staging buffer.
    pub unstaged: u64,
    /// Copies within the device.
    pub copies: u64,
    /// Pipelines compiled, or refused by the driver.
    pub pipelines: u64,
    /// Bind groups made. A step with the same bindings as the steps before it makes none.
    pub bind_groups: u64,
    /// Bytes of tensors moved to host memory, by a device that pages.
    pub paged_out: u64,
    /// Bytes of tensors moved back to device memory.
    pub paged_in: u64,
    /// Bytes of tensors that are in host memory alone at the moment: they may fall.
    pub paged: u64,
    /// Bind groups kept at the moment: they may fall, too.
    pub bind_groups_held: u64,
}

impl Statistics {
    /// Names and values, in the order of declaration.
    pub const fn rows(&self) -> [(&'static str, u64); 17] {
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
            ("unstaged", self.unstaged),
            ("copies", self.copies),
            ("pipelines", self.pipelines),
            ("bind_groups", self.bind_groups),
            ("paged_out", self.paged_out),
            ("paged_in", self.paged_in),
            ("paged", self.paged),
            ("bind_groups_held", self.bind_groups_held),
        ]
    }
}
