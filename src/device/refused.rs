//! The forms of shaders that the driver has refused, in this process and in earlier ones.

use std::path::Path;

use parking_lot::Mutex;
use prost::Message;
use rustc_hash::FxHashMap;

use super::cache::Store;
use super::program::Key;

/// Grows whenever the meaning of rows changes.
const LAYOUT: u32 = 1;
/// The largest number of shaders that are kept: a driver that refuses more has another fault.
const MOST: usize = 4096;

/// The form in which a driver gets a shader. Forms are tried in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Form {
    /// With all features of the adapter.
    Usual,
    /// With only the guarantees of WebGPU for every adapter: parameters come from a uniform buffer,
    /// 64-bit integers are pairs of words, and integers convert to float16.
    Portable,
    /// Like [`Form::Portable`], and the driver makes no optimizations.
    Unoptimized,
}

impl Form {
    const ALL: [Self; 3] = [Self::Usual, Self::Portable, Self::Unoptimized];
}

#[derive(Clone, PartialEq, Message)]
struct Record {
    #[prost(uint32, tag = "1")]
    layout: u32,
    #[prost(message, repeated, tag = "2")]
    rows: Vec<Row>,
}

#[derive(Clone, PartialEq, Message)]
struct Row {
    /// The shader's key.
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    /// The place in [`Form::ALL`] of the last form that was refused.
    #[prost(uint32, tag = "2")]
    form: u32,
}

/// The last form of each shader that the driver has refused.
#[derive(Default)]
pub(super) struct RefusedForms {
    known: Mutex<FxHashMap<Key, Form>>,
    store: Option<Store>,
}

impl RefusedForms {
    /// Reads the forms stored in a directory for an adapter and its driver. New ones are added
    /// there.
    pub fn open(info: &wgpu::AdapterInfo, directory: Option<&Path>) -> Self {
        let store =
            directory.map(|directory| Store::of("file of shaders", info, directory, "refused"));
        let known = store.as_ref().and_then(Store::read).map(|bytes| rows(&bytes));
        Self { known: Mutex::new(known.unwrap_or_default()), store }
    }

    /// The last form of this shader that was refused.
    pub fn last(&self, key: &Key) -> Option<Form> {
        self.known.lock().get(key).copied()
    }

    /// Notes that a form was refused, and stores it together with the refusals that other processes
    /// have noted.
    pub fn add(&self, key: &Key, form: Form) {
        let mut known = self.known.lock();
        put(&mut known, key.clone(), form);
        if let Some(store) = &self.store {
            store.change(|bytes| {
                for (key, form) in bytes.map(|bytes| rows(&bytes)).unwrap_or_default() {
                    put(&mut known, key, form);
                }
                encode(&known)
            });
        }
    }
}

fn put(known: &mut FxHashMap<Key, Form>, key: Key, form: Form) {
    if known.len() < MOST || known.contains_key(&key) {
        known.entry(key).and_modify(|last| *last = form.max(*last)).or_insert(form);
    }
}

fn encode(known: &FxHashMap<Key, Form>) -> Vec<u8> {
    let row = |(key, form): (&Key, &Form)| Row { key: key.bytes().to_vec(), form: *form as u32 };
    let mut rows: Vec<Row> = known.iter().map(row).collect();
    rows.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    Record { layout: LAYOUT, rows }.encode_to_vec()
}

/// The rows of a file; none if the file has other contents.
fn rows(bytes: &[u8]) -> FxHashMap<Key, Form> {
    let record = Record::decode(bytes).ok().filter(|record| record.layout == LAYOUT);
    let rows = record.map(|record| record.rows).unwrap_or_default();
    rows.into_iter()
        .filter_map(|row| Some((Key::of_bytes(&row.key), *Form::ALL.get(row.form as usize)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_again() {
        let mut known = FxHashMap::default();
        for (number, form) in (0..).zip(Form::ALL) {
            put(&mut known, Key::new("shader").number(number), form);
        }
        assert_eq!(rows(&encode(&known)), known);
        let key = Key::new("shader").number(2);
        put(&mut known, key.clone(), Form::Usual);
        assert_eq!(known[&key], Form::Unoptimized, "later forms stay");
    }

    #[test]
    fn what_is_no_file_of_shaders_holds_none() {
        let key = Key::new("shader").bytes().to_vec();
        let with = |layout, form| {
            let rows = vec![Row { key: key.clone(), form }];
            Record { layout, rows }.encode_to_vec()
        };
        assert_eq!(rows(&with(LAYOUT, 1)).len(), 1);
        for bytes in [with(LAYOUT + 1, 1), with(LAYOUT, 3), b"no message".to_vec(), Vec::new()] {
            assert!(rows(&bytes).is_empty(), "{bytes:?}");
        }
    }

    #[test]
    fn no_more_shaders_are_kept_than_a_file_should_hold() {
        let mut known = FxHashMap::default();
        for number in 0..=MOST as u32 {
            put(&mut known, Key::new("shader").number(number), Form::Usual);
        }
        assert_eq!(known.len(), MOST);
    }
}
