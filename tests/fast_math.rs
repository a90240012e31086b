//! The translations that the fault layer's fast-math compiler makes of expressions that depend on
//! exact arithmetic.

use fault_layer::fast_math::with_fast_math;
use fault_layer::spirv::instructions;
use fault_layer::spirv::op::{
    COPY_OBJECT, FADD, FDIV, FMUL, FNEGATE, FORD_EQUAL, FORD_NOT_EQUAL, FSUB, FUNORD_GREATER_EQUAL,
};
use naga::back::spv;
use naga::valid::{Capabilities, ValidationFlags, Validator};

/// The words of a shader with these statements, in which `x`, `y` and `z` are loaded numbers.
fn compiled(statements: &str) -> Vec<u32> {
    let text = format!(
        "@group(0) @binding(0) var<storage, read_write> a: array<f32>;\n\
         fn infinity() -> f32 {{ return bitcast<f32>(bitcast<u32>(a[3]) | 0x7f800000u); }}\n\
         @compute @workgroup_size(1) fn main() {{\n\
         let x = a[0]; let y = a[1]; let z = a[2];\n{statements}\n}}"
    );
    let module = naga::front::wgsl::parse_str(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let info = Validator::new(ValidationFlags::all(), Capabilities::empty()).validate(&module);
    let options = spv::Options { flags: spv::WriterFlags::empty(), ..Default::default() };
    spv::write_vec(&module, &info.unwrap(), &options, None).unwrap()
}

/// The opcodes of arithmetic in a module, in order.
fn arithmetic(words: &[u32]) -> Vec<u32> {
    let is_arithmetic = |opcode: &u32| {
        [COPY_OBJECT, FNEGATE, FADD, FSUB, FMUL, FDIV].contains(opcode)
            || (FORD_EQUAL..=FUNORD_GREATER_EQUAL).contains(opcode)
    };
    instructions(words).iter().map(|i| i[0] & 0xffff).filter(is_arithmetic).collect()
}

#[test]
fn operations_that_depend_on_exact_arithmetic_are_gone() {
    for (statements, before, after) in [
        ("a[0] = select(0.0, 1.0, x != x);", vec![FORD_NOT_EQUAL], vec![COPY_OBJECT]),
        ("a[0] = x - x;", vec![FSUB], vec![COPY_OBJECT]),
        ("a[0] = x * 0.0;", vec![FMUL], vec![COPY_OBJECT]),
        ("a[0] = x / y;", vec![FDIV], vec![FDIV, FMUL]),
        ("a[0] = (x + y) - x;", vec![FADD, FSUB], vec![FADD, COPY_OBJECT]),
        ("a[0] = x - (x + y);", vec![FADD, FSUB], vec![FADD, FNEGATE]),
        ("a[0] = x - (x - y);", vec![FSUB, FSUB], vec![FSUB, COPY_OBJECT]),
        ("a[0] = (x * y) * z;", vec![FMUL, FMUL], vec![FMUL, FMUL, FMUL]),
        // Through a variable, and out of one branch.
        ("var s = x + y; s = s - x; a[0] = s;", vec![FADD, FSUB], vec![FADD, COPY_OBJECT]),
        (
            "var s = x + y; if z == 0.0 { a[1] = z; } a[0] = s - x;",
            vec![FADD, FORD_EQUAL, FSUB],
            vec![FADD, FORD_EQUAL, COPY_OBJECT],
        ),
        // A part of it is a constant.
        (
            "a[0] = (x - z * 3.0) - z * 0.14;",
            vec![FMUL, FSUB, FMUL, FSUB],
            vec![FMUL, FSUB, FMUL, FMUL, FSUB],
        ),
    ] {
        let words = compiled(statements);
        assert_eq!(arithmetic(&words), before, "{statements}");
        assert_eq!(arithmetic(&with_fast_math(&words)), after, "{statements}");
    }
}

#[test]
fn the_rest_stays() {
    for statements in [
        "a[0] = (x + y) - z;",
        // The value that a loop stores is unknown at its start.
        "var s = x + y; loop { if s - x > z { break; } s = s + s; } a[0] = s;",
        "a[0] = bitcast<f32>(bitcast<u32>(x + y) ^ bitcast<u32>(z)) - x;",
        "a[0] = infinity();",
    ] {
        let words = compiled(statements);
        let rewritten = with_fast_math(&words);
        assert_eq!(arithmetic(&rewritten), arithmetic(&words), "{statements}");
    }
}
