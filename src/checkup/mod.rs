//! Checks once whether an adapter and its driver compute correct numbers.
//!
//! A driver may compute wrong numbers after an update, or with one kind of shader. So before the
//! first device of an adapter with this driver is offered, some ops run on a separate device and
//! are compared with the host. If one is wrong, the simplest kernels are checked, and used if they
//! are right. If those are wrong too, the device is not offered. The verdict is kept in the cache
//! directory. A process that dies during a check is counted, so that a driver that crashes does so
//! a few times at most.

mod cases;
mod record;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use crate::device::{Class, Device, Profile};
use crate::error::{Error, Result};
use crate::local::Session;
use crate::sys::guard::caught;

use cases::CASES;
use record::{File, Known};

/// The verdict of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// All numbers are right.
    Right,
    /// All numbers are right, but only with the kernels of [`Profile::portable`].
    Portable,
    /// Some numbers are wrong even with the portable kernels.
    Wrong,
}

impl Verdict {
    const ALL: [Self; 3] = [Self::Right, Self::Portable, Self::Wrong];
}

/// The numbers of unfinished checks after which the adapter's own kernels, then the portable ones,
/// are given up.
const MOST_BEGUN: [u32; 2] = [2, 4];
/// Threads of a check, so that several shaders are compiled at once.
const THREADS: usize = 4;

/// Whether `TF_WGPU_CHECK`, as `lookup` gives it, asks for a check of an adapter of this class. An
/// adapter with a forced profile is not checked unless the variable asks for it.
fn is_wanted(lookup: &dyn Fn(&str) -> Option<String>, class: Class) -> bool {
    let value = lookup("TF_WGPU_CHECK").map(|v| v.trim().to_lowercase());
    match value.as_deref() {
        Some("1" | "on" | "true") => true,
        Some("0" | "off" | "false") => false,
        _ => class != Class::Software && lookup("TF_WGPU_PROFILE").is_none(),
    }
}

/// The profile with which the adapter computes right numbers: its `own`, or a simpler one. Checks
/// it if no verdict is kept in `directory`. An error says why the adapter cannot be used.
pub fn checked(
    adapter: &wgpu::Adapter,
    own: Profile,
    directory: Option<&Path>,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<Profile> {
    if !is_wanted(lookup, own.class) {
        return Ok(own);
    }
    let plain = Profile { own_barriers: false, unstaged: false, ..own };
    let mut profile = with_right_kernels(adapter, plain, directory)?;
    if own.own_barriers {
        let asked = Profile { own_barriers: true, ..profile };
        profile = with_option(adapter, profile, asked, &BARRIERS, directory)?;
    }
    if own.unstaged {
        let asked = Profile { unstaged: true, ..profile };
        profile = with_option(adapter, profile, asked, &STAGING, directory)?;
    }
    Ok(profile)
}

/// A part of a profile that a user asks for, and that is checked by itself.
struct ProfileOption {
    /// The suffix of the file with the verdict.
    suffix: &'static str,
    /// How the user asks for it.
    setting: &'static str,
}

/// See [`Profile::own_barriers`].
const BARRIERS: ProfileOption =
    ProfileOption { suffix: "barriers", setting: "TF_WGPU_BARRIERS=data" };
/// See [`Profile::unstaged`].
const STAGING: ProfileOption = ProfileOption { suffix: "unstaged", setting: "TF_WGPU_STAGING=off" };

/// The name of an adapter and its driver, for messages.
fn name(info: &wgpu::AdapterInfo) -> String {
    format!("{} ({} {})", info.name, info.driver, info.driver_info)
}

/// Like [`checked`], for a profile without options.
fn with_right_kernels(
    adapter: &wgpu::Adapter,
    own: Profile,
    directory: Option<&Path>,
) -> Result<Profile> {
    let info = adapter.get_info();
    let name = name(&info);
    let file = directory.map(|directory| File::of(&info, directory));
    let verdict = verdict(file.as_ref(), |which| {
        let profile = if which == Which::Own { own } else { own.portable() };
        outcome(adapter, profile, directory)
    })?;
    match verdict {
        Verdict::Right => Ok(own),
        Verdict::Portable => {
            log::warn!(
                "{name} computes wrong numbers with some kernels, so the simplest ones are used, \
                 which are right and slower. Update its driver"
            );
            Ok(own.portable())
        }
        Verdict::Wrong => Err(Error::FailedPrecondition(format!(
            "{name} computes wrong numbers: update its driver. TF_WGPU_CHECK=off uses it \
             nevertheless"
        ))),
    }
}

/// Returns `asked` if the adapter computes right numbers with it, else `plain`, with which it does.
/// The two differ by `option` alone.
fn with_option(
    adapter: &wgpu::Adapter,
    plain: Profile,
    asked: Profile,
    option: &ProfileOption,
    directory: Option<&Path>,
) -> Result<Profile> {
    let info = adapter.get_info();
    let file = directory.map(|directory| File::of_option(&info, directory, option.suffix));
    let verdict = verdict(file.as_ref(), |which| match which {
        Which::Own => outcome(adapter, asked, directory),
        Which::Portable => Ok(Outcome::Right),
    })?;
    if verdict == Verdict::Right {
        return Ok(asked);
    }
    log::warn!(
        "{} computes wrong numbers with {}, so the variable is ignored",
        name(&info),
        option.setting
    );
    Ok(plain)
}

/// The outcome of an adapter's check under a profile. Logs a line for each wrong case.
fn outcome(adapter: &wgpu::Adapter, profile: Profile, directory: Option<&Path>) -> Result<Outcome> {
    let name = name(&adapter.get_info());
    let Findings { wrong, failed, is_whole } = findings(adapter, profile, directory)?;
    for (case, what) in &wrong {
        log::warn!("{name}: {case} is wrong with kernels of the profile {profile}: {what}");
    }
    if let Some(e) = &failed {
        log::warn!("{name}: the check with kernels of the profile {profile} failed: {e}");
    }
    Ok(match (wrong.is_empty(), failed, is_whole) {
        (false, ..) => Outcome::Wrong,
        (true, Some(_), _) => Outcome::Failed,
        (true, None, false) => Outcome::Untold,
        (true, None, true) => Outcome::Right,
    })
}

/// The verdict that is kept for an adapter.
pub fn known(info: &wgpu::AdapterInfo, directory: Option<&Path>) -> Option<Verdict> {
    match File::of(info, directory?).read() {
        Known::Verdict(verdict) => Some(verdict),
        Known::Begun(_) => None,
    }
}

/// The kernels that are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    Own,
    Portable,
}

/// The outcome of checking one set of kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Right,
    Wrong,
    /// The driver failed, for instance by losing the device. This counts like a process that died.
    Failed,
    /// Nothing was wrong, but memory was too full to run every case.
    Untold,
}

/// The verdict that is kept, or the one that `check` leads to. An error of `check` says why the
/// device cannot be opened, which is no verdict. Processes that start together wait for the first
/// one. A process that waited too long does not store its verdict.
fn verdict(
    file: Option<&File>,
    mut check: impl FnMut(Which) -> Result<Outcome>,
) -> Result<Verdict> {
    let lock = file.and_then(File::lock);
    let before = file.map_or(Known::Begun(0), File::read);
    // The count of other processes is reliable only while none of them is checking.
    let file = file.filter(|_| lock.is_some());
    let write = |known| {
        if let Some(file) = file {
            file.write(known);
        }
    };
    let mut begun = match before {
        Known::Verdict(verdict) => return Ok(verdict),
        Known::Begun(count) => {
            if file.is_some() {
                count
            } else {
                0
            }
        }
    };
    let mut is_certain = true;
    for (which, verdict, most) in [
        (Which::Own, Verdict::Right, MOST_BEGUN[0]),
        (Which::Portable, Verdict::Portable, MOST_BEGUN[1]),
    ] {
        if begun >= most {
            log::warn!("{begun} checks of this adapter's numbers have not ended");
            continue;
        }
        write(Known::Begun(begun + 1));
        let outcome = check(which).inspect_err(|_| write(Known::Begun(begun)))?;
        begun += u32::from(outcome == Outcome::Failed);
        is_certain &= matches!(outcome, Outcome::Right | Outcome::Wrong);
        let is_right = matches!(outcome, Outcome::Right | Outcome::Untold);
        write(match outcome {
            Outcome::Right if is_certain => Known::Verdict(verdict),
            _ => Known::Begun(begun),
        });
        if is_right {
            return Ok(verdict);
        }
    }
    if is_certain {
        write(Known::Verdict(Verdict::Wrong));
    }
    Ok(Verdict::Wrong)
}

/// The findings of a run over the cases.
struct Findings {
    /// The wrong cases, and their first wrong elements.
    wrong: Vec<(&'static str, String)>,
    /// An error other than a wrong result.
    failed: Option<Error>,
    /// Whether there was enough memory for all cases.
    is_whole: bool,
}

/// The cases with wrong results on a separate device, and their first wrong elements. An error is
/// an error of the device.
pub fn wrong_cases(
    adapter: &wgpu::Adapter,
    profile: Profile,
    directory: Option<&Path>,
) -> Result<Vec<(&'static str, String)>> {
    let Findings { wrong, failed, .. } = findings(adapter, profile, directory)?;
    failed.map_or(Ok(wrong), Err)
}

fn findings(
    adapter: &wgpu::Adapter,
    profile: Profile,
    directory: Option<&Path>,
) -> Result<Findings> {
    let start = Instant::now();
    let device = Device::open_with(adapter, profile, directory)?;
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Findings { wrong: Vec::new(), failed: None, is_whole: true });
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut session = Session::new(Arc::clone(&device));
                while let Some(case) = CASES.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = caught(case.name, || (case.run)(&mut session));
                    let mut found = found.lock();
                    match outcome {
                        Ok(None) => log::debug!("{} is right", case.name),
                        Ok(Some(what)) => found.wrong.push((case.name, what)),
                        // An op without a shader reports its own error, which says nothing about
                        // numbers.
                        Err(Error::Unimplemented(e)) => {
                            log::info!("{} is not checked: {e}", case.name);
                        }
                        Err(Error::ResourceExhausted(e)) => {
                            log::info!("{} is not checked: {e}", case.name);
                            found.is_whole = false;
                        }
                        Err(e) => found.failed = Some(e),
                    }
                }
            });
        }
    });
    log::info!("numbers of the profile {profile} checked in {:.0?}", start.elapsed());
    let mut found = found.into_inner();
    found.wrong.sort_unstable();
    let counted = device.statistics();
    debug_assert!(
        !device.profile().unstaged
            || found.failed.is_some()
            || counted.unstaged > counted.downloads,
        "unstaged copies to the device are checked, too: {counted:?}"
    );
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_is_for_gpus_unless_somebody_asks() {
        let with = |variables: &'static [(&str, &str)], class| {
            let lookup = |name: &str| {
                variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned())
            };
            is_wanted(&lookup, class)
        };
        assert!(with(&[], Class::Discrete) && with(&[], Class::Integrated));
        assert!(!with(&[], Class::Software));
        assert!(with(&[("TF_WGPU_CHECK", "on")], Class::Software));
        assert!(!with(&[("TF_WGPU_CHECK", "Off")], Class::Discrete));
        assert!(!with(&[("TF_WGPU_PROFILE", "webgpu")], Class::Discrete));
    }

    /// A `check` with these outcomes for the adapter's own kernels and for the portable ones.
    fn given(own: Outcome, portable: Outcome) -> impl FnMut(Which) -> Result<Outcome> {
        move |which| Ok(if which == Which::Own { own } else { portable })
    }

    #[test]
    fn the_simplest_kernels_are_next() {
        use Outcome::{Failed, Right, Untold, Wrong};
        for (own, portable, wanted) in [
            (Right, Wrong, Verdict::Right),
            (Untold, Wrong, Verdict::Right),
            (Wrong, Right, Verdict::Portable),
            (Failed, Right, Verdict::Portable),
            (Wrong, Wrong, Verdict::Wrong),
            (Wrong, Failed, Verdict::Wrong),
        ] {
            assert_eq!(verdict(None, given(own, portable)), Ok(wanted), "{own:?} {portable:?}");
        }
    }

    /// A directory for a file. Dropping the value removes it.
    struct Kept(std::path::PathBuf, File);

    impl Kept {
        fn new(name: &str) -> Self {
            let directory = std::env::temp_dir()
                .join(format!("tensorflow-wgpu-checkup-{}-{name}", std::process::id()));
            let file = File::of(&info(), &directory);
            Self(directory, file)
        }
    }

    impl Drop for Kept {
        fn drop(&mut self) {
            drop(std::fs::remove_dir_all(&self.0));
        }
    }

    fn info() -> wgpu::AdapterInfo {
        wgpu::AdapterInfo::new(wgpu::DeviceType::Other, wgpu::Backend::Vulkan)
    }

    #[test]
    fn processes_that_end_in_a_check_count_and_verdicts_are_kept() {
        let kept = Kept::new("ends");
        let Kept(directory, file) = &kept;
        for (begun, asked, wanted) in [
            (1, vec![Which::Own, Which::Portable], Verdict::Portable),
            (2, vec![Which::Portable], Verdict::Portable),
            (4, vec![], Verdict::Wrong),
        ] {
            file.write(Known::Begun(begun));
            let mut all = Vec::new();
            let found = verdict(Some(file), |which| {
                all.push(which);
                assert_eq!(file.read(), Known::Begun(begun + 1), "this one has begun");
                given(Outcome::Wrong, Outcome::Right)(which)
            });
            assert_eq!((&all, found), (&asked, Ok(wanted)), "{begun}");
            assert_eq!(known(&info(), Some(directory)), Some(wanted));
            assert_eq!(verdict(Some(file), |_| panic!("it is known")), Ok(wanted));
        }
    }

    /// A lost device may be an accident. Full memory is one, and so is a device that does not open.
    #[test]
    fn accidents_are_no_verdicts() {
        use Outcome::{Failed, Right, Untold, Wrong};
        let kept = Kept::new("accidents");
        let Kept(_, file) = &kept;
        for (own, portable, begun) in
            [(Failed, Right, 1), (Failed, Failed, 2), (Untold, Wrong, 0), (Wrong, Untold, 0)]
        {
            file.write(Known::Begun(0));
            verdict(Some(file), given(own, portable)).unwrap();
            assert_eq!(file.read(), Known::Begun(begun), "{own:?} {portable:?}");
        }
        file.write(Known::Begun(1));
        let closed = || Err(Error::Unavailable("it does not open".into()));
        assert!(verdict(Some(file), |_| closed()).is_err());
        assert_eq!(file.read(), Known::Begun(1));
    }

    /// Three processes start at once: two are checking, and the third waits in vain.
    #[test]
    fn marks_of_processes_that_are_at_it_mean_nothing() {
        let kept = Kept::new("at-once");
        let Kept(_, file) = &kept;
        file.write(Known::Begun(2));
        let _other = file.lock().unwrap();
        let found = verdict(Some(file), given(Outcome::Right, Outcome::Wrong));
        assert_eq!(found, Ok(Verdict::Right));
        assert_eq!(file.read(), Known::Begun(2), "it keeps nothing");
    }
}
