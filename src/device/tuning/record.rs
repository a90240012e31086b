//! What tuning has found out, as bytes for the next process.

use prost::Message;

use super::search::Name;
use crate::device::Key;
use crate::error::{Error, Result};

/// Grows whenever questions or names mean something else than before.
const LAYOUT: u32 = 1;

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
}

/// The bytes of these answers, whatever their order.
pub(super) fn encode<'a>(answers: impl Iterator<Item = (&'a Key, Name)>) -> Vec<u8> {
    let mut answers: Vec<_> = answers
        .map(|(question, name)| Answer { question: question.bytes().to_vec(), name })
        .collect();
    answers.sort_unstable_by(|a, b| a.question.cmp(&b.question));
    Record { layout: LAYOUT, answers }.encode_to_vec()
}

/// The answers, or what is wrong with the bytes.
pub(super) fn decode(bytes: &[u8]) -> Result<Vec<(Key, Name)>> {
    let record = Record::decode(bytes).map_err(|e| Error::InvalidArgument(e.to_string()))?;
    if record.layout != LAYOUT {
        return Err(Error::InvalidArgument(format!(
            "it has layout {}, not {LAYOUT}",
            record.layout
        )));
    }
    Ok(record.answers.into_iter().map(|a| (Key::of_bytes(&a.question), a.name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_encoded_is_decoded() {
        let keys: Vec<_> = (0..40).map(|i| Key::new("question").number(i % 7).number(i)).collect();
        let answers = || keys.iter().zip(0..).map(|(key, i)| (key, u64::MAX - i));
        let bytes = encode(answers());
        let mut decoded = decode(&bytes).unwrap();
        assert_eq!(decoded.len(), keys.len());
        for (key, name) in answers() {
            assert!(decoded.contains(&(key.clone(), name)));
        }
        decoded.reverse();
        assert_eq!(encode(decoded.iter().map(|(key, name)| (key, *name))), bytes, "in any order");
        assert_eq!(decode(&encode(std::iter::empty())).unwrap(), []);
    }

    #[test]
    fn what_was_not_encoded_is_refused() {
        let key = Key::new("question");
        let bytes = encode(std::iter::once((&key, 3)));
        assert!(decode(&bytes[..bytes.len() - 1]).is_err());
        assert!(decode(b"no message").is_err());
        assert!(decode(&[]).is_err(), "no layout");
        assert!(
            decode(&Record { layout: LAYOUT + 1, answers: Vec::new() }.encode_to_vec()).is_err()
        );
    }
}
