//! Our objects that TensorFlow holds by pointer, and our memory that C code frees by calling us.
//!
//! Every `into_raw` and `from_raw` of the crate is here (`clippy.toml` forbids them elsewhere), so
//! that an object is freed with the type with which it was made. A mark of its type lies in front
//! of each object. A pointer to an object of another type, or to a destroyed one, is an error and
//! not a crash. This finds mistakes. It is no protection, for C may pass any pointer.

#![expect(clippy::disallowed_methods, reason = "this is the one place for them")]

use std::ffi::{CString, c_char, c_void};
use std::ops::Deref;

use crate::error::{Error, Result};

/// A type whose objects TensorFlow holds.
pub(crate) trait Held: 'static {
    /// The type's name in error messages, different for each type.
    const NAME: &'static str;
}

/// An object with the mark of its type. The mark comes first, so that it is found without knowing
/// the type.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Handle<T> {
    mark: u64,
    value: T,
}

/// The mark of an object that was destroyed.
const DESTROYED: u64 = 0xdead_dead_dead_dead;

/// FNV-1a of a name.
const fn mark(name: &str) -> u64 {
    let (bytes, mut hash, mut i) = (name.as_bytes(), 0xcbf2_9ce4_8422_2325_u64, 0);
    while i < bytes.len() {
        hash = (hash ^ bytes[i] as u64).wrapping_mul(0x100_0000_01b3);
        i += 1;
    }
    hash
}

impl<T: Held> Handle<T> {
    const MARK: u64 = mark(T::NAME);

    /// An object that is lent and never destroyed.
    pub const fn new(value: T) -> Self {
        Self { mark: Self::MARK, value }
    }

    /// A pointer to an object that lives forever.
    pub const fn lend(&'static self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// Gives an object away. [`Handle::destroy`] takes it back.
    pub fn give(value: T) -> *mut c_void {
        Box::into_raw(Box::new(Self::new(value))).cast()
    }

    /// The object behind a pointer from [`Handle::give`] or [`Handle::lend`].
    ///
    /// # Safety
    /// `raw` must be null or a pointer from either function, for any type. Its object must live
    /// through the borrow.
    pub unsafe fn borrow<'a>(raw: *mut c_void) -> Result<&'a T> {
        // SAFETY: the caller's contract.
        let handle = unsafe { Self::check(raw) }?;
        // SAFETY: the mark says that the object is one of ours. It is shared, and not changed while
        // it lives.
        Ok(unsafe { &(*handle).value })
    }

    /// Drops an object that was given away; does nothing for null.
    ///
    /// # Safety
    /// `raw` must be null or come from [`Handle::give`], for any type, and must not be used any
    /// more.
    pub unsafe fn destroy(raw: *mut c_void) -> Result<()> {
        if raw.is_null() {
            return Ok(());
        }
        // SAFETY: the caller's contract; the mark says that `give` boxed an object of this type.
        // The write is volatile, for a compiler may leave out a write to memory that is freed right
        // after it.
        unsafe {
            let handle = Self::check(raw)?;
            (&raw mut (*handle).mark).write_volatile(DESTROYED);
            drop(Box::from_raw(handle));
        }
        Ok(())
    }

    /// # Safety
    /// As for [`Handle::borrow`].
    unsafe fn check(raw: *mut c_void) -> Result<*mut Self> {
        let wrong =
            |what: &str| Error::Internal(format!("TensorFlow passed {what} as the {}", T::NAME));
        let handle = raw.cast::<Self>();
        if handle.is_null() {
            return Err(wrong("null"));
        }
        if !handle.is_aligned() {
            return Err(wrong("an odd pointer"));
        }
        // SAFETY: the caller's contract: the pointer leads to a handle of some type, which starts
        // with its mark.
        match unsafe { (&raw const (*handle).mark).read_volatile() } {
            found if found == Self::MARK => Ok(handle),
            DESTROYED => Err(wrong("what was destroyed")),
            _ => Err(wrong("something else")),
        }
    }
}

impl<T> Deref for Handle<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// Gives bytes away and returns their start; [`free_bytes`] takes them back.
pub(crate) fn give_bytes(bytes: Vec<u8>) -> *mut c_void {
    Box::into_raw(bytes.into_boxed_slice()).cast()
}

/// Frees bytes that were given away; does nothing for null.
///
/// # Safety
/// `start` must be null or come from [`give_bytes`], and must not be used any more. `length` must
/// be the number of bytes that were given.
pub(crate) unsafe fn free_bytes(start: *mut c_void, length: usize) {
    if !start.is_null() {
        // SAFETY: the caller's contract.
        drop(unsafe {
            Box::from_raw(std::ptr::slice_from_raw_parts_mut(start.cast::<u8>(), length))
        });
    }
}

/// Gives a text away; [`free_text`] takes it back.
pub(crate) fn give_text(text: CString) -> *mut c_char {
    text.into_raw()
}

/// Frees a text that was given away; does nothing for null.
///
/// # Safety
/// `text` must be null or come from [`give_text`], unchanged, and not be used any more.
pub(crate) unsafe fn free_text(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: the caller's contract.
        drop(unsafe { CString::from_raw(text) });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    struct Apple(Arc<()>);
    struct Pear(u8);

    impl Held for Apple {
        const NAME: &'static str = "apple";
    }
    impl Held for Pear {
        const NAME: &'static str = "pear";
    }

    #[test]
    fn what_is_given_comes_back_and_is_dropped() {
        let alive = Arc::new(());
        let raw = Handle::give(Apple(alive.clone()));
        // SAFETY: given above, destroyed once.
        unsafe {
            assert!(Arc::ptr_eq(&Handle::<Apple>::borrow(raw).unwrap().0, &alive));
            assert_eq!(Arc::strong_count(&alive), 2);
            Handle::<Apple>::destroy(raw).unwrap();
        }
        assert_eq!(Arc::strong_count(&alive), 1);
    }

    #[test]
    fn another_type_is_an_error_and_frees_nothing() {
        let alive = Arc::new(());
        let raw = Handle::give(Apple(alive.clone()));
        // SAFETY: a pointer to a live object of another type, or null, which the contract allows.
        unsafe {
            let error = Handle::<Pear>::borrow(raw).map(|p| p.0).unwrap_err();
            assert_eq!(error.to_string(), "TensorFlow passed something else as the pear");
            assert!(Handle::<Pear>::destroy(raw).is_err());
            assert_eq!(Arc::strong_count(&alive), 2);
            assert!(Handle::<Apple>::borrow(std::ptr::null_mut()).is_err());
            assert!(Handle::<Apple>::borrow(raw.wrapping_byte_add(1)).is_err());
            Handle::<Apple>::destroy(std::ptr::null_mut()).unwrap();
            Handle::<Apple>::destroy(raw).unwrap();
        }
        assert_eq!(Arc::strong_count(&alive), 1);
    }

    #[test]
    fn what_was_destroyed_is_an_error() {
        // The memory stays ours here, like freed memory that has not been reused yet.
        let handle = Box::leak(Box::new(Handle { mark: DESTROYED, value: Pear(1) }));
        let raw: *mut Handle<Pear> = handle;
        // SAFETY: a pointer to a handle.
        let error = unsafe { Handle::<Pear>::borrow(raw.cast()) }.map(|p| p.0).unwrap_err();
        assert_eq!(error.to_string(), "TensorFlow passed what was destroyed as the pear");
        // SAFETY: leaked above.
        drop(unsafe { Box::from_raw(raw) });
    }

    #[test]
    fn bytes_and_texts_come_back() {
        // SAFETY: each is freed once, with the length that it has.
        unsafe {
            for n in [0, 1, 100] {
                free_bytes(give_bytes(vec![7; n]), n);
            }
            free_text(give_text(c"text".to_owned()));
            free_bytes(std::ptr::null_mut(), 0);
            free_text(std::ptr::null_mut());
        }
    }
}
