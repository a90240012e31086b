//! The three C functions of a kernel. TensorFlow passes a create function nothing that names the
//! op. So every op has its own create function from a fixed pool, and the function knows its
//! number.

use std::ffi::c_void;
use std::sync::Arc;

use super::attrs::Construction;
use super::op_context;
use crate::device::trace::Origin;
use crate::error::{Error, Result};
use crate::ffi::abi::kernel::{CreateFn, KernelApi, TF_OpKernelConstruction, TF_OpKernelContext};
use crate::ffi::context;
use crate::ffi::guard::guard_or;
use crate::ffi::handle::{Handle, Held};
use crate::ffi::ops::{OPS, Op};
use crate::ffi::status::{self, Status};
use crate::kernels::fused::replaced::replaced_ops;
use crate::kernels::op::{Attrs, Kernel};
use crate::kernels::registry::Registration;
use crate::sys::guard::caught;

/// The kernel of one node.
struct Node {
    api: &'static KernelApi,
    op: &'static str,
    /// The node's identity for profiles and errors.
    origin: Arc<Origin>,
    kernel: Box<dyn Kernel>,
}

impl Held for Node {
    const NAME: &'static str = "kernel";
}

/// The number of create functions; TensorFlow has fewer GPU ops.
pub(super) const SLOTS: usize = 1024;

macro_rules! sixteen {
    ($base:expr) => {
        [
            create::<{ $base }>,
            create::<{ $base + 1 }>,
            create::<{ $base + 2 }>,
            create::<{ $base + 3 }>,
            create::<{ $base + 4 }>,
            create::<{ $base + 5 }>,
            create::<{ $base + 6 }>,
            create::<{ $base + 7 }>,
            create::<{ $base + 8 }>,
            create::<{ $base + 9 }>,
            create::<{ $base + 10 }>,
            create::<{ $base + 11 }>,
            create::<{ $base + 12 }>,
            create::<{ $base + 13 }>,
            create::<{ $base + 14 }>,
            create::<{ $base + 15 }>,
        ]
    };
}

macro_rules! two_hundred_fifty_six {
    ($base:expr) => {
        [
            sixteen!($base),
            sixteen!($base + 16),
            sixteen!($base + 32),
            sixteen!($base + 48),
            sixteen!($base + 64),
            sixteen!($base + 80),
            sixteen!($base + 96),
            sixteen!($base + 112),
            sixteen!($base + 128),
            sixteen!($base + 144),
            sixteen!($base + 160),
            sixteen!($base + 176),
            sixteen!($base + 192),
            sixteen!($base + 208),
            sixteen!($base + 224),
            sixteen!($base + 240),
        ]
    };
}

static CREATE: [[[CreateFn; 16]; 16]; SLOTS / 256] = [
    two_hundred_fifty_six!(0),
    two_hundred_fifty_six!(256),
    two_hundred_fifty_six!(512),
    two_hundred_fifty_six!(768),
];

/// The create function of op number `slot`.
pub(super) fn create_function(slot: usize) -> Option<CreateFn> {
    CREATE.as_flattened().as_flattened().get(slot).copied()
}

/// The create function of op number `SLOT`. It only passes the number on, so that a thousand of
/// these functions stay small.
unsafe extern "C" fn create<const SLOT: usize>(raw: *mut TF_OpKernelConstruction) -> *mut c_void {
    // SAFETY: the pointer is passed through.
    unsafe { create_node(SLOT, raw) }
}

/// Makes a node's kernel. Returns null after an error, which the construction then carries.
///
/// # Safety
/// `raw` must be the construction that TensorFlow passed to a create function.
#[inline(never)]
unsafe fn create_node(slot: usize, raw: *mut TF_OpKernelConstruction) -> *mut c_void {
    let made = caught("the create function", || {
        let api = KernelApi::get()?;
        let op = OPS
            .get()
            .and_then(|ops| ops.get(slot))
            .ok_or_else(|| Error::Internal(format!("no op {slot}")))?;
        // SAFETY: the value ends with this closure, within TensorFlow's call.
        let construction = unsafe { Construction::new(api, raw, op.name) }?;
        let row = find_row(op, &construction)?;
        let kernel =
            caught(op.name, || (row.create)(&construction)).map_err(|e| e.context(op.name))?;
        let node = construction.node();
        let holds = replaced_ops(op.name, &|attr| construction.string(attr).ok()).join(", ");
        let origin = Arc::new(Origin { op: op.name.to_owned(), node, holds });
        Ok(Node { api, op: op.name, origin, kernel })
    });
    match made {
        Ok(node) => Handle::give(node),
        Err(e) => {
            if let (Ok(status), Ok(api)) = (Status::new(), KernelApi::get()) {
                status::set(status.as_ptr(), &e);
                // SAFETY: the construction is TensorFlow's and alive; the status is copied.
                unsafe { (api.TF_OpKernelConstruction_Failure)(raw, status.as_ptr()) };
            }
            std::ptr::null_mut()
        }
    }
}

/// The row whose types are the node's types.
fn find_row<'o>(op: &'o Op, attrs: &dyn Attrs) -> Result<&'o Registration> {
    let types: Vec<_> = op.attrs.iter().map(|name| (*name, attrs.dtype(name).ok())).collect();
    let has = |(name, dtype): &(&str, _)| types.contains(&(*name, Some(*dtype)));
    op.rows
        .iter()
        .find(|row| row.types.iter().all(has))
        .ok_or_else(|| Error::Internal(format!("{}: no kernel for {types:?}", op.name)))
}

/// Runs a node's kernel.
///
/// # Safety
/// `kernel` is the pointer that [`create`] returned, `raw` the context of this execution.
pub(super) unsafe extern "C" fn compute(kernel: *mut c_void, raw: *mut TF_OpKernelContext) {
    // SAFETY: TensorFlow never runs a node whose construction failed, so the pointer leads to a
    // Node. Several threads may share it.
    let node = match unsafe { Handle::<Node>::borrow(kernel) } {
        Ok(node) => node,
        Err(e) => {
            return match KernelApi::get() {
                Ok(api) => context::fail(api, raw, &e),
                Err(missing) => log::error!("{e} ({missing})"),
            };
        }
    };
    // SAFETY: the value ends with this function, within TensorFlow's call.
    let mut ctx = match unsafe { op_context::open(node.api, raw, &node.origin) } {
        Ok(ctx) => ctx,
        Err(e) => return context::fail(node.api, raw, &e.context(node.op)),
    };
    let _span = ctx.device().op_span(&node.origin);
    let outcome = caught(node.op, || {
        node.kernel.compute(&mut ctx)?;
        // Reports the errors that wgpu found while it recorded. An error that it finds later fails
        // a later op or the read-back.
        ctx.device().check()
    });
    if let Err(e) = outcome
        && let Err(e) = caught("the error report", || {
            ctx.fail(e);
            Ok(())
        })
    {
        context::fail(node.api, raw, &e);
    }
}

/// Frees a node's kernel.
///
/// # Safety
/// `kernel` is the pointer that [`create`] returned, and is not used any more.
pub(super) unsafe extern "C" fn delete(kernel: *mut c_void) {
    // SAFETY: `create_node` gave it, and TensorFlow deletes a kernel once.
    guard_or((), "the delete function", || unsafe { Handle::<Node>::destroy(kernel) });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_has_its_own_function() {
        let mut addresses: Vec<usize> =
            (0..SLOTS).map(|slot| create_function(slot).expect("a slot") as usize).collect();
        addresses.sort_unstable();
        addresses.dedup();
        assert_eq!(
            addresses.len(),
            SLOTS,
            "functions that the linker folded would run the wrong op"
        );
        assert!(create_function(SLOTS).is_none());
    }
}
