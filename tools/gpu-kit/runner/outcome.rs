//! Parses a suite's output: libtest's lines, and those of libtest-mimic.

/// The most characters of a failure's message that are kept.
const MOST_OF_MESSAGE: usize = 2000;

/// The outcomes of a suite's tests, from its output.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The tests that passed.
    pub passed: Vec<String>,
    /// The tests that failed, with their messages.
    pub failed: Vec<(String, String)>,
    /// The tests that were left out.
    pub ignored: Vec<String>,
}

impl Outcome {
    /// Parses a suite's output.
    pub fn of(output: &str) -> Self {
        let mut outcome = Self::default();
        for line in output.lines() {
            let Some((name, result)) =
                line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... "))
            else {
                continue;
            };
            let name = name.trim_end().trim_end_matches(" - should panic").to_owned();
            match result.split([',', ' ']).next() {
                Some("ok") => outcome.passed.push(name),
                Some("FAILED") => outcome.failed.push((name, String::new())),
                Some("ignored") => outcome.ignored.push(name),
                _ => {}
            }
        }
        for (name, message) in &mut outcome.failed {
            *message = said(output, name);
        }
        outcome
    }

    /// Whether a test is among those that finished.
    pub fn has(&self, name: &str) -> bool {
        self.passed.iter().chain(&self.ignored).any(|test| test == name)
            || self.failed.iter().any(|(test, _)| test == name)
    }

    /// Adds the tests of another process.
    pub fn extend(&mut self, other: Self) {
        self.passed.extend(other.passed);
        self.failed.extend(other.failed);
        self.ignored.extend(other.ignored);
    }
}

/// The names in the output of `--list`.
pub fn listed(output: &str) -> Vec<String> {
    output.lines().filter_map(|line| line.strip_suffix(": test")).map(ToOwned::to_owned).collect()
}

/// The output of a failed test: the section between its heading and the next one.
fn said(output: &str, name: &str) -> String {
    let headings = [format!("---- {name} stdout ----"), format!("---- {name} ----")];
    let mut lines = output.lines().skip_while(|line| !headings.iter().any(|h| h == line)).skip(1);
    let mut text = String::new();
    for line in lines.by_ref() {
        if line.starts_with("---- ") || line == "failures:" || line.starts_with("test result:") {
            break;
        }
        if line.starts_with("note: run with `RUST_BACKTRACE") || line.is_empty() {
            continue;
        }
        text.push_str(line);
        text.push('\n');
    }
    shortened(text.trim(), MOST_OF_MESSAGE)
}

/// The first `most` characters.
pub fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
