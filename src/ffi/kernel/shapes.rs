//! Shape functions of our own ops. TensorFlow passes a shape function nothing that names the op. So
//! every op has its own function from a fixed pool, and the function knows its number. All of them
//! convert shapes and call the op's pure function.
//!
//! The C API of older releases tests the index the wrong way round, and refuses all inputs and
//! outputs but the first. The shapes of the others are unknown then. No release tells the number of
//! a node's outputs, so a shape function may set more than there are.

use std::ffi::{CString, c_int};
use std::ptr::NonNull;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ffi::abi::ops::{
    OpsApi, ShapeFn, TF_DimensionHandle, TF_ShapeHandle, TF_ShapeInferenceContext,
};
use crate::ffi::guard::guard_status;
use crate::ffi::status::{Status, TF_Status};
use crate::kernels::definition::OpDefinition;
use crate::kernels::definition::{PartialShape, ShapeInputs};
use crate::kernels::definitions;

/// Definition number `slot`.
fn definition(slot: usize) -> Option<&'static OpDefinition> {
    definitions().nth(slot)
}

/// Number of shape functions.
pub(super) const SLOTS: usize = 48;

macro_rules! eight {
    ($base:expr) => {
        [
            infer::<{ $base }>,
            infer::<{ $base + 1 }>,
            infer::<{ $base + 2 }>,
            infer::<{ $base + 3 }>,
            infer::<{ $base + 4 }>,
            infer::<{ $base + 5 }>,
            infer::<{ $base + 6 }>,
            infer::<{ $base + 7 }>,
        ]
    };
}

static FUNCTIONS: [[ShapeFn; 8]; SLOTS / 8] =
    [eight!(0), eight!(8), eight!(16), eight!(24), eight!(32), eight!(40)];

/// The shape function of definition number `slot`.
pub(super) fn function(slot: usize) -> Option<ShapeFn> {
    FUNCTIONS.as_flattened().get(slot).copied()
}

/// The shape function of definition number `SLOT`.
unsafe extern "C" fn infer<const SLOT: usize>(
    ctx: *mut TF_ShapeInferenceContext,
    status: *mut TF_Status,
) {
    // SAFETY: the pointers are passed through.
    unsafe { infer_slot(SLOT, ctx, status) }
}

/// Sets the shapes of a node's outputs; an error goes into `status`.
///
/// # Safety
/// Both pointers must be the ones that TensorFlow passed to a shape function.
#[inline(never)]
unsafe fn infer_slot(slot: usize, ctx: *mut TF_ShapeInferenceContext, status: *mut TF_Status) {
    guard_status(status, "a shape function", || {
        let op =
            definition(slot).ok_or_else(|| Error::Internal(format!("no definition {slot}")))?;
        let ctx = Context { api: OpsApi::get()?, raw: ctx, status: Status::new()? };
        ctx.outputs_unknown()?;
        let shapes = (0..ctx.num_inputs()).map(|i| ctx.input(i)).collect::<Result<Vec<_>>>()?;
        let inferred = (op.shape)(&ShapeInputs { shapes: &shapes, dtype: &|attr| ctx.dtype(attr) })
            .map_err(|e| e.context(op.name))?;
        for (i, shape) in inferred.iter().enumerate() {
            let set = shape.as_ref().map_or(Ok(()), |dims| ctx.set_output(i as c_int, dims));
            if i == 0 {
                set?;
            }
        }
        Ok(())
    });
}

/// A node under shape inference; lives as long as its shape function runs.
struct Context {
    api: &'static OpsApi,
    raw: *mut TF_ShapeInferenceContext,
    status: Status,
}

/// An owned handle of a shape.
struct Shape<'c>(NonNull<TF_ShapeHandle>, &'c OpsApi);

impl Drop for Shape<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is ours; the shape behind it belongs to the context.
        unsafe { (self.1.TF_DeleteShapeHandle)(self.0.as_ptr()) };
    }
}

/// An owned handle of an extent.
struct Dimension<'c>(NonNull<TF_DimensionHandle>, &'c OpsApi);

impl Drop for Dimension<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is ours; the extent behind it belongs to the context.
        unsafe { (self.1.TF_DeleteDimensionHandle)(self.0.as_ptr()) };
    }
}

fn no_handle() -> Error {
    Error::ResourceExhausted("TensorFlow returned no handle".into())
}

impl Context {
    fn shape(&self, handle: *mut TF_ShapeHandle) -> Result<Shape<'_>> {
        NonNull::new(handle).map(|h| Shape(h, self.api)).ok_or_else(no_handle)
    }

    fn num_inputs(&self) -> c_int {
        // SAFETY: the context is valid.
        unsafe { (self.api.TF_ShapeInferenceContextNumInputs)(self.raw) as c_int }
    }

    /// Sets all outputs to unknown: an output that is never set would be a null pointer in
    /// TensorFlow.
    fn outputs_unknown(&self) -> Result<()> {
        // SAFETY: context and status are valid.
        unsafe {
            (self.api.TF_ShapeInferenceContextSetUnknownShape)(self.raw, self.status.as_ptr())
        };
        self.status.take()
    }

    /// The value of a `type` attribute, if it is one of our types.
    fn dtype(&self, attr: &str) -> Option<DType> {
        let name = CString::new(attr).ok()?;
        let mut value = 0;
        // SAFETY: context, name and status are valid, and so is the place for the value.
        unsafe {
            (self.api.TF_ShapeInferenceContext_GetAttrType)(
                self.raw,
                name.as_ptr(),
                &raw mut value,
                self.status.as_ptr(),
            );
        }
        self.status.take().ok()?;
        DType::from_tf(value)
    }

    /// The shape of input `i`; unknown if the C API refuses to give it.
    fn input(&self, i: c_int) -> Result<PartialShape> {
        // SAFETY: the function takes nothing and returns an owned handle.
        let shape = self.shape(unsafe { (self.api.TF_NewShapeHandle)() })?;
        let handle = shape.0.as_ptr();
        // SAFETY: context, handle and status are valid.
        unsafe {
            (self.api.TF_ShapeInferenceContextGetInput)(self.raw, i, handle, self.status.as_ptr())
        };
        if self.status.take().is_err() {
            return Ok(None);
        }
        // SAFETY: context and handle are valid.
        if unsafe { (self.api.TF_ShapeInferenceContextRankKnown)(self.raw, handle) } == 0 {
            return Ok(None);
        }
        // SAFETY: as above; the rank is known.
        let rank = unsafe { (self.api.TF_ShapeInferenceContextRank)(self.raw, handle) };
        (0..rank).map(|d| self.extent(&shape, d)).collect::<Result<_>>().map(Some)
    }

    fn extent(&self, shape: &Shape<'_>, d: i64) -> Result<Option<usize>> {
        // SAFETY: the function takes nothing and returns an owned handle.
        let dimension =
            NonNull::new(unsafe { (self.api.TF_NewDimensionHandle)() }).ok_or_else(no_handle)?;
        let dimension = Dimension(dimension, self.api);
        // SAFETY: context and handles are valid, `d` is less than the rank.
        let value = unsafe {
            (self.api.TF_ShapeInferenceContextDim)(
                self.raw,
                shape.0.as_ptr(),
                d,
                dimension.0.as_ptr(),
            );
            match (self.api.TF_DimensionHandleValueKnown)(dimension.0.as_ptr()) {
                0 => return Ok(None),
                _ => (self.api.TF_DimensionHandleValue)(dimension.0.as_ptr()),
            }
        };
        Ok(usize::try_from(value).ok())
    }

    fn set_output(&self, i: c_int, dims: &[Option<usize>]) -> Result<()> {
        // SAFETY: the context is valid.
        let mut shape =
            self.shape(unsafe { (self.api.TF_ShapeInferenceContextScalar)(self.raw) })?;
        for extent in dims {
            // The C API makes an extent only from a size. TensorFlow reads it as signed, and -1 as
            // unknown.
            let size = extent.unwrap_or(usize::MAX);
            // SAFETY: the context is valid.
            let next = self.shape(unsafe {
                (self.api.TF_ShapeInferenceContextVectorFromSize)(self.raw, size)
            })?;
            // SAFETY: the function takes nothing and returns an owned handle.
            let joined = self.shape(unsafe { (self.api.TF_NewShapeHandle)() })?;
            // SAFETY: context, handles and status are valid.
            unsafe {
                (self.api.TF_ShapeInferenceContextConcatenateShapes)(
                    self.raw,
                    shape.0.as_ptr(),
                    next.0.as_ptr(),
                    joined.0.as_ptr(),
                    self.status.as_ptr(),
                );
            }
            self.status.take()?;
            shape = joined;
        }
        // SAFETY: context, handle and status are valid; `i` is checked by TensorFlow.
        unsafe {
            (self.api.TF_ShapeInferenceContextSetOutput)(
                self.raw,
                i,
                shape.0.as_ptr(),
                self.status.as_ptr(),
            );
        }
        self.status.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_has_its_own_function() {
        let mut addresses: Vec<usize> =
            (0..SLOTS).map(|slot| function(slot).expect("a slot") as usize).collect();
        addresses.sort_unstable();
        addresses.dedup();
        assert_eq!(
            addresses.len(),
            SLOTS,
            "functions that the linker folded would infer another op's shapes"
        );
        assert!(function(SLOTS).is_none());
    }
}
