//! No line is wider than a screen that shows two files side by side.

use std::path::{Path, PathBuf};

/// Most characters of a line.
const WIDTH: usize = 100;
/// A word that is longer is an address or a C++ symbol, which cannot be broken.
const UNBREAKABLE: usize = 60;
const FOLDERS: [&str; 10] = [
    "benches",
    "demo",
    "docs",
    "examples",
    "fuzz/targets",
    "proto",
    "python",
    "shaders",
    "src",
    "tests",
];
const TYPES: [&str; 10] = ["rs", "wgsl", "py", "md", "toml", "proto", "c", "h", "sh", "yml"];
/// Folders of results, which programs write.
const WRITTEN: [&str; 3] = ["target", "pictures", "__pycache__"];

/// The files of `folder` that people write.
pub fn files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if !WRITTEN.contains(&&*name) {
                files(&path, into);
            }
        } else if path.extension().is_some_and(|e| TYPES.contains(&&*e.to_string_lossy())) {
            into.push(path);
        }
    }
}

/// The numbers of the lines that are too wide. Tables of Markdown and pictures are as wide as what
/// they show.
fn wide(text: &str, is_markdown: bool) -> Vec<usize> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let is_table = is_markdown && line.starts_with('|');
        let is_breakable = line.split_whitespace().all(|word| word.chars().count() < UNBREAKABLE);
        if line.chars().count() > WIDTH && !is_table && is_breakable && !line.contains("r#\"<") {
            found.push(number + 1);
        }
    }
    found
}

#[test]
fn lines_are_at_most_100_characters_wide() {
    let root = crate::root();
    let mut all: Vec<PathBuf> = Vec::new();
    FOLDERS.iter().for_each(|folder| files(&root.join(folder), &mut all));
    for name in
        [".ci/run", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "README.md"]
    {
        all.push(root.join(name));
    }
    all.extend(
        ["Cargo.toml", "pyproject.toml", "build.rs", "hatch_build.py"].map(|f| root.join(f)),
    );
    assert!(all.len() > 900, "{} files only", all.len());
    let mut found = Vec::new();
    for file in all {
        let text = std::fs::read_to_string(&file).unwrap();
        let is_markdown = file.extension().is_some_and(|e| e == "md");
        let name = file.strip_prefix(&root).unwrap().display().to_string();
        found.extend(wide(&text, is_markdown).iter().map(|line| format!("{name}:{line}")));
    }
    assert!(found.is_empty(), "wider than {WIDTH} characters:\n{}", found.join("\n"));
}

#[test]
fn wide_lines_are_found() {
    let wide_line = "word ".repeat(21);
    assert_eq!(wide(&format!("short\n{wide_line}\n"), false), [2]);
    assert_eq!(wide(&format!("| {wide_line} |"), true), [0; 0]);
    assert_eq!(wide(&format!("see https://{}", "x".repeat(100)), false), [0; 0]);
}
