//! Cooperative matrices that every invocation computes for itself, in place of those that no
//! software adapter has.

use tensorflow_wgpu::DType;
use tensorflow_wgpu::device::{Capabilities, Cooperative, Matrices, MatrixSize, Means, Profile};

use super::numeric::session;

/// Whether this adapter runs programs of emulated matrices. They need subgroups of eight
/// invocations or more, and up to 32 KiB of workgroup memory. CI's adapter has both.
pub fn emulates_matrices() -> bool {
    let has = session().device.profile().capabilities;
    let lanes = session().device.info().subgroup_min_size;
    let fits = has.subgroups && lanes >= 8 && has.workgroup_memory >= 32 << 10;
    assert!(fits || std::env::var_os("CI").is_none(), "CI runs emulated matrices");
    if !fits {
        println!("skipped: emulated matrices do not fit this adapter");
    }
    fits
}

/// Emulated matrices for subgroups of 32.
pub fn emulated(size: MatrixSize, element: DType) -> Cooperative {
    Cooperative { size, element, means: Means::Emulation, ..Cooperative::F16 }
}

/// A GPU that offers these matrices, and uses the tile with this id if it is not 0.
pub fn offering(cooperative: Cooperative, tile: u32) -> Profile {
    let own = session().device.profile().capabilities;
    let of = |element| Some(cooperative).filter(|c| c.element == element);
    let matrices = Matrices { f16: of(DType::F16), f32: of(DType::F32) };
    let capabilities = Capabilities { matrices, ..own };
    Profile { tile, capabilities, ..Profile::NVIDIA }
}
