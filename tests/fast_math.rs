//! What the fault layer's compiler with fast mathematics makes of expressions that depend on the
//! exact ones.

use fault_layer::fast_math::with_fast_math;
use naga::back::spv;
use naga::valid::{Capabilities, ValidationFlags, Validator};

const HEADER: usize = 5;
const COPY_OBJECT: u32 = 83;
const F_NEGATE: u32 = 127;
const F_ADD: u32 = 129;
const F_SUB: u32 = 131;
const F_MUL: u32 = 133;
const F_DIV: u32 = 136;
const F_ORD_EQUAL: u32 = 180;
const F_ORD_NOT_EQUAL: u32 = 182;
const F_ORD_LESS_THAN: u32 = 184;

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

/// The opcodes of arithmetic in a module, in their order.
fn arithmetic(words: &[u32]) -> Vec<u32> {
    let (mut all, mut at) = (Vec::new(), HEADER);
    while at < words.len() {
        let opcode = words[at] & 0xffff;
        let is_arithmetic = [COPY_OBJECT, F_NEGATE, F_ADD, F_SUB, F_MUL, F_DIV].contains(&opcode);
        if is_arithmetic || (F_ORD_EQUAL..=F_ORD_LESS_THAN).contains(&opcode) {
            all.push(opcode);
        }
        at += (words[at] >> 16) as usize;
    }
    all
}

#[test]
fn what_depends_on_exact_arithmetic_is_gone() {
    for (statements, before, after) in [
        ("a[0] = select(0.0, 1.0, x != x);", vec![F_ORD_NOT_EQUAL], vec![COPY_OBJECT]),
        ("a[0] = x - x;", vec![F_SUB], vec![COPY_OBJECT]),
        ("a[0] = x * 0.0;", vec![F_MUL], vec![COPY_OBJECT]),
        ("a[0] = x / y;", vec![F_DIV], vec![F_DIV, F_MUL]),
        ("a[0] = (x + y) - x;", vec![F_ADD, F_SUB], vec![F_ADD, COPY_OBJECT]),
        ("a[0] = x - (x + y);", vec![F_ADD, F_SUB], vec![F_ADD, F_NEGATE]),
        ("a[0] = x - (x - y);", vec![F_SUB, F_SUB], vec![F_SUB, COPY_OBJECT]),
        ("a[0] = (x * y) * z;", vec![F_MUL, F_MUL], vec![F_MUL, F_MUL, F_MUL]),
        // Through a variable, and out of one branch.
        ("var s = x + y; s = s - x; a[0] = s;", vec![F_ADD, F_SUB], vec![F_ADD, COPY_OBJECT]),
        (
            "var s = x + y; if z == 0.0 { a[1] = z; } a[0] = s - x;",
            vec![F_ADD, F_ORD_EQUAL, F_SUB],
            vec![F_ADD, F_ORD_EQUAL, COPY_OBJECT],
        ),
        // A part of it as a constant.
        (
            "a[0] = (x - z * 3.0) - z * 0.14;",
            vec![F_MUL, F_SUB, F_MUL, F_SUB],
            vec![F_MUL, F_SUB, F_MUL, F_MUL, F_SUB],
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
        // What a loop stores is not known at its start.
        "var s = x + y; loop { if s - x > z { break; } s = s + s; } a[0] = s;",
        "a[0] = bitcast<f32>(bitcast<u32>(x + y) ^ bitcast<u32>(z)) - x;",
        "a[0] = infinity();",
    ] {
        let words = compiled(statements);
        let rewritten = with_fast_math(&words);
        assert_eq!(arithmetic(&rewritten), arithmetic(&words), "{statements}");
    }
}
