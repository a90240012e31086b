//! Suites with each kind of outcome, made of shell scripts; and a check that the plan names all
//! suites.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::outcome::{Outcome, listed};
use crate::plan;
use crate::process::{End, run};

/// Suites of `tests/` that say nothing about an adapter, or need more than one.
const LEFT_OUT: &[&str] = &[
    "docs",               // reads the repository
    "fast_math",          // rewrites shaders
    "faults",             // needs a Vulkan layer that fails calls
    "graphs",             // the optimizer, which needs no adapter
    "indices",            // rewrites shaders
    "kit",                // the suites themselves
    "optimizer_limits",   // memory and time of the optimizer
    "optimizer_scale",    // the optimizer
    "pipeline_cache",     // needs the same layer
    "proto",              // messages
    "shaders",            // translates shaders, which needs no adapter
    "stream_executor",    // builds a fake TensorFlow with the C compiler
    "tensorflow_headers", // needs TensorFlow's headers
];

#[test]
fn the_plan_has_every_suite_that_needs_an_adapter() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut suites = BTreeSet::new();
    for entry in std::fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        let is_suite = path.extension().is_some_and(|e| e == "rs") || path.join("main.rs").exists();
        if is_suite {
            suites.insert(path.file_stem().unwrap().to_string_lossy().into_owned());
        }
    }
    let known = plan::SUITES.iter().chain(LEFT_OUT).map(|name| (*name).to_owned());
    let known: BTreeSet<_> = known.chain(["scalar".to_owned()]).collect();
    assert_eq!(suites, known, "tests/kit/main.rs and the lists of the kit name every suite");
    let text = include_str!("../../../tests/kit/main.rs");
    for suite in plan::SUITES {
        assert!(text.contains(&format!("\nmod {suite};\n")), "tests/kit/main.rs lacks {suite}");
    }
    assert_eq!(text.matches("\nmod ").count(), plan::SUITES.len());
}

#[test]
fn groups_share_the_whole_time_and_names_are_unique() {
    for short in [false, true] {
        let groups = plan::groups(short);
        assert_eq!(groups.iter().map(|group| group.share).sum::<u64>(), 1000);
        let names: Vec<_> = groups.iter().flat_map(|g| &g.steps).map(|s| &s.name).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
    }
}

#[test]
fn output_of_both_harnesses_is_read() {
    let libtest = "
running 4 tests
test norm::rows ... ok
test norm::big - should panic ... ok
test norm::slow ... ignored, takes minutes
test norm::bias ... FAILED

failures:

---- norm::bias stdout ----

thread 'norm::bias' (7) panicked at tests/norm.rs:3:5:
left: 1 | right: 2
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace


failures:
    norm::bias

test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out
";
    let outcome = Outcome::of(libtest);
    assert_eq!(outcome.passed, ["norm::rows", "norm::big"]);
    assert_eq!(outcome.ignored, ["norm::slow"]);
    let message =
        "thread 'norm::bias' (7) panicked at tests/norm.rs:3:5:\nleft: 1 | right: 2".to_owned();
    assert_eq!(outcome.failed, [("norm::bias".to_owned(), message)]);
    let mimic = "
running 2 tests
test Exp float32   ... ok
test Cast float32 to int8 ... FAILED

failures:

---- Cast float32 to int8 ----
the device has 1, 2 is right

failures:
    Cast float32 to int8
";
    let outcome = Outcome::of(mimic);
    assert_eq!(outcome.passed, ["Exp float32"]);
    let message = "the device has 1, 2 is right".to_owned();
    assert_eq!(outcome.failed, [("Cast float32 to int8".to_owned(), message)]);
    assert_eq!(listed("a::b: test\nExp float32: test\n\n2 tests\n"), ["a::b", "Exp float32"]);
}

#[cfg(unix)]
#[test]
fn processes_end_by_themselves_by_signals_and_at_their_limits() {
    let scratch = std::env::temp_dir().join(format!("gpu-kit-test-{}", std::process::id()));
    let shell = |script: &str, seconds| {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        run(command, Duration::from_secs(seconds), &scratch).unwrap()
    };
    let ran = shell("echo out; echo err >&2; exit 3", 10);
    assert_eq!((ran.end, &*ran.output), (End::Code(3), "out\nerr\n"));
    assert_eq!(shell("kill -s SEGV $$", 10).end, End::Signal(11));
    let start = Instant::now();
    // The shell's child would keep the output open for a minute.
    let ran = shell("echo before; sleep 60; echo after", 1);
    assert_eq!((ran.end, &*ran.output), (End::TimedOut, "before\n"));
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    let ran = run(Command::new("/nonexistent/program"), Duration::from_secs(1), &scratch).unwrap();
    assert!(matches!(ran.end, End::NotStarted(_)));
    std::fs::remove_file(scratch).unwrap();
}
