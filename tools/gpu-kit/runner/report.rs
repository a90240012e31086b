//! The results as JSON, which `benches/compare.py` reads.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::outcome::shortened;
use crate::results::{Results, Suite};

/// Version of the JSON's layout.
const SCHEMA: u32 = 1;
/// The most failures of a suite whose messages are kept.
const MOST_MESSAGES: usize = 30;
/// The most characters of the end of a step's output that are kept, if it failed.
const MOST_OF_TAIL: usize = 4000;

/// The whole report. `bin` is the folder of the kit's executables.
pub fn json(results: &Results, bin: &Path) -> Value {
    let kit = std::fs::read_to_string(bin.join("../kit.json")).ok();
    let kit: Value = kit.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or(Value::Null);
    let first = results.runs.first().map_or(&Value::Null, |(_, run)| run);
    let steps: Vec<_> = results
        .steps
        .iter()
        .map(|step| {
            let mut row = json!({ "name": step.name, "group": step.group });
            match &step.ran {
                None => row["left_out"] = json!(step.left_out),
                Some(ran) => {
                    row["end"] = json!(ran.end.text());
                    row["seconds"] = json!((ran.seconds * 1e3).round() / 1e3);
                    if !ran.end.is_success() {
                        row["tail"] = json!(tail(&ran.output, MOST_OF_TAIL));
                    }
                }
            }
            row
        })
        .collect();
    json!({
        "kind": "gpu-kit", "schema": SCHEMA,
        "adapter": first["adapter"], "host": first["host"], "date": first["date"],
        "versions": first["versions"], "optimized": first["optimized"],
        "kit": kit,
        "system": system(),
        "short": results.short,
        "seconds": (results.seconds * 10.0).round() / 10.0,
        "fine": results.is_fine(),
        "steps": steps,
        "suites": results.suites.iter().map(suite).collect::<Vec<_>>(),
        "peaks": peaks(results),
        "texts": results.texts.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
        "rows": rows(results),
    })
}

fn suite(suite: &Suite) -> Value {
    let failed: Vec<_> = suite
        .outcome
        .failed
        .iter()
        .enumerate()
        .map(|(number, (name, message))| {
            let message = if number < MOST_MESSAGES { message } else { "" };
            json!({ "name": name, "message": message })
        })
        .collect();
    let unfinished: Vec<_> =
        suite.unfinished.iter().map(|(name, how)| json!({ "name": name, "end": how })).collect();
    json!({
        "name": suite.name, "passed": suite.outcome.passed.len(),
        "ignored": suite.outcome.ignored.len(), "failed": failed, "unfinished": unfinished,
    })
}

/// The rows of all runs of `kernels`, each with its run's name.
fn rows(results: &Results) -> Vec<Value> {
    let of_run = |(name, run): &(&str, Value)| {
        let mut rows = run["rows"].as_array().cloned().unwrap_or_default();
        rows.iter_mut().for_each(|row| row["run"] = json!(name));
        rows
    };
    results.runs.iter().flat_map(of_run).collect()
}

fn peaks(results: &Results) -> Value {
    results
        .runs
        .iter()
        .map(|(name, run)| {
            ((*name).to_owned(), json!({ "wall": run["peaks"], "cpu": run["peaks_cpu"] }))
        })
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// A description of the system, as far as it is available without rights or tools.
fn system() -> Value {
    let read = |path| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let environment: serde_json::Map<_, _> = std::env::vars()
        .filter(|(name, _)| {
            ["TF_WGPU_", "WGPU_", "VK_", "GPU_KIT_"].iter().any(|start| name.starts_with(start))
        })
        .map(|(name, value)| (name, json!(value)))
        .collect();
    json!({
        "kernel": read("/proc/sys/kernel/osrelease"),
        "glibc": first_line("ldd", &["--version"]),
        "nvidia": first_line(
            "nvidia-smi",
            &["--query-gpu=name,driver_version,clocks.max.sm,power.limit", "--format=csv,noheader"],
        ),
        "environment": environment,
    })
}

/// The first line of a program's output, if the program exists.
fn first_line(program: &str, arguments: &[&str]) -> Option<String> {
    let ran = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    text.lines().next().map(|line| shortened(line, 200))
}

/// The last `most` characters.
fn tail(text: &str, most: usize) -> &str {
    let count = text.chars().count();
    text.char_indices().nth(count.saturating_sub(most)).map_or("", |(start, _)| &text[start..])
}
