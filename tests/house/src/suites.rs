//! `cargo test` leaves the suites of the kit out, and `make suites` runs them: no suite may be left
//! out of both.

use std::collections::BTreeSet;

fn read(path: &str) -> String {
    let path = crate::root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The names of the tests that `cargo test` leaves out, in a manifest.
fn left_out(manifest: &str) -> BTreeSet<&str> {
    let tables = manifest.split("\n[[test]]\n").skip(1);
    let tables = tables.map(|table| table.split("\n[").next().unwrap_or(table));
    tables
        .filter(|table| table.lines().any(|line| line == "test = false"))
        .map(|table| {
            let name = table.lines().find_map(|line| line.strip_prefix("name = \""));
            name.and_then(|name| name.strip_suffix('"')).expect("each test has a name")
        })
        .collect()
}

/// The modules of a file.
fn modules(text: &str) -> BTreeSet<&str> {
    text.lines()
        .filter_map(|line| line.strip_prefix("mod ").and_then(|name| name.strip_suffix(';')))
        .collect()
}

#[test]
fn suites_that_cargo_test_leaves_out_are_the_kits() {
    let (manifest, kit) = (read("Cargo.toml"), read("tests/kit/main.rs"));
    let mut left_out = left_out(&manifest);
    assert!(left_out.remove("kit"), "`make suites` runs it, suite by suite");
    assert_eq!(left_out, modules(&kit));
}

#[test]
fn tests_that_are_left_out_are_found() {
    let manifest = [
        "[[bin]]\ntest = false\n",
        "[[test]]\nname = \"a\"\ntest = false\n",
        "[[test]]\nname = \"b\"\nharness = false\n",
        "[[example]]\ntest = false\n",
        "[[test]]\nname = \"c\"\ntest = false\n",
        "[profile.dev]\n",
    ]
    .join("\n");
    assert_eq!(left_out(&manifest), BTreeSet::from(["a", "c"]));
}
