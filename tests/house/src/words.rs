//! Words of a language of our own, which a native engineer reads twice: "who" for code, and "so
//! many" where a number belongs.

use std::path::{Path, PathBuf};

use crate::lines::files;

/// Folders whose comments are looked at.
const FOLDERS: [&str; 6] = ["src", "shaders", "tests", "tools", "python", "benches"];
/// This file, which is about these words.
const OWN: &str = "tests/house/src/words.rs";
/// Comments may say these of people.
const OF_PEOPLE: [&str; 7] = [
    "user who",
    "users who",
    "people who",
    "contributor who",
    "reader who",
    "those who",
    "engineer who",
];
const WORDS: [&str; 5] = ["so many", "who", "whoever", "nobody", "somebody"];

/// The comment of a line: of Rust, C and WGSL behind `//`, of Python behind `#`.
fn comment<'l>(line: &'l str, extension: &str) -> Option<&'l str> {
    let line = line.trim_start();
    match extension {
        "rs" | "wgsl" | "c" | "h" => line.strip_prefix("//"),
        "py" => line.strip_prefix('#'),
        _ => None,
    }
}

/// The words of our own language in a text, each with the number of its line. "So" and "many" may
/// stand on two lines.
fn found(text: &str, extension: &str) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    let mut last = String::new();
    for (number, line) in text.lines().enumerate() {
        let Some(comment) = comment(line, extension) else {
            last.clear();
            continue;
        };
        let comment = comment.trim_start_matches(['/', '!', ' ']).to_lowercase();
        let last_word = last.rsplit(' ').next().unwrap_or_default();
        let mut words = format!("{last_word} {comment}");
        for people in OF_PEOPLE {
            words = words.replace(people, "");
        }
        let tokens: Vec<&str> = words
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .filter(|word| !word.is_empty())
            .collect();
        for word in WORDS {
            let parts: Vec<&str> = word.split(' ').collect();
            let first = usize::from(parts.len() == 1 && !last_word.is_empty());
            let is_there = tokens.get(first..).unwrap_or_default();
            if is_there.windows(parts.len()).any(|window| window == parts) {
                found.push((number + 1, word));
            }
        }
        last = comment;
    }
    found
}

#[test]
fn comments_are_in_plain_english() {
    let root = crate::root();
    let mut all: Vec<PathBuf> = Vec::new();
    FOLDERS.iter().for_each(|folder| files(&root.join(folder), &mut all));
    let name = |file: &Path| file.strip_prefix(&root).unwrap().display().to_string();
    let mut lines = Vec::new();
    for file in all.iter().filter(|file| name(file) != OWN) {
        let text = std::fs::read_to_string(file).unwrap();
        let extension = file.extension().unwrap_or_default().to_string_lossy();
        let words = found(&text, &extension);
        lines.extend(words.iter().map(|(line, word)| format!("{}:{line}: {word}", name(file))));
    }
    assert!(lines.is_empty(), "{} words to replace:\n{}", lines.len(), lines.join("\n"));
}

#[test]
fn words_are_found_in_comments_alone() {
    assert_eq!(found("// for so many rows\nlet who = 1; // who", "rs"), [(1, "so many")]);
    assert_eq!(found("/// as so\n/// many as there are", "rs"), [(2, "so many")]);
    assert_eq!(found("//! Whoever reads, and a user who asks.\n", "rs"), [(1, "whoever")]);
    assert_eq!(found("# Nobody\nx = 'nobody'\n# whole\n", "py"), [(1, "nobody")]);
    assert_eq!(found("# the caller, who\n# waits\n", "py"), [(1, "who")]);
}

/// Names that say nothing of a type that other files use.
const EMPTY_NAMES: [&str; 8] =
    ["Variant", "Plan", "Part", "Source", "Rows", "Pass", "Kind", "Walk"];
/// Files whose type keeps such a name: the kinds of adapters, the optimizer's passes, the pipelines
/// that dispatches wait for, a region's sources of values, and the rows of attention's gradients.
const NAMED_ENOUGH: [&str; 5] = [
    "src/kind.rs",
    "src/optimizer/passes/mod.rs",
    "src/device/pending.rs",
    "src/kernels/fused/region/members.rs",
    "src/kernels/fused/attention/grad/text.rs",
];

/// The name of the type that a line declares for other files.
fn declared(line: &str) -> Option<&str> {
    let public = line.trim_start().strip_prefix("pub")?;
    let public = public
        .strip_prefix('(')
        .map_or(public, |scope| scope.split_once(')').map_or(scope, |(_, declared)| declared));
    let mut words = public.split_whitespace();
    let declares = ["struct", "enum", "trait", "type"].contains(&words.next()?);
    let name = words.next()?.split(|c: char| !c.is_alphanumeric()).next()?;
    declares.then_some(name)
}

#[test]
fn types_have_names_that_say_of_what() {
    let root = crate::root();
    let mut all: Vec<PathBuf> = Vec::new();
    files(&root.join("src"), &mut all);
    let mut lines = Vec::new();
    for file in &all {
        let name = file.strip_prefix(&root).unwrap().display().to_string();
        let text = std::fs::read_to_string(file).unwrap();
        let empty = text.lines().filter_map(declared).filter(|name| EMPTY_NAMES.contains(name));
        if !NAMED_ENOUGH.contains(&&*name) {
            lines.extend(empty.map(|declared| format!("{name}: {declared}")));
        }
    }
    assert!(lines.is_empty(), "types whose names say nothing:\n{}", lines.join("\n"));
}

#[test]
fn declared_types_are_found() {
    assert_eq!(declared("pub struct Walk<'a> {"), Some("Walk"));
    assert_eq!(declared("    pub(super) enum Kind {"), Some("Kind"));
    assert_eq!(declared("pub fn kind(&self) -> Kind {"), None);
    assert_eq!(declared("struct Part {"), None);
}
