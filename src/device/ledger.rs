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
/// The number of tensors, and of ops, that a message names.
const NAMED: usize = 5;

/// A tensor; the map's key is its first address.
#[derive(Debug)]
struct Entry {
    bytes: u64,
    maker: Maker,
}

/// What wrote a tensor first.
#[derive(Debug)]
enum Maker {
    /// An op, which knows the tensor's type and shape.
    Op { dtype: DType, dims: Dims, origin: Arc<Origin> },
    /// A copy from the host: weights that were loaded, or data.
    Host,
}

impl Maker {
    /// The op, or the ops that a fused one replaces.
    fn name(&self) -> &str {
        match self {
            Self::Op { origin, .. } if origin.holds.is_empty() => &origin.op,
            Self::Op { origin, .. } => &origin.holds,
            Self::Host => "copies from the host",
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Ledger(Mutex<BTreeMap<u64, Entry>>);

impl Ledger {
    /// Notes that an op made a tensor of `bytes` bytes at `address`.
    pub fn made(&self, address: u64, bytes: u64, tensor: (DType, &[usize]), origin: &Arc<Origin>) {
        let (dtype, dims) = (tensor.0, Dims::from_slice(tensor.1));
        self.insert(address, bytes, Maker::Op { dtype, dims, origin: origin.clone() });
    }

    /// Notes that `bytes` bytes of the host were copied to `address`.
    pub fn uploaded(&self, address: u64, bytes: u64) {
        self.insert(address, bytes, Maker::Host);
    }

    fn insert(&self, address: u64, bytes: u64, maker: Maker) {
        let mut entries = self.0.lock();
        remove(&mut entries, address, bytes);
        entries.insert(address, Entry { bytes, maker });
    }

    /// Notes that this memory is freed.
    pub fn freed(&self, address: u64, bytes: u64) {
        remove(&mut self.0.lock(), address, bytes);
    }

    /// The largest tensors, and the ops that made most of the memory, as a text; None if there are
    /// no tensors.
    pub fn largest(&self) -> Option<String> {
        let entries = self.0.lock();
        let mut sorted: Vec<_> = entries.values().collect();
        sorted.sort_by_key(|entry| std::cmp::Reverse(entry.bytes));
        let named: Vec<_> = sorted
            .iter()
            .take(NAMED)
            .map(|Entry { bytes, maker }| match maker {
                Maker::Op { dtype, dims, origin } => {
                    let (shape, node) = (shape_text(dims), &origin.node);
                    format!("{} {dtype}{shape} of {} ({node})", megabytes(*bytes), maker.name())
                }
                Maker::Host => format!("{} copied from the host", megabytes(*bytes)),
            })
            .collect();
        let mut sums: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
        for entry in &sorted {
            let (count, bytes) = sums.entry(entry.maker.name()).or_default();
            *count += 1;
            *bytes += entry.bytes;
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by_key(|(_, (_, bytes))| std::cmp::Reverse(*bytes));
        let sums: Vec<_> = sums
            .iter()
            .take(NAMED)
            .map(|(name, (count, bytes))| format!("{} in {count} of {name}", megabytes(*bytes)))
            .collect();
        (!named.is_empty()).then(|| {
            let (named, sums) = (named.join("; "), sums.join("; "));
            format!("the largest tensors in its memory: {named}. All large tensors: {sums}")
        })
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
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
        assert!(text.ends_with("All large tensors: 6.0 MB in 3 of Conv2D"), "{text}");
        // One begins within b and ends within c, the other lies at the end of it.
        ledger.made(11 * mb, 10 * mb, (DType::F16, &[2, 3]), &origin("d"));
        ledger.uploaded(20 * mb, 4 * mb);
        let text = ledger.largest().unwrap();
        assert!(
            text.ends_with(
                ": 4.0 MB copied from the host; 1.0 MB float32[7] of Conv2D (a). All large \
                 tensors: 4.0 MB in 1 of copies from the host; 1.0 MB in 1 of Conv2D"
            ),
            "{text}"
        );
        ledger.freed(0, 30 * mb);
        assert_eq!(ledger.largest(), None);
    }
}
