//! The parts of Vulkan that are left out because they crash: a driver that crashes when it is
//! loaded, a layer, or a device whose driver crashes when wgpu queries its features.
//!
//! Another process finds this out ([`examination`]), and the result is kept until a driver, a layer
//! or a variable changes. So only the first import costs a process, and no crash reaches the
//! program. If no other process can be started, all of Vulkan is tried as it is.

use std::hash::BuildHasher;
use std::path::PathBuf;
use std::sync::OnceLock;

use prost::Message;

use super::cache::Store;
use crate::sys::examination::{self, Ended};
use crate::sys::vulkan_devices::{self, Identity};
use crate::sys::{process, vulkan_driver};

/// Grows whenever the meaning of a record changes, or more is examined.
const LAYOUT: u32 = 2;
/// The largest number of files of records.
const FILES: u64 = 16;

/// The parts that are left out.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct LeftOut {
    #[prost(uint32, tag = "1")]
    layout: u32,
    /// Whether all of Vulkan is left out.
    #[prost(bool, tag = "2")]
    pub everything: bool,
    /// The manifests of the only drivers that the loader may take. Empty if it may take all.
    #[prost(string, repeated, tag = "3")]
    drivers: Vec<String>,
    /// Whether the loader takes no layers.
    #[prost(bool, tag = "4")]
    without_layers: bool,
    /// The hidden devices, one line each.
    #[prost(string, repeated, tag = "5")]
    devices: Vec<String>,
    /// A line for each part that is left out.
    #[prost(string, repeated, tag = "6")]
    pub lines: Vec<String>,
}

/// Finds out once in this process which parts must be left out, or reads an earlier process's
/// result, and hides them from the Vulkan loader and from wgpu. `directory` is that of the caches.
pub(super) fn apply(directory: Option<PathBuf>) -> &'static LeftOut {
    static FOUND: OnceLock<LeftOut> = OnceLock::new();
    FOUND.get_or_init(|| {
        let found = known_or_examined(directory);
        process::set_variables(&found.variables());
        let hidden = found.devices.iter().filter_map(|line| Identity::of_line(line));
        vulkan_devices::hide(hidden.collect());
        found
    })
}

fn known_or_examined(directory: Option<PathBuf>) -> LeftOut {
    if !examination::is_possible() {
        return LeftOut::default();
    }
    let Some((manifests, fingerprint)) = vulkan_driver::drivers() else {
        return LeftOut::default();
    };
    let key = format!("{} {fingerprint}", env!("CARGO_PKG_VERSION"));
    let store = directory.map(|directory| {
        // A small number of files: variables that differ from process to process must not make one
        // each.
        let name = format!("vulkan-{:x}.bin", rustc_hash::FxBuildHasher.hash_one(&key) % FILES);
        Store::named("examination of Vulkan", &name, key.as_bytes(), &directory)
    });
    let known = store
        .as_ref()
        .and_then(Store::read)
        .and_then(|bytes| LeftOut::decode(&*bytes).ok().filter(|known| known.layout == LAYOUT));
    known.unwrap_or_else(|| {
        let found = examine(&manifests, &examination::run);
        if let (Some(found), Some(store)) = (&found, &store) {
            store.write(&found.encode_to_vec());
        }
        found.unwrap_or_default()
    })
}

type Run<'a> = &'a dyn Fn(&[&str], &[(String, String)]) -> Ended;

/// Finds out with `run` which of the drivers with these manifests, of their devices and of the
/// layers must be left out. Returns None if that cannot be found out.
fn examine(manifests: &[PathBuf], run: Run<'_>) -> Option<LeftOut> {
    let mut out = LeftOut { layout: LAYOUT, ..LeftOut::default() };
    let first = match run(&["ask"], &[]) {
        Ended::Well(_) => return Some(out),
        Ended::Crashed(how) => how,
        Ended::Unknown(why) => {
            log::debug!("Vulkan's drivers are not examined: {why}");
            return None;
        }
    };
    // If the process crashes even without Vulkan, Vulkan is not the reason.
    let Ended::Well(_) = run(&["nothing"], &[]) else { return None };
    if let Ended::Crashed(how) = run(&["list"], &[]) {
        out.keep_away(manifests, &how, run);
    }
    let variables = out.variables();
    let mut devices = match run(&["list"], &variables) {
        Ended::Well(devices) => devices,
        Ended::Crashed(_) => return Some(LeftOut::nothing(&first)),
        Ended::Unknown(_) => return None,
    };
    // Drivers may print other lines.
    devices.retain(|line| Identity::of_line(line).is_some());
    let mut hidden = Vec::new();
    for (place, device) in devices.iter().enumerate() {
        let others: Vec<String> =
            (0..devices.len()).filter(|other| *other != place).map(|o| o.to_string()).collect();
        if let Ended::Crashed(how) = run(&asking(&others), &variables) {
            let name = Identity::of_line(device).map_or_else(|| device.clone(), |d| d.name);
            out.lines.push(format!(
                "{name} is left out: its Vulkan driver crashes ({how}) when it is asked what the \
                 GPU can do; update the driver"
            ));
            out.devices.push(device.clone());
            hidden.push(place.to_string());
        }
    }
    match run(&asking(&hidden), &variables) {
        // A crash that does not repeat is no verdict.
        Ended::Well(_) => (!out.lines.is_empty()).then_some(out),
        Ended::Crashed(how) => Some(LeftOut::nothing(&how)),
        Ended::Unknown(_) => None,
    }
}

fn asking(hidden: &[String]) -> Vec<&str> {
    std::iter::once("ask").chain(hidden.iter().map(String::as_str)).collect()
}

/// The variables that make the loader take the drivers of these manifests and no others.
fn taking<T: AsRef<std::ffi::OsStr>>(manifests: &[T]) -> [(String, String); 2] {
    let list = std::env::join_paths(manifests).unwrap_or_default().to_string_lossy().into_owned();
    // Older loaders know only the second name.
    ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"].map(|name| (name.to_owned(), list.clone()))
}

impl LeftOut {
    /// The variables that hide drivers and layers from the loader.
    fn variables(&self) -> Vec<(String, String)> {
        let mut variables = Vec::new();
        if !self.drivers.is_empty() {
            variables.extend(taking(&self.drivers));
        }
        if self.without_layers {
            let layers = [("VK_LOADER_LAYERS_DISABLE", "~all~"), ("VK_INSTANCE_LAYERS", "")];
            variables.extend(layers.map(|(name, value)| (name.to_owned(), value.to_owned())));
        }
        variables
    }

    /// Leaves out all of Vulkan, which crashes in the way that `how` says.
    fn nothing(how: &str) -> Self {
        let line = format!(
            "Vulkan is left out: it crashes ({how}) when its drivers are loaded; update or remove \
             the driver that does"
        );
        Self { layout: LAYOUT, everything: true, lines: vec![line], ..Self::default() }
    }

    /// Leaves out the drivers that crash when they are loaded, or else all layers.
    fn keep_away(&mut self, manifests: &[PathBuf], how: &str, run: Run<'_>) {
        let crashes =
            |manifest: &PathBuf| matches!(run(&["list"], &taking(&[manifest])), Ended::Crashed(_));
        let (broken, sound): (Vec<_>, Vec<_>) = manifests.iter().partition(|m| crashes(m));
        if sound.is_empty() || broken.is_empty() {
            self.without_layers = true;
            self.lines.push(format!(
                "all Vulkan layers are left out: one crashes ({how}) when it is loaded; see \
                 VK_INSTANCE_LAYERS and vulkan/implicit_layer.d"
            ));
            return;
        }
        self.drivers = sound.iter().map(|manifest| manifest.display().to_string()).collect();
        self.lines.extend(broken.iter().map(|manifest| {
            format!(
                "the Vulkan driver {} is left out: it crashes ({how}) when it is loaded; update \
                 or remove it",
                manifest.display()
            )
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICES: [&str; 2] = ["4318 1 2 a card", "4318 3 2 another card"];

    fn well<T: ToString>(lines: &[T]) -> Ended {
        Ended::Well(lines.iter().map(ToString::to_string).collect())
    }

    fn crashed() -> Ended {
        Ended::Crashed("SIGSEGV".into())
    }

    /// The result if `ask` gives the outcome for each set of devices that are not hidden, by their
    /// places.
    fn found(ask: &dyn Fn(&[usize]) -> Ended) -> Option<LeftOut> {
        examine(&["a.json".into()], &|arguments, _| match arguments {
            ["nothing"] => well(&[""; 0]),
            ["list"] => well(&["a driver's own line", DEVICES[0], DEVICES[1]]),
            ["ask", hidden @ ..] => {
                let is_asked = |place: &usize| !hidden.contains(&&*place.to_string());
                ask(&(0..DEVICES.len()).filter(is_asked).collect::<Vec<_>>())
            }
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn a_device_that_crashes_is_hidden_alone() {
        let out = found(&|asked| if asked.contains(&1) { crashed() } else { well(&[""; 0]) });
        let out = out.unwrap();
        assert_eq!(out.devices, [DEVICES[1]]);
        assert!(!out.everything && out.variables().is_empty());
        assert!(out.lines[0].starts_with("another card is left out: "), "{:?}", out.lines);
        assert_eq!(LeftOut::decode(&*out.encode_to_vec()).unwrap(), out);
    }

    #[test]
    fn devices_that_crash_together_leave_nothing() {
        let out = found(&|asked| if asked.len() > 1 { crashed() } else { well(&[""; 0]) });
        let out = out.unwrap();
        assert!(out.everything && out.devices.is_empty(), "{out:?}");
        assert_eq!(out.lines.len(), 1);
    }

    #[test]
    fn a_list_that_does_not_come_is_no_verdict() {
        let run = |arguments: &[&str], _: &[(String, String)]| match arguments {
            ["nothing"] => well(&[""; 0]),
            ["list"] => Ended::Unknown("it took too long".into()),
            _ => crashed(),
        };
        assert_eq!(examine(&["a.json".into()], &run), None);
    }

    #[test]
    fn nothing_is_kept_that_is_not_known() {
        assert_eq!(found(&|_| Ended::Unknown("no process".into())), None);
        // A crash that happens only once.
        let first = std::cell::Cell::new(true);
        assert_eq!(found(&|_| if first.take() { crashed() } else { well(&[""; 0]) }), None);
        let well = found(&|_| well(&[""; 0])).unwrap();
        assert_eq!(well, LeftOut { layout: LAYOUT, ..LeftOut::default() });
    }

    #[test]
    fn a_driver_that_crashes_is_kept_from_the_loader() {
        let manifests: Vec<PathBuf> = ["a.json", "b.json", "c.json"].map(PathBuf::from).into();
        let run = |arguments: &[&str], variables: &[(String, String)]| {
            let files = variables.iter().find(|(name, _)| name == "VK_DRIVER_FILES");
            match files {
                _ if arguments == ["nothing"] => well(&[""; 0]),
                Some((_, files)) if !files.contains("b.json") => match arguments {
                    ["list"] => well(&DEVICES),
                    _ => well(&[""; 0]),
                },
                _ => crashed(),
            }
        };
        let out = examine(&manifests, &run).unwrap();
        let value = "a.json:c.json".to_owned();
        assert_eq!(
            out.variables(),
            ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"].map(|name| (name.to_owned(), value.clone()))
        );
        assert!(out.lines[0].contains("b.json is left out"), "{:?}", out.lines);
        // If all drivers crash, a layer may be the reason.
        let run = |arguments: &[&str], variables: &[(String, String)]| {
            let without = variables.iter().any(|(name, _)| name == "VK_LOADER_LAYERS_DISABLE");
            if without || arguments == ["nothing"] { well(&[""; 0]) } else { crashed() }
        };
        let out = examine(&manifests, &run).unwrap();
        assert!(out.lines[0].starts_with("all Vulkan layers are left out"), "{:?}", out.lines);
        let all = |arguments: &[&str], _: &[(String, String)]| {
            if arguments == ["nothing"] { well(&[""; 0]) } else { crashed() }
        };
        let out = examine(&manifests, &all).unwrap();
        assert!(out.everything && out.variables().is_empty(), "{out:?}");
        assert_eq!(out.lines.len(), 1);
        // A crash without Vulkan says nothing about Vulkan.
        assert_eq!(examine(&manifests, &|_, _| crashed()), None);
    }
}
