//! Tuning: which of several programs that give the same result is the fastest on this adapter,
//! found out by timing them in the place of each other while work goes on.
//!
//! Owns the answers, the searches for them and the file that keeps them; who asks knows what a
//! question and a candidate are. A question's first call runs what was estimated, later ones run
//! the candidates in turn, each between two marks of a [`Timer`](super::Timer). Nothing is run
//! twice and nobody waits: the completion thread brings the times. An answer stays what it is for
//! the rest of the process.

mod record;
mod search;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::RwLock;
use rustc_hash::FxHashMap;

use super::cache::{Saver, Store};
use super::program::Key;
pub use search::{Name, Names, Shape};
use search::{Outcome, Search};

/// Most questions. Further ones get no answer.
const MOST_QUESTIONS: usize = 4096;

/// Whether `TF_WGPU_AUTOTUNE`, as `lookup` gives it, asks for tuning on an adapter. It is off by
/// default, since which program runs decides in which order sums are added; and on software
/// adapters always, since other processes decide what is fast there.
pub(crate) fn is_wanted(lookup: &dyn Fn(&str) -> Option<String>, software: bool) -> bool {
    let value = lookup("TF_WGPU_AUTOTUNE").map(|v| v.trim().to_lowercase());
    !software && matches!(value.as_deref(), Some("1" | "on" | "true"))
}

/// What is known of a question.
enum State {
    Searching(Box<Search>),
    Answered(Name),
    /// Timing came to nothing.
    Unanswered,
}

type Table = RwLock<FxHashMap<Key, State>>;

/// The answers for one device.
pub struct Tuner {
    table: Arc<Table>,
    /// Whether a call is between its marks. Another one's would overlap.
    marking: AtomicBool,
    timings: AtomicU64,
    deterministic: Box<dyn Fn() -> bool + Send + Sync>,
    saver: Option<Saver>,
}

impl std::fmt::Debug for Tuner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tuner").field("answers", &self.answers()).finish_non_exhaustive()
    }
}

/// What a call is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pick {
    /// What is estimated to be the fastest.
    Estimate,
    /// What was found to be the fastest.
    Answer(Name),
    /// One of these, timed, and in this order of preference; else what is estimated.
    Time(Names),
}

impl Tuner {
    /// The answers that a directory holds for an adapter, and none without one. While
    /// `deterministic` says so, no answer is given and nothing is timed.
    pub(crate) fn open(
        info: &wgpu::AdapterInfo,
        directory: Option<&Path>,
        deterministic: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        let table = Arc::new(Table::default());
        let saver = directory.map(|directory| {
            let store = Self::store(info, directory);
            if let Some(bytes) = store.read() {
                match record::decode(&bytes) {
                    Ok(answers) => {
                        let answers = answers.into_iter().take(MOST_QUESTIONS);
                        table.write().extend(
                            answers.map(|(question, name)| (question, State::Answered(name))),
                        );
                    }
                    Err(e) => store.discard(&e.to_string()),
                }
            }
            let kept = table.clone();
            store.keep(move || Some(record::encode(answered(&kept.read()))))
        });
        Self {
            table,
            marking: AtomicBool::new(false),
            timings: AtomicU64::new(0),
            deterministic: Box::new(deterministic),
            saver,
        }
    }

    fn store(info: &wgpu::AdapterInfo, directory: &Path) -> Store {
        Store::of("tuning file", info, directory, "tuning")
    }

    /// What a call of this question and shape is to do. `candidates` gives the candidates for the
    /// shape, the estimate's choice first.
    pub fn pick(&self, question: &Key, shape: Shape, candidates: &dyn Fn() -> Names) -> Pick {
        // Asked each time: a program may ask for determinism at any moment.
        if (self.deterministic)() {
            return Pick::Estimate;
        }
        match self.table.read().get(question) {
            Some(State::Answered(name)) => return Pick::Answer(*name),
            Some(State::Unanswered) => return Pick::Estimate,
            Some(State::Searching(_)) | None => {}
        }
        let mut table = self.table.write();
        let room = table.len() < MOST_QUESTIONS;
        match table.get_mut(question) {
            Some(State::Searching(search)) => {
                if search.meet(shape) {
                    return Pick::Time(search.wanted());
                }
                if search.is_abandoned() {
                    **search = Search::new(shape, &candidates());
                }
            }
            None if room => {
                let names = candidates();
                // Where there is nothing to choose here, a neighbour of the same question may still
                // have to.
                if names.len() > 1 {
                    table.insert(
                        question.clone(),
                        State::Searching(Box::new(Search::new(shape, &names))),
                    );
                }
            }
            _ => {}
        }
        Pick::Estimate
    }

    /// Begins to time a candidate: the mark of its beginning may be set. None while another call is
    /// between its marks, and if the timing is not wanted any more.
    pub fn begin(
        self: &Arc<Self>,
        question: &Key,
        shape: Shape,
        name: Name,
    ) -> Option<(Marking<'_>, Timing)> {
        if self.marking.swap(true, Ordering::Acquire) {
            return None;
        }
        let marking = Marking(&self.marking);
        let began = match self.table.write().get_mut(question) {
            Some(State::Searching(search)) => search.begin(shape, name),
            _ => false,
        };
        if !began {
            return None;
        }
        self.timings.fetch_add(1, Ordering::Relaxed);
        Some((
            marking,
            Timing { tuner: self.clone(), question: question.clone(), shape, name, ended: false },
        ))
    }

    /// Leaves out a candidate that does not run.
    pub fn exclude(&self, question: &Key, name: Name) {
        self.update(question, |search| search.exclude(name));
    }

    /// Forgets an answer that means nothing.
    pub fn forget(&self, question: &Key) {
        self.table.write().remove(question);
    }

    /// The answers so far.
    pub fn answers(&self) -> Vec<(Key, Name)> {
        answered(&self.table.read()).map(|(question, name)| (question.clone(), name)).collect()
    }

    /// Timings begun so far.
    pub fn timings(&self) -> u64 {
        self.timings.load(Ordering::Relaxed)
    }

    /// What was asked so far.
    #[cfg(test)]
    pub(crate) fn questions(&self) -> Vec<Key> {
        self.table.read().keys().cloned().collect()
    }

    /// Answers a question, as a file does.
    #[cfg(test)]
    pub(crate) fn answer(&self, question: &Key, name: Name) {
        self.table.write().insert(question.clone(), State::Answered(name));
    }

    /// Changes a search. Its answer, if that is it, with the percentage of the estimate's time.
    fn update(&self, question: &Key, change: impl FnOnce(&mut Search)) -> Option<(Name, u64)> {
        let mut table = self.table.write();
        let state = table.get_mut(question)?;
        let State::Searching(search) = state else { return None };
        change(search);
        match search.outcome()? {
            Outcome::Winner(name, percent) => {
                *state = State::Answered(name);
                drop(table);
                if let Some(saver) = &self.saver {
                    saver.changed();
                }
                Some((name, percent))
            }
            Outcome::None => {
                *state = State::Unanswered;
                None
            }
        }
    }
}

fn answered(table: &FxHashMap<Key, State>) -> impl Iterator<Item = (&Key, Name)> {
    table.iter().filter_map(|(question, state)| match state {
        State::Answered(name) => Some((question, *name)),
        _ => None,
    })
}

/// That a call is between its marks; ends when it is dropped.
#[derive(Debug)]
pub struct Marking<'t>(&'t AtomicBool);

impl Drop for Marking<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A timing under way. It counts as lost when it is dropped without a time.
#[derive(Debug)]
pub struct Timing {
    tuner: Arc<Tuner>,
    question: Key,
    shape: Shape,
    name: Name,
    ended: bool,
}

impl Timing {
    /// Takes the time, if there is one. Returns the answer, if that was all it took, and how many
    /// percent of the time of the estimate's choice it needs.
    pub fn end(mut self, nanoseconds: Option<u64>) -> Option<(Name, u64)> {
        let nanoseconds = nanoseconds?;
        self.ended = true;
        self.tuner.update(&self.question, |search| search.end(self.shape, self.name, nanoseconds))
    }
}

impl Drop for Timing {
    fn drop(&mut self) {
        if !self.ended {
            self.tuner.update(&self.question, |search| search.lose(self.shape, self.name));
        }
    }
}

#[cfg(test)]
mod tests;
