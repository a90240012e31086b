//! The token that wgpu requires for a device with experimental features.

/// The token for `EXPERIMENTAL_COOPERATIVE_MATRIX`.
pub(crate) const fn cooperative_matrices() -> wgpu::ExperimentalFeatures {
    // SAFETY: the contract is to know that these interfaces may hold bugs that are undefined
    // behaviour. Only shaders with cooperative matrices use them: loads and stores of whole
    // matrices within arrays in workgroup memory, in uniform control flow, by full subgroups. They
    // run on adapters that list the configuration, once a product has come out right.
    unsafe { wgpu::ExperimentalFeatures::enabled() }
}
