//! Hides float64 constants from compilers.
//!
//! No instruction of Intel's GPUs holds a 64-bit constant, so each takes two registers. Their
//! compiler moves constant values in front of a loop, and with them all constants of the functions
//! that the loop calls: a power has fifty, a third of an invocation's registers. A hidden constant
//! is put together where it is used, from two words that instructions can hold.

use std::fmt::Write;

/// The function that a hidden constant calls: it makes the bits from the higher and the lower word.
pub const FUNCTION: &str = "fn hidden_f64(high: u32, low: u32) -> f64 {
    return bitcast<f64>((u64(rounds(high)) << 32u) | u64(low));
}

";

/// The text of a float64 library with all float64 literals hidden.
pub fn hide(text: &str) -> String {
    let mut out = String::with_capacity(2 * text.len());
    for line in text.lines() {
        let (mut rest, comment) = line.split_at(line.find("//").unwrap_or(line.len()));
        while let Some(c) = rest.chars().next() {
            let (word, behind) = rest.split_at(word(rest, c));
            match literal(word) {
                Some(value) => {
                    let bits = value.to_bits();
                    let (high, low) = (bits >> 32, bits & 0xffff_ffff);
                    let _ = write!(out, "hidden_f64({high:#x}u, {low:#x}u)");
                }
                None => out.push_str(word),
            }
            rest = behind;
        }
        out.push_str(comment);
        out.push('\n');
    }
    out
}

/// The length of the name, number or character at the start of `text`.
fn word(text: &str, first: char) -> usize {
    let mut before = first;
    let ends = |c: char| {
        let is_number = first.is_ascii_digit();
        let goes_on = c.is_ascii_alphanumeric()
            || c == '_'
            || (is_number && (c == '.' || (before == 'e' && matches!(c, '+' | '-'))));
        before = c;
        !goes_on
    };
    if !first.is_ascii_alphanumeric() && first != '_' {
        return first.len_utf8();
    }
    text.find(ends).unwrap_or(text.len())
}

/// The value of a float64 literal: one with the suffix `lf`, or one with a point or an exponent and
/// no suffix.
fn literal(word: &str) -> Option<f64> {
    if word.starts_with("0x") || !word.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let number = word.strip_suffix("lf");
    number.or_else(|| word.contains(['.', 'e']).then_some(word))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_float64_alone_are_hidden() {
        let hidden = |text: &str| hide(text).trim_end().to_owned();
        assert_eq!(hidden("x * 1.5 // 2.5"), "x * hidden_f64(0x3ff80000u, 0x0u) // 2.5");
        assert_eq!(hidden("f(1lf, 1e-30)"), {
            let bits = 1e-30f64.to_bits();
            let (high, low) = (bits >> 32, bits & 0xffff_ffff);
            format!("f(hidden_f64(0x3ff00000u, 0x0u), hidden_f64({high:#x}u, {low:#x}u))")
        });
        for text in ["0x1e5lu + 52u", "a1.x - 1.0f", "i32(2) - 1", "exp_f64(x)"] {
            assert_eq!(hidden(text), text);
        }
    }
}
