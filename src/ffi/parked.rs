//! Tensors that wait on the device while there is a ticket for them ([`crate::kernels::parked`]).
//!
//! A ticket is a tensor in our own memory. When its last reference goes, wherever the ticket has
//! been by then, TensorFlow frees it through our function, and the parked tensor is freed with it.
//!
//! A ticket may outlive its process, in the file of `Dataset.cache(filename)`, and a graph may hold
//! any string. So the ticket's number is random: a number that was not given out here and now finds
//! no tensor.

use std::collections::HashMap;
use std::ffi::c_void;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use parking_lot::Mutex;

use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ffi::abi::kernel::STRING;
use crate::ffi::context::Context;
use crate::ffi::guard::guard_or;
use crate::ffi::handle::{Handle, Held};
use crate::ffi::tensor::OwnedTensor;
use crate::require;

/// A string as TensorFlow lays it out in memory (`TF_TString` of ctstring_internal.h) on
/// little-endian machines. A string of up to 22 bytes is stored inline: four times its length, then
/// its bytes. Only for this kind are the two lowest bits of the first byte zero.
type Text = [u8; 24];

/// The number of hexadecimal digits of a ticket's number.
const DIGITS: usize = 16;

/// A ticket's number as a string.
fn text(number: u64) -> Text {
    let mut text = [0; 24];
    text[0] = 4 * DIGITS as u8;
    text[1..=DIGITS].copy_from_slice(format!("{number:0DIGITS$x}").as_bytes());
    text
}

/// The ticket's number in a string, if it holds one.
fn number(text: &[u8]) -> Option<u64> {
    let digits = text.get(1..=DIGITS).filter(|_| text[0] == 4 * DIGITS as u8)?;
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// A ticket's memory, aligned as TensorFlow's tensors are.
#[repr(C, align(64))]
struct Ticket {
    text: Text,
    number: u64,
}

impl Held for Ticket {
    const NAME: &'static str = "ticket";
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // The tensor is dropped after the lock is released, for freeing it calls TensorFlow.
        let waiting = PARKED.lock().tensors.remove(&self.number);
        drop(waiting);
    }
}

/// A parked tensor and its device.
struct Waiting {
    tensor: OwnedTensor,
    device: &'static Device,
}

// SAFETY: the tensor is a reference to a buffer that TensorFlow counts atomically, and a thread
// that finds it in the table holds the lock.
unsafe impl Send for Waiting {}

#[derive(Default)]
struct Parked {
    numbers: Numbers,
    tensors: HashMap<u64, Waiting>,
}

impl Parked {
    /// Takes a tensor in and returns its number, which no other tensor has.
    fn take(&mut self, waiting: Waiting) -> u64 {
        let number = loop {
            let number = self.numbers.next();
            if !self.tensors.contains_key(&number) {
                break number;
            }
        };
        self.tensors.insert(number, waiting);
        number
    }
}

/// Numbers that cannot be guessed: a keyed hash of a counter. The key is the process's own.
#[derive(Default)]
struct Numbers {
    key: RandomState,
    drawn: u64,
}

impl Numbers {
    fn next(&mut self) -> u64 {
        self.drawn += 1;
        self.key.hash_one(self.drawn)
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
    let handle = Handle::give(Ticket { text: text(number), number });
    // SAFETY: `give` returned the pointer right now.
    let ticket: *const Ticket = unsafe { Handle::<Ticket>::borrow(handle) }?;
    // SAFETY: a scalar has no dims. The memory is the string in a ticket. TensorFlow only reads it,
    // and frees it through `leave`, even if it makes no tensor of it.
    let raw = unsafe {
        new_tensor(
            STRING,
            std::ptr::null(),
            0,
            ticket.cast_mut().cast(),
            size_of::<Text>(),
            leave,
            handle,
        )
    };
    // SAFETY: TF_NewTensor returns an owned tensor or null.
    let ticket = unsafe { OwnedTensor::new(ctx.api(), raw, ctx.status()) }?;
    ctx.set_output(0, &ticket)
}

/// Sets output 0 to the tensor of the ticket at input 0.
pub(crate) fn unpark(ctx: &mut Context, dtype: DType) -> Result<()> {
    let ticket = ctx.get_input(0)?;
    let is_scalar = ticket.type_number() == STRING && ticket.dims().is_empty();
    require!(is_scalar && !ctx.device().owns(ticket.address()), "ticket must be a scalar string");
    // SAFETY: the address is not the device's, so TensorFlow keeps the input where it was
    // registered: on the host. A kernel's input is not written.
    let number = number(unsafe { ticket.host_bytes() });
    let parked = PARKED.lock();
    let waiting = number.and_then(|number| parked.tensors.get(&number));
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

/// The error for a ticket without a tensor.
const GONE: &str = "the dataset's element is no longer on the device. prefetch_to_device and \
                    copy_to_device must be the last transformation of a dataset, but for take, \
                    skip, repeat, prefetch, shuffle and cache in memory: cache(filename) must come \
                    before them, and iterators cannot be saved";

/// Frees a ticket and the tensor that it stands for.
unsafe extern "C" fn leave(_: *mut c_void, _: usize, handle: *mut c_void) {
    // SAFETY: `park` gave it with the memory, which TensorFlow frees once.
    guard_or((), "a ticket's deallocator", || unsafe { Handle::<Ticket>::destroy(handle) });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_a_string_and_back() {
        for n in [0, 1, 0xabc, u64::MAX] {
            assert_eq!(number(&text(n)), Some(n));
        }
        assert_eq!(&text(255)[..18], b"\x4000000000000000ff\0");
    }

    #[test]
    fn numbers_of_two_processes_have_nothing_in_common() {
        let draw = |mut numbers: Numbers| (0..1000).map(|_| numbers.next()).collect::<Vec<_>>();
        let (first, second) = (draw(Numbers::default()), draw(Numbers::default()));
        let mut all = [first, second].concat();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 2000);
        assert!(all.iter().all(|n| *n > 1 << 32), "a guess would find a small one");
    }

    #[test]
    fn other_strings_are_none() {
        let mut long = text(1);
        long[0] |= 1;
        let mut odd = text(1);
        odd[3] = b'x';
        let mut raw = text(1);
        raw[5] = 0xff;
        for text in [&long[..], &odd, &raw, &[], &[64], &text(1)[..16]] {
            assert_eq!(number(text), None, "{text:?}");
        }
    }
}
