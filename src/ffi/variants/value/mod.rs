//! The contents of a variant: a value with a virtual table, within the variant or behind its first
//! word.

pub(super) mod list;
pub(super) mod optional;

use std::ffi::c_void;

use super::release::{ListApi, layout};
use crate::error::{Error, Result};
use crate::ffi::cxx::ReturnedString;
use crate::ffi::tensor::OwnedTensor;
use crate::tensor::shape_text;
use list::List;
use optional::Optional;

/// A value of a known type. The tensor of its variant keeps it alive.
#[derive(Clone, Copy)]
pub(super) enum Value<'t> {
    List(List<'t>),
    Optional(Optional<'t>),
}

impl<'t> Value<'t> {
    /// The value in the scalar `tensor`, or the name of its type.
    pub fn of(api: &'static ListApi, tensor: &'t OwnedTensor) -> Result<Self, String> {
        let variant = tensor.address() as *mut u8;
        // SAFETY: a tensor of type variant holds variants in host memory. The value lies within the
        // variant, or its first word points to it.
        let value = unsafe {
            if *variant.add(layout::IS_INLINE) == 0 {
                variant.cast::<*mut u8>().read()
            } else {
                variant
            }
        };
        if value.is_null() {
            return Err("an empty variant".to_owned());
        }
        // SAFETY: a value starts with the address of its virtual table, which tells its type.
        let table = unsafe { value.cast::<*const c_void>().read() };
        if table == api.list_value {
            // SAFETY: it is a list, as its virtual table shows, and the tensor keeps it alive.
            Ok(Self::List(unsafe { List::new(api, value) }))
        } else if table == api.optional_value {
            // SAFETY: as above for an optional.
            Ok(Self::Optional(unsafe { Optional::new(api, value) }))
        } else {
            Err(type_name(value))
        }
    }

    /// TensorFlow's name of the type.
    pub const fn type_name(&self) -> &'static str {
        match self {
            Self::List(_) => "tensorflow::TensorList",
            Self::Optional(_) => "tensorflow::data::Optional",
        }
    }
}

/// The name that `value`, which is not null, gives for its type.
fn type_name(value: *const u8) -> String {
    // SAFETY: a value starts with its virtual table, whose function at this index returns a
    // std::string.
    unsafe {
        let table = value.cast::<*const unsafe extern "C" fn(*const u8) -> ReturnedString>().read();
        (*table.add(layout::TYPE_NAME))(value).take()
    }
}

/// Whether `variant` is empty, as a new one must be before it is filled.
pub(super) fn is_empty(variant: *const u8) -> bool {
    // SAFETY: a variant has 64 bytes.
    unsafe { variant.cast::<usize>().read() == 0 && *variant.add(layout::IS_INLINE) == 0 }
}

/// The error for memory with another layout than the table of releases gives.
pub(super) fn unknown_layout(class: &str) -> Error {
    Error::Internal(format!(
        "TensorFlow's {class} is not laid out as in the releases that this plugin knows"
    ))
}

/// Returns `tensor` if it is a single variant. If it holds several, returns TensorFlow's error,
/// made from its shape.
pub(super) fn scalar(
    tensor: OwnedTensor,
    error: impl FnOnce(&str) -> String,
) -> Result<OwnedTensor> {
    if tensor.dims().is_empty() {
        Ok(tensor)
    } else {
        Err(Error::InvalidArgument(error(&shape_text(&tensor.dims()))))
    }
}
