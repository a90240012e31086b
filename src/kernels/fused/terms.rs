//! Epilogues of sums of products: how an epilogue comes to add another product to the contraction's
//! result, and what is left of it without that product.

use smallvec::SmallVec;

use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::expression::{Call, Expression, Step, Value};

/// The expression with one more input at the end, which is added to the first one: their sum takes
/// the first one's place.
///
/// # Errors
/// Where the type has no addition.
pub fn with_term(old: &Expression) -> Result<Expression> {
    let mut new = Expression::new();
    let inputs: Vec<Value> = old.inputs().iter().map(|t| new.input(*t)).collect();
    let dtype = old.inputs()[0];
    let more = new.input(dtype);
    let sum = new.step(addition(dtype)?, &[inputs[0], more])?;
    let values = new.append(old, &[&[sum], &inputs[1..]].concat())?;
    values.into_iter().for_each(|value| new.output(value));
    Ok(new)
}

/// The expression without the input `at`, if it adds that input to the first one and uses it for
/// nothing else; None otherwise.
pub fn without_term(old: &Expression, at: usize) -> Option<Expression> {
    let dtype = old.inputs()[0];
    if at == 0 || old.inputs().get(at) != Some(&dtype) {
        return None;
    }
    let term = Value::Input(at as u32);
    let of_result = climb(old, Value::Input(0), dtype);
    let of_term = climb(old, term, dtype);
    // Each value that is added to either of them before they meet is added to their sum.
    if !of_term.iter().any(|step| of_result.contains(step)) {
        return None;
    }
    let dropped = *of_term.first()?;
    let other = *old.steps()[dropped].args.iter().find(|arg| **arg != term)?;
    let mut new = Expression::new();
    for (i, dtype) in old.inputs().iter().enumerate() {
        if i != at {
            new.input(*dtype);
        }
    }
    for _ in 0..old.constants() {
        new.constant();
    }
    let renamed = |value: Value| match value {
        Value::Input(i) if i as usize > at => Value::Input(i - 1),
        other => other,
    };
    let mut known: Vec<Value> = Vec::new();
    let of = |value: Value, known: &[Value]| match value {
        Value::Step(i) => known[i as usize],
        value => renamed(value),
    };
    for (i, Step { call, args }) in old.steps().iter().enumerate() {
        let value = if i == dropped {
            of(other, &known)
        } else {
            let args: SmallVec<[Value; 4]> = args.iter().map(|a| of(*a, &known)).collect();
            new.step(*call, &args).ok()?
        };
        known.push(value);
    }
    old.outputs().iter().for_each(|value| new.output(of(*value, &known)));
    Some(new)
}

/// An addition of two values of this type.
fn addition(dtype: DType) -> Result<Call> {
    Call::row("AddV2", dtype).ok_or_else(|| {
        crate::error::Error::InvalidArgument(format!("values of {dtype} are not added"))
    })
}

/// The chain of additions that a value goes into; each but the last is used once.
fn climb(e: &Expression, from: Value, dtype: DType) -> Vec<usize> {
    let mut found = Vec::new();
    let mut value = from;
    loop {
        let uses = |step: &Step| step.args.iter().filter(|a| **a == value).count();
        let mut users = e.steps().iter().enumerate().filter(|(_, step)| uses(step) > 0);
        let (user, more) = (users.next(), users.next());
        match (user, more) {
            (Some((i, step)), None)
                if uses(step) == 1
                    && !e.outputs().contains(&value)
                    && matches!(step.call, Call::Row(row, t) if row.op == "AddV2" && t == dtype) =>
            {
                found.push(i);
                value = Value::Step(i as u32);
            }
            _ => return found,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_come_and_go() {
        let without = |text: &str, at| {
            let e: Expression = text.parse().unwrap();
            without_term(&e, at).map(|e| e.to_string())
        };
        let f = "x: float32, float32, float32; c: 0; ";
        let g = "x: float32, float32; c: 0; ";
        let add = "s0 = AddV2<float32>(x2, x1); s1 = AddV2<float32>(s0, x0); return s1";
        let one = Some(format!("{g}s0 = AddV2<float32>(x1, x0); return s0"));
        assert_eq!(without(&format!("{f}{add}"), 1), one);
        assert_eq!(without(&format!("{f}{add}"), 2), one);
        let gelu = "s0 = AddV2<float32>(x0, x1); s1 = Mul<float32>(s0, x2); s2 = \
                    AddV2<float32>(s1, s0); return s2";
        let left = "s0 = Mul<float32>(x0, x1); s1 = AddV2<float32>(s0, x0); return s1";
        assert_eq!(without(&format!("{f}{gelu}"), 1), Some(format!("{g}{left}")));
        // The term is added later, or to something else, or used twice.
        assert_eq!(without(&format!("{f}{gelu}"), 2), None);
        let apart = "s0 = Relu<float32>(x0); s1 = AddV2<float32>(s0, x1); return s1";
        assert_eq!(without(&format!("{g}{apart}"), 1), None);
        let twice = "s0 = AddV2<float32>(x0, x1); s1 = Mul<float32>(s0, x1); return s1";
        assert_eq!(without(&format!("{g}{twice}"), 1), None);
        let double = "s0 = AddV2<float32>(x1, x1); s1 = AddV2<float32>(x0, s0); return s1";
        assert_eq!(without(&format!("{g}{double}"), 1), None);
        let whole = format!("{g}s0 = Mul<float32>(x0, x1); return s0");
        let with = with_term(&whole.parse().unwrap()).unwrap();
        let wanted = "s0 = AddV2<float32>(x0, x2); s1 = Mul<float32>(s0, x1); return s1";
        assert_eq!(with.to_string(), format!("{f}{wanted}"));
        assert_eq!(without_term(&with, 2).unwrap().to_string(), whole);
    }
}
