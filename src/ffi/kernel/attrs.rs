//! A node's attributes, while its kernel is constructed.

use std::ffi::{CString, c_int};

use prost::Message;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ffi::abi::kernel::{KernelApi, TF_OpKernelConstruction};
use crate::ffi::status::{Status, TF_Status};
use crate::ffi::symbols::missing;
use crate::ffi::variants;
use crate::kernels::op::{Attrs, Kernel};
use crate::optimizer::proto::{NodeDef, attr_value};

/// [`Attrs`] on TF_OpKernelConstruction.
pub(crate) struct Construction<'c> {
    api: &'static KernelApi,
    /// Valid during the create function, whose lifetime is `'c`.
    raw: *mut TF_OpKernelConstruction,
    op: &'c str,
    status: Status,
}

impl<'c> Construction<'c> {
    /// The attributes of the node under construction.
    ///
    /// # Safety
    /// `raw` must be the pointer that TensorFlow passed to a create function, which must outlive
    /// the value.
    pub unsafe fn new(
        api: &'static KernelApi,
        raw: *mut TF_OpKernelConstruction,
        op: &'c str,
    ) -> Result<Self> {
        Ok(Self { api, raw, op, status: Status::new()? })
    }

    /// The node's name, as in `"model/dense/MatMul"`.
    pub fn node(&self) -> String {
        // SAFETY: the construction is alive; the view points into its NodeDef, and is copied.
        unsafe {
            let view = (self.api.TF_OpKernelConstruction_GetName)(self.raw);
            if view.data.is_null() {
                return String::new();
            }
            String::from_utf8_lossy(std::slice::from_raw_parts(view.data.cast::<u8>(), view.len))
                .into_owned()
        }
    }

    /// One value, which `get` writes through its pointer.
    fn value<T: Default>(
        &self,
        name: &str,
        get: unsafe extern "C" fn(
            *mut TF_OpKernelConstruction,
            *const std::ffi::c_char,
            *mut T,
            *mut TF_Status,
        ),
    ) -> Result<T> {
        let mut value = T::default();
        let name = c_name(name)?;
        // SAFETY: construction, name, value and status are valid for the call, and the function has
        // this type.
        unsafe { get(self.raw, name.as_ptr(), &raw mut value, self.status.as_ptr()) };
        self.status.take()?;
        Ok(value)
    }

    /// A list, which `get` writes into a buffer of the attribute's length.
    fn list<T: Default + Clone>(
        &self,
        name: &str,
        get: unsafe extern "C" fn(
            *mut TF_OpKernelConstruction,
            *const std::ffi::c_char,
            *mut T,
            c_int,
            *mut TF_Status,
        ),
    ) -> Result<Vec<T>> {
        let (len, _) = self.size(name)?;
        if len < 0 {
            return Err(Error::InvalidArgument(format!("attribute {name} is not a list")));
        }
        let mut values = vec![T::default(); len as usize];
        let name = c_name(name)?;
        // SAFETY: as in `value`; `values` has room for `len` elements.
        unsafe { get(self.raw, name.as_ptr(), values.as_mut_ptr(), len, self.status.as_ptr()) };
        self.status.take()?;
        Ok(values)
    }

    /// The node.
    fn node_def(&self) -> Result<NodeDef> {
        let get = self.api.TF_OpKernelConstruction_GetNodeDef;
        let get = get.ok_or_else(|| missing("TF_OpKernelConstruction_GetNodeDef"))?;
        let delete = self.api.TF_DeleteBuffer.ok_or_else(|| missing("TF_DeleteBuffer"))?;
        // SAFETY: construction and status are valid for the call. The buffer returned is ours, or
        // null after an error; its data has `length` bytes.
        unsafe {
            let buffer = get(self.raw, self.status.as_ptr());
            self.status.take()?;
            let contents = buffer
                .as_ref()
                .ok_or_else(|| Error::Internal("TensorFlow returned no NodeDef".into()))?;
            let bytes = match contents.data.is_null() {
                true => &[],
                false => std::slice::from_raw_parts(contents.data.cast(), contents.length),
            };
            let node = NodeDef::decode(bytes);
            delete(buffer);
            node.map_err(|e| Error::Internal(format!("TensorFlow's NodeDef cannot be read: {e}")))
        }
    }

    /// The number of elements of a list (-1 for any other attribute), and the number of bytes of a
    /// string.
    fn size(&self, name: &str) -> Result<(i32, i32)> {
        let (mut len, mut total) = (-1, -1);
        let name = c_name(name)?;
        let status = self.status.as_ptr();
        // SAFETY: construction, name, both numbers and the status are valid for the call.
        unsafe {
            (self.api.TF_OpKernelConstruction_GetAttrSize)(
                self.raw,
                name.as_ptr(),
                &raw mut len,
                &raw mut total,
                status,
            );
        }
        self.status.take()?;
        Ok((len, total))
    }
}

impl Attrs for Construction<'_> {
    fn op(&self) -> &str {
        self.op
    }

    fn dtype(&self, name: &str) -> Result<DType> {
        dtype(self.value(name, self.api.TF_OpKernelConstruction_GetAttrType)?, name)
    }

    fn int(&self, name: &str) -> Result<i64> {
        self.value(name, self.api.TF_OpKernelConstruction_GetAttrInt64)
    }

    fn float(&self, name: &str) -> Result<f32> {
        self.value(name, self.api.TF_OpKernelConstruction_GetAttrFloat)
    }

    fn bool(&self, name: &str) -> Result<bool> {
        Ok(self.value(name, self.api.TF_OpKernelConstruction_GetAttrBool)? != 0)
    }

    fn string(&self, name: &str) -> Result<String> {
        let (_, len) = self.size(name)?;
        let mut bytes = vec![0_u8; usize::try_from(len).unwrap_or(0)];
        let c = c_name(name)?;
        // SAFETY: construction, name and status are valid for the call; at most `bytes.len()` bytes
        // are written.
        unsafe {
            (self.api.TF_OpKernelConstruction_GetAttrString)(
                self.raw,
                c.as_ptr(),
                bytes.as_mut_ptr(),
                bytes.len(),
                self.status.as_ptr(),
            );
        }
        self.status.take()?;
        String::from_utf8(bytes)
            .map_err(|_| Error::InvalidArgument(format!("attribute {name} is not UTF-8")))
    }

    fn ints(&self, name: &str) -> Result<Vec<i64>> {
        self.list(name, self.api.TF_OpKernelConstruction_GetAttrInt64List)
    }

    fn floats(&self, name: &str) -> Result<Vec<f32>> {
        self.list(name, self.api.TF_OpKernelConstruction_GetAttrFloatList)
    }

    fn dtypes(&self, name: &str) -> Result<Vec<DType>> {
        let numbers = self.list(name, self.api.TF_OpKernelConstruction_GetAttrTypeList)?;
        numbers.into_iter().map(|n| dtype(n, name)).collect()
    }

    fn byte_strings(&self, name: &str) -> Result<Vec<Vec<u8>>> {
        let mut node = self.node_def()?;
        match node.attr.remove(name).and_then(|v| v.value) {
            Some(attr_value::Value::List(list)) => Ok(list.s),
            other => Err(Error::InvalidArgument(format!(
                "attribute {name} should be a list of strings, is {other:?}"
            ))),
        }
    }

    fn shape(&self, name: &str) -> Result<Vec<i64>> {
        // Only some releases export a function for shapes; all export the node.
        let node = self.node_def()?;
        match node.attr.get(name).and_then(|v| v.value.as_ref()) {
            Some(attr_value::Value::Shape(shape)) if !shape.unknown_rank => {
                Ok(shape.dim.iter().map(|d| d.size).collect())
            }
            other => Err(Error::InvalidArgument(format!(
                "attribute {name} should be a shape of known rank, is {other:?}"
            ))),
        }
    }

    fn tensorflow_kernel(&self) -> Result<Box<dyn Kernel>> {
        // SAFETY: the construction is TensorFlow's and alive.
        unsafe { variants::tensorflow_kernel(self.raw, &self.status) }
    }
}

fn dtype(number: c_int, name: &str) -> Result<DType> {
    DType::from_tf(number).ok_or_else(|| {
        Error::InvalidArgument(format!(
            "attribute {name} has TensorFlow's type {number}, which is not ours"
        ))
    })
}

fn c_name(name: &str) -> Result<CString> {
    CString::new(name).map_err(|_| Error::Internal(format!("attribute name {name:?} holds a NUL")))
}
