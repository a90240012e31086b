//! 64-bit integers for adapters whose shaders have none. A shader's text becomes a naga module in
//! which each 64-bit integer is a pair of words, the low one first, and operations on them are
//! calls of `shaders/lib/int64.wgsl`. Their layout in memory stays the same.
//!
//! So kernels are written once, with `i64` and `u64`. 64-bit floats are only for adapters that have
//! both: their functions read the bits as 64-bit integers.

mod calls;
mod function;
mod scalars;
mod words;

use std::collections::HashMap;

use naga::{Expression, Handle, Literal, Module, Scalar, Span, Type, TypeInner, VectorSize};

use function::Rewriter;
use scalars::Scalars;
use words::Words;

/// The library of functions that are called.
const LIBRARY: &str = include_str!("../../../shaders/lib/int64.wgsl");
/// The prefix of every function of the library.
const PREFIX: &str = "int64_";

/// Whether a shader's text has 64-bit integers.
pub fn is_needed(wgsl: &str) -> bool {
    ["i64", "u64"].iter().any(|word| wgsl.contains(word))
}

/// The module of a text, without 64-bit integers; or the reason why it cannot be made.
pub fn lowered(wgsl: &str) -> Result<Module, String> {
    let text = with_library(wgsl);
    let mut module = naga::front::wgsl::parse_str(&text).map_err(|e| e.emit_to_string(&text))?;
    let functions: Vec<_> = module
        .functions
        .iter()
        .map(|(_, f)| f)
        .chain(module.entry_points.iter().map(|e| &e.function))
        .map(|function| Scalars::of(&module, function))
        .collect::<Result<_, _>>()?;
    lower_types(&mut module)?;
    lower_constants(&mut module)?;
    let mut words = Words::take(&mut module);
    let mut all = std::mem::take(&mut module.functions);
    let mut entries = std::mem::take(&mut module.entry_points);
    let bodies = all.iter_mut().map(|(_, f)| f).chain(entries.iter_mut().map(|e| &mut e.function));
    for (function, scalars) in bodies.zip(&functions) {
        Rewriter::rewrite(function, scalars, &mut words)
            .map_err(|e| format!("{e}, in {}", function.name.as_deref().unwrap_or("main")))?;
    }
    words.finish(&mut module);
    module.functions = all;
    module.entry_points = entries;
    naga::compact::compact(&mut module, naga::compact::KeepUnused::No);
    Ok(module)
}

/// The text with the library behind its directives: functions must come before their callers.
fn with_library(wgsl: &str) -> String {
    let is_directive = |line: &str| line.starts_with("enable ") || line.starts_with("requires ");
    let mut at = 0;
    let mut end = 0;
    for line in wgsl.split_inclusive('\n') {
        at += line.len();
        end = if is_directive(line) { at } else { end };
    }
    format!("{}{LIBRARY}\n{}", &wgsl[..end], &wgsl[end..])
}

/// Whether a scalar is an integer of 64 bits.
const fn is_wide(scalar: Scalar) -> bool {
    scalar.width == 8 && matches!(scalar.kind, naga::ScalarKind::Sint | naga::ScalarKind::Uint)
}

/// The type of the two words of a 64-bit integer.
const WORDS: TypeInner = TypeInner::Vector { size: VectorSize::Bi, scalar: Scalar::U32 };

/// Replaces 64-bit integers by pairs of words in all types. Handles stay the same; unique names
/// keep the new types distinct in naga's arena.
fn lower_types(module: &mut Module) -> Result<(), String> {
    let all: Vec<_> = module.types.iter().map(|(h, ty)| (h, ty.inner.clone())).collect();
    for (handle, inner) in all {
        match inner {
            TypeInner::Scalar(scalar) if is_wide(scalar) => {
                let name = Some(format!("{PREFIX}{}", handle.index()));
                module.types.replace(handle, Type { name, inner: WORDS });
            }
            TypeInner::Vector { scalar, .. } | TypeInner::Atomic(scalar) if is_wide(scalar) => {
                return Err("there are no vectors and no atomics of 64-bit integers".to_owned());
            }
            _ => {}
        }
    }
    Ok(())
}

/// Rebuilds the expressions of constants, with two words in place of each 64-bit literal.
fn lower_constants(module: &mut Module) -> Result<(), String> {
    let ty = module.types.insert(Type { name: None, inner: WORDS }, Span::UNDEFINED);
    let old = std::mem::take(&mut module.global_expressions);
    let new = &mut module.global_expressions;
    let mut map = HashMap::new();
    for (handle, expression) in old.iter() {
        let span = old.get_span(handle);
        let made = if let Some(words) = words_of(expression) {
            words::compose(new, ty, words, span)
        } else {
            let mut same = expression.clone();
            function::map_operands(&mut same, &mut |operand| map.get(&operand).copied())
                .ok_or_else(|| format!("not rewritten: {same:?}"))?;
            new.append(same, span)
        };
        map.insert(handle, made);
    }
    let moved = |handle: &mut Handle<Expression>| *handle = map[handle];
    module.constants.iter_mut().for_each(|(_, constant)| moved(&mut constant.init));
    let variables = module.global_variables.iter_mut();
    variables.filter_map(|(_, variable)| variable.init.as_mut()).for_each(moved);
    Ok(())
}

/// The low and the high word of a 64-bit literal.
const fn words_of(expression: &Expression) -> Option<[u32; 2]> {
    let bits = match expression {
        Expression::Literal(Literal::I64(v)) => v.cast_unsigned(),
        Expression::Literal(Literal::U64(v)) => *v,
        _ => return None,
    };
    Some([bits as u32, (bits >> 32) as u32])
}

#[cfg(test)]
mod tests {
    use super::*;
    use naga::valid::{Capabilities, ValidationFlags, Validator};

    fn is_valid(module: &Module) -> bool {
        Validator::new(ValidationFlags::all(), Capabilities::empty()).validate(module).is_ok()
    }

    /// A program with these statements in its entry point.
    fn program(statements: &str) -> String {
        format!(
            "enable f16;\n@group(0) @binding(0) var<storage, read_write> x: array<i64>;\n\
             @group(0) @binding(1) var<storage, read_write> y: array<f32>;\n\
             alias Sum = i64;\nconst LARGE = 0x123456789li;\n\
             fn twice(v: Sum) -> i64 {{ return v + v; }}\n\
             @compute @workgroup_size(1) fn main() {{\n{statements}\n}}"
        )
    }

    #[test]
    fn every_kind_of_use_becomes_words() {
        for statements in [
            "x[1] = twice(x[0]) * LARGE - 5li;",
            "var sum = 7li; for (var i = 0u; i < 3u; i += 1u) { sum += x[i]; } x[0] = sum;",
            "if x[0] < 0li && x[1] >= LARGE { y[0] = f32(x[0]); } else { \
             y[0] = f32(u64(u32(x[0]))); }",
            "let i = i32(x[0]); y[i] = 1.0; x[2] = i64(y[1]); x[3] = -abs(x[3] / x[2]) % 3li;",
            "x[0] = select(~x[1], x[2] << 3u, bool(x[3])); \
             x[1] = min(x[1] >> 2u, i64(x[1] > 0li));",
            "var all = vec4<f32>(1.5); var four = vec3(vec2(7u), 8u); x[0] = i64(four.x) + x[1]; \
             y[0] = all.x;",
            "var kept = array<i64, 2>(x[0], 4li); x[1] = kept[u32(x[2])];",
        ] {
            let text = program(statements).replace("enable f16;\n", "");
            assert!(!is_valid(&naga::front::wgsl::parse_str(&text).unwrap()), "{statements}");
            let module = lowered(&text).unwrap_or_else(|e| panic!("{statements}: {e}"));
            assert!(is_valid(&module), "{statements}: {module:?}");
        }
    }

    #[test]
    fn only_what_is_called_stays() {
        let module = lowered(&program("x[0] = x[1] + x[2];")).unwrap();
        let names: Vec<_> = module.functions.iter().filter_map(|(_, f)| f.name.clone()).collect();
        assert_eq!(names, ["int64_add"]);
    }

    #[test]
    fn what_cannot_be_words_is_an_error() {
        for statements in
            ["let v = vec2<i64>(x[0], x[1]); x[2] = v.x;", "x[0] = countOneBits(x[0]);"]
        {
            assert!(lowered(&program(statements)).is_err(), "{statements}");
        }
        assert!(is_needed("fn f() -> u64"), "a text that has them");
        assert!(!is_needed("fn f() -> u32"), "a text that has none");
    }
}
