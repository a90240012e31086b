//! Decides whether a device's cooperative matrices are used: by the user's setting, by the result
//! of a probe, and by the file that keeps the result.
//!
//! Only a trial shows whether their results are right and whether they are faster than the vector
//! units: some drivers list matrices that they compute element by element. The caller's probe knows
//! how to try them; this module decides when, and what follows.

mod record;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;

use super::cache::Store;
use super::matrices::{Cooperative, Matrices};
use crate::dtype::DType;

/// The verdict of a probe on the matrices of one element type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// They are right and faster than the vector units, with programs for subgroups of `lanes`
    /// invocations.
    Pays {
        /// Invocations of a subgroup.
        lanes: u32,
    },
    /// They are right, but not faster.
    Slower {
        /// Invocations of a subgroup with which they were the least slow.
        lanes: u32,
    },
    /// Their results are wrong, or their programs do not compile.
    Wrong,
}

/// The outcome of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    /// It finished.
    Verdict(Verdict),
    /// The device on which it ran was lost. This process does not use the matrices. The loss may
    /// have had another reason, so for other processes it counts like a process that died in a
    /// probe.
    Lost,
    /// It could not decide, for lack of memory.
    Nothing,
}

/// The rule that decides whether matrices, or another feature of an adapter, are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// They are not used.
    Off,
    /// They are used.
    Forced,
    /// They are used if a probe says so.
    Probed,
}

impl Policy {
    /// The policy that `TF_WGPU_COOPERATIVE_MATRIX`, as `lookup` gives it, sets for an adapter. On
    /// a software adapter, times depend on other processes, and matrices are computed by the vector
    /// units anyway.
    pub(crate) fn of(lookup: &dyn Fn(&str) -> Option<String>, software: bool) -> Self {
        Self::of_variable("TF_WGPU_COOPERATIVE_MATRIX", lookup, software)
    }

    /// The same of another variable with these values.
    pub(crate) fn of_variable(
        name: &str,
        lookup: &dyn Fn(&str) -> Option<String>,
        software: bool,
    ) -> Self {
        let value = lookup(name).map(|v| v.trim().to_lowercase());
        match value.as_deref() {
            Some("1" | "on" | "true") => Self::Forced,
            Some("0" | "off" | "false") => Self::Off,
            _ if software => Self::Off,
            _ => Self::Probed,
        }
    }
}

/// The stored knowledge about the matrices of one element type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Verdict(Verdict),
    /// The number of processes that ended in a probe.
    Begun(u32),
}

impl Known {
    /// The verdict that follows without a probe. A user who forces matrices may know of a driver
    /// that was fixed without a new version.
    fn verdict(self, policy: Policy) -> Option<Verdict> {
        match self {
            Self::Verdict(Verdict::Wrong) if policy == Policy::Forced => None,
            Self::Verdict(verdict) => Some(verdict),
            Self::Begun(count) if count >= MOST_BEGUN && policy == Policy::Probed => {
                log::info!("matrices are not used, since {count} probes of them have not ended");
                Some(Verdict::Wrong)
            }
            Self::Begun(_) => None,
        }
    }
}

impl Finding {
    /// The verdict for the rest of this process, if there is one.
    const fn verdict(self) -> Option<Verdict> {
        match self {
            Self::Verdict(verdict) => Some(verdict),
            Self::Lost => Some(Verdict::Wrong),
            Self::Nothing => None,
        }
    }
}

/// The number of processes that may die in a probe, or be killed in it. After that no process tries
/// again.
const MOST_BEGUN: u32 = 2;

/// The number of probes of a process that may remain without a verdict: memory that is full may
/// stay so.
const MOST_UNPROBED: u32 = 4;

/// A function that says at any moment whether ops must be deterministic.
pub(crate) type Deterministic = Arc<dyn Fn() -> bool + Send + Sync>;

/// The matrix units of a device.
pub struct MatrixUnits {
    policy: Policy,
    timed: bool,
    deterministic: Deterministic,
    verdicts: Mutex<[Option<Verdict>; 2]>,
    /// The number of probes that could not decide.
    unprobed: AtomicU32,
    /// Held while a thread probes them.
    trying: Mutex<()>,
    file: Option<Mutex<File>>,
    /// Its lock is held while a process probes them: two probes at once would spoil each other's
    /// times.
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
    /// The units of an adapter that offers `matrices`, with the stored verdicts of a directory.
    pub(crate) fn open(
        policy: Policy,
        matrices: &Matrices,
        info: &wgpu::AdapterInfo,
        directory: Option<&Path>,
        deterministic: Deterministic,
    ) -> Self {
        // Emulations belong to no adapter.
        let directory = directory.filter(|_| matrices.are_real() && policy != Policy::Off);
        let file = directory.map(|directory| File::open(info, directory));
        let known = |element| {
            let offered = matrices.get(element).filter(|c| c.element == element)?;
            file.as_ref()?.find(&offered)?.verdict(policy)
        };
        let verdicts = Mutex::new(ELEMENTS.map(known));
        let (unprobed, trying, file) =
            (AtomicU32::default(), Mutex::default(), file.map(Mutex::new));
        let is_gpu = matrices.are_real() && info.device_type != wgpu::DeviceType::Cpu;
        let timed = policy == Policy::Probed || is_gpu;
        let probes = directory.map(|d| Store::of("lock of probes", info, d, "probes"));
        Self { policy, timed, deterministic, verdicts, unprobed, trying, file, probes }
    }

    /// The policy.
    pub const fn policy(&self) -> Policy {
        self.policy
    }

    /// Whether a probe should time them: if the time decides about their use, and to cut programs
    /// for the subgroups' real size. Times of software adapters and of emulations say nothing.
    pub const fn are_timed(&self) -> bool {
        self.timed
    }

    /// Whether ops must be deterministic, at this moment.
    pub fn is_deterministic(&self) -> bool {
        (self.deterministic)()
    }

    /// The verdict on the matrices of `element`, if there is one.
    pub fn verdict(&self, element: DType) -> Option<Verdict> {
        self.verdicts.lock()[slot(element)]
    }

    /// The matrices of `offered` that may be used. The first call runs `probe`. While ops must be
    /// deterministic, timings must not decide which programs run, because these add their sums in
    /// another order. Forced matrices do not depend on timings.
    pub fn usable(
        &self,
        offered: Cooperative,
        probe: impl FnOnce(Policy) -> Finding,
    ) -> Option<Cooperative> {
        let by_time = self.policy == Policy::Probed;
        if self.policy == Policy::Off || by_time && self.is_deterministic() {
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

    /// Runs `probe` in one thread and one process at a time; its verdict serves all.
    fn try_out(
        &self,
        offered: Cooperative,
        probe: impl FnOnce(Policy) -> Finding,
    ) -> Option<Verdict> {
        let _trying = self.trying.lock();
        if let Some(verdict) = self.verdict(offered.element) {
            return Some(verdict);
        }
        if self.unprobed.load(Ordering::Relaxed) >= MOST_UNPROBED {
            return None;
        }
        let _turn = self.probes.as_ref().and_then(Store::lock);
        let found = self.file.as_ref().and_then(|file| file.lock().find_again(&offered));
        let agreed = match found.and_then(|known| known.verdict(self.policy)) {
            Some(theirs) => Some(theirs),
            None => self.found_out(offered, probe),
        };
        let own = &mut self.verdicts.lock()[slot(offered.element)];
        // A refusal that came meanwhile stays.
        *own = own.or(agreed);
        *own
    }

    /// The verdict of a probe now, or the verdict of another process that finished first.
    fn found_out(
        &self,
        offered: Cooperative,
        probe: impl FnOnce(Policy) -> Finding,
    ) -> Option<Verdict> {
        if let Some(file) = &self.file {
            file.lock().begin(&offered);
        }
        let found = probe(self.policy);
        self.unprobed.fetch_add(u32::from(found == Finding::Nothing), Ordering::Relaxed);
        let finding = self.verdict(offered.element).map_or(found, Finding::Verdict);
        match &self.file {
            Some(file) => file.lock().end(&offered, finding, self.policy),
            None => finding.verdict(),
        }
    }

    /// Stops their use. Returns whether they were not refused before.
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

/// The record for an adapter and its driver. It is written at once, because the driver may end the
/// process in the middle of a probe, and it is changed row by row, because other processes change
/// it too.
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
            // The number comes from a file, so it must be one that the adapter has.
            Known::Verdict(Verdict::Pays { lanes } | Verdict::Slower { lanes }) => {
                (offered.fewest_lanes..=offered.lanes).contains(lanes)
            }
            _ => true,
        })
    }

    /// Does the same after reading the file again.
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

    /// Notes this process's finding. If another process has stored a verdict meanwhile, that
    /// verdict counts instead, so that processes that start together compute alike. It does not
    /// count against a user who forces matrices, and a stored verdict never replaces the finding
    /// that they are wrong.
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

/// The knowledge of a row. A probe counts as ended when its process is gone.
fn with_ended(row: &record::Row) -> Option<Known> {
    let ended = row.probes.iter().filter(|probe| !probe.is_under_way()).count() as u32;
    match row.known() {
        Some(Known::Begun(count)) => Some(Known::Begun(count + ended)),
        None if ended > 0 => Some(Known::Begun(ended)),
        known => known,
    }
}

/// The rows that a file holds. A file with other contents is discarded.
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
