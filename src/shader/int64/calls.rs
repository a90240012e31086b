//! The replacement of an expression: a call of the library, one of its operands, or the same
//! expression if it also works on two words.

use naga::{BinaryOperator as B, Expression, Handle, MathFunction, ScalarKind, UnaryOperator};

use super::scalars::Scalars;

/// The replacement of an expression. Operands are those of the old function.
pub(super) enum Lowered {
    /// The same expression with new operands.
    Same,
    /// An operand: the words stay as they are.
    Operand(Handle<Expression>),
    /// A call, whose result may be negated.
    Call { name: String, arguments: Vec<Handle<Expression>>, negated: bool },
}

/// A call whose result is not negated.
fn call(name: String, arguments: &[Handle<Expression>]) -> Lowered {
    Lowered::Call { name, arguments: arguments.to_vec(), negated: false }
}

/// The suffix of functions that differ between signed and unsigned integers.
const fn ending(kind: ScalarKind) -> &'static str {
    if matches!(kind, ScalarKind::Sint) { "_i" } else { "_u" }
}

/// The replacement of `expression`.
pub(super) fn lower(expression: &Expression, scalars: &Scalars) -> Result<Lowered, String> {
    let unknown = || format!("no function for 64-bit integers: {expression:?}");
    match *expression {
        Expression::Binary { op, left, right } if scalars.wide(left).is_some() => {
            let kind = scalars.wide(left).map_or(ScalarKind::Uint, |scalar| scalar.kind);
            binary(op, kind, left, right).ok_or_else(unknown)
        }
        Expression::Unary { op, expr } if scalars.wide(expr).is_some() => match op {
            UnaryOperator::Negate => Ok(call("negate".to_owned(), &[expr])),
            UnaryOperator::BitwiseNot => Ok(Lowered::Same),
            UnaryOperator::LogicalNot => Err(unknown()),
        },
        Expression::Math { fun, arg, arg1, arg2, .. } => {
            let Some(scalar) = scalars.wide(arg) else { return Ok(Lowered::Same) };
            if (fun, scalar.kind) == (MathFunction::Abs, ScalarKind::Uint) {
                return Ok(Lowered::Operand(arg));
            }
            let name = match fun {
                MathFunction::Abs => "abs",
                MathFunction::Min => "min",
                MathFunction::Max => "max",
                MathFunction::Clamp => "clamp",
                MathFunction::Sign => "sign",
                _ => return Err(unknown()),
            };
            let arguments: Vec<_> = [Some(arg), arg1, arg2].into_iter().flatten().collect();
            Ok(call(format!("{name}{}", ending(scalar.kind)), &arguments))
        }
        Expression::As { expr, kind, convert } => {
            let wide = scalars.wide(expr);
            let to_wide = convert == Some(8) && matches!(kind, ScalarKind::Sint | ScalarKind::Uint);
            if wide.is_none() && !to_wide {
                return Ok(Lowered::Same);
            }
            let from = scalars.get(expr).ok_or_else(unknown)?;
            conversion(expr, from, wide.is_some(), kind, convert).ok_or_else(unknown)
        }
        _ => Ok(Lowered::Same),
    }
}

fn binary(
    op: B,
    kind: ScalarKind,
    left: Handle<Expression>,
    right: Handle<Expression>,
) -> Option<Lowered> {
    let of_kind = |name: &str| format!("{name}{}", ending(kind));
    let less = |arguments: [Handle<Expression>; 2], negated| Lowered::Call {
        name: of_kind("less"),
        arguments: arguments.to_vec(),
        negated,
    };
    let equal =
        |negated| Lowered::Call { name: "equal".to_owned(), arguments: vec![left, right], negated };
    Some(match op {
        B::Add => call("add".to_owned(), &[left, right]),
        B::Subtract => call("subtract".to_owned(), &[left, right]),
        B::Multiply => call("multiply".to_owned(), &[left, right]),
        B::Divide => call(of_kind("divide"), &[left, right]),
        B::Modulo => call(of_kind("modulo"), &[left, right]),
        B::Equal => equal(false),
        B::NotEqual => equal(true),
        B::Less => less([left, right], false),
        B::Greater => less([right, left], false),
        B::LessEqual => less([right, left], true),
        B::GreaterEqual => less([left, right], true),
        B::And | B::InclusiveOr | B::ExclusiveOr => Lowered::Same,
        B::ShiftLeft => call("shift_left".to_owned(), &[left, right]),
        B::ShiftRight => call(of_kind("shift_right"), &[left, right]),
        B::LogicalAnd | B::LogicalOr => return None,
    })
}

/// A conversion from or to a 64-bit integer, or a bitcast of one.
fn conversion(
    expr: Handle<Expression>,
    from: naga::Scalar,
    is_wide: bool,
    kind: ScalarKind,
    convert: Option<u8>,
) -> Option<Lowered> {
    Some(match (is_wide, kind, convert) {
        (true, ScalarKind::Sint | ScalarKind::Uint, None | Some(8)) => Lowered::Operand(expr),
        (true, ScalarKind::Sint, Some(4)) => call("to_i32".to_owned(), &[expr]),
        (true, ScalarKind::Uint, Some(4)) => call("to_u32".to_owned(), &[expr]),
        (true, ScalarKind::Bool, _) => call("to_bool".to_owned(), &[expr]),
        (true, ScalarKind::Float, Some(4)) => call(format!("to_f32{}", ending(from.kind)), &[expr]),
        (false, _, Some(8)) => match (from.kind, from.width) {
            (ScalarKind::Bool, _) => call("of_bool".to_owned(), &[expr]),
            (ScalarKind::Sint, 4) => call("of_i32".to_owned(), &[expr]),
            (ScalarKind::Uint, 4) => call("of_u32".to_owned(), &[expr]),
            (ScalarKind::Float, 4) => call(format!("of_f32{}", ending(kind)), &[expr]),
            _ => return None,
        },
        _ => return None,
    })
}
