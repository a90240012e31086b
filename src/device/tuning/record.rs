//! The answers of tuning, as bytes for the next process.

use prost::Message;

use super::search::Name;
use crate::device::Key;
use crate::error::{Error, Result};

/// Grows whenever the meaning of questions or names changes.
const LAYOUT: u32 = 2;

#[derive(Clone, PartialEq, Message)]
struct Record {
    #[prost(uint32, tag = "1")]
    layout: u32,
    #[prost(message, repeated, tag = "2")]
    answers: Vec<Answer>,
}

#[derive(Clone, PartialEq, Message)]
struct Answer {
    #[prost(bytes = "vec", tag = "1")]
    question: Vec<u8>,
    #[prost(fixed64, tag = "2")]
    name: Name,
    #[prost(bool, tag = "3")]
    is_begun: bool,
}

/// A row of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kept {
    pub question: Key,
    /// The answer; for an unfinished search, the estimate's choice.
    pub name: Name,
    /// Whether the search has begun and not ended.
    pub is_begun: bool,
}

/// The bytes of these rows, independent of their order.
pub(super) fn encode(kept: Vec<Kept>) -> Vec<u8> {
    let mut answers: Vec<_> = kept
        .into_iter()
        .map(|Kept { question, name, is_begun }| Answer {
            question: question.bytes().to_vec(),
            name,
            is_begun,
        })
        .collect();
    answers.sort_unstable_by(|a, b| a.question.cmp(&b.question));
    Record { layout: LAYOUT, answers }.encode_to_vec()
}

/// The rows, or an error that describes the bytes.
pub(super) fn decode(bytes: &[u8]) -> Result<Vec<Kept>> {
    let record = Record::decode(bytes).map_err(|e| Error::InvalidArgument(e.to_string()))?;
    if record.layout != LAYOUT {
        return Err(Error::InvalidArgument(format!(
            "it has layout {}, not {LAYOUT}",
            record.layout
        )));
    }
    let rows = record.answers.into_iter().map(|a| Kept {
        question: Key::of_bytes(&a.question),
        name: a.name,
        is_begun: a.is_begun,
    });
    Ok(rows.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(i: u32) -> Kept {
        let question = Key::new("question").number(i % 7).number(i);
        Kept { question, name: u64::MAX - u64::from(i), is_begun: i.is_multiple_of(3) }
    }

    #[test]
    fn what_was_encoded_is_decoded() {
        let rows: Vec<_> = (0..40).map(row).collect();
        let bytes = encode(rows.clone());
        let mut decoded = decode(&bytes).unwrap();
        assert_eq!(decoded.len(), rows.len());
        assert!(rows.iter().all(|row| decoded.contains(row)));
        decoded.reverse();
        assert_eq!(encode(decoded), bytes, "in any order");
        assert_eq!(decode(&encode(Vec::new())).unwrap(), []);
    }

    #[test]
    fn what_was_not_encoded_is_refused() {
        let bytes = encode(vec![row(1)]);
        assert!(decode(&bytes[..bytes.len() - 1]).is_err());
        assert!(decode(b"no message").is_err());
        assert!(decode(&[]).is_err(), "no layout");
        assert!(
            decode(&Record { layout: LAYOUT + 1, answers: Vec::new() }.encode_to_vec()).is_err()
        );
    }
}
