//! TensorFlow's own kernel of a node, run as a kernel of this device.
//!
//! TensorFlow registers its kernels of list ops for the CPU with all element types. They are
//! written for any device: they read lists and shapes on the host, and on a pluggable device they
//! move tensors by its copies and fills. DEVICE_DEFAULT has the same classes for a few types only.
//! So the CPU's class is created for the node and computes with this device's context.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use super::release::layout::{construction as members, kernel as slots};
use super::release::{Compute, CreateOpKernel};
use crate::error::{Error, Result};
use crate::ffi::abi::kernel::TF_OpKernelConstruction;
use crate::ffi::cxx::ShortString;
use crate::ffi::device_type;
use crate::ffi::status::Status;
use crate::kernels::op::{Kernel, OpContext};

/// An `OpKernel` of TensorFlow's.
pub(super) struct Native {
    kernel: NonNull<c_void>,
}

// SAFETY: any thread may use and delete an OpKernel, and several threads may compute at once.
unsafe impl Send for Native {}
// SAFETY: as above.
unsafe impl Sync for Native {}

impl Native {
    /// The CPU's kernel for the node under construction.
    ///
    /// # Safety
    /// `construction` must be the pointer that TensorFlow passed to the create function under way,
    /// and `create` must be TensorFlow's CreateOpKernel.
    pub unsafe fn new(
        create: CreateOpKernel,
        construction: *mut TF_OpKernelConstruction,
        status: &Status,
    ) -> Result<Self> {
        let base = construction.cast::<u8>();
        // SAFETY: a TF_OpKernelConstruction is an OpKernelConstruction, whose members are at these
        // offsets in the releases of the table; `check` verifies that.
        unsafe { check(base) }?;
        // SAFETY: the offset holds a pointer or an int, as above.
        let member = |offset: usize| unsafe { base.add(offset).cast::<*mut c_void>().read() };
        // SAFETY: as above.
        let version = unsafe { base.add(members::GRAPH_VERSION).cast::<c_int>().read() };
        let mut device_type = ShortString::empty();
        device_type.set(b"CPU");
        let mut kernel = std::ptr::null_mut();
        // SAFETY: all pointers are TensorFlow's and valid during the construction. The device type
        // may be moved from, which leaves a short string as it is or empty. The function writes a
        // kernel that is ours, unless its status is an error.
        let returned = unsafe {
            create(
                (&raw mut device_type).cast(),
                member(members::DEVICE),
                member(members::ALLOCATOR),
                member(members::FUNCTION_LIBRARY),
                member(members::RESOURCE_MANAGER),
                base.add(members::PROPERTIES).cast(),
                version,
                &raw mut kernel,
            )
        };
        returned.take(status)?;
        let kernel = NonNull::new(kernel).ok_or_else(|| {
            Error::Internal("CreateOpKernel returned neither a kernel nor an error".to_owned())
        })?;
        Ok(Self { kernel })
    }

    /// Function number `slot` of the kernel's virtual table.
    fn function(&self, slot: usize) -> *const c_void {
        // SAFETY: an object with virtual functions starts with the address of their table.
        unsafe { self.kernel.cast::<*const *const c_void>().read().add(slot).read() }
    }
}

/// Checks that memory holds the values that these members must have: the device type `WGPU`, stored
/// within its string, a device, the node's properties and a status.
///
/// # Safety
/// `base` must be one of TensorFlow's constructions.
unsafe fn check(base: *const u8) -> Result<()> {
    let word = |offset: usize| {
        // SAFETY: the object reaches beyond the last of these members, by the caller's contract and
        // the headers of every release.
        unsafe { base.add(offset).cast::<usize>().read() }
    };
    let own = device_type::get().name().as_bytes();
    let name = members::DEVICE_TYPE;
    let local = base.wrapping_add(name + 2 * size_of::<usize>());
    let fits = word(name) == local as usize
        && word(name + size_of::<usize>()) == own.len()
        // SAFETY: the string's own bytes, as its pointer to them shows.
        && unsafe { std::slice::from_raw_parts(local, own.len()) } == own
        && word(members::DEVICE) != 0
        && word(members::PROPERTIES) != 0
        && word(members::STATUS) != 0;
    if fits {
        Ok(())
    } else {
        Err(Error::Internal(
            "TensorFlow's OpKernelConstruction is not laid out as in the releases this plugin \
             knows"
                .into(),
        ))
    }
}

impl Kernel for Native {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let execution = ctx.execution().ok_or_else(|| {
            Error::Internal(
                "a kernel of TensorFlow's outside an execution of TensorFlow's".to_owned(),
            )
        })?;
        // SAFETY: Compute takes the execution under way, and puts its outputs or its error there.
        unsafe {
            let compute =
                std::mem::transmute::<*const c_void, Compute>(self.function(slots::COMPUTE));
            compute(self.kernel.as_ptr(), execution.0.cast());
        }
        Ok(())
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        // SAFETY: the kernel is ours, and this is the destructor that frees it, which has not been
        // called before.
        unsafe {
            let delete = std::mem::transmute::<*const c_void, unsafe extern "C" fn(*mut c_void)>(
                self.function(slots::DELETE),
            );
            delete(self.kernel.as_ptr());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_construction_is_recognized() {
        let mut words = [0_usize; 17];
        let base = words.as_mut_ptr().cast::<u8>();
        // SAFETY: seventeen words reach beyond the last member.
        assert!(unsafe { check(base) }.is_err());
        // SAFETY: as above; the string fits in front of the first pointer.
        unsafe {
            base.cast::<ShortString>().write(ShortString::empty());
            (*base.cast::<ShortString>()).set(device_type::get().name().as_bytes());
            for member in [members::DEVICE, members::PROPERTIES, members::STATUS] {
                base.add(member).cast::<usize>().write(1);
            }
            assert!(check(base).is_ok());
            base.add(16).write(b'V');
            assert!(check(base).is_err());
        }
    }
}
