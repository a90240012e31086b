//! Whether a device's cooperative matrices are used: what the user says, what a probe found out,
//! and the file that keeps it.
//!
//! Nobody knows before they were tried whether they are right, and whether they are faster than the
//! vector units: some drivers list matrices that they compute element by element. Who tries them
//! out knows how; this module knows when, and what follows.

mod record;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;

use super::cache::Store;
use super::matrices::{Cooperative, Matrices};
use crate::dtype::DType;

/// What a probe says of the matrices of one element type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// They are right and faster than the vector units, by programs for subgroups of so many
    /// invocations.
    Pays {
        /// Invocations of a subgroup.
        lanes: u32,
    },
    /// They are right, but not worth it.
    Slower {
        /// Invocations of a subgroup with which they were the least slow.
        lanes: u32,
    },
    /// They compute something else, or do not compile.
    Wrong,
}

/// What a probe has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    /// It has ended.
    Verdict(Verdict),
    /// The device was lost on which it ran. This process does without them. The loss may have had
    /// another reason, so for other processes it counts like a process that ended in a probe.
    Lost,
    /// It could not tell, for want of memory.
    Nothing,
}

/// Who decides whether matrices that are right are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// They are not.
    Off,
    /// They are.
    Forced,
    /// They are if a probe finds them faster.
    Probed,
}

impl Policy {
    /// What `TF_WGPU_COOPERATIVE_MATRIX`, as `lookup` gives it, says for an adapter. On a software
    /// adapter times tell of other processes, and the vector units are what computes matrices.
    pub(crate) fn of(lookup: &dyn Fn(&str) -> Option<String>, software: bool) -> Self {
        let value = lookup("TF_WGPU_COOPERATIVE_MATRIX").map(|v| v.trim().to_lowercase());
        match value.as_deref() {
            Some("1" | "on" | "true") => Self::Forced,
            Some("0" | "off" | "false") => Self::Off,
            _ if software => Self::Off,
            _ => Self::Probed,
        }
    }
}

/// What is known of the matrices of one element type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Verdict(Verdict),
    /// The number of processes that ended in a probe.
    Begun(u32),
}

impl Known {
    /// What follows from it without a probe. A user who forces matrices may know of a driver that
    /// was mended without a new version.
    fn verdict(self, policy: Policy) -> Option<Verdict> {
        match self {
            Self::Verdict(Verdict::Wrong) if policy == Policy::Forced => None,
            Self::Verdict(verdict) => Some(verdict),
            Self::Begun(_) => None,
        }
    }
}

impl Finding {
    /// What this process does from now on, if it knows.
    const fn verdict(self) -> Option<Verdict> {
        match self {
            Self::Verdict(verdict) => Some(verdict),
            Self::Lost => Some(Verdict::Wrong),
            Self::Nothing => None,
        }
    }
}

/// Processes that may die of a probe, or be killed in it. Then none tries again.
const MOST_BEGUN: u32 = 2;

/// Probes of a process that may come to nothing: memory that is full may stay so.
const MOST_UNTOLD: u32 = 4;

/// Something that tells at any moment whether ops must be deterministic.
pub(crate) type Deterministic = Arc<dyn Fn() -> bool + Send + Sync>;

/// The matrix units of a device.
pub struct MatrixUnits {
    policy: Policy,
    timed: bool,
    deterministic: Deterministic,
    verdicts: Mutex<[Option<Verdict>; 2]>,
    /// Probes that could not tell.
    untold: AtomicU32,
    /// Held while a thread tries them.
    trying: Mutex<()>,
    file: Option<Mutex<File>>,
    /// Its lock is held while a process tries them: two at once would spoil each other's times.
    probes: Option<Store>,
}

impl std::fmt::Debug for MatrixUnits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MatrixUnits")
            .field("policy", &self.policy)
            .field("verdicts", &*self.verdicts.lock())
            .finish_non_exhaustive()
    }
}

impl MatrixUnits {
    /// The units of an adapter that offers `matrices`, with what a directory holds for it.
    pub(crate) fn open(
        policy: Policy,
        matrices: &Matrices,
        info: &wgpu::AdapterInfo,
        directory: Option<&Path>,
        deterministic: Deterministic,
    ) -> Self {
        // Emulations are no adapter's.
        let directory = directory.filter(|_| matrices.are_real() && policy != Policy::Off);
        let file = directory.map(|directory| File::open(info, directory));
        let known = |element| {
            let offered = matrices.get(element).filter(|c| c.element == element)?;
            let found = file.as_ref()?.find(&offered)?;
            if matches!(found, Known::Begun(count) if count >= MOST_BEGUN)
                && policy == Policy::Probed
            {
                log::info!(
                    "{}: matrices of {element} are not used, since no probe of them has ended",
                    info.name
                );
                return Some(Verdict::Wrong);
            }
            found.verdict(policy)
        };
        let verdicts = Mutex::new(ELEMENTS.map(known));
        let (untold, trying, file) = (AtomicU32::default(), Mutex::default(), file.map(Mutex::new));
        let is_gpu = matrices.are_real() && info.device_type != wgpu::DeviceType::Cpu;
        let timed = policy == Policy::Probed || is_gpu;
        let probes = directory.map(|d| Store::of("lock of probes", info, d, "probes"));
        Self { policy, timed, deterministic, verdicts, untold, trying, file, probes }
    }

    /// Who decides.
    pub const fn policy(&self) -> Policy {
        self.policy
    }

    /// Whether a probe is to time them: where that decides, and to cut programs for subgroups as
    /// they are. Times of software adapters and of emulations tell nothing.
    pub const fn are_timed(&self) -> bool {
        self.timed
    }

    /// What was found out about the matrices of `element`.
    pub fn verdict(&self, element: DType) -> Option<Verdict> {
        self.verdicts.lock()[slot(element)]
    }

    /// What of `offered` may be used. The first call has `probe` find out. Which programs run must
    /// not depend on timings while ops must be deterministic, for their sums are added in another
    /// order; forced matrices do not.
    pub fn usable(
        &self,
        offered: Cooperative,
        probe: impl FnOnce(Policy) -> Finding,
    ) -> Option<Cooperative> {
        let by_time = self.policy == Policy::Probed;
        if self.policy == Policy::Off || by_time && (self.deterministic)() {
            return None;
        }
        let verdict = match self.verdict(offered.element) {
            Some(verdict) => verdict,
            None => self.try_out(offered, probe)?,
        };
        match verdict {
            Verdict::Pays { lanes } => Some(Cooperative { lanes, ..offered }),
            Verdict::Slower { lanes } if !by_time => Some(Cooperative { lanes, ..offered }),
            Verdict::Slower { .. } | Verdict::Wrong => None,
        }
    }

    /// One thread and one process after the other; what the first finds out serves all.
    fn try_out(
        &self,
        offered: Cooperative,
        probe: impl FnOnce(Policy) -> Finding,
    ) -> Option<Verdict> {
        let _trying = self.trying.lock();
        if let Some(verdict) = self.verdict(offered.element) {
            return Some(verdict);
        }
        if self.untold.load(Ordering::Relaxed) >= MOST_UNTOLD {
            return None;
        }
        let _turn = self.probes.as_ref().and_then(Store::lock);
        let found = self.file.as_ref().and_then(|file| file.lock().find_again(&offered));
        let agreed = match found.and_then(|known| known.verdict(self.policy)) {
            Some(theirs) => Some(theirs),
            None => self.found_out(offered, probe),
        };
        let own = &mut self.verdicts.lock()[slot(offered.element)];
        // A refusal meanwhile stays.
        *own = own.or(agreed);
        *own
    }

    /// What a probe finds out now, and other processes have, if they were faster.
    fn found_out(
        &self,
        offered: Cooperative,
        probe: impl FnOnce(Policy) -> Finding,
    ) -> Option<Verdict> {
        if let Some(file) = &self.file {
            file.lock().begin(&offered);
        }
        let found = probe(self.policy);
        self.untold.fetch_add(u32::from(found == Finding::Nothing), Ordering::Relaxed);
        let finding = self.verdict(offered.element).map_or(found, Finding::Verdict);
        match &self.file {
            Some(file) => file.lock().end(&offered, finding, self.policy),
            None => finding.verdict(),
        }
    }

    /// They are not to be used any more. Whether this is news.
    pub fn refuse(&self, offered: &Cooperative) -> bool {
        let own = &mut self.verdicts.lock()[slot(offered.element)];
        let is_news = own.replace(Verdict::Wrong) != Some(Verdict::Wrong);
        if is_news && let Some(file) = &self.file {
            file.lock().refuse(offered);
        }
        is_news
    }
}

const ELEMENTS: [DType; 2] = [DType::F16, DType::F32];

fn slot(element: DType) -> usize {
    usize::from(element == DType::F32)
}

/// What is kept for an adapter and its driver. Written at once, for the driver may end the process
/// in the middle of a probe; and changed row by row, for other processes change it too.
struct File {
    store: Store,
    known: Vec<record::Row>,
    /// The probe that this process has begun.
    own: record::Probe,
}

impl File {
    fn open(info: &wgpu::AdapterInfo, directory: &Path) -> Self {
        let store = Store::of("file of matrix units", info, directory, "matrices");
        let known = store.read().and_then(|bytes| rows(&store, &bytes)).unwrap_or_default();
        Self { store, known, own: record::Probe::of(std::process::id()) }
    }

    /// The stored verdict; probes whose process is gone count as crashes.
    fn find(&self, offered: &Cooperative) -> Option<Known> {
        let found = self.known.iter().find(|row| row.is_of(offered))?;
        with_ended(found).filter(|known| match known {
            // From a file: it must be one of what the adapter has.
            Known::Verdict(Verdict::Pays { lanes } | Verdict::Slower { lanes }) => {
                (offered.fewest_lanes..=offered.lanes).contains(lanes)
            }
            _ => true,
        })
    }

    /// The same after the file was read again.
    fn find_again(&mut self, offered: &Cooperative) -> Option<Known> {
        if let Some(rows) = self.store.read().and_then(|bytes| rows(&self.store, &bytes)) {
            self.known = rows;
        }
        self.find(offered)
    }

    /// Notes that this process begins a probe.
    fn begin(&mut self, offered: &Cooperative) {
        self.own = self.own.begun_now();
        let own = self.own.clone();
        self.change(offered, |row| {
            let known = with_ended(row);
            row.probes.retain(record::Probe::is_under_way);
            row.probes.push(own);
            known
        });
    }

    /// Notes what this process has found out. What another one has found out meanwhile counts
    /// instead, so that processes that start together compute alike; but not against a user who
    /// forces matrices, and never against their being wrong.
    fn end(&mut self, offered: &Cooperative, finding: Finding, policy: Policy) -> Option<Verdict> {
        let own = self.own.clone();
        self.change(offered, |row| {
            row.probes.retain(|probe| *probe != own);
            match (row.known(), finding) {
                (_, Finding::Verdict(Verdict::Wrong)) => Some(Known::Verdict(Verdict::Wrong)),
                (Some(Known::Verdict(theirs)), _) if policy == Policy::Probed => {
                    Some(Known::Verdict(theirs))
                }
                (Some(Known::Begun(count)), Finding::Lost) => Some(Known::Begun(count + 1)),
                (_, Finding::Lost) => Some(Known::Begun(1)),
                (known, Finding::Nothing) => known.filter(|known| *known != Known::Begun(0)),
                (_, Finding::Verdict(verdict)) => Some(Known::Verdict(verdict)),
            }
        });
        match (finding, self.find(offered)) {
            (Finding::Verdict(_), Some(Known::Verdict(agreed))) => Some(agreed),
            _ => finding.verdict(),
        }
    }

    fn refuse(&mut self, offered: &Cooperative) {
        self.change(offered, |_| Some(Known::Verdict(Verdict::Wrong)));
    }

    /// Reads the file again and replaces the row of these matrices.
    fn change(
        &mut self,
        offered: &Cooperative,
        change: impl FnOnce(&mut record::Row) -> Option<Known>,
    ) {
        let Self { store, known, .. } = self;
        store.change(|bytes| {
            if let Some(rows) = bytes.and_then(|bytes| rows(store, &bytes)) {
                *known = rows;
            }
            let at = known.iter().position(|row| row.is_of(offered)).unwrap_or_else(|| {
                known.push(record::Row::nothing(offered));
                known.len() - 1
            });
            let knows = change(&mut known[at]);
            known[at] = known[at].knowing(offered, knows);
            record::encode(known)
        });
    }
}

/// What a row knows; a probe counts as ended when its process is gone.
fn with_ended(row: &record::Row) -> Option<Known> {
    let ended = row.probes.iter().filter(|probe| !probe.is_under_way()).count() as u32;
    match row.known() {
        Some(Known::Begun(count)) => Some(Known::Begun(count + ended)),
        None if ended > 0 => Some(Known::Begun(ended)),
        known => known,
    }
}

/// The rows that a file holds. One that holds something else is discarded.
fn rows(store: &Store, bytes: &[u8]) -> Option<Vec<record::Row>> {
    match record::decode(bytes) {
        Ok(known) => Some(known),
        Err(e) => {
            store.discard(&e.to_string());
            None
        }
    }
}

#[cfg(test)]
mod tests;
