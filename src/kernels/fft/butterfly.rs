//! Discrete Fourier transforms of a few elements as straight WGSL: `exp(-2 pi i / n)` is the root.
//!
//! An element is whatever the shader's functions `product`, `turned`, `quarter`, `eighth` and
//! `three_eighths` take: a complex number, or a pair of them from two transforms.

use std::f64::consts::TAU;
use std::fmt::Write;

/// WGSL under construction.
#[derive(Debug, Default)]
struct Writer {
    text: String,
    names: usize,
}

impl Writer {
    /// `let tN = value;`, and the name.
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

    /// Multiplies the elements by the powers of a root, but not in the first pass.
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

    /// From the transforms of the even and of the odd elements.
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

    /// Of an odd number of elements: sums and differences of the elements `j` and `n - j` share
    /// their products.
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
/// the run, transforms them, and keeps them as the elements `at + r * p.span`.
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

/// Two lines or neighbours that a pass transforms at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairs {
    /// Two butterflies of a line's first pass.
    First,
    /// Two of a later pass.
    Later,
    /// The same butterfly of two neighbouring lines.
    Across,
}

impl Pairs {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::First, Self::Later, Self::Across];

    /// Where an invocation `t` of the program reads and keeps, in pairs.
    pub const fn places(self) -> &'static str {
        match self {
            Self::First => {
                "    let step = p.n / RADIX / 2u;\n    let o = t / step;\n    let j = t - o * \
                 step;\n    let source = o * (p.n / 2u) + j;\n    let at = o * (p.n / 2u) + j * \
                 RADIX;"
            }
            Self::Later => {
                "    let step = p.n / RADIX / 2u;\n    let o = t / step;\n    let j = t - o * \
                 step;\n    let source = o * (p.n / 2u) + j;\n    let span = p.span / 2u;\n    let \
                 run = j / span;\n    let phase = 2u * (j - run * span);\n    let at = o * (p.n / \
                 2u) + run * span * (RADIX - 1u) + j;"
            }
            Self::Across => {
                "    let inner = p.inner / 2u;\n    let rest = t / inner;\n    let c = t - rest * \
                 inner;\n    let butterflies = p.n / RADIX;\n    let o = rest / butterflies;\n    \
                 let j = rest - o * butterflies;\n    let run = j / p.span;\n    let phase = j - \
                 run * p.span;\n    let source = (o * p.n + j) * inner + c;\n    let step = \
                 butterflies * inner;\n    let span = p.span * inner;\n    let at = (o * p.n + run \
                 * p.span * RADIX + phase) * inner + c;"
            }
        }
    }
}

/// The body of a pass over pairs: reads `source + r * step`, and keeps at `at + r * span`; for a
/// first pass at `at + r / 2`, and for the second butterfly at `at + (RADIX + r) / 2`, two results
/// of a butterfly at once.
pub fn body_of_pairs(radix: usize, pairs: Pairs) -> String {
    let mut w = Writer::default();
    let elements = w.read(radix, |r| format!("element({})", offset("source", r, "step")));
    match pairs {
        Pairs::First => {}
        Pairs::Later => w.turn_by_powers(
            radix,
            "Pair(turn(phase, p.span * RADIX), turn(phase + 1u, p.span * RADIX))",
        ),
        Pairs::Across => w.turn_by_powers(radix, "turn(phase, p.span * RADIX).xyxy"),
    }
    let out = w.transform(&elements);
    if pairs != Pairs::First {
        for (r, v) in out.iter().enumerate() {
            let _ = writeln!(w.text, "    keep({}, {v});", offset("at", r, "span"));
        }
        return w.text;
    }
    for (butterfly, parts) in ["xy", "zw"].into_iter().enumerate() {
        for (i, v) in out.chunks(2).enumerate() {
            let at = butterfly * radix / 2 + i;
            let _ =
                writeln!(w.text, "    keep(at + {at}u, Pair({}.{parts}, {}.{parts}));", v[0], v[1]);
        }
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
            for pairs in Pairs::ALL {
                if radix % 2 == 0 {
                    assert_eq!(body_of_pairs(*radix, pairs).matches("keep(").count(), *radix);
                }
            }
        }
    }
}
