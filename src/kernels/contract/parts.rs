//! The text of [`super::siblings`]: accessors that select the operands, the result and the
//! epilogue's operands of the workgroup's part, which is a product with a result of its own or a
//! term of a sum.

use super::contraction::MOST_TERMS;
use crate::shader::Shader;

/// The most products with results of their own.
pub const MOST_RESULTS: usize = C.len();

/// The names of the parts' left operands. Only terms have several.
pub(super) const A: [&str; MOST_TERMS] = ["a_0", "a_1", "a_2"];
/// The names of the parts' right operands.
pub(super) const B: [&str; 4] = ["b_0", "b_1", "b_2", "b_3"];
/// The names of the parts' results.
pub(super) const C: [&str; 4] = ["c_0", "c_1", "c_2", "c_3"];
/// The names of the sums of their right operands' columns.
pub(super) const SUMS: [&str; 4] = ["c_sums_0", "c_sums_1", "c_sums_2", "c_sums_3"];
/// The names of their epilogues' operands.
pub(super) const EXTRAS: [[&str; 5]; 4] = [
    ["e1_0", "e2_0", "e3_0", "e4_0", "e5_0"],
    ["e1_1", "e2_1", "e3_1", "e4_1", "e5_1"],
    ["e1_2", "e2_2", "e3_2", "e4_2", "e5_2"],
    ["e1_3", "e2_3", "e3_3", "e4_3", "e5_3"],
];

/// Declares `part`, the part that a workgroup computes, and `part_of`, which derives it from a
/// matrix's number and returns the rest of that number.
pub(super) fn declare(shader: Shader, parts: usize) -> Shader {
    shader.body(&format!(
        "var<private> part: u32;\n\nfn part_of(matrix: u32) -> u32 {{\n    part = matrix % \
         {parts}u;\n    return matrix / {parts}u;\n}}\n"
    ))
}

/// A function `PREFIX_NAME` that loads a `value` from the part's operand. It calls the functions
/// `PREFIX_` of the parts' `names`.
pub(super) fn load(prefix: &str, name: &str, names: &[&str], value: &str) -> String {
    let mut text = format!("fn {prefix}_{name}(i: u32) -> {value} {{\n");
    for (part, own) in names.iter().enumerate().skip(1) {
        text += &format!("    if part == {part}u {{\n        return {prefix}_{own}(i);\n    }}\n");
    }
    text + &format!("    return {prefix}_{}(i);\n}}\n", names[0])
}

/// A function `PREFIX_NAME` that stores a `value` to the result of the part.
pub(super) fn store(prefix: &str, name: &str, names: &[&str], value: &str) -> String {
    let mut text = format!("fn {prefix}_{name}(i: u32, v: {value}) {{\n");
    for (part, own) in names.iter().enumerate().skip(1) {
        text += &format!(
            "    if part == {part}u {{\n        {prefix}_{own}(i, v);\n        return;\n    }}\n"
        );
    }
    text + &format!("    {prefix}_{}(i, v);\n}}\n", names[0])
}
