//! The large tensors in a device's memory, for the message of an allocation that finds no room.
//!
//! TensorFlow cuts tensors out of blocks and does not report when one is free again. So an entry
//! stays until another large tensor lies at its address, or its block is freed. While memory is
//! short, nearly all of it is in use.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::trace::Origin;
use crate::dtype::DType;
use crate::tensor::{Dims, shape_text};

/// Bytes. Smaller tensors do not count.
pub(crate) const LARGE: u64 = 1 << 20;
/// The number of tensors that a message names.
const NAMED: usize = 5;

/// A tensor; the map's key is its first address.
#[derive(Debug)]
struct Entry {
    bytes: u64,
    dtype: DType,
    dims: Dims,
    origin: Arc<Origin>,
}

#[derive(Debug, Default)]
pub(super) struct Ledger(Mutex<BTreeMap<u64, Entry>>);

impl Ledger {
    /// Notes that an op made a tensor of `bytes` bytes at `address`.
    pub fn made(&self, address: u64, bytes: u64, tensor: (DType, &[usize]), origin: &Arc<Origin>) {
        let mut entries = self.0.lock();
        remove(&mut entries, address, bytes);
        let (dtype, dims) = (tensor.0, Dims::from_slice(tensor.1));
        entries.insert(address, Entry { bytes, dtype, dims, origin: origin.clone() });
    }

    /// Notes that this memory is freed.
    pub fn freed(&self, address: u64, bytes: u64) {
        remove(&mut self.0.lock(), address, bytes);
    }

    /// The largest tensors as a sentence; None if there are none.
    pub fn largest(&self) -> Option<String> {
        let entries = self.0.lock();
        let mut sorted: Vec<_> = entries.values().collect();
        sorted.sort_by_key(|entry| std::cmp::Reverse(entry.bytes));
        let named: Vec<_> = sorted
            .iter()
            .take(NAMED)
            .map(|Entry { bytes, dtype, dims, origin }| {
                let Origin { op, node, holds } = &**origin;
                let op = if holds.is_empty() { op } else { holds };
                let shape = shape_text(dims);
                format!("{:.1} MB {dtype}{shape} of {op} ({node})", *bytes as f64 / 1e6)
            })
            .collect();
        (!named.is_empty()).then(|| {
            format!("the largest tensors that ops made in its memory: {}", named.join("; "))
        })
    }
}

/// Removes the entries that overlap the `bytes` bytes at `address`. Entries do not overlap each
/// other.
fn remove(entries: &mut BTreeMap<u64, Entry>, address: u64, bytes: u64) {
    let end = address.saturating_add(bytes);
    while let Some((&start, entry)) = entries.range(..end).next_back()
        && start.saturating_add(entry.bytes) > address
    {
        entries.remove(&start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_are_named_and_what_is_overwritten_is_not() {
        let ledger = Ledger::default();
        assert_eq!(ledger.largest(), None);
        let origin = |node: &str| {
            let (op, holds) = ("Conv2D".to_owned(), String::new());
            Arc::new(Origin { op, node: node.to_owned(), holds })
        };
        let mb = 1_000_000;
        for (i, node) in ["a", "b", "c"].into_iter().enumerate() {
            let i = i as u64;
            ledger.made(10 * mb * i, (i + 1) * mb, (DType::F32, &[7]), &origin(node));
        }
        let text = ledger.largest().unwrap();
        assert!(text.contains("3.0 MB float32[7] of Conv2D (c); 2.0 MB"), "{text}");
        // It begins within b and ends within c.
        ledger.made(11 * mb, 10 * mb, (DType::F16, &[2, 3]), &origin("d"));
        let text = ledger.largest().unwrap();
        assert!(
            text.ends_with(
                ": 10.0 MB float16[2,3] of Conv2D (d); 1.0 MB float32[7] of \
                                Conv2D (a)"
            ),
            "{text}"
        );
        ledger.freed(0, 30 * mb);
        assert_eq!(ledger.largest(), None);
    }
}
