//! The results as Markdown, and as a few lines for the terminal.

use std::fmt::Write;

use serde_json::Value;

use crate::outcome::shortened;
use crate::results::Results;

/// The number of rows that are listed by their distance from the floor.
const WORST: usize = 15;
/// The most characters of a failure in a table.
const MOST_OF_MESSAGE: usize = 160;

/// The numbers of tests that passed, failed, and never finished.
fn counts(results: &Results) -> [usize; 3] {
    results.suites.iter().fold([0; 3], |[p, f, u], suite| {
        let outcome = &suite.outcome;
        [p + outcome.passed.len(), f + outcome.failed.len(), u + suite.unfinished.len()]
    })
}

/// The lines for the terminal.
pub fn summary(results: &Results) -> String {
    let [passed, failed, unfinished] = counts(results);
    let bad: Vec<_> =
        results.steps.iter().filter(|step| !step.is_fine()).map(|step| &*step.name).collect();
    let bad = if bad.is_empty() { "none".to_owned() } else { bad.join("; ") };
    format!(
        "{passed} tests passed, {failed} failed, {unfinished} did not end. Steps that did not end \
         well: {bad}. {:.0} s.",
        results.seconds
    )
}

/// The whole table. `json` is the report of the same results.
pub fn all(results: &Results, json: &Value) -> String {
    let mut text = head(json);
    let _ = writeln!(text, "{}\n", summary(results));
    tests(&mut text, results);
    worst(&mut text, json);
    runs(&mut text, json);
    for (name, output) in &results.texts {
        let _ = writeln!(text, "## Output of `{name}`\n\n```\n{}\n```\n", output.trim_end());
    }
    steps(&mut text, results);
    text
}

fn head(json: &Value) -> String {
    let word = |value: &Value| value.as_str().unwrap_or("unknown").to_owned();
    let adapter = &json["adapter"];
    format!(
        "# GPU kit: {}\n\n{} of type {}, {}, driver {} {}; {}, {} threads; {}. Kit of {} \
         ({}, profile {}), loader: {}.\n\n",
        word(&adapter["name"]),
        word(&adapter["name"]),
        word(&adapter["type"]),
        word(&adapter["backend"]),
        word(&adapter["driver"]),
        word(&adapter["driver_info"]),
        word(&json["host"]["cpu"]),
        json["host"]["threads"],
        word(&json["date"]),
        word(&json["kit"]["commit"]),
        word(&json["kit"]["version"]),
        word(&json["kit"]["profile"]),
        word(&json["system"]["environment"]["GPU_KIT_LOADER"]),
    )
}

fn tests(text: &mut String, results: &Results) {
    text.push_str("## Tests\n\n| Suite | passed | failed | did not end |\n|---|---|---|---|\n");
    for suite in &results.suites {
        let outcome = &suite.outcome;
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} |",
            suite.name,
            outcome.passed.len(),
            outcome.failed.len(),
            suite.unfinished.len()
        );
    }
    text.push('\n');
    for suite in &results.suites {
        for (name, message) in &suite.outcome.failed {
            let message = shortened(&message.replace(['\n', '|'], " "), MOST_OF_MESSAGE);
            let _ = writeln!(text, "- {}: `{name}`: {message}", suite.name);
        }
        for (name, how) in &suite.unfinished {
            let _ = writeln!(text, "- {}: `{name}` did not end: {how}", suite.name);
        }
    }
    text.push('\n');
}

/// The figures of a run, with the rows' names.
fn of_run<'a>(json: &'a Value, run: &str) -> Vec<(String, &'a Value)> {
    let rows = json["rows"].as_array().map_or(&[][..], Vec::as_slice);
    let name = |row: &Value| {
        format!("{}: {}", row["family"].as_str().unwrap_or(""), row["name"].as_str().unwrap_or(""))
    };
    rows.iter().filter(|row| row["run"] == run).map(|row| (name(row), row)).collect()
}

fn worst(text: &mut String, json: &Value) {
    let peaks = &json["peaks"]["default"]["wall"];
    let is_software = json["adapter"]["type"] == "Cpu";
    let figure = if is_software { "ratio_cpu" } else { "ratio" };
    let mut rows = of_run(json, "default");
    let errors: Vec<_> = rows.iter().filter_map(|(n, r)| Some((n, r["error"].as_str()?))).collect();
    let _ = writeln!(
        text,
        "## Kernels, farthest from their floors first\n\nThe adapter's own rates: copy {} GB/s, \
         multiply-add {} GFLOP/s, a dispatch {} µs. {} rows.\n",
        number(&peaks["copy_gb_s"]),
        number(&peaks["gflop_s"]),
        number(&peaks["dispatch_us"]),
        rows.len()
    );
    for (name, error) in errors {
        let _ = writeln!(text, "- {name}: {}", shortened(error, MOST_OF_MESSAGE));
    }
    rows.retain(|(_, row)| row[figure].is_number());
    rows.sort_by(|a, b| {
        let value = |row: &Value| row[figure].as_f64().unwrap_or(0.0);
        value(b.1).total_cmp(&value(a.1))
    });
    text.push_str(
        "\n| Row | ms | floor ms | bound | ratio | first ms |\n|---|---|---|---|---|---|\n",
    );
    for (name, row) in rows.iter().take(WORST) {
        let _ = writeln!(
            text,
            "| {name} | {} | {} | {} | {} | {} |",
            number(&row["ms"]),
            number(&row["floor_ms"]),
            row["bound"].as_str().unwrap_or(""),
            number(&row[figure]),
            number(&row["first_ms"])
        );
    }
    text.push('\n');
}

/// Rows whose time matrix units and tuning may change, in each run.
fn runs(text: &mut String, json: &Value) {
    const RUNS: [&str; 4] = ["default", "matrix units off", "matrix units on", "tuned"];
    let columns = RUNS.map(|run| of_run(json, run));
    let ms = |column: usize, name: &str| {
        columns[column].iter().find(|(n, _)| n == name).and_then(|(_, row)| row["ms"].as_f64())
    };
    let ratio = |a: Option<f64>, b: Option<f64>| {
        a.zip(b).map_or(String::new(), |(a, b)| format!("{:.2}", a / b))
    };
    let cell = |value: Option<f64>| value.map_or(String::new(), significant);
    text.push_str(
        "## Matrix units and tuning, in ms\n\n| Row | default | matrix units off | on | tuned | \
         off / on | default / tuned |\n|---|---|---|---|---|---|---|\n",
    );
    for (name, _) in &columns[1] {
        let [default, off, on, tuned] = [0, 1, 2, 3].map(|column| ms(column, name));
        let _ = writeln!(
            text,
            "| {name} | {} | {} | {} | {} | {} | {} |",
            cell(default),
            cell(off),
            cell(on),
            cell(tuned),
            ratio(off, on),
            ratio(default, tuned)
        );
    }
    text.push('\n');
}

fn steps(text: &mut String, results: &Results) {
    text.push_str("## Steps\n\n| Step | group | end | seconds |\n|---|---|---|---|\n");
    for step in &results.steps {
        let (end, seconds) = match &step.ran {
            Some(ran) => (ran.end.text(), format!("{:.1}", ran.seconds)),
            None => (step.left_out.unwrap_or("left out").to_owned(), String::new()),
        };
        let _ = writeln!(text, "| {} | {} | {end} | {seconds} |", step.name, step.group);
    }
}

/// Three significant digits.
fn significant(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value:.0}");
    }
    let digits = (2 - value.abs().log10().floor() as i32).clamp(0, 6) as usize;
    format!("{value:.digits$}")
}

fn number(value: &Value) -> String {
    value.as_f64().map_or("unknown".to_owned(), significant)
}
