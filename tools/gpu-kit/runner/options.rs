//! The command line's options.

use std::path::PathBuf;
use std::time::Duration;

use lexopt::{Arg, Parser, ValueExt};

/// The options from the command line.
#[derive(Debug)]
pub struct Options {
    /// Whether to run only a sample.
    pub short: bool,
    /// The folder for results.
    pub out: PathBuf,
    /// How long the whole run may take.
    pub time: Duration,
}

impl Options {
    /// Parses the arguments behind the program's name. None if they ask for help.
    pub fn parse(arguments: Vec<std::ffi::OsString>) -> Result<Option<Self>, lexopt::Error> {
        let (mut short, mut out, mut seconds) = (false, PathBuf::from("."), None);
        let mut parser = Parser::from_args(arguments);
        while let Some(argument) = parser.next()? {
            match argument {
                Arg::Long("short") => short = true,
                Arg::Long("out") => out = parser.value()?.into(),
                Arg::Long("seconds") => seconds = Some(parser.value()?.parse::<u64>()?.max(1)),
                Arg::Long("help") | Arg::Short('h') => return Ok(None),
                _ => return Err(argument.unexpected()),
            }
        }
        let time = Duration::from_secs(seconds.unwrap_or(if short { 270 } else { 540 }));
        Ok(Some(Self { short, out, time }))
    }
}
