//! Determines which expressions of a function are scalars, and of which type.

use naga::front::Typifier;
use naga::proc::ResolveContext;
use naga::{Expression, Function, Handle, Module, Scalar, TypeInner};

use super::is_wide;

/// For each expression, in order, its scalar type, if it has one.
pub(super) struct Scalars(Vec<Option<Scalar>>);

impl Scalars {
    /// The scalar types in a function, while its module still has 64-bit integers.
    pub fn of(module: &Module, function: &Function) -> Result<Self, String> {
        let context =
            ResolveContext::with_locals(module, &function.local_variables, &function.arguments);
        let mut types = Typifier::new();
        let mut scalars = Vec::new();
        for (handle, _) in function.expressions.iter() {
            types.grow(handle, &function.expressions, &context).map_err(|e| e.to_string())?;
            scalars.push(match types[handle].inner_with(&module.types) {
                TypeInner::Scalar(scalar) => Some(*scalar),
                TypeInner::Vector { scalar, .. } if is_wide(*scalar) => {
                    return Err("there are no vectors of 64-bit integers".to_owned());
                }
                _ => None,
            });
        }
        Ok(Self(scalars))
    }

    /// The scalar type of an expression.
    pub fn get(&self, handle: Handle<Expression>) -> Option<Scalar> {
        self.0.get(handle.index()).copied().flatten()
    }

    /// The scalar type of an expression, if it is a 64-bit integer.
    pub fn wide(&self, handle: Handle<Expression>) -> Option<Scalar> {
        self.get(handle).filter(|scalar| is_wide(*scalar))
    }
}
