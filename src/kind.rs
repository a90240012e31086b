//! Kinds of adapters for which kernels have their own tiles and forms.

/// A kind of adapters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Computes on the processor.
    Software,
    /// A GPU with at most 128 registers for an invocation, or of unknown kind.
    FewRegisters,
    /// A GPU with more registers.
    ManyRegisters,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Software, Self::FewRegisters, Self::ManyRegisters];
}
