//! The knowledge about matrix units, as bytes for the next process.

use std::time::SystemTime;

use prost::Message;

use super::{Known, Verdict};
use crate::device::matrices::Cooperative;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::sys;
use crate::sys::process::Started;

/// Grows whenever the meaning of rows changes, or programs of matrices change.
const LAYOUT: u32 = 1;

#[derive(Clone, PartialEq, Message)]
struct Record {
    #[prost(uint32, tag = "1")]
    layout: u32,
    #[prost(message, repeated, tag = "2")]
    rows: Vec<Row>,
}

/// The knowledge about the matrices of one size and element type.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Row {
    /// `MatrixSize::id`.
    #[prost(uint32, tag = "1")]
    size: u32,
    /// Whether elements are f32.
    #[prost(bool, tag = "2")]
    wide: bool,
    #[prost(enumeration = "State", tag = "3")]
    state: i32,
    /// The lanes of a verdict, or the number of probes that did not end.
    #[prost(uint32, tag = "4")]
    number: u32,
    /// Probes under way, as far as is known.
    #[prost(message, repeated, tag = "5")]
    pub probes: Vec<Probe>,
}

/// A probe that a process has begun.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Probe {
    /// The process.
    #[prost(uint32, tag = "1")]
    process: u32,
    /// The process's start time, by its system; 0 if it is unknown.
    #[prost(uint64, tag = "2")]
    started: u64,
    /// The system on which the process number is valid, see [`sys::process::place`].
    #[prost(string, tag = "3")]
    place: String,
    /// When the probe began: seconds since 1970.
    #[prost(uint64, tag = "4")]
    began: u64,
}

/// How many seconds a probe counts as under way if its process cannot be looked up.
const PATIENCE: u64 = 600;

impl Probe {
    /// A probe of the process with this number, which begins now.
    pub fn of(process: u32) -> Self {
        let started = match sys::process::started(process) {
            Started::At(at) => at,
            Started::Never | Started::Unknown => 0,
        };
        Self { process, started, place: sys::process::place(), began: now() }
    }

    /// Another probe of the same process.
    pub fn begun_now(&self) -> Self {
        Self { began: now(), ..self.clone() }
    }

    /// Whether its process may still be probing.
    pub fn is_under_way(&self) -> bool {
        let is_young = now().saturating_sub(self.began) < PATIENCE;
        if self.place != sys::process::place() {
            return is_young;
        }
        match sys::process::started(self.process) {
            Started::At(at) if self.started > 0 => at == self.started,
            Started::Never => false,
            Started::At(_) | Started::Unknown => is_young,
        }
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
enum State {
    Nothing = 0,
    Pays = 1,
    Slower = 2,
    Wrong = 3,
    Begun = 4,
}

impl Row {
    pub fn of(offered: &Cooperative, known: Known) -> Self {
        let (state, number) = match known {
            Known::Verdict(Verdict::Pays { lanes }) => (State::Pays, lanes),
            Known::Verdict(Verdict::Slower { lanes }) => (State::Slower, lanes),
            Known::Verdict(Verdict::Wrong) => (State::Wrong, 0),
            Known::Begun(count) => (State::Begun, count),
        };
        let wide = offered.element == DType::F32;
        Self { size: offered.size.id(), wide, state: state as i32, number, probes: Vec::new() }
    }

    /// The same row with other knowledge. A row without knowledge is kept, as long as probes are
    /// under way.
    pub fn knowing(&self, offered: &Cooperative, known: Option<Known>) -> Self {
        let known = known.map(|known| Self::of(offered, known));
        let nothing = Self { state: State::Nothing as i32, number: 0, ..self.clone() };
        Self { probes: self.probes.clone(), ..known.unwrap_or(nothing) }
    }

    /// A row without knowledge.
    pub fn nothing(offered: &Cooperative) -> Self {
        Self { state: State::Nothing as i32, ..Self::of(offered, Known::Begun(0)) }
    }

    pub fn is_of(&self, offered: &Cooperative) -> bool {
        (self.size, self.wide) == (offered.size.id(), offered.element == DType::F32)
    }

    pub fn known(&self) -> Option<Known> {
        let lanes = self.number;
        Some(match self.state() {
            State::Nothing => return None,
            State::Pays => Known::Verdict(Verdict::Pays { lanes }),
            State::Slower => Known::Verdict(Verdict::Slower { lanes }),
            State::Wrong => Known::Verdict(Verdict::Wrong),
            State::Begun => Known::Begun(self.number),
        })
    }
}

pub(super) fn encode(rows: &[Row]) -> Vec<u8> {
    Record { layout: LAYOUT, rows: rows.to_vec() }.encode_to_vec()
}

/// The rows, or an error that describes the bytes.
pub(super) fn decode(bytes: &[u8]) -> Result<Vec<Row>> {
    let record = Record::decode(bytes).map_err(|e| Error::InvalidArgument(e.to_string()))?;
    if record.layout != LAYOUT {
        return Err(Error::InvalidArgument(format!(
            "it has layout {}, not {LAYOUT}",
            record.layout
        )));
    }
    Ok(record.rows)
}
