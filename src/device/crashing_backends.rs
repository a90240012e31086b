//! The graphics APIs that are left out on Windows because a driver crashes when its GPUs are
//! queried.
//!
//! Another process finds this out ([`crate::sys::examination`]), and the result is kept until a
//! driver changes. So only the first import costs a process, and no crash reaches the program. If
//! no other process can be started, all APIs are tried as they are.

use prost::Message;

use crate::sys::examination::Ended;

/// Grows whenever the meaning of a record changes.
const LAYOUT: u32 = 2;
/// The APIs that are queried, by the names that the examining process takes.
const ASKED: [(&str, &str, wgpu::Backends); 2] =
    [("vulkan", "Vulkan", wgpu::Backends::VULKAN), ("dx12", "DX12", wgpu::Backends::DX12)];

/// An API that crashes, and the kind of crash.
#[derive(Clone, PartialEq, Eq, Message)]
struct Crash {
    #[prost(string, tag = "1")]
    api: String,
    #[prost(string, tag = "2")]
    how: String,
}

/// The APIs that are left out.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct CrashingBackends {
    #[prost(uint32, tag = "1")]
    layout: u32,
    #[prost(message, repeated, tag = "2")]
    crashes: Vec<Crash>,
}

impl CrashingBackends {
    /// The backends.
    pub fn backends(&self) -> wgpu::Backends {
        let crashing = |api: &&(&str, _, _)| self.crashes.iter().any(|crash| crash.api == api.0);
        ASKED.iter().filter(crashing).map(|(.., backend)| *backend).collect()
    }

    /// A line for each API that crashes.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.crashes.iter().map(|Crash { api, how }| {
            let name = ASKED.iter().find(|(known, ..)| known == api).map_or(&**api, |(_, n, _)| n);
            format!(
                "{name} is left out: a driver crashes ({how}) when it is asked what its GPUs can \
                 do; update the drivers of your GPUs"
            )
        })
    }
}

type Run<'a> = &'a dyn Fn(&[&str]) -> Ended;

/// Finds out with `run` which of these backends crash. Returns None if that cannot be found out.
fn examine(backends: wgpu::Backends, run: Run<'_>) -> Option<CrashingBackends> {
    let apis: Vec<&str> =
        ASKED.iter().filter(|(.., b)| backends.contains(*b)).map(|(api, ..)| *api).collect();
    let ask = |apis: &[&str]| run(&[&["ask"], apis].concat());
    let mut out = CrashingBackends { layout: LAYOUT, crashes: Vec::new() };
    match ask(&apis) {
        Ended::Well(_) => return Some(out),
        Ended::Crashed(_) => {}
        Ended::Unknown(why) => {
            log::debug!("the drivers are not examined: {why}");
            return None;
        }
    }
    // A process that crashes even without a query says nothing about drivers.
    let Ended::Well(_) = run(&["nothing"]) else { return None };
    for api in apis {
        match ask(&[api]) {
            Ended::Well(_) => {}
            Ended::Crashed(how) => out.crashes.push(Crash { api: api.to_owned(), how }),
            Ended::Unknown(_) => return None,
        }
    }
    // A crash that does not repeat is no verdict.
    (!out.crashes.is_empty()).then_some(out)
}

#[cfg(windows)]
mod known {
    use std::path::PathBuf;
    use std::sync::OnceLock;

    use prost::Message;

    use super::{CrashingBackends, LAYOUT, examine};
    use crate::device::cache::Store;
    use crate::sys::{display_drivers, examination};

    /// Returns which of these backends crash: finds it out once in this process, or reads an
    /// earlier process's result. `directory` is that of the caches.
    pub(in crate::device) fn of(
        backends: wgpu::Backends,
        directory: Option<PathBuf>,
    ) -> &'static CrashingBackends {
        static FOUND: OnceLock<CrashingBackends> = OnceLock::new();
        FOUND.get_or_init(|| known_or_examined(backends, directory))
    }

    fn known_or_examined(backends: wgpu::Backends, directory: Option<PathBuf>) -> CrashingBackends {
        if !examination::is_possible() {
            return CrashingBackends::default();
        }
        let bits = backends.bits();
        let drivers = display_drivers::fingerprint();
        let key = format!("{} {bits:x} {drivers}", env!("CARGO_PKG_VERSION"));
        let store = directory.map(|directory| {
            let name = format!("backends-{bits:x}.bin");
            Store::named("examination of drivers", &name, key.as_bytes(), &directory)
        });
        let known = store.as_ref().and_then(Store::read).and_then(|bytes| {
            CrashingBackends::decode(&*bytes).ok().filter(|known| known.layout == LAYOUT)
        });
        known.unwrap_or_else(|| {
            let found = examine(backends, &|arguments| examination::run(arguments, &[]));
            if let (Some(found), Some(store)) = (&found, &store) {
                store.write(&found.encode_to_vec());
            }
            found.unwrap_or_default()
        })
    }
}

#[cfg(windows)]
pub(super) use known::of;

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: wgpu::Backends = wgpu::Backends::VULKAN.union(wgpu::Backends::DX12);

    /// A machine on which these APIs crash.
    fn crashing<'a>(broken: &'a [&str]) -> impl Fn(&[&str]) -> Ended + 'a {
        move |arguments| match arguments.iter().find(|asked| broken.contains(asked)) {
            Some(api) => Ended::Crashed(format!("exit code of {api}")),
            None => Ended::Well(Vec::new()),
        }
    }

    #[test]
    fn an_api_that_crashes_is_left_out_with_a_line() {
        let cases: [(&[&str], wgpu::Backends); 3] = [
            (&["vulkan"], wgpu::Backends::VULKAN),
            (&["dx12"], wgpu::Backends::DX12),
            (&["vulkan", "dx12"], BOTH),
        ];
        for (broken, left_out) in cases {
            let found = examine(BOTH, &crashing(broken)).unwrap();
            assert_eq!(found.backends(), left_out, "{broken:?}");
            let lines: Vec<String> = found.lines().collect();
            assert_eq!(lines.len(), broken.len());
            for (line, api) in lines.iter().zip(broken) {
                assert!(line.contains(&format!("crashes (exit code of {api})")), "{line}");
                assert!(line.contains("update the drivers"), "{line}");
            }
        }
    }

    #[test]
    fn a_sound_machine_is_asked_once() {
        let asked = std::cell::RefCell::new(Vec::new());
        let run = |arguments: &[&str]| {
            asked.borrow_mut().push(arguments.join(" "));
            Ended::Well(Vec::new())
        };
        let found = examine(BOTH, &run).unwrap();
        assert_eq!((found.backends(), found.lines().count()), (wgpu::Backends::empty(), 0));
        assert_eq!(examine(wgpu::Backends::DX12, &run).unwrap(), found);
        assert_eq!(*asked.borrow(), ["ask vulkan dx12", "ask dx12"]);
    }

    #[test]
    fn a_process_that_cannot_start_or_always_crashes_is_no_verdict() {
        assert_eq!(examine(BOTH, &|_| Ended::Unknown("no process".into())), None);
        assert_eq!(examine(BOTH, &|_| Ended::Crashed("always".into())), None);
        // A crash only if both are queried together is no single driver's crash.
        let both = |arguments: &[&str]| match arguments.len() {
            3 => Ended::Crashed("once".into()),
            _ => Ended::Well(Vec::new()),
        };
        assert_eq!(examine(BOTH, &both), None);
    }
}
