//! The ops of the running TensorFlow: the names of their attributes and arguments.
//!
//! TensorFlow accepts a registration that does not fit its op. It reports the mistake only when a
//! program uses the op, which then fails on every device. So registrations are compared with the op
//! list first: an older release may lack an op, an attribute or an argument.

use prost::Message;
use rustc_hash::FxHashMap;

use crate::error::{Error, Result};
use crate::ffi::abi::kernel::{KernelApi, TF_Buffer};
use crate::kernels::definition::OpDefinition;
use crate::kernels::registry::Registration;

/// Attributes and arguments by op.
#[derive(Debug, Default)]
pub(super) struct OpList {
    ops: FxHashMap<String, OpNames>,
}

#[derive(Debug, Default)]
struct OpNames {
    attrs: Vec<String>,
    arguments: Vec<String>,
}

/// An OpDef, of which only the names are read: decoding all of it would take most of the time of
/// registration.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct NamedOp {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    input_arg: Vec<Named>,
    #[prost(message, repeated, tag = "3")]
    output_arg: Vec<Named>,
    #[prost(message, repeated, tag = "4")]
    attr: Vec<Named>,
}

/// An ArgDef or AttrDef.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct Named {
    #[prost(string, tag = "1")]
    name: String,
}

/// An OpList.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct NamedOps {
    #[prost(message, repeated, tag = "1")]
    op: Vec<NamedOp>,
}

/// Whether a registration fits the running TensorFlow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fit {
    Yes,
    /// This release has no such op, so no program can use the kernel.
    UnknownOp,
    /// The op has no such attribute or argument.
    No(String),
}

impl OpList {
    /// The op list, or None if this TensorFlow does not export it.
    pub fn get(api: &KernelApi) -> Option<Self> {
        let (list, delete) = (api.TF_GetAllOpList?, api.TF_DeleteBuffer?);
        // SAFETY: TF_GetAllOpList returns an owned buffer, whose data has `length` bytes; it is
        // deleted once, after parsing.
        unsafe {
            let buffer: *mut TF_Buffer = list();
            let contents = buffer.as_ref()?;
            let parsed = if contents.data.is_null() {
                Ok(Self::default())
            } else {
                Self::parse(std::slice::from_raw_parts(contents.data.cast(), contents.length))
            };
            delete(buffer);
            parsed.map_err(|e| log::warn!("TensorFlow's op list: {e}")).ok()
        }
    }

    /// Reads a serialized `OpList`.
    fn parse(bytes: &[u8]) -> Result<Self> {
        let list = NamedOps::decode(bytes).map_err(|e| Error::Internal(e.to_string()))?;
        let names = |named: Vec<Named>| named.into_iter().map(|n| n.name);
        let ops = list.op.into_iter().map(|op| {
            let arguments = names(op.input_arg).chain(names(op.output_arg)).collect();
            (op.name, OpNames { attrs: names(op.attr).collect(), arguments })
        });
        Ok(Self { ops: ops.collect() })
    }

    /// Whether there is an op of this name.
    pub fn contains(&self, op: &str) -> bool {
        self.ops.contains_key(op)
    }

    /// Adds an op that was defined after the list was read.
    pub fn add(&mut self, definition: &OpDefinition) {
        let names = |specs: &[&str]| {
            specs.iter().filter_map(|s| Some(s.split_once(':')?.0.trim().to_owned())).collect()
        };
        let arguments = [definition.inputs, definition.outputs].concat();
        let names = OpNames { attrs: names(definition.attrs), arguments: names(&arguments) };
        self.ops.insert(definition.name.to_owned(), names);
    }

    /// Whether `row` can be registered.
    pub fn fit(&self, row: &Registration) -> Fit {
        let Some(names) = self.ops.get(row.op) else { return Fit::UnknownOp };
        for (attr, _) in &row.types {
            if !names.attrs.iter().any(|name| name == attr) {
                return Fit::No(format!("the op has no attribute {attr}"));
            }
        }
        for argument in row.host_memory {
            if !names.arguments.iter().any(|name| name == argument) {
                return Fit::No(format!("the op has no argument {argument}"));
            }
        }
        Fit::Yes
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::dtype::DType;

    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, content.len() as u8], content].concat()
    }

    fn list() -> Vec<u8> {
        let op = [
            field(1, b"Sum"),
            field(2, &field(1, b"input")),
            field(2, &[field(1, b"reduction_indices"), vec![3 << 3, 0xff, 0x01]].concat()),
            field(3, &field(1, b"output")),
            field(4, &[field(1, b"T"), field(2, b"type")].concat()),
        ]
        .concat();
        field(1, &op)
    }

    fn row(op: &'static str, attr: &'static str, host: &'static [&'static str]) -> Registration {
        Registration {
            op,
            types: vec![(attr, DType::F32)],
            host_memory: host,
            need: None,
            create: Arc::new(|_| Err(Error::Internal(String::new()))),
            family: "test",
            note: "",
        }
    }

    #[test]
    fn registrations_are_compared_with_the_ops() {
        let list = OpList::parse(&list()).unwrap();
        assert_eq!(list.fit(&row("Sum", "T", &["reduction_indices"])), Fit::Yes);
        assert_eq!(list.fit(&row("Sum", "T", &["output"])), Fit::Yes);
        assert!(matches!(list.fit(&row("Sum", "Tidx", &[])), Fit::No(why) if why.contains("Tidx")));
        assert!(
            matches!(list.fit(&row("Sum", "T", &["axis"])), Fit::No(why) if why.contains("axis"))
        );
        assert_eq!(list.fit(&row("Mean", "T", &[])), Fit::UnknownOp);
    }

    #[test]
    fn a_new_definition_is_in_the_list() {
        let mut list = OpList::default();
        let definition = OpDefinition {
            name: "_WgpuTest",
            inputs: &["x: T"],
            outputs: &["y : T"],
            attrs: &["T: {float, half}", "axis: int = 0"],
            stateful: false,
            shape: |_| Ok(Vec::new()),
        };
        list.add(&definition);
        assert!(list.contains("_WgpuTest"));
        assert_eq!(list.fit(&row("_WgpuTest", "T", &["x", "y"])), Fit::Yes);
        assert!(matches!(list.fit(&row("_WgpuTest", "S", &[])), Fit::No(_)));
    }

    #[test]
    fn a_truncated_list_is_an_error() {
        let bytes = list();
        assert!((1..bytes.len()).all(|len| OpList::parse(&bytes[..len]).is_err()));
    }
}
