//! The texts of loops over windows: over whole windows, and over parts of them where whole windows
//! take more iterations than an adapter's loops may have.

/// The text for whole windows.
pub(super) const WHOLE: &str = include_str!("../../../../shaders/pool/whole.wgsl");
/// The text for parts of windows.
pub(super) const CUT: &str = include_str!("../../../../shaders/pool/cut.wgsl");
