//! Tuning: finds which of several programs with the same result is the fastest on this adapter, by
//! timing them.
//!
//! This module owns the answers and the file that keeps them; the caller knows the meaning of a
//! question and of a candidate. The first call with a question waits while its candidates are
//! timed, on a separate device ([`Device::beside`]), so that a driver that fails in one harms no
//! tensors. An answer stays for the rest of the process. Processes that start together take turns
//! and have the same answers.

mod record;
mod search;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;

use super::Device;
use super::cache::Store;
use super::program::Key;
use crate::error::{Error, Result};
use record::Kept;
pub use search::{Fastest, Name, Names};

/// The largest number of questions. Further ones get no answer.
const MOST_QUESTIONS: usize = 4096;

/// Whether `TF_WGPU_AUTOTUNE`, as `lookup` gives it, asks for tuning on an adapter. It is off by
/// default, because the order in which sums are added depends on the program. It is always off on
/// software adapters, because the load of other processes decides what is fast there.
pub(crate) fn is_wanted(lookup: &dyn Fn(&str) -> Option<String>, software: bool) -> bool {
    let value = lookup("TF_WGPU_AUTOTUNE").map(|v| v.trim().to_lowercase());
    !software && matches!(value.as_deref(), Some("1" | "on" | "true"))
}

/// The answers: None if timing gave no result.
type Table = FxHashMap<Key, Option<Name>>;

/// The answers for one device.
pub struct Tuner {
    table: RwLock<Table>,
    /// Held while candidates are timed.
    searching: Mutex<()>,
    /// The device on which candidates are timed, once there is one.
    apart: Mutex<Option<Arc<Device>>>,
    /// Whether that device was lost. It is not opened again.
    given_up: AtomicBool,
    timings: AtomicU64,
    deterministic: Box<dyn Fn() -> bool + Send + Sync>,
    store: Option<Store>,
}

impl std::fmt::Debug for Tuner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tuner").field("answers", &self.answers()).finish_non_exhaustive()
    }
}

impl Tuner {
    /// The answers that a directory holds for an adapter, none without a directory. While
    /// `deterministic` returns true, no answer is given and nothing is timed.
    pub(crate) fn open(
        info: &wgpu::AdapterInfo,
        directory: Option<&Path>,
        deterministic: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        let tuner = Self {
            table: RwLock::default(),
            searching: Mutex::default(),
            apart: Mutex::default(),
            given_up: AtomicBool::new(false),
            timings: AtomicU64::new(0),
            deterministic: Box::new(deterministic),
            store: directory.map(|directory| Self::store(info, directory)),
        };
        tuner.adopt(&tuner.kept(), false);
        tuner
    }

    fn store(info: &wgpu::AdapterInfo, directory: &Path) -> Store {
        Store::of("tuning file", info, directory, "tuning")
    }

    /// The rows of the file.
    fn kept(&self) -> Vec<Kept> {
        self.store.as_ref().map_or_else(Vec::new, |store| rows(store, store.read()))
    }

    /// Takes answers of other processes for questions that have none here. If `that_ended`, the
    /// process of every unfinished search is gone, and the estimate's choice becomes the answer.
    fn adopt(&self, kept: &[Kept], that_ended: bool) {
        let mut table = self.table.write();
        for Kept { question, name, is_begun } in kept {
            let room = table.len() < MOST_QUESTIONS;
            if room && (that_ended || !is_begun) && !table.contains_key(question) {
                table.insert(question.clone(), Some(*name));
            }
        }
    }

    /// Stores a row, under a lock among all processes or with the lock that this process has. An
    /// answer that is there already stays, and becomes this process's answer. None removes the row
    /// of an unfinished search.
    fn keep(&self, question: &Key, row: Option<Kept>, has_lock: bool) {
        let Some(store) = &self.store else { return };
        let change = |mut kept: Vec<Kept>| {
            let other = kept.iter().position(|k| k.question == *question);
            match (other, row) {
                (Some(at), _) if !kept[at].is_begun => {}
                (Some(at), Some(row)) => kept[at] = row,
                (Some(at), None) => drop(kept.remove(at)),
                (None, row) => kept.extend(row),
            }
            self.adopt(&kept, false);
            record::encode(kept)
        };
        if has_lock {
            store.write(&change(self.kept()));
        } else {
            store.change(|bytes| change(rows(store, bytes)));
        }
    }

    /// The fastest candidate, or None for the choice without tuning. For a question without an
    /// answer, `candidates` returns the candidates, the choice without tuning first. `device` is
    /// the device that will run the fastest one. `time` returns the nanoseconds of a candidate on a
    /// separate device.
    pub fn answer(
        &self,
        question: &Key,
        device: &Device,
        candidates: &dyn Fn() -> Names,
        time: &mut dyn FnMut(&Arc<Device>, Name) -> Result<u64>,
    ) -> Option<Name> {
        // Checked each time: a program may ask for determinism at any moment.
        if (self.deterministic)() {
            return None;
        }
        if let Some(answer) = self.table.read().get(question) {
            return *answer;
        }
        // There is no answer yet if this thread may not wait or there is nothing to choose; a later
        // call may search.
        if self.given_up.load(Ordering::Relaxed) || device.may_wait().is_err() {
            return None;
        }
        let names = candidates();
        if names.len() < 2 {
            return None;
        }
        self.search(question, &names, &mut |name| {
            let apart = self.apart(device)?;
            self.timings.fetch_add(1, Ordering::Relaxed);
            time(&apart, name)
        })
    }

    /// The device on which candidates are timed. Waits until `device` is idle.
    fn apart(&self, device: &Device) -> Result<Arc<Device>> {
        device.wait_idle()?;
        let mut apart = self.apart.lock();
        match &*apart {
            Some(apart) => Ok(apart.clone()),
            None => Ok(apart.insert(device.beside()?).clone()),
        }
    }

    /// Times the candidates, unless another thread or process did meanwhile.
    fn search(
        &self,
        question: &Key,
        names: &[Name],
        time: &mut dyn FnMut(Name) -> Result<u64>,
    ) -> Option<Name> {
        let _searching = self.searching.lock();
        // A process that searches holds the lock: without the lock, marks of searches are
        // meaningless.
        let lock = self.store.as_ref().and_then(Store::lock);
        if self.table.read().get(question).is_none() {
            self.adopt(&self.kept(), lock.is_some());
        }
        let is_full = {
            let table = self.table.read();
            if let Some(answer) = table.get(question) {
                return *answer;
            }
            table.len() >= MOST_QUESTIONS
        };
        if is_full {
            return None;
        }
        let begun = Kept { question: question.clone(), name: names[0], is_begun: true };
        self.keep(question, Some(begun), lock.is_some());
        let found = search::fastest(names, time);
        match &found {
            Ok(Some((name, percent))) => {
                log::debug!("{percent} % of the estimated choice's time: {name:#x} for {question}");
                let row = Kept { question: question.clone(), name: *name, is_begun: false };
                self.keep(question, Some(row), lock.is_some());
            }
            Ok(None) | Err(Error::ResourceExhausted(_)) => {
                self.keep(question, None, lock.is_some());
            }
            // The mark of the search stays: no process tries it again.
            Err(e) => {
                log::warn!("tuning ends: {e}");
                self.given_up.store(true, Ordering::Relaxed);
                *self.apart.lock() = None;
            }
        }
        let name = found.ok().flatten().map(|(name, _)| name);
        *self.table.write().entry(question.clone()).or_insert(name)
    }

    /// Removes an invalid answer, here and in the file.
    pub fn forget(&self, question: &Key) {
        self.table.write().remove(question);
        if let Some(store) = &self.store {
            store.change(|bytes| {
                let mut kept = rows(store, bytes);
                kept.retain(|k| k.question != *question);
                record::encode(kept)
            });
        }
    }

    /// The answers so far.
    pub fn answers(&self) -> Vec<(Key, Name)> {
        let table = self.table.read();
        table.iter().filter_map(|(question, name)| Some((question.clone(), (*name)?))).collect()
    }

    /// The number of timings so far.
    pub fn timings(&self) -> u64 {
        self.timings.load(Ordering::Relaxed)
    }

    /// The questions so far.
    #[cfg(test)]
    pub(crate) fn questions(&self) -> Vec<Key> {
        self.table.read().keys().cloned().collect()
    }

    /// Stores the answer to a question, like a file does.
    #[cfg(test)]
    pub(crate) fn tell(&self, question: &Key, name: Name) {
        self.table.write().insert(question.clone(), Some(name));
    }
}

/// The rows that a file holds. A file with other contents is discarded.
fn rows(store: &Store, bytes: Option<Vec<u8>>) -> Vec<Kept> {
    let Some(bytes) = bytes else { return Vec::new() };
    record::decode(&bytes).unwrap_or_else(|e| {
        store.discard(&e.to_string());
        Vec::new()
    })
}

#[cfg(test)]
mod tests;
