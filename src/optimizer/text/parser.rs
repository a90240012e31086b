//! Reads graphs as text.

use prost::Message;

use super::{DEFAULT, DEVICES};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::optimizer::attr::Attr;
use crate::optimizer::proto::attr_value::{ListValue, Value};
use crate::optimizer::proto::{NameAttrList, TensorProto, TensorShapeProto, tensor_shape_proto};
use crate::optimizer::shape::{Dim, TensorInfo};
use crate::optimizer::wire;
use crate::tensor::HostTensor;

/// The lines of a text, joined where brackets are open at their end, without empty lines and
/// comments.
pub(super) fn statements(text: &str) -> Vec<String> {
    let mut statements = Vec::new();
    let (mut statement, mut depth) = (String::new(), 0i32);
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
        let (mut is_string, mut is_escaped) = (false, false);
        for c in line.chars() {
            match c {
                '"' if !is_escaped => is_string = !is_string,
                '(' | '[' | '{' if !is_string => depth += 1,
                ')' | ']' | '}' if !is_string => depth -= 1,
                _ => {}
            }
            is_escaped = c == '\\' && !is_escaped;
        }
        if !statement.is_empty() {
            statement.push(' ');
        }
        statement.push_str(line);
        if depth <= 0 {
            statements.push(std::mem::take(&mut statement));
            depth = 0;
        }
    }
    statements.extend((!statement.is_empty()).then_some(statement));
    statements
}

/// Reads a line from start to end.
pub(super) struct Parser<'t> {
    pub rest: &'t str,
}

impl<'t> Parser<'t> {
    fn skip(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// Takes `token` if it comes next, and returns whether it did.
    fn eat(&mut self, token: &str) -> bool {
        self.skip();
        self.rest.strip_prefix(token).map(|rest| self.rest = rest).is_some()
    }

    fn expect(&mut self, token: &str) -> Result<()> {
        if self.eat(token) { Ok(()) } else { Err(self.error(&format!("expected {token:?}"))) }
    }

    fn error(&self, what: &str) -> Error {
        Error::InvalidArgument(format!("{what} at {:?}", self.rest))
    }

    /// The text up to a character that ends a word.
    fn word(&mut self) -> &'t str {
        self.skip();
        let end = self.rest.find(|c: char| " ,(){}[]:".contains(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    /// `item, item, …` up to `end`, which a comma may precede.
    fn list<T>(
        &mut self,
        end: &str,
        mut item: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut items = Vec::new();
        while !self.eat(end) {
            if !items.is_empty() {
                self.expect(",")?;
                if self.eat(end) {
                    break;
                }
            }
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// A whole line: an encoded NodeDef, and the known types and shapes of its outputs.
    pub(super) fn node(&mut self) -> Result<(Vec<u8>, Vec<TensorInfo>)> {
        let mut out = Vec::new();
        let name = self.word();
        self.expect("=")?;
        let op = self.word();
        if name.is_empty() || op.is_empty() {
            return Err(self.error("expected NAME = OP"));
        }
        wire::put(&mut out, 1, name.as_bytes());
        wire::put(&mut out, 2, op.as_bytes());
        if self.eat("(") {
            let inputs = self.list(")", |p| {
                let name = p.word();
                Ok(if p.eat(":") { format!("{name}:{}", p.word()) } else { name.to_owned() })
            })?;
            inputs.iter().for_each(|i| wire::put(&mut out, 3, i.as_bytes()));
        }
        let mut attrs = Vec::new();
        if self.eat("{") {
            attrs = self.list("}", |p| {
                let name = p.word();
                p.expect(":")?;
                Ok((name, p.attr()?))
            })?;
        }
        let device = if self.eat("@") {
            let end = self.rest.find(' ').unwrap_or(self.rest.len());
            let (device, rest) = self.rest.split_at(end);
            self.rest = rest;
            device
        } else {
            DEFAULT
        };
        if device.is_empty() || device.starts_with('/') {
            wire::put(&mut out, 4, device.as_bytes());
        } else {
            wire::put(&mut out, 4, format!("{DEVICES}{device}").as_bytes());
        }
        for (name, value) in attrs {
            let mut entry = Vec::new();
            wire::put(&mut entry, 1, name.as_bytes());
            wire::put(&mut entry, 2, Attr::from(value).raw());
            wire::put(&mut out, 5, &entry);
        }
        let infos = if self.eat("->") { self.infos()? } else { Vec::new() };
        self.skip();
        if self.rest.is_empty() { Ok((out, infos)) } else { Err(self.error("expected the end")) }
    }

    fn infos(&mut self) -> Result<Vec<TensorInfo>> {
        let mut infos = Vec::new();
        loop {
            let dtype = match self.word() {
                "?" => None,
                name => Some(dtype(name).ok_or_else(|| self.error(&format!("no type {name:?}")))?),
            };
            let shape = if self.eat("[") {
                let dims = self.list("]", |p| match p.word() {
                    "?" => Ok(Dim::Unknown),
                    word => match word.strip_prefix('?') {
                        Some(symbol) => {
                            symbol.parse().map(Dim::Symbol).map_err(|_| p.error("bad extent"))
                        }
                        None => word.parse().map(Dim::Known).map_err(|_| p.error("bad extent")),
                    },
                })?;
                Some(dims.into_iter().collect())
            } else {
                None
            };
            infos.push(TensorInfo { dtype, shape });
            if !self.eat(",") {
                return Ok(infos);
            }
        }
    }

    fn attr(&mut self) -> Result<Value> {
        if !self.eat("[") {
            return self.value();
        }
        let mut list = ListValue::default();
        for value in self.list("]", Self::value)? {
            match value {
                Value::S(v) => list.s.push(v),
                Value::I(v) => list.i.push(v),
                Value::F(v) => list.f.push(v),
                Value::B(v) => list.b.push(v),
                Value::Type(v) => list.r#type.push(v),
                Value::Shape(v) => list.shape.push(v),
                Value::Tensor(v) => list.tensor.push(v),
                Value::Func(v) => list.func.push(v),
                _ => return Err(self.error("no item of a list")),
            }
        }
        Ok(Value::List(list))
    }

    fn value(&mut self) -> Result<Value> {
        self.skip();
        if self.rest.starts_with('"') {
            return self.quoted().map(|s| Value::S(s.into_bytes()));
        }
        if self.eat("@") {
            return Ok(Value::Func(NameAttrList {
                name: self.word().to_owned(),
                ..Default::default()
            }));
        }
        match self.word() {
            "true" => Ok(Value::B(true)),
            "false" => Ok(Value::B(false)),
            "shape" => self.shape().map(Value::Shape),
            "tensor" => self.tensor().map(Value::Tensor),
            word => {
                if let Some(dtype) = dtype(word) {
                    return Ok(Value::Type(dtype as i32));
                }
                if let Some(number) = word.strip_prefix("dtype").and_then(|n| n.parse().ok()) {
                    return Ok(Value::Type(number));
                }
                if let Ok(int) = word.parse() {
                    return Ok(Value::I(int));
                }
                word.parse().map(Value::F).map_err(|_| self.error(&format!("no value {word:?}")))
            }
        }
    }

    /// A string in JSON's syntax, or several, which are one.
    fn quoted(&mut self) -> Result<String> {
        let mut text = String::new();
        while self.rest.starts_with('"') {
            let mut strings = serde_json::Deserializer::from_str(self.rest).into_iter();
            let part: Option<String> = strings.next().and_then(std::result::Result::ok);
            text += &part.ok_or_else(|| self.error("a bad string"))?;
            self.rest = self.rest[strings.byte_offset()..].trim_start();
        }
        Ok(text)
    }

    fn shape(&mut self) -> Result<TensorShapeProto> {
        if self.eat("?") {
            return Ok(TensorShapeProto { unknown_rank: true, ..Default::default() });
        }
        self.expect("[")?;
        let dim = self.list("]", |p| {
            let size = match p.word() {
                "?" => -1,
                n => n.parse().map_err(|_| p.error("bad extent"))?,
            };
            Ok(tensor_shape_proto::Dim { size, name: String::new() })
        })?;
        Ok(TensorShapeProto { dim, unknown_rank: false })
    }

    fn tensor(&mut self) -> Result<TensorProto> {
        let name = self.word();
        let dtype = dtype(name).ok_or_else(|| self.error(&format!("no type {name:?}")))?;
        let shape = self.shape()?;
        self.expect("[")?;
        let items = self.list("]", |p| {
            let word = p.word();
            word.parse::<f64>()
                .map(|v| (v, word.parse::<i64>().unwrap_or(v as i64)))
                .map_err(|_| p.error("bad element"))
        })?;
        let count: usize = shape.dim.iter().map(|d| d.size as usize).product();
        let items: Vec<_> = (0..count)
            .map(|i| items.get(i).or(items.last()).copied().unwrap_or_default())
            .collect();
        let dims: Vec<usize> = shape.dim.iter().map(|d| d.size as usize).collect();
        let floats: Vec<f64> = items.iter().map(|i| i.0).collect();
        let value = if dtype.is_float() {
            HostTensor::floats(dtype, &dims, &floats)
        } else {
            let bytes =
                items.iter().flat_map(|i| i.1.to_le_bytes()[..dtype.size()].to_vec()).collect();
            HostTensor { dtype, dims: dims.into_iter().collect(), bytes }
        };
        match Attr::from(&value).tensor() {
            Some(tensor) => {
                Ok(TensorProto::decode(&tensor.encode_to_vec()[..]).expect("just encoded"))
            }
            None => Err(self.error("no tensor")),
        }
    }
}

fn dtype(name: &str) -> Option<DType> {
    DType::ALL.into_iter().find(|t| t.name() == name)
}
