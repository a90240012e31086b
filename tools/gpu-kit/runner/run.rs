//! Runs the steps and keeps the files up to date after each.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::options::Options;
use crate::outcome::{self, Outcome};
use crate::plan::{self, Kind, Step};
use crate::process::{self, Ran};
use crate::results::{Done, NO_TIME, NOT_OFFERED, Results, Suite};
use crate::{report, table};

/// The shortest time for which a step is worth starting.
const LEAST: Duration = Duration::from_secs(2);
/// The time for one test that runs alone because its suite did not finish.
const ALONE: Duration = Duration::from_secs(30);

/// The folders of a run.
struct Kit<'a> {
    /// The kit's executables.
    bin: PathBuf,
    /// Files of running steps.
    work: PathBuf,
    /// The folder for results.
    out: &'a Path,
    log: std::fs::File,
}

/// Runs everything. Returns whether all is well.
pub fn all(options: &Options) -> io::Result<bool> {
    let start = Instant::now();
    let bin = std::env::current_exe()?.parent().expect("a file is in a folder").to_owned();
    std::fs::create_dir_all(&options.out)?;
    let work = options.out.join(format!(".gpu-kit-{}", std::process::id()));
    std::fs::create_dir_all(&work)?;
    let log = std::fs::File::create(options.out.join("gpu-kit.log"))?;
    let mut kit = Kit { bin, work, out: &options.out, log };
    let mut results = Results { short: options.short, ..Results::default() };
    let mut share = 0;
    for group in plan::groups(options.short) {
        share += group.share;
        let deadline = start + options.time.mul_f64(share as f64 / 1000.0);
        for step in &group.steps {
            kit.step(step, group.name, deadline, &mut results)?;
            results.seconds = start.elapsed().as_secs_f64();
            kit.write(&results)?;
        }
        kit.alone(&group.steps, deadline, &mut results)?;
        results.seconds = start.elapsed().as_secs_f64();
        kit.write(&results)?;
    }
    std::fs::remove_dir_all(&kit.work)?;
    println!("\n{}", table::summary(&results));
    println!("gpu-kit.json, gpu-kit.md and gpu-kit.log are in {}", options.out.display());
    Ok(results.is_fine())
}

impl Kit<'_> {
    fn step(
        &mut self,
        step: &Step,
        group: &'static str,
        deadline: Instant,
        results: &mut Results,
    ) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        let left_out = if left < LEAST {
            Some(NO_TIME)
        } else if step.needs.is_some_and(|option| !self.offers(step.program, option)) {
            Some(NOT_OFFERED)
        } else {
            None
        };
        if left_out.is_some() {
            results.steps.push(Done { name: step.name.clone(), group, ran: None, left_out });
            return Ok(());
        }
        print!("{}: ", step.name);
        io::stdout().flush()?;
        let json = self.work.join("rows.json");
        let mut command = self.command(step);
        let mut tests = Vec::new();
        match &step.kind {
            Kind::Text => {}
            Kind::Rows(_) => {
                command.arg("--json").arg(&json);
            }
            Kind::Tests { prefix, .. } => {
                tests = self.listed(step, prefix.as_deref())?;
                // By their full names, because the filter `reduce::` would also match
                // `fused_reduce::`.
                if prefix.is_some() {
                    command.args(&tests).arg("--exact");
                }
                if tests.is_empty() {
                    command = Command::new(self.bin.join("no such tests"));
                }
            }
        }
        let ran = self.run(command, left.min(Duration::from_secs(step.limit)), &step.name)?;
        println!("{} after {:.1} s", ran.end.text(), ran.seconds);
        match &step.kind {
            Kind::Text => results.texts.push((step.name.clone(), ran.output.clone())),
            Kind::Rows(run) => {
                // A run that was cut short leaves the rows that it finished.
                let found = std::fs::read_to_string(&json).ok();
                let found = found.and_then(|text| serde_json::from_str(&text).ok());
                results.runs.extend(found.map(|rows| (*run, rows)));
                let _ = std::fs::remove_file(&json);
            }
            Kind::Tests { name, .. } => {
                let outcome = Outcome::of(&ran.output);
                tests.retain(|test| !outcome.has(test));
                let unfinished = tests.into_iter().map(|test| (test, ran.end.text())).collect();
                results.suites.push(Suite { name: name.clone(), outcome, unfinished });
            }
        }
        results.steps.push(Done { name: step.name.clone(), group, ran: Some(ran), left_out: None });
        Ok(())
    }

    /// Tests that did not finish because their suite's process ended run once more, each alone, so
    /// that the name of the failing one is known.
    fn alone(
        &mut self,
        steps: &[Step],
        deadline: Instant,
        results: &mut Results,
    ) -> io::Result<()> {
        for step in steps {
            let Kind::Tests { name, .. } = &step.kind else { continue };
            let Some(suite) = results.suites.iter_mut().find(|suite| suite.name == *name) else {
                continue;
            };
            for (test, how) in std::mem::take(&mut suite.unfinished) {
                let left = deadline.saturating_duration_since(Instant::now());
                if left < LEAST {
                    suite.unfinished.push((test, how));
                    continue;
                }
                let mut command = self.command(&Step { arguments: Vec::new(), ..step.clone() });
                command.args([&*test, "--exact"]);
                let ran = self.run(command, left.min(ALONE), &test)?;
                println!("test {name}, alone: {test}: {}", ran.end.text());
                let outcome = Outcome::of(&ran.output);
                if !outcome.has(&test) {
                    suite.unfinished.push((test, ran.end.text()));
                }
                suite.outcome.extend(outcome);
            }
        }
        Ok(())
    }

    fn command(&self, step: &Step) -> Command {
        let mut command = Command::new(self.bin.join(step.program));
        command.args(&step.arguments).envs(step.environment.iter().copied());
        command.env("TF_WGPU_CACHE", self.work.join("cache").join(step.cache));
        command
    }

    fn run(&mut self, command: Command, limit: Duration, name: &str) -> io::Result<Ran> {
        let ran = process::run(command, limit, &self.work.join("output"))?;
        writeln!(self.log, "== {name}: {} after {:.1} s", ran.end.text(), ran.seconds)?;
        writeln!(self.log, "{}", ran.output.trim_end())?;
        Ok(ran)
    }

    /// The tests that a step runs.
    fn listed(&self, step: &Step, prefix: Option<&str>) -> io::Result<Vec<String>> {
        let mut command = self.command(step);
        command.arg("--list");
        let ran = process::run(command, ALONE, &self.work.join("output"))?;
        let mut tests = outcome::listed(&ran.output);
        tests.retain(|test| prefix.is_none_or(|prefix| test.starts_with(prefix)));
        Ok(tests)
    }

    fn offers(&self, program: &str, option: &str) -> bool {
        let mut command = Command::new(self.bin.join(program));
        command.arg("--help");
        process::run(command, ALONE, &self.work.join("output"))
            .is_ok_and(|ran| ran.output.split_whitespace().any(|word| word == option))
    }

    fn write(&self, results: &Results) -> io::Result<()> {
        let json = report::json(results, &self.bin);
        std::fs::write(self.out.join("gpu-kit.md"), table::all(results, &json))?;
        std::fs::write(self.out.join("gpu-kit.json"), format!("{json:#}\n"))
    }
}
