//! Sessions on devices that have less than the adapter: under another profile, so that a software
//! adapter runs the programs of GPUs, and with smaller bindings, so that small tensors are computed
//! in windows.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::cell::Cell;

use tensorflow_wgpu::device::{Capabilities, Profile, Schedule};
use tensorflow_wgpu::local::Session;
use tensorflow_wgpu::{Error, HostTensor};

thread_local! {
    static PROFILE: Cell<Option<Profile>> = const { Cell::new(None) };
    static MOST: Cell<u64> = const { Cell::new(0) };
    static REFUSED: Cell<usize> = const { Cell::new(0) };
}

/// The first adapter's device, or the one of [`under`] and [`within`].
pub fn session() -> Session {
    match (PROFILE.get(), MOST.get()) {
        (None, 0) => shared(),
        (Some(profile), 0) => opened(profile),
        (profile, most) => {
            let profile = profile.unwrap_or_else(|| shared().device.profile());
            let capabilities = Capabilities { max_binding: most, ..profile.capabilities };
            opened(Profile { capabilities, ..profile })
        }
    }
}

fn opened(profile: Profile) -> Session {
    Session::under(profile).expect("a device")
}

/// Runs `f`, whose sessions are on a device under `profile`.
pub fn under<R>(profile: Profile, f: impl FnOnce() -> R) -> R {
    let before = PROFILE.replace(Some(profile));
    let result = f();
    PROFILE.set(before);
    result
}

/// The number of dispatches of `f` under `profile`. No other test may use a device with it.
pub fn dispatches(profile: Profile, f: impl FnOnce()) -> u64 {
    under(profile, || {
        let device = session().device.clone();
        let before = device.statistics().dispatches;
        f();
        device.statistics().dispatches - before
    })
}

/// A GPU that runs `workgroups` workgroups of 256 invocations at once, and uses this schedule and
/// the tile with this id if they are supported.
pub fn scheduling(schedule: Schedule, tile: u32, workgroups: usize) -> Profile {
    let schedule = Some(schedule);
    Profile { schedule, tile, resident_workgroups: workgroups, ..Profile::NVIDIA }
}

fn shared() -> Session {
    Session::shared().expect("a Vulkan driver; on Debian install mesa-vulkan-drivers")
}

/// Whether the caller runs within [`within`].
pub fn is_limited() -> bool {
    MOST.get() > 0
}

/// A session like this one on a device under `profile`.
pub fn like(session: &Session, profile: Profile) -> Session {
    let mut other = under(profile, self::session);
    other.misalign = session.misalign;
    other
}

/// A session whose device binds at most `most` bytes at once.
pub fn session_of(most: u64) -> Session {
    let before = MOST.replace(most);
    let session = session();
    MOST.set(before);
    session
}

/// Runs `f`, whose sessions bind at most `most` bytes at once. Returns how often [`ran`] found that
/// this is too little.
pub fn within(most: u64, f: impl FnOnce()) -> usize {
    MOST.set(most);
    REFUSED.set(0);
    f();
    MOST.set(0);
    REFUSED.get()
}

/// The results, or None if an op refuses because of the limit of [`within`]. Any other error fails
/// the test.
pub fn ran(result: Result<Vec<HostTensor>, Error>, what: &str) -> Option<Vec<HostTensor>> {
    match result {
        Err(Error::ResourceExhausted(m)) if MOST.get() > 0 => {
            assert!(m.contains("binding"), "{what}: {m}");
            println!("refused: {what}: {m}");
            REFUSED.set(REFUSED.get() + 1);
            None
        }
        result => Some(result.unwrap_or_else(|e| panic!("{what}: {e}"))),
    }
}
