//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use lexopt::{Arg, Parser, ValueExt};
use tensorflow_wgpu::device::Family;

/// The text of `--help`.
pub const HELP: &str = "\
Times kernels on one adapter and compares each with the adapter's copy bandwidth and arithmetic, \
                        measured in the same run.

Usage: kernels [OPTIONS] [FILTER]...

  FILTER             rows whose family or name contains one of these, in any case; all rows \
                        without one
  --host             only what a dispatch costs the host, with wgpu's share of it
  --barriers         only what barriers between dispatches cost: microseconds of small dispatches \
                        that do and do not wait for each other
  --list             name the rows and run nothing
  --adapters         name the adapters and run nothing
  --adapter NAME     the adapter by a part of its name, or by its number in --adapters
  --serve            answers each row's name on standard input with a line of JSON, until it ends
  --once             each row once, untimed: for tools/limits, which reads what the driver's \
                        compiler makes of it
  --candidates       the same with each tile that may be worth choosing: for tools/tuning
  --family NAME      the family of GPUs that the adapter stands for, with --candidates
  --quick            one short batch for each row: shows that everything works, the figures are \
                        worth little
  --batch N          images of a batch (8 on software adapters, 64 on others) and half as many \
                        sequences
  --worst N          how many rows to list by their distance from the floor (10)
  --json FILE        write everything as JSON
  --markdown FILE    write the tables to a file too
  --note TEXT        kept in the JSON, such as what else the machine did
  --help             this text

Environment: WGPU_BACKEND chooses the backend, TF_WGPU_LOG=info logs what the device does.";

/// The options from the command line.
#[derive(Debug, Default)]
pub struct Options {
    pub filters: Vec<String>,
    pub list: bool,
    pub host: bool,
    pub barriers: bool,
    pub adapters: bool,
    pub adapter: Option<String>,
    pub serve: bool,
    pub once: bool,
    pub candidates: bool,
    pub family: Option<Family>,
    pub quick: bool,
    pub batch: Option<usize>,
    pub worst: usize,
    pub json: Option<PathBuf>,
    pub markdown: Option<PathBuf>,
    pub note: String,
    pub help: bool,
}

impl Options {
    /// Parses the arguments behind the program's name.
    pub fn parse(arguments: Vec<OsString>) -> Result<Self, lexopt::Error> {
        let mut options = Self { worst: 10, ..Self::default() };
        let mut parser = Parser::from_args(arguments);
        while let Some(argument) = parser.next()? {
            match argument {
                Arg::Long("host") => options.host = true,
                Arg::Long("barriers") => options.barriers = true,
                Arg::Long("list") => options.list = true,
                Arg::Long("adapters") => options.adapters = true,
                Arg::Long("adapter") => options.adapter = Some(parser.value()?.string()?),
                Arg::Long("serve") => options.serve = true,
                Arg::Long("once") => options.once = true,
                Arg::Long("candidates") => options.candidates = true,
                Arg::Long("family") => {
                    let named = |name: &str| Family::named(name).ok_or("there is no such family");
                    options.family = Some(parser.value()?.parse_with(named)?);
                }
                Arg::Long("quick") => options.quick = true,
                Arg::Long("batch") => {
                    options.batch = Some(parser.value()?.parse::<usize>()?.max(1))
                }
                Arg::Long("worst") => options.worst = parser.value()?.parse()?,
                Arg::Long("json") => options.json = Some(parser.value()?.into()),
                Arg::Long("markdown") => options.markdown = Some(parser.value()?.into()),
                Arg::Long("note") => options.note = parser.value()?.string()?,
                Arg::Long("help") | Arg::Short('h') => options.help = true,
                Arg::Value(filter) => options.filters.push(filter.string()?.to_lowercase()),
                _ => return Err(argument.unexpected()),
            }
        }
        Ok(options)
    }

    /// Whether a row is asked for.
    pub fn wants(&self, family: &str, name: &str) -> bool {
        let text = format!("{family} {name}").to_lowercase();
        self.filters.is_empty() || self.filters.iter().any(|f| text.contains(f))
    }
}
