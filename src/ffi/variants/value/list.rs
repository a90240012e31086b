//! TensorLists in memory: access to their contents, and new lists.
//!
//! A `TensorList` has an element shape, an element type, a limit on its length, and a pointer to a
//! reference-counted vector of tensors, which copies share. A new list is a copy that the clone
//! function of the variant makes of an existing list, with a vector of its own.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicI64, Ordering};

use super::super::release::{ListApi, layout};
use super::super::tensors::{self, Tensors};
use super::{Value, is_empty, unknown_layout};
use crate::error::Result;
use crate::ffi::context::Context;
use crate::ffi::tensor::OwnedTensor;

/// The list within a variant, which stays alive for `'t`.
#[derive(Clone, Copy)]
pub(in crate::ffi::variants) struct List<'t> {
    api: &'static ListApi,
    /// `Variant::Value<TensorList>`.
    value: *mut u8,
    owner: PhantomData<&'t OwnedTensor>,
}

impl<'t> List<'t> {
    /// The list in `value`.
    ///
    /// # Safety
    /// `value` must be a `Variant::Value<TensorList>` that lives as long as the list.
    pub const unsafe fn new(api: &'static ListApi, value: *mut u8) -> Self {
        Self { api, value, owner: PhantomData }
    }

    const fn member(&self, offset: usize) -> *mut u8 {
        // SAFETY: the offset is within the list.
        unsafe { self.value.add(layout::VALUE + offset) }
    }

    /// The reference-counted vector.
    fn counted(&self) -> *mut u8 {
        // SAFETY: there is a pointer at this offset.
        unsafe { self.member(layout::TENSORS).cast::<*mut u8>().read() }
    }

    /// The elements.
    pub fn tensors(&self) -> Tensors<'t> {
        // SAFETY: the counted vector has a std::vector at this offset, and lives as long as the
        // list.
        unsafe { Tensors::new(self.api, self.counted().add(layout::VECTOR)) }
    }

    /// TensorFlow's number of the elements' type.
    pub fn element_type(&self) -> i32 {
        // SAFETY: there is an enum of four bytes at this offset.
        unsafe { self.member(layout::ELEMENT_DTYPE).cast::<i32>().read() }
    }

    const fn shape(&self) -> *mut u8 {
        self.member(0)
    }

    /// The element shape as TensorFlow prints it.
    pub fn shape_text(&self) -> String {
        // SAFETY: the list starts with its shape, and the string is libstdc++'s.
        unsafe { (self.api.shape_text)(self.shape()).take() }
    }

    /// Whether some shape fits the elements of both lists.
    pub fn is_compatible(&self, other: &List<'_>) -> bool {
        // SAFETY: both lists start with their shapes.
        unsafe { (self.api.compatible)(self.shape(), other.shape()) }
    }

    /// Merges the element shapes of both lists into the shape of `merged`, which was made here.
    pub fn merge_shapes(&self, ctx: &Context, other: &List<'_>, merged: &List<'_>) -> Result<()> {
        // SAFETY: all lists start with their shapes, and the third one differs from the others.
        unsafe { (self.api.merge)(self.shape(), other.shape(), merged.shape()) }.take(ctx.status())
    }

    /// A variant with a list of the same length, element type and element shape. None of its
    /// elements is set, and it has no limit.
    pub fn new_like(&self, ctx: &Context) -> Result<OwnedTensor> {
        let tensor = ctx.allocate_variant()?;
        let variant = tensor.address() as *mut u8;
        if !is_empty(variant) || !self.is_plausible() {
            return Err(unknown_layout("TensorList"));
        }
        // SAFETY: `variant` is an empty variant, whose bytes are free for a value within it; a list
        // takes 48 of them. The clone takes a reference to this list's vector. It is then replaced
        // by a new vector: a virtual table, a count of one, and a std::vector. The reference is
        // given back. Nothing in between fails or unwinds.
        unsafe {
            let table = self.value.cast::<*const unsafe extern "C" fn(*const u8, *mut u8)>().read();
            (*table.add(layout::CLONE_INTO))(self.value, variant);
            *variant.add(layout::IS_INLINE) = 1;
            let counted = (self.api.new)(layout::TENSORS_SIZE);
            counted.cast::<*const c_void>().write(self.api.list_tensors);
            counted.add(layout::REFERENCES).cast::<i64>().write(1);
            tensors::write_new(self.api, counted.add(layout::VECTOR), self.tensors().len());
            let list = variant.add(layout::VALUE);
            list.add(layout::TENSORS).cast::<*mut u8>().write(counted);
            list.add(layout::MAX_NUM_ELEMENTS).cast::<i32>().write(-1);
            // `self` holds a reference too, so this one is not the last.
            (*self.counted().add(layout::REFERENCES).cast::<AtomicI64>())
                .fetch_sub(1, Ordering::AcqRel);
        }
        Ok(tensor)
    }

    /// The list in a variant that [`List::new_like`] made.
    pub fn made(api: &'static ListApi, tensor: &'t OwnedTensor) -> Result<Self> {
        match Value::of(api, tensor) {
            Ok(Value::List(list)) => Ok(list),
            _ => Err(unknown_layout("TensorList")),
        }
    }

    /// Whether memory holds the values that a list must have before it is copied.
    fn is_plausible(&self) -> bool {
        let counted = self.counted();
        // SAFETY: the counted vector has these members in the releases of the table.
        let (table, count) = unsafe {
            (
                counted.cast::<*const c_void>().read(),
                counted.add(layout::REFERENCES).cast::<i64>().read(),
            )
        };
        // A larger count cannot be a count of references.
        table == self.api.list_tensors
            && (1..1 << 32).contains(&count)
            && self.tensors().is_plausible()
    }
}
