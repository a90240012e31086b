//! Small tables that programs read, kept on the device by their contents, so that a step that needs those of the step before
//! copies nothing and leaves the open pass alone.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::program::Binding;
use crate::error::Result;

/// Bytes of tables that are kept.
const MAX_BYTES: usize = 8 << 20;
/// Tables that are kept.
const MAX_TABLES: usize = 256;

/// A table on the device. It stays there while this lives, and for everything that was enqueued by then.
#[derive(Debug)]
pub struct Table {
    binding: Binding,
    _use: Arc<()>,
}

impl Table {
    /// The table as a program binds it.
    pub const fn binding(&self) -> Binding {
        self.binding
    }
}

/// The tables of a device.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    kept: FxHashMap<Box<[u32]>, Kept>,
    bytes: usize,
    clock: u64,
}

#[derive(Debug)]
struct Kept {
    address: u64,
    /// When it was used last.
    used: u64,
    /// Shared with the [`Table`]s of those that are about to enqueue what reads it.
    uses: Arc<()>,
}

impl Tables {
    /// The table of `words`, which are not empty. `allocate` puts one on the device that is not there yet; `free` gets the
    /// addresses of those that make room for it.
    pub fn get(
        &mut self,
        words: &[u32],
        allocate: impl FnOnce() -> Result<u64>,
        free: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Table> {
        self.clock += 1;
        let table = |kept: &Kept| Table {
            binding: Binding { address: kept.address, bytes: size_of_val(words) as u64, unit: 4 },
            _use: kept.uses.clone(),
        };
        if let Some(kept) = self.kept.get_mut(words) {
            kept.used = self.clock;
            return Ok(table(kept));
        }
        let kept = Kept { address: allocate()?, used: self.clock, uses: Arc::default() };
        let made = table(&kept);
        self.kept.insert(words.into(), kept);
        self.bytes += size_of_val(words);
        self.shrink(free)?;
        Ok(made)
    }

    /// Drops tables that nobody holds, those first that were not used for the longest time, until the bounds are kept.
    fn shrink(&mut self, free: &mut dyn FnMut(u64) -> Result<()>) -> Result<()> {
        while self.kept.len() > MAX_TABLES || self.bytes > MAX_BYTES {
            let idle = self.kept.iter().filter(|(_, kept)| Arc::strong_count(&kept.uses) == 1);
            let Some((words, _)) = idle.min_by_key(|(_, kept)| kept.used) else { break };
            let words = words.clone();
            let kept = self.kept.remove(&words).expect("it was just found");
            self.bytes -= size_of_val(&*words);
            free(kept.address)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tables with made-up addresses, and what was freed.
    #[derive(Default)]
    struct Fake {
        tables: Tables,
        next: u64,
        freed: Vec<u64>,
    }

    impl Fake {
        fn get(&mut self, words: &[u32]) -> Table {
            let Self { tables, next, freed } = self;
            let allocate = || {
                *next += 1;
                Ok(*next)
            };
            let mut free = |address| {
                freed.push(address);
                Ok(())
            };
            tables.get(words, allocate, &mut free).unwrap()
        }

        fn address(&mut self, words: &[u32]) -> u64 {
            self.get(words).binding().address
        }
    }

    #[test]
    fn equal_contents_are_one_table() {
        let mut fake = Fake::default();
        assert_eq!([fake.address(&[1, 2]), fake.address(&[1, 3]), fake.address(&[1, 2])], [1, 2, 1]);
        assert_eq!(fake.get(&[1, 3]).binding(), Binding { address: 2, bytes: 8, unit: 4 });
        assert!(fake.freed.is_empty());
    }

    #[test]
    fn the_oldest_go_but_not_those_in_use() {
        let mut fake = Fake::default();
        let held = fake.get(&[0]);
        for k in 1..MAX_TABLES as u32 {
            fake.get(&[k]);
        }
        assert_eq!(fake.address(&[1]), 2, "used again, it is no longer the second oldest");
        fake.get(&[1000]);
        fake.get(&[1001]);
        assert_eq!(fake.freed, [3, 4]);
        assert_eq!((fake.address(&[0]), fake.address(&[1])), (1, 2));
        assert!(fake.address(&[2]) > MAX_TABLES as u64, "it went, so that it is made anew");
        drop(held);
        assert_eq!(fake.tables.kept.len(), MAX_TABLES);
    }

    #[test]
    fn many_bytes_are_not_kept() {
        let mut fake = Fake::default();
        let words = MAX_BYTES / 4 / 2;
        for k in 0..5 {
            let held = fake.get(&vec![k; words]);
            assert!(fake.tables.bytes <= MAX_BYTES);
            assert!(!fake.freed.contains(&held.binding().address));
        }
        assert_eq!(fake.freed, [1, 2, 3]);
        let larger = fake.get(&vec![9; MAX_BYTES / 4 + 1]);
        assert!(!fake.freed.contains(&larger.binding().address), "what is in use stays, whatever its size");
        drop(larger);
        fake.get(&[1]);
        assert_eq!(fake.tables.bytes, 4);
    }
}
