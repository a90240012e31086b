//! TensorFlow's knowledge of a graph: [`Item`] on TF_GrapplerItem, TF_GraphProperties and
//! TF_FunctionLibraryDefinition.

use std::cell::OnceCell;
use std::ffi::{CString, c_char, c_int};
use std::time::Instant;

use super::buffer::OwnedBuffer;
use crate::error::{Error, Result};
use crate::ffi::abi::graph::{
    GraphApi, TF_FunctionLibraryDefinition, TF_GraphProperties, TF_GrapplerItem,
};
use crate::ffi::abi::kernel::TF_Buffer;
use crate::ffi::status::Status;
use crate::optimizer::Item;
use crate::optimizer::proto::OpDef;
use crate::optimizer::proto::op_info::TensorProperties;
use crate::optimizer::shape::TensorInfo;

/// A graph's item during the optimize function.
pub(super) struct GrapplerItem {
    api: &'static GraphApi,
    status: Status,
    graph: *const TF_Buffer,
    item: *const TF_GrapplerItem,
    properties: OnceCell<Properties>,
    library: OnceCell<Library>,
}

impl GrapplerItem {
    /// # Safety
    /// `graph` and `item` are the pointers that TensorFlow passed to an optimize function, which
    /// must outlive the value.
    pub unsafe fn new(
        api: &'static GraphApi,
        graph: *const TF_Buffer,
        item: *const TF_GrapplerItem,
    ) -> Result<Self> {
        let status = Status::new()?;
        Ok(Self { api, status, graph, item, properties: OnceCell::new(), library: OnceCell::new() })
    }

    /// The strings of one of the item's two lists.
    fn names(&self, fetches: bool) -> Result<Vec<String>> {
        let (size_of, read) = if fetches {
            (self.api.TF_GetFetchNodesListSize, self.api.TF_GetFetchNodesList)
        } else {
            (self.api.TF_GetNodesToPreserveListSize, self.api.TF_GetNodesToPreserveList)
        };
        let (mut count, mut bytes): (c_int, usize) = (0, 0);
        // SAFETY: item, numbers and status are valid for the call.
        unsafe { size_of(self.item, &raw mut count, &raw mut bytes, self.status.as_ptr()) };
        self.status.take()?;
        let mut starts: Vec<*mut c_char> = vec![std::ptr::null_mut(); count as usize];
        let mut lengths = vec![0usize; count as usize];
        let mut storage = vec![0u8; bytes];
        // SAFETY: the lists have room for `count` strings and the storage for all their bytes, as
        // the previous call reported.
        unsafe {
            read(
                self.item,
                starts.as_mut_ptr(),
                lengths.as_mut_ptr(),
                count,
                storage.as_mut_ptr().cast(),
                bytes,
                self.status.as_ptr(),
            );
        }
        self.status.take()?;
        let text = |(start, length): (&*mut c_char, &usize)| {
            // The strings are not terminated: each is `length` bytes of the storage.
            let at = (*start as usize).wrapping_sub(storage.as_ptr() as usize);
            let string = storage.get(at..at.saturating_add(*length));
            string.map(|s| String::from_utf8_lossy(s).into_owned())
        };
        let outside =
            || Error::Internal("TensorFlow's list of nodes lies outside of its storage".into());
        starts.iter().zip(&lengths).map(|s| text(s).ok_or_else(outside)).collect()
    }

    fn properties(&self) -> Result<&Properties> {
        self.properties.get().ok_or_else(|| Error::Internal("no shapes were inferred".into()))
    }

    fn library(&self) -> Result<&Library> {
        if self.library.get().is_none() {
            // SAFETY: the graph's buffer is valid for the call, which copies all that it needs.
            let raw = unsafe {
                (self.api.TF_NewFunctionLibraryDefinition)(self.graph, self.status.as_ptr())
            };
            let library = Library { api: self.api, raw };
            self.status.take()?;
            let _ = self.library.set(library);
        }
        Ok(self.library.get().expect("just set"))
    }
}

impl Item for GrapplerItem {
    fn preserved(&self) -> Result<Vec<String>> {
        let mut names = self.names(false)?;
        names.extend(
            self.names(true)?
                .into_iter()
                .map(|n| n.split(':').next().unwrap_or_default().to_owned()),
        );
        Ok(names)
    }

    fn infer(&self, annotated: bool) -> Result<()> {
        let properties = Properties::infer(self.api, self.item, annotated, &self.status)?;
        let _ = self.properties.set(properties);
        Ok(())
    }

    fn infos(&self, name: &str) -> Result<Vec<TensorInfo>> {
        self.properties()?.of(name, Side::Outputs, &self.status)
    }

    fn input_infos(&self, name: &str) -> Result<Vec<TensorInfo>> {
        self.properties()?.of(name, Side::Inputs, &self.status)
    }

    fn op_def(&self, op: &str) -> Result<Option<OpDef>> {
        self.library()?.op_def(op, &self.status)
    }
}

/// Inferred types and shapes.
struct Properties {
    api: &'static GraphApi,
    raw: *mut TF_GraphProperties,
}

impl Properties {
    fn infer(
        api: &'static GraphApi,
        item: *const TF_GrapplerItem,
        annotated: bool,
        status: &Status,
    ) -> Result<Self> {
        // SAFETY: the item is valid and outlives the properties, which are dropped before the
        // optimize function returns.
        let raw = unsafe { (api.TF_NewGraphProperties)(item) };
        let properties = Self { api, raw };
        let start = Instant::now();
        // The shapes that feeds claim are not assumed, and no values are asked for. The second flag
        // lets TensorFlow take the shapes of our own ops from their attributes, which an earlier
        // run wrote. SAFETY: properties and status are valid for the call.
        unsafe { (api.TF_InferStatically)(raw, 0, annotated.into(), 0, 0, status.as_ptr()) };
        status.take()?;
        log::debug!("optimizer: TensorFlow's inference took {:.1?}", start.elapsed());
        Ok(properties)
    }

    /// The properties inferred for one side of a node; empty for an unknown node.
    fn of(&self, name: &str, side: Side, status: &Status) -> Result<Vec<TensorInfo>> {
        let (size_of, read) = match side {
            Side::Inputs => {
                (self.api.TF_GetInputPropertiesListSize, self.api.TF_GetInputPropertiesList)
            }
            Side::Outputs => {
                (self.api.TF_GetOutputPropertiesListSize, self.api.TF_GetOutputPropertiesList)
            }
        };
        let name = CString::new(name)
            .map_err(|_| Error::InvalidArgument(format!("{name:?} holds a NUL")))?;
        let mut count: c_int = 0;
        // SAFETY: properties, name, number and status are valid for the call.
        unsafe { size_of(self.raw, name.as_ptr(), &raw mut count, status.as_ptr()) };
        status.take()?;
        let buffers = (0..count).map(|_| OwnedBuffer::new(self.api)).collect::<Result<Vec<_>>>()?;
        let mut raw: Vec<*mut TF_Buffer> = buffers.iter().map(OwnedBuffer::as_ptr).collect();
        // SAFETY: as above, with `count` empty buffers to fill.
        unsafe { read(self.raw, name.as_ptr(), raw.as_mut_ptr(), count, status.as_ptr()) };
        status.take()?;
        buffers
            .iter()
            .map(|b| b.decode::<TensorProperties>().map(|p| TensorInfo::from(&p)))
            .collect()
    }
}

/// One side of a node: its inputs or its outputs.
#[derive(Debug, Clone, Copy)]
enum Side {
    Inputs,
    Outputs,
}

impl Drop for Properties {
    fn drop(&mut self) {
        // SAFETY: the properties are ours, and are deleted once.
        unsafe { (self.api.TF_DeleteGraphProperties)(self.raw) };
    }
}

/// The ops of TensorFlow and the functions of a graph.
struct Library {
    api: &'static GraphApi,
    raw: *mut TF_FunctionLibraryDefinition,
}

impl Library {
    fn op_def(&self, op: &str, status: &Status) -> Result<Option<OpDef>> {
        let name =
            CString::new(op).map_err(|_| Error::InvalidArgument(format!("{op:?} holds a NUL")))?;
        let buffer = OwnedBuffer::new(self.api)?;
        // SAFETY: library, name, the empty buffer and status are valid for the call.
        unsafe {
            (self.api.TF_LookUpOpDef)(self.raw, name.as_ptr(), buffer.as_ptr(), status.as_ptr())
        };
        match status.take() {
            Ok(()) => buffer.decode().map(Some),
            Err(e) => {
                log::debug!("{op}: {e}");
                Ok(None)
            }
        }
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: the library is ours, and is deleted once.
            unsafe { (self.api.TF_DeleteFunctionLibraryDefinition)(self.raw) };
        }
    }
}
