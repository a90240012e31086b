//! The verdict on an adapter's numbers, kept for the next process.

use std::path::Path;

use prost::Message;

use super::Verdict;
use crate::device::cache::{Lock, Store};

/// Grows whenever cases or kernels change so much that adapters should be checked again.
const LAYOUT: u32 = 2;

#[derive(Clone, PartialEq, Message)]
struct Record {
    #[prost(uint32, tag = "1")]
    layout: u32,
    /// The place in [`Verdict::ALL`], plus 1; 0 while there is none.
    #[prost(uint32, tag = "2")]
    verdict: u32,
    /// Checks that began and did not finish, because their processes died.
    #[prost(uint32, tag = "3")]
    begun: u32,
}

/// The file of an adapter and driver.
pub(super) struct File(Store);

/// The contents of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    Verdict(Verdict),
    /// The number of processes that ended while they checked.
    Begun(u32),
}

impl File {
    pub fn of(info: &wgpu::AdapterInfo, directory: &Path) -> Self {
        Self(Store::of("file of checked numbers", info, directory, "checked"))
    }

    /// Like [`File::of`], for an option of the profile.
    pub fn of_option(info: &wgpu::AdapterInfo, directory: &Path, suffix: &str) -> Self {
        Self(Store::of("file of a checked option", info, directory, suffix))
    }

    /// Keeps other processes from checking the same adapter. None if files cannot be locked, or if
    /// another process holds the lock for too long.
    pub fn lock(&self) -> Option<Lock> {
        self.0.lock()
    }

    pub fn read(&self) -> Known {
        self.0.read().and_then(|bytes| decode(&bytes)).unwrap_or(Known::Begun(0))
    }

    pub fn write(&self, known: Known) {
        self.0.write(&encode(known));
    }
}

fn encode(known: Known) -> Vec<u8> {
    let (verdict, begun) = match known {
        Known::Verdict(verdict) => (verdict as u32 + 1, 0),
        Known::Begun(count) => (0, count),
    };
    Record { layout: LAYOUT, verdict, begun }.encode_to_vec()
}

/// The contents of a file, unless it has another layout.
fn decode(bytes: &[u8]) -> Option<Known> {
    let record = Record::decode(bytes).ok().filter(|record| record.layout == LAYOUT)?;
    Some(match record.verdict.checked_sub(1) {
        Some(place) => Known::Verdict(*Verdict::ALL.get(place as usize)?),
        None => Known::Begun(record.begun),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_encoded_is_decoded() {
        let verdicts = Verdict::ALL.map(Known::Verdict);
        for known in verdicts.into_iter().chain([Known::Begun(0), Known::Begun(3)]) {
            assert_eq!(decode(&encode(known)), Some(known));
        }
        for (layout, verdict) in [(LAYOUT + 1, 1), (LAYOUT, 4)] {
            assert_eq!(decode(&Record { layout, verdict, begun: 0 }.encode_to_vec()), None);
        }
        assert_eq!(decode(b"no message"), None);
    }
}
