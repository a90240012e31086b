//! The tokens of WGSL text.

/// Names, numbers, runs of operators and other characters of a text, without comments, and without
/// the types in angle brackets behind WGSL's generic names.
pub(crate) struct Tokens<'t>(pub &'t str);

impl<'t> Iterator for Tokens<'t> {
    type Item = &'t str;

    fn next(&mut self) -> Option<&'t str> {
        let mut text = self.0.trim_start();
        while let Some(comment) = text.strip_prefix("//") {
            text = comment.split_once('\n').map_or("", |(_, rest)| rest).trim_start();
        }
        let first = text.chars().next()?;
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let end = match first {
            c if is_word(c) => text.find(|c| !is_word(c)).unwrap_or(text.len()),
            c if is_operator(c) => text.find(|c| !is_operator(c)).unwrap_or(text.len()),
            c => c.len_utf8(),
        };
        let (token, rest) = text.split_at(end);
        let is_generic = matches!(token, "array" | "bitcast" | "ptr" | "vec2" | "vec3" | "vec4");
        self.0 = if is_generic && rest.starts_with('<') { behind_types(rest) } else { rest };
        Some(token)
    }
}

/// Whether a character is of a run of operators.
pub(crate) fn is_operator(c: char) -> bool {
    "+-*/%&|^~!<>=".contains(c)
}

/// The text behind a list in angle brackets, which it begins with.
fn behind_types(text: &str) -> &str {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[at + 1..];
        }
    }
    text
}
