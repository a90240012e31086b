//! A node's op and attributes, without TensorFlow.

use std::collections::BTreeMap;

use crate::attr::Attr;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::op::Attrs;
use crate::proto::attr_value::Value;
use crate::proto::{AttrValue, NodeDef};

/// An op with its attributes, as in a node of a graph.
#[derive(Debug, Clone)]
pub struct Node {
    op: String,
    attrs: BTreeMap<String, Attr>,
}

impl Node {
    /// A node without attributes.
    pub fn new(op: &str) -> Self {
        Self { op: op.to_owned(), attrs: BTreeMap::new() }
    }

    /// The attributes of a NodeDef.
    pub(crate) fn of(node: &NodeDef) -> Self {
        let value = |(name, value): (&String, &AttrValue)| {
            Some((name.clone(), Attr::from(value.value.clone()?)))
        };
        Self { op: node.op.clone(), attrs: node.attr.iter().filter_map(value).collect() }
    }

    /// Adds an attribute.
    #[must_use]
    pub fn attr(mut self, name: &str, value: impl Into<Attr>) -> Self {
        self.attrs.insert(name.to_owned(), value.into());
        self
    }

    /// The value of an attribute.
    pub(crate) fn get(&self, name: &str) -> Option<&Attr> {
        self.attrs.get(name)
    }

    fn read<'a, T>(&'a self, name: &str, read: impl Fn(&'a Attr) -> Option<T>) -> Result<T> {
        self.get(name).and_then(read).ok_or_else(|| {
            Error::InvalidArgument(format!(
                "{}: attribute {name} is missing or of another kind",
                self.op
            ))
        })
    }
}

impl Attrs for Node {
    fn op(&self) -> &str {
        &self.op
    }
    fn dtype(&self, name: &str) -> Result<DType> {
        self.read(name, Attr::dtype)
    }
    fn int(&self, name: &str) -> Result<i64> {
        self.read(name, Attr::int)
    }
    fn float(&self, name: &str) -> Result<f32> {
        self.read(name, Attr::float)
    }
    fn bool(&self, name: &str) -> Result<bool> {
        self.read(name, Attr::bool)
    }
    fn string(&self, name: &str) -> Result<String> {
        self.read(name, Attr::string).map(str::to_owned)
    }
    fn byte_strings(&self, name: &str) -> Result<Vec<Vec<u8>>> {
        self.read(name, Attr::byte_strings).map(<[_]>::to_vec)
    }
    fn ints(&self, name: &str) -> Result<Vec<i64>> {
        self.read(name, Attr::ints).map(<[_]>::to_vec)
    }
    fn floats(&self, name: &str) -> Result<Vec<f32>> {
        self.read(name, Attr::floats).map(<[_]>::to_vec)
    }
    fn dtypes(&self, name: &str) -> Result<Vec<DType>> {
        self.read(name, Attr::dtypes)
    }
    fn shape(&self, name: &str) -> Result<Vec<i64>> {
        self.read(name, |attr| match attr.value() {
            Some(Value::Shape(shape)) if shape.unknown_rank => None,
            Some(Value::Shape(shape)) => Some(shape.dim.iter().map(|d| d.size).collect()),
            _ => attr.ints().map(<[_]>::to_vec),
        })
    }
}
