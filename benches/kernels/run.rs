//! The program from the command line to the report.

use std::ffi::OsString;
use std::fmt;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use tensorflow_wgpu::device::{Device, Family, Selection};
use tensorflow_wgpu::local::Session;
use tensorflow_wgpu::{Error, Result};

use crate::barriers;
use crate::case::Sizes;
use crate::device::Peaks;
use crate::families;
use crate::host;
use crate::measure::{self, Budget};
use crate::once::{candidates, once};
use crate::options::{HELP, Options};
use crate::report::{self, Row};
use crate::serve::serve;

/// The number of images in a batch from which a software adapter gets the large rows too.
const LARGE: usize = 32;

/// Runs the rows that the arguments ask for. Fails if a row failed; rows that the adapter does not
/// offer are no failures.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    let options = match Options::parse(arguments) {
        Ok(options) if options.help => {
            tell(format_args!("{HELP}\n"));
            return ExitCode::SUCCESS;
        }
        Ok(options) => options,
        Err(e) => {
            eprintln!("{e}; --help lists the options");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(failed) => {
            eprintln!("{failed} rows failed");
            ExitCode::FAILURE
        }
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

/// Prints. A reader that closes the pipe, such as `head`, is no error: the files still have to be
/// written.
fn tell(text: fmt::Arguments<'_>) {
    let _ = std::io::stdout().write_fmt(text);
}

/// Runs the benchmark and returns the number of rows that failed.
pub fn run(options: &Options) -> Result<usize> {
    if options.adapters {
        let found = enumerate(None).found;
        for (report, index) in found.iter().filter_map(|r| r.index.map(|i| (r, i))) {
            let info = &report.info;
            tell(format_args!(
                "{index}: {} ({:?}, {}, {:04x}:{:04x})\n",
                info.name, info.backend, info.driver_info, info.vendor, info.device
            ));
        }
        return Ok(0);
    }
    if options.list {
        let sizes = Sizes::new(
            options.batch.unwrap_or(8),
            options.batch.is_some_and(|batch| batch >= LARGE),
        );
        for case in families::all(sizes).iter().filter(|c| options.wants(c.family, &c.name)) {
            tell(format_args!("{}: {}\n", case.family, case.name));
        }
        return Ok(0);
    }
    let adapter = choose(options.adapter.as_deref())?;
    let device = Device::open(&adapter)?;
    if options.host {
        let session = Session::new(Arc::clone(&device));
        let rounds = if options.quick { 1 } else { 20 };
        tell(format_args!("{}", host::table(&adapter, &device, session.registry(), rounds)?));
        return Ok(0);
    }
    if options.barriers {
        let budget = if options.quick { Budget::QUICK } else { Budget::FULL };
        let rows = barriers::both(&adapter, &device, &budget)?;
        let table = barriers::table(&rows);
        tell(format_args!("{table}"));
        if let Some(path) = &options.json {
            let all = barriers::json(&device, &options.note, &rows);
            write(path, &format!("{all:#}\n"))?;
        }
        if let Some(path) = &options.markdown {
            write(path, &table)?;
        }
        return Ok(0);
    }
    let software = device.profile().is_software();
    let batch = options.batch.unwrap_or(if software { 8 } else { 64 });
    let mut cases = families::all(Sizes::new(batch, !software || batch >= LARGE));
    cases.retain(|c| options.wants(c.family, &c.name));
    if cases.is_empty() {
        return Err(Error::InvalidArgument("no row matches; --list names them".to_owned()));
    }
    if options.once {
        return Ok(once(&adapter, &cases));
    }
    if options.candidates {
        return Ok(candidates(
            &adapter,
            options.family.or_else(|| Family::of(device.info())),
            &cases,
        ));
    }
    let budget = if options.quick { Budget::QUICK } else { Budget::FULL };
    let peaks = Peaks::of(&device, &budget)?;
    let environment = report::environment(&device, &peaks, &options.note);
    let session = Session::new(Arc::clone(&device));
    if options.serve {
        let (stdin, stdout) = (std::io::stdin().lock(), std::io::stdout().lock());
        serve(&device, session.registry(), &cases, &budget, (&environment, &peaks), stdin, stdout)?;
        return Ok(0);
    }
    let mut rows = Vec::new();
    let mut tables = report::head(&environment, &peaks);
    tell(format_args!("{tables}"));
    for (number, case) in cases.iter().enumerate() {
        eprintln!("{}/{} {}: {}", number + 1, cases.len(), case.family, case.name);
        let outcome =
            measure::run(&device, session.registry(), case, &budget).map_err(|e| e.to_string());
        if let Err(e) = &outcome {
            eprintln!("    {e}");
        }
        rows.push(Row { case: case.clone(), outcome });
        let line = rows[number].markdown(&peaks);
        tell(format_args!("{line}"));
        tables.push_str(&line);
        // Written after each row, so that a run that is cut short leaves its results.
        if let Some(path) = &options.json {
            write(path, &format!("{:#}\n", report::json(&device, &environment, &rows, &peaks)))?;
        }
    }
    let worst = report::worst(&rows, &peaks, device.profile().is_software(), options.worst);
    tell(format_args!("{worst}"));
    if let Some(path) = &options.markdown {
        write(path, &(tables + &worst))?;
    }
    Ok(rows.iter().filter(|row| row.outcome.is_err()).count())
}

fn write(path: &std::path::Path, text: &str) -> Result<()> {
    std::fs::write(path, text)
        .map_err(|e| Error::Internal(format!("cannot write {}: {e}", path.display())))
}

/// The adapters, by `adapter` in place of the environment's choice.
fn enumerate(adapter: Option<&str>) -> Selection {
    let number = adapter.filter(|a| a.parse::<usize>().is_ok());
    Selection::enumerate(&|variable| match (variable, adapter) {
        ("WGPU_ADAPTER_NAME", Some(name)) => number.is_none().then(|| name.to_owned()),
        ("TF_WGPU_VISIBLE_DEVICES", Some(_)) => number.map(ToOwned::to_owned),
        _ => std::env::var(variable).ok(),
    })
}

fn choose(adapter: Option<&str>) -> Result<wgpu::Adapter> {
    let selection = enumerate(adapter);
    selection
        .adapters
        .into_iter()
        .next()
        .ok_or(Error::Unavailable(selection.problem.unwrap_or_default()))
}
