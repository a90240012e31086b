//! Tensors that wait on the device while somebody has a ticket for them
//! ([`crate::kernels::parked`]).
//!
//! A ticket is a tensor whose memory is ours: TensorFlow frees it by our function when the last
//! reference goes, wherever the ticket has been by then, and the tensor goes with it. The number of
//! a tensor that is gone is given again after 2³¹ others.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::{c_int, c_void};
use std::sync::LazyLock;

use parking_lot::Mutex;

use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ffi::guard::guard_or;
use crate::ffi::handle::{Handle, Held};
use crate::ffi::kernel::context::Context;
use crate::ffi::kernel::tensor::OwnedTensor;
use crate::kernels::op::OpContextExt;

/// A ticket's memory. TensorFlow copies what is not aligned as its own tensors are.
#[repr(C, align(64))]
struct Ticket(i32);

impl Held for Ticket {
    const NAME: &'static str = "ticket";
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // Freed behind the lock, for freeing calls TensorFlow.
        let waiting = PARKED.lock().tensors.remove(&self.0);
        drop(waiting);
    }
}

/// A tensor that waits, and where.
struct Waiting {
    tensor: OwnedTensor,
    device: &'static Device,
}

// SAFETY: it is a reference to a buffer that TensorFlow counts atomically, and whoever finds it in
// the table does so under a lock.
unsafe impl Send for Waiting {}

#[derive(Default)]
struct Parked {
    last: i32,
    tensors: HashMap<i32, Waiting>,
}

impl Parked {
    /// Takes a tensor in, by the next number that is free.
    fn take(&mut self, waiting: Waiting) -> i32 {
        loop {
            self.last = self.last.checked_add(1).unwrap_or(0);
            if let Entry::Vacant(place) = self.tensors.entry(self.last) {
                place.insert(waiting);
                return self.last;
            }
        }
    }
}

static PARKED: LazyLock<Mutex<Parked>> = LazyLock::new(Mutex::default);

/// Parks input 0; its ticket is output 0.
pub(crate) fn park(ctx: &mut Context) -> Result<()> {
    let new_tensor = ctx.api().TF_NewTensor.ok_or_else(|| {
        Error::Unimplemented("this TensorFlow does not export TF_NewTensor".to_owned())
    })?;
    let waiting = Waiting { tensor: ctx.get_input(0)?, device: ctx.device() };
    let number = PARKED.lock().take(waiting);
    let handle = Handle::give(Ticket(number));
    // SAFETY: given right now.
    let ticket: *const Ticket = unsafe { Handle::<Ticket>::borrow(handle) }?;
    // SAFETY: a scalar has no dims; the memory is the number in a ticket, which TensorFlow only
    // reads, and which `leave` frees, also where TensorFlow makes no tensor of it.
    let raw = unsafe {
        new_tensor(
            DType::I32 as c_int,
            std::ptr::null(),
            0,
            ticket.cast_mut().cast(),
            size_of::<i32>(),
            leave,
            handle,
        )
    };
    // SAFETY: TF_NewTensor returns an owned tensor or null.
    let ticket = unsafe { OwnedTensor::new(ctx.api(), raw, ctx.status()) }?;
    ctx.set_output(0, &ticket)
}

/// Makes the tensor of the ticket at input 0 the output 0.
pub(crate) fn unpark(ctx: &mut Context, dtype: DType) -> Result<()> {
    let ticket = ctx.host_i64(0, "ticket")?;
    let parked = PARKED.lock();
    let waiting = i32::try_from(ticket).ok().and_then(|ticket| parked.tensors.get(&ticket));
    let Some(Waiting { tensor, device }) = waiting else {
        return Err(Error::NotFound(GONE.to_owned()));
    };
    let found = tensor.dtype()?;
    if found != dtype {
        return Err(Error::InvalidArgument(format!("a {found} tensor waits, not one of {dtype}")));
    }
    if !std::ptr::eq(*device, ctx.device()) {
        return Err(Error::InvalidArgument("the tensor waits on another device".to_owned()));
    }
    ctx.set_output(0, tensor)
}

/// Why there is no tensor.
const GONE: &str = "the dataset's element is no longer on the device. prefetch_to_device and \
                    copy_to_device must be the last transformation of a dataset, but for take, \
                    skip, repeat and prefetch, and such an iterator cannot be saved";

/// Frees a ticket, and with it what waits for it.
unsafe extern "C" fn leave(_: *mut c_void, _: usize, handle: *mut c_void) {
    // SAFETY: `park` gave it with the memory, which TensorFlow frees once.
    guard_or((), "a ticket's deallocator", || unsafe { Handle::<Ticket>::destroy(handle) });
}
