//! Whether an adapter and its driver compute right numbers, which is checked once.
//!
//! Drivers compute wrong after an update, or with one kind of shader. So before an adapter's first
//! device of this driver is offered, some ops run on a device of their own and are compared with
//! the host. If one is wrong, the simplest kernels are checked, and used if they are right. If not,
//! the device is not offered. The verdict is kept in the cache directory. A process that ends in a
//! check counts, so that a driver that crashes does so a few times at most.

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

/// What a check has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// All numbers are right.
    Right,
    /// They are right with the kernels of [`Profile::portable`] alone.
    Portable,
    /// They are wrong with those as well.
    Wrong,
}

impl Verdict {
    const ALL: [Self; 3] = [Self::Right, Self::Portable, Self::Wrong];
}

/// Processes that may end while they check the adapter's own kernels, and the portable ones.
const MOST_BEGUN: [u32; 2] = [2, 4];
/// Threads that check, so that compilers of several shaders run at once.
const THREADS: usize = 4;

/// Whether `TF_WGPU_CHECK`, as `lookup` gives it, asks for a check of an adapter of this class. A
/// forced profile is its user's affair.
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
    let info = adapter.get_info();
    let name = format!("{} ({} {})", info.name, info.driver, info.driver_info);
    let file = directory.map(|directory| File::of(&info, directory));
    let verdict = verdict(file.as_ref(), |which| {
        let profile = if which == Which::Own { own } else { own.portable() };
        let wrong = wrong_cases(adapter, profile, directory);
        for (case, what) in &wrong {
            log::warn!("{name}: {case} is wrong with kernels of the profile {profile}: {what}");
        }
        wrong.is_empty()
    });
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

/// What is kept about an adapter.
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

/// The verdict that is kept, or that of `is_right`. Processes that start together wait for the
/// first one's.
fn verdict(file: Option<&File>, mut is_right: impl FnMut(Which) -> bool) -> Verdict {
    let _lock = file.and_then(File::lock);
    let mut begun = match file.map_or(Known::Begun(0), File::read) {
        Known::Verdict(verdict) => return verdict,
        Known::Begun(count) => count,
    };
    let mut found = Verdict::Wrong;
    for (which, verdict, most) in [
        (Which::Own, Verdict::Right, MOST_BEGUN[0]),
        (Which::Portable, Verdict::Portable, MOST_BEGUN[1]),
    ] {
        if begun >= most {
            log::warn!("{begun} processes have ended while they checked this adapter's numbers");
            continue;
        }
        begun += 1;
        if let Some(file) = file {
            file.write(Known::Begun(begun));
        }
        if is_right(which) {
            found = verdict;
            break;
        }
    }
    if let Some(file) = file {
        file.write(Known::Verdict(found));
    }
    found
}

/// The cases that come out wrong on a device of their own, and what is wrong.
pub fn wrong_cases(
    adapter: &wgpu::Adapter,
    profile: Profile,
    directory: Option<&Path>,
) -> Vec<(&'static str, String)> {
    let start = Instant::now();
    let device = match Device::open_with(adapter, profile, directory) {
        Ok(device) => device,
        Err(e) => return vec![("its device", e.to_string())],
    };
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut session = Session::new(Arc::clone(&device));
                while let Some(case) = CASES.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match caught(case.name, || (case.run)(&mut session)) {
                        Ok(None) => {}
                        Ok(Some(what)) => wrong.lock().push((case.name, what)),
                        // An op without a shader has its own error, and says nothing of numbers.
                        Err(Error::Unimplemented(e) | Error::ResourceExhausted(e)) => {
                            log::info!("{} is not checked: {e}", case.name);
                        }
                        Err(e) => wrong.lock().push((case.name, e.to_string())),
                    }
                }
            });
        }
    });
    log::info!("numbers of the profile {profile} checked in {:.0?}", start.elapsed());
    let mut wrong = wrong.into_inner();
    wrong.sort_unstable();
    wrong
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

    #[test]
    fn the_simplest_kernels_are_next() {
        for (own, portable, wanted) in [
            (true, false, Verdict::Right),
            (false, true, Verdict::Portable),
            (false, false, Verdict::Wrong),
        ] {
            let found = verdict(None, |which| if which == Which::Own { own } else { portable });
            assert_eq!(found, wanted);
        }
    }

    #[test]
    fn processes_that_end_in_a_check_count_and_verdicts_are_kept() {
        let directory =
            std::env::temp_dir().join(format!("tensorflow-wgpu-checkup-{}", std::process::id()));
        let info = wgpu::AdapterInfo::new(wgpu::DeviceType::Other, wgpu::Backend::Vulkan);
        let file = File::of(&info, &directory);
        for (begun, asked, wanted) in [
            (1, vec![Which::Own, Which::Portable], Verdict::Portable),
            (2, vec![Which::Portable], Verdict::Portable),
            (4, vec![], Verdict::Wrong),
        ] {
            file.write(Known::Begun(begun));
            let mut all = Vec::new();
            let found = verdict(Some(&file), |which| {
                all.push(which);
                assert_eq!(file.read(), Known::Begun(begun + all.len() as u32));
                which == Which::Portable
            });
            assert_eq!((&all, found), (&asked, wanted), "{begun}");
            assert_eq!(known(&info, Some(&directory)), Some(wanted));
            assert_eq!(verdict(Some(&file), |_| panic!("it is known")), wanted);
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
