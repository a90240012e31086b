//! What is known of matrix units, as bytes for the next process.

use prost::Message;

use super::{Known, Verdict};
use crate::device::matrices::Cooperative;
use crate::dtype::DType;
use crate::error::{Error, Result};

/// Grows whenever rows mean something else than before, or programs of matrices change.
const LAYOUT: u32 = 1;

#[derive(Clone, PartialEq, Message)]
struct Record {
    #[prost(uint32, tag = "1")]
    layout: u32,
    #[prost(message, repeated, tag = "2")]
    rows: Vec<Row>,
}

/// What is known of the matrices of one size and element type.
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
    /// Lanes of a verdict, or probes begun.
    #[prost(uint32, tag = "4")]
    number: u32,
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
        Self { size: offered.size.id(), wide, state: state as i32, number }
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

/// The rows, or what is wrong with the bytes.
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
