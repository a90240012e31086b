//! Discrete Fourier transforms of a few elements as straight WGSL: `exp(-2 pi i / n)` is the root.
//!
//! An element has the type of the shader's functions `product`, `turned`, `quarter`, `eighth` and
//! `three_eighths`: a complex number, or a pair of complex numbers from two transforms.

use std::f64::consts::TAU;
use std::fmt::Write;

/// WGSL under construction.
#[derive(Debug, Default)]
struct Writer {
    text: String,
    names: usize,
}

impl Writer {
    /// Appends `let tN = value;` and returns the name.
    fn name(&mut self, value: &str) -> String {
        let name = format!("t{}", self.names);
        self.names += 1;
        let _ = writeln!(self.text, "    let {name} = {value};");
        name
    }

    /// The transform of the named elements, in order.
    fn transform(&mut self, elements: &[String]) -> Vec<String> {
        match elements.len() {
            1 => elements.to_vec(),
            n if n % 2 == 0 => self.halves(elements, n),
            n => self.odd(elements, n),
        }
    }

    /// The elements `v0`, `v1`, … of a butterfly, from `load`.
    fn read(&mut self, radix: usize, load: impl Fn(usize) -> String) -> Vec<String> {
        let elements: Vec<String> = (0..radix).map(|r| format!("v{r}")).collect();
        for (r, v) in elements.iter().enumerate() {
            let _ = writeln!(
                self.text,
                "    {} {v} = {};",
                if r == 0 { "let" } else { "var" },
                load(r)
            );
        }
        elements
    }

    /// Multiplies the elements by the powers of a root, except in the first pass.
    fn turn_by_powers(&mut self, radix: usize, root: &str) {
        if radix < 2 {
            return;
        }
        let _ = writeln!(self.text, "    if p.span > 1u {{\n        let w1 = {root};");
        for r in 2..radix {
            // The shortest chain of products.
            let (a, b) = (r / 2, r - r / 2);
            let _ = writeln!(self.text, "        let w{r} = product(w{a}, w{b});");
        }
        for r in 1..radix {
            let _ = writeln!(self.text, "        v{r} = product(v{r}, w{r});");
        }
        self.text.push_str("    }\n");
    }

    /// Combines the transforms of the even and of the odd elements.
    fn halves(&mut self, elements: &[String], n: usize) -> Vec<String> {
        let every_other = |first: usize| -> Vec<String> {
            elements.iter().skip(first).step_by(2).cloned().collect()
        };
        let even = self.transform(&every_other(0));
        let odd = self.transform(&every_other(1));
        let turned: Vec<String> = odd.iter().enumerate().map(|(k, o)| self.turn(o, k, n)).collect();
        let pairs = || even.iter().zip(&turned);
        let low: Vec<String> = pairs().map(|(e, o)| format!("{e} + {o}")).collect();
        let high: Vec<String> = pairs().map(|(e, o)| format!("{e} - {o}")).collect();
        low.iter().chain(&high).map(|v| self.name(v)).collect()
    }

    /// `z` times `exp(-2 pi i k / n)`.
    fn turn(&mut self, z: &str, k: usize, n: usize) -> String {
        match (8 * k) / n {
            _ if k == 0 => z.to_owned(),
            2 if 8 * k == 2 * n => self.name(&format!("quarter({z})")),
            1 if 8 * k == n => self.name(&format!("eighth({z})")),
            3 if 8 * k == 3 * n => self.name(&format!("three_eighths({z})")),
            _ => {
                let angle = TAU * k as f64 / n as f64;
                self.name(&format!("turned({z}, {}, {})", real(angle.cos()), real(-angle.sin())))
            }
        }
    }

    /// The transform of an odd number of elements: sums and differences of the elements `j` and
    /// `n - j` share their products.
    fn odd(&mut self, elements: &[String], n: usize) -> Vec<String> {
        let half = n / 2;
        let sums: Vec<String> = (1..=half)
            .map(|j| self.name(&format!("{} + {}", elements[j], elements[n - j])))
            .collect();
        let differences: Vec<String> = (1..=half)
            .map(|j| self.name(&format!("{} - {}", elements[j], elements[n - j])))
            .collect();
        let mut out = vec![String::new(); n];
        out[0] = self.name(&format!("{} + {}", elements[0], sums.join(" + ")));
        for k in 1..=half {
            let angle = |j: usize| TAU * ((j + 1) * k % n) as f64 / n as f64;
            let terms = |list: &[String], f: fn(f64) -> f64| -> Vec<String> {
                list.iter()
                    .enumerate()
                    .map(|(j, v)| format!("{v} * Real({})", real(f(angle(j)))))
                    .collect()
            };
            let cosines =
                self.name(&format!("{} + {}", elements[0], terms(&sums, f64::cos).join(" + ")));
            let sines = self.name(&terms(&differences, f64::sin).join(" + "));
            out[k] = self.name(&format!("{cosines} + quarter({sines})"));
            out[n - k] = self.name(&format!("{cosines} - quarter({sines})"));
        }
        out
    }
}

/// A constant with all digits of an f64.
fn real(v: f64) -> String {
    format!("{v:?}")
}

/// The body of a pass: reads the elements `j + r * step`, multiplies them by powers of the root of
/// the run, transforms them, and stores them as the elements `at + r * p.span`.
pub fn body(radix: usize) -> String {
    let mut w = Writer::default();
    let elements = w.read(radix, |r| format!("element(o, {}, c)", offset("j", r, "step")));
    w.turn_by_powers(radix, "turn(phase, p.span * RADIX)");
    let out = w.transform(&elements);
    for (r, v) in out.iter().enumerate() {
        let _ = writeln!(w.text, "    keep(o, {}, c, {v});", offset("at", r, "p.span"));
    }
    w.text
}

/// `first + r * step`.
fn offset(first: &str, r: usize, step: &str) -> String {
    if r == 0 { first.to_owned() } else { format!("{first} + {r}u * {step}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_of_two_is_a_sum_and_a_difference() {
        let text = body(2);
        assert!(
            text.contains("let t0 = v0 + v1;\n    let t1 = v0 - v1;\n    keep(o, at, c, t0);"),
            "{text}"
        );
    }

    #[test]
    fn every_element_is_kept_once() {
        for radix in super::super::plan::RADICES {
            assert_eq!(body(*radix).matches("keep(").count(), *radix);
        }
    }
}
