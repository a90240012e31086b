//! The time that a fusion saves on a GPU of the middle class: launches, bytes, operations that are
//! computed again, and text to compile. Only orders of magnitude matter: the figures are of no
//! adapter in particular.

use crate::optimizer::shape::TensorInfo;

/// A time in nanoseconds.
pub type Nanos = u64;

/// The time of a dispatch beside its work: the host's calls, and the barrier before it.
pub const LAUNCH: Nanos = 5_000;
/// The bytes that memory moves in a nanosecond.
const BYTES: u64 = 300;
/// The operations of [`crate::kernels::fused::cost`] that run in a nanosecond.
const OPERATIONS: u64 = 5_000;
/// The time to compile an operation of [`crate::kernels::fused::cost`], as a share of each run of
/// the program: 8 microseconds over 8,000 runs.
const COMPILATION: Nanos = 1;
/// The number of elements of a tensor of unknown shape: it counts as large.
const UNKNOWN: usize = 1 << 20;

fn len(info: &TensorInfo) -> u64 {
    info.len().unwrap_or(UNKNOWN) as u64
}

/// The time to read or to write a tensor.
pub fn transfer(info: &TensorInfo) -> Nanos {
    len(info).saturating_mul(info.dtype.map_or(4, |dtype| dtype.size() as u64)) / BYTES
}

/// The time to compute a value of this weight for each element of a tensor.
pub fn computation(weight: u32, info: &TensorInfo) -> Nanos {
    len(info).saturating_mul(weight.into()) / OPERATIONS
}

/// The time to compile a text of this cost, as a share of each run of the program.
pub fn compilation(operations: u32) -> Nanos {
    Nanos::from(operations) * COMPILATION
}

/// The saving of a node that takes in the node which makes a tensor: a dispatch, and a tensor that
/// is neither written nor read.
pub fn unwritten(info: &TensorInfo) -> Nanos {
    LAUNCH.saturating_add(transfer(info).saturating_mul(2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;

    #[test]
    fn unknown_tensors_are_large_and_small_ones_cost_a_launch() {
        let [large, small] = [1 << 22, 64].map(|n| TensorInfo::known(DType::F32, &[n]));
        assert!(transfer(&small) < LAUNCH && LAUNCH < transfer(&large));
        assert!(LAUNCH < transfer(&TensorInfo::default()));
        // To compute a cheap value again takes less time than to read it.
        assert!(computation(4, &large) < transfer(&large));
    }
}
