//! Sessions on devices that bind fewer bytes at once than the adapter does, so that small tensors
//! are computed in windows.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tensorflow_wgpu::device::{Capabilities, Device, Selection};
use tensorflow_wgpu::local::Session;
use tensorflow_wgpu::{Error, HostTensor};

thread_local! {
    static MOST: Cell<u64> = const { Cell::new(0) };
    static REFUSED: Cell<usize> = const { Cell::new(0) };
}

/// The first adapter's device, or the one of [`within`].
pub fn session() -> Session {
    match MOST.get() {
        0 => shared(),
        most => session_of(most),
    }
}

fn shared() -> Session {
    Session::shared().expect("a Vulkan driver; on Debian install mesa-vulkan-drivers")
}

/// Whether [`within`] runs this.
pub fn is_limited() -> bool {
    MOST.get() > 0
}

/// A session whose device binds at most `most` bytes at once.
pub fn session_of(most: u64) -> Session {
    static DEVICES: Mutex<BTreeMap<u64, Arc<Device>>> = Mutex::new(BTreeMap::new());
    let mut devices = DEVICES.lock().unwrap();
    let open = || {
        let selection = Selection::enumerate(&|name| std::env::var(name).ok());
        let adapter = &selection.adapters[0];
        let capabilities = Capabilities { max_binding: most, ..*shared().device.capabilities() };
        Device::open_with(adapter, capabilities, None).expect("a device")
    };
    Session::new(devices.entry(most).or_insert_with(open).clone())
}

/// Runs `f`, whose sessions bind at most `most` bytes at once, and returns how often [`ran`] found
/// that this is too little.
pub fn within(most: u64, f: impl FnOnce()) -> usize {
    MOST.set(most);
    REFUSED.set(0);
    f();
    MOST.set(0);
    REFUSED.get()
}

/// The results, or none where an op refuses because of what [`within`] says. Any other error is the
/// test's.
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
