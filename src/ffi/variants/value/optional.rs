//! A `tf.data` optional in memory: a `std::shared_ptr` to a vector of tensors, null without a
//! value. Conditionals keep the tensors of a branch in it.
//!
//! `std::make_shared` puts the vector after its counts, in one block of memory with a virtual
//! table. A new optional gets a block of this kind, with the virtual table of an existing one.

use std::ffi::c_void;
use std::marker::PhantomData;

use super::super::release::{ListApi, layout};
use super::super::tensors::{self, Tensors};
use super::{Value, is_empty, unknown_layout};
use crate::error::Result;
use crate::ffi::context::Context;
use crate::ffi::tensor::OwnedTensor;

/// The optional within a variant, which stays alive for `'t`.
#[derive(Clone, Copy)]
pub(in crate::ffi::variants) struct Optional<'t> {
    api: &'static ListApi,
    /// `Variant::Value<OptionalVariant>`.
    value: *const u8,
    owner: PhantomData<&'t OwnedTensor>,
}

impl<'t> Optional<'t> {
    /// The optional in `value`.
    ///
    /// # Safety
    /// `value` must be a `Variant::Value<OptionalVariant>` that lives as long as the optional.
    pub const unsafe fn new(api: &'static ListApi, value: *const u8) -> Self {
        Self { api, value, owner: PhantomData }
    }

    /// The vector and its block.
    const fn pointers(&self) -> [*mut u8; 2] {
        // SAFETY: a std::shared_ptr is these two pointers.
        unsafe { self.value.add(layout::VALUE).cast::<[*mut u8; 2]>().read() }
    }

    /// The tensors, if there is a value.
    pub fn tensors(&self) -> Option<Tensors<'t>> {
        let [vector, _] = self.pointers();
        // SAFETY: the pointer is to a std::vector<Tensor> that lives as long as the optional.
        (!vector.is_null()).then(|| unsafe { Tensors::new(self.api, vector) })
    }

    /// A variant with an optional of the same number of tensors, none of them set. It has no value
    /// if this one has none.
    pub fn new_like(&self, ctx: &Context) -> Result<OwnedTensor> {
        let tensor = ctx.allocate_variant()?;
        let variant = tensor.address() as *mut u8;
        let [vector, block] = self.pointers();
        let values = self.tensors();
        // A vector that `std::make_shared` made lies within its block.
        let plausible = values.map_or(block.is_null(), |v| {
            !block.is_null()
                && vector == block.wrapping_add(layout::SHARED_VALUE)
                && v.is_plausible()
        });
        if !is_empty(variant) || !plausible {
            return Err(unknown_layout("OptionalVariant"));
        }
        // SAFETY: `variant` is an empty variant, whose bytes are free for a value within it. An
        // optional takes 24 of them: its virtual table and a std::shared_ptr. The block has the
        // virtual table of the same class, and two counts of four bytes, both one for the first
        // reference. Nothing in between fails or unwinds.
        unsafe {
            let pointers = match values {
                None => [std::ptr::null_mut(); 2],
                Some(values) => {
                    let new = (self.api.new)(layout::SHARED_SIZE);
                    new.cast::<*const c_void>().write(block.cast::<*const c_void>().read());
                    new.add(layout::SHARED_COUNTS).cast::<[i32; 2]>().write([1, 1]);
                    let vector = new.add(layout::SHARED_VALUE);
                    tensors::write_new(self.api, vector, values.len());
                    [vector, new]
                }
            };
            variant.add(layout::VALUE).cast::<[*mut u8; 2]>().write(pointers);
            variant.cast::<*const c_void>().write(self.api.optional_value);
            *variant.add(layout::IS_INLINE) = 1;
        }
        Ok(tensor)
    }

    /// The optional in a variant that [`Optional::new_like`] made.
    pub fn made(api: &'static ListApi, tensor: &'t OwnedTensor) -> Result<Self> {
        match Value::of(api, tensor) {
            Ok(Value::Optional(optional)) => Ok(optional),
            _ => Err(unknown_layout("OptionalVariant")),
        }
    }
}
