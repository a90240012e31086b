//! Unrolls loops, so that an iteration takes several steps. This is for adapters that leave loops
//! after a number of iterations. The iterations of all loops of an invocation count together, so
//! nesting does not help.

use std::fmt::Write;

/// `text` with innermost loops whose iterations take `times` steps each. Loops that contain a
/// barrier are left as they are. The steps and their order stay the same.
///
/// # Panics
/// An innermost loop has a `continue`, which would skip the remaining steps of an iteration.
pub fn innermost(text: &str, times: u32) -> String {
    if times <= 1 {
        return text.to_owned();
    }
    let code = without_comments(text);
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    for (at, _) in code.match_indices("for (") {
        if let Some(found) = Loop::at(&code, at).filter(Loop::is_unrolled) {
            out += &text[done..at];
            out += &found.unrolled(times);
            done = found.end;
        }
    }
    out + &text[done..]
}

/// A `for` loop.
struct Loop<'t> {
    first: &'t str,
    condition: &'t str,
    step: &'t str,
    body: &'t str,
    end: usize,
}

impl<'t> Loop<'t> {
    /// The loop that begins at byte `at` of text without comments.
    fn at(code: &'t str, at: usize) -> Option<Self> {
        let open = at + code[at..].find('(')?;
        let close = closing(code, open, b'(', b')')?;
        let mut header = code[open + 1..close].split(';');
        let [first, condition, step] = [header.next()?, header.next()?, header.next()?];
        let begin = close + code[close..].find('{')?;
        let end = closing(code, begin, b'{', b'}')?;
        Some(Self {
            first: first.trim(),
            condition: condition.trim(),
            step: step.trim(),
            body: &code[begin + 1..end],
            end: end + 1,
        })
    }

    /// Whether it is an innermost loop without barriers.
    fn is_unrolled(&self) -> bool {
        !["for (", "loop {", "while ", "Barrier("].iter().any(|word| self.body.contains(word))
    }

    fn unrolled(&self, times: u32) -> String {
        let Self { first, condition, step, body, .. } = self;
        assert!(!body.contains("continue"), "a step that ends its iteration: {body}");
        let step_of = |text: &mut String| {
            let _ = writeln!(text, "    {{\n{}\n    }}", body.trim_end().trim_start_matches('\n'));
        };
        let mut text = format!("for ({first}; {condition}; {step}) {{\n");
        step_of(&mut text);
        for _ in 1..times {
            let _ = writeln!(text, "    {step};\n    if !({condition}) {{\n        break;\n    }}");
            step_of(&mut text);
        }
        text + "}"
    }
}

/// The position of the bracket that closes the one at `open`.
fn closing(code: &str, open: usize, opening: u8, closing: u8) -> Option<usize> {
    let mut depth = 0;
    code.bytes().enumerate().skip(open).find_map(|(at, byte)| {
        depth += i32::from(byte == opening) - i32::from(byte == closing);
        (depth == 0).then_some(at)
    })
}

/// The same text with blanks in place of the bytes of comments.
fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let code = line.find("//").unwrap_or(line.len());
        out.push_str(&line[..code]);
        let comment = line.len() - code;
        out.extend(std::iter::repeat_n(' ', comment.saturating_sub(1)));
        out.push_str(if comment == 0 { "" } else { "\n" });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn innermost_loops_take_several_steps() {
        let text = "\
// for (each)
for (var i = 0u; i < n(2u); i += 1u) { // {
    for (var j = 0u; j < 3u; j += 2u) {
        g(i, j);
    }
}
";
        let want = "\
// for (each)
for (var i = 0u; i < n(2u); i += 1u) { // {
    for (var j = 0u; j < 3u; j += 2u) {
    {
        g(i, j);
    }
    j += 2u;
    if !(j < 3u) {
        break;
    }
    {
        g(i, j);
    }
}
}
";
        assert_eq!(innermost(text, 2), want);
        assert_eq!(innermost(text, 1), text);
    }

    #[test]
    fn loops_with_barriers_stay() {
        let text = "for (var i = 8u; i > 0u; i /= 2u) {\n    workgroupBarrier();\n}\n";
        assert_eq!(innermost(text, 8), text);
    }

    #[test]
    #[should_panic(expected = "a step that ends its iteration")]
    fn steps_end_no_iteration() {
        innermost("for (var i = 0u; i < 8u; i += 1u) { if i == 2u { continue; } }", 8);
    }
}
