//! The parts of their module that rewritten functions use: the library's functions, and constants
//! of two words.

use std::collections::HashMap;

use naga::{Arena, Constant, Expression, Function, Handle, Literal, Module, Span, Type};

use super::{PREFIX, WORDS};

/// The library's functions, and the module's constants while functions add more.
pub(super) struct Words {
    functions: HashMap<String, Handle<Function>>,
    ty: Handle<Type>,
    constants: Arena<Constant>,
    expressions: Arena<Expression>,
    made: HashMap<[u32; 2], Handle<Constant>>,
}

impl Words {
    /// Takes them out of the module until [`Words::finish`].
    pub fn take(module: &mut Module) -> Self {
        let of_library = |(handle, function): (_, &Function)| {
            Some((function.name.as_deref()?.strip_prefix(PREFIX)?.to_owned(), handle))
        };
        Self {
            functions: module.functions.iter().filter_map(of_library).collect(),
            ty: module.types.insert(Type { name: None, inner: WORDS }, Span::UNDEFINED),
            constants: std::mem::take(&mut module.constants),
            expressions: std::mem::take(&mut module.global_expressions),
            made: HashMap::new(),
        }
    }

    /// Puts them back into the module.
    pub fn finish(self, module: &mut Module) {
        module.constants = self.constants;
        module.global_expressions = self.expressions;
    }

    /// The function with this name without the prefix.
    pub fn function(&self, name: &str) -> Result<Handle<Function>, String> {
        let found = self.functions.get(name).copied();
        found.ok_or_else(|| format!("the library has no function {PREFIX}{name}"))
    }

    /// The constant with these two words.
    pub fn constant(&mut self, words: [u32; 2]) -> Handle<Constant> {
        *self.made.entry(words).or_insert_with(|| {
            let init = compose(&mut self.expressions, self.ty, words, Span::UNDEFINED);
            let constant = Constant { name: None, ty: self.ty, init };
            self.constants.append(constant, Span::UNDEFINED)
        })
    }
}

/// An expression of a constant that consists of two words.
pub(super) fn compose(
    expressions: &mut Arena<Expression>,
    ty: Handle<Type>,
    words: [u32; 2],
    span: Span,
) -> Handle<Expression> {
    let components =
        words.map(|word| expressions.append(Expression::Literal(Literal::U32(word)), span));
    expressions.append(Expression::Compose { ty, components: components.to_vec() }, span)
}
