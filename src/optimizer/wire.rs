//! Protocol buffers at the level of the wire format, so that unknown fields keep their bytes.
//!
//! A message is a sequence of records, each a field's number and its value. Records that the
//! optimizer does not change are passed on as they are, whether our schemas know them or not.

use bytes::BufMut;
use prost::encoding::{WireType, decode_key, decode_varint, encode_key, encode_varint, skip_field};

use crate::error::{Error, Result};

/// A field of a message.
#[derive(Debug, Clone, Copy)]
pub struct Record<'m> {
    /// The field's number.
    pub field: u32,
    /// The key and the value, as they stand in the message.
    pub bytes: &'m [u8],
    /// The contents of a string, of bytes or of a message; empty for numbers.
    pub value: &'m [u8],
}

fn malformed(error: impl std::fmt::Display) -> Error {
    Error::InvalidArgument(format!("the graph is no protocol buffer: {error}"))
}

/// The records of a message, in order. The first malformed record yields `InvalidArgument`.
pub fn records(message: &[u8]) -> impl Iterator<Item = Result<Record<'_>>> {
    let mut rest = message;
    std::iter::from_fn(move || {
        (!rest.is_empty()).then(|| {
            let record = first(rest);
            rest = record.as_ref().map_or(&[], |r| &rest[r.bytes.len()..]);
            record
        })
    })
}

/// The first record of a message.
fn first(message: &[u8]) -> Result<Record<'_>> {
    let mut rest = message;
    let (field, wire_type) = decode_key(&mut rest).map_err(malformed)?;
    let value = if wire_type == WireType::LengthDelimited {
        let length = decode_varint(&mut rest).map_err(malformed)?;
        let parts = usize::try_from(length).ok().and_then(|n| rest.split_at_checked(n));
        let (value, behind) =
            parts.ok_or_else(|| malformed("a field is longer than the message"))?;
        rest = behind;
        value
    } else {
        skip_field(wire_type, field, &mut rest, Default::default()).map_err(malformed)?;
        &[]
    };
    Ok(Record { field, bytes: &message[..message.len() - rest.len()], value })
}

/// Appends a field that is a string, bytes or a message.
pub fn put(out: &mut Vec<u8>, field: u32, value: &[u8]) {
    encode_key(field, WireType::LengthDelimited, out);
    encode_varint(value.len() as u64, out);
    out.put_slice(value);
}

/// The text of a record.
///
/// # Errors
/// `InvalidArgument` if it is not UTF-8.
pub fn text<'m>(record: &Record<'m>) -> Result<&'m str> {
    std::str::from_utf8(record.value).map_err(malformed)
}

/// An entry of a map from strings to messages.
///
/// # Errors
/// `InvalidArgument` if the record is not such an entry.
pub fn entry<'m>(record: &Record<'m>) -> Result<(&'m str, &'m [u8])> {
    let (mut key, mut value): (&str, &[u8]) = ("", &[]);
    for part in records(record.value) {
        let part = part?;
        match part.field {
            1 => key = text(&part)?,
            2 => value = part.value,
            _ => {}
        }
    }
    Ok((key, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_join_to_the_message() {
        let mut message = Vec::new();
        put(&mut message, 3, b"abc");
        encode_key(70_000, WireType::Varint, &mut message);
        encode_varint(300, &mut message);
        encode_key(5, WireType::ThirtyTwoBit, &mut message);
        message.extend([1, 2, 3, 4]);
        put(&mut message, 3, b"");
        let records: Vec<Record<'_>> = records(&message).collect::<Result<_>>().unwrap();
        assert_eq!(records.iter().map(|r| r.field).collect::<Vec<_>>(), [3, 70_000, 5, 3]);
        assert_eq!(records[0].value, b"abc");
        assert_eq!(records.iter().flat_map(|r| r.bytes.to_vec()).collect::<Vec<_>>(), message);
    }

    #[test]
    fn what_is_cut_off_is_an_error() {
        let mut message = Vec::new();
        put(&mut message, 3, b"abc");
        for end in [1, 2, 4] {
            assert!(records(&message[..end]).any(|r| r.is_err()));
        }
    }
}
