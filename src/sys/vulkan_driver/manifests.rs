//! The driver manifests that the Vulkan loader reads: their paths, which of them the loader takes,
//! and the libraries that they name.
//!
//! This module owns the loader's rules, as LoaderDriverInterface.md and
//! LoaderInterfaceArchitecture.md state them. It does not know how a library is opened. Broken
//! manifests are skipped: the loader decides about them.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Returns the value of an environment variable.
pub(super) type Lookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// The driver libraries that the loader is about to open, in its order, without duplicates.
pub(super) fn drivers(lookup: Lookup<'_>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for manifest in admitted(lookup) {
        match libraries(&manifest) {
            Ok(libraries) => {
                for library in libraries {
                    if !found.contains(&library) {
                        found.push(library);
                    }
                }
            }
            Err(why) => log::debug!("Vulkan manifest {} is skipped: {why}", manifest.display()),
        }
    }
    found
}

/// The manifests that the loader takes.
fn admitted(lookup: Lookup<'_>) -> Vec<PathBuf> {
    let filter = Filter::new(lookup);
    let mut found = manifests(lookup);
    found.retain(|manifest| {
        let admits = filter.admits(manifest);
        if !admits {
            log::debug!(
                "Vulkan manifest {} is skipped, as the loader's variables ask",
                manifest.display()
            );
        }
        admits
    });
    found
}

/// The prefixes of the names of variables that the loader, its layers and Mesa's drivers read.
#[cfg(has_examination)]
const PREFIXES: [&str; 7] =
    ["VK_", "LD_", "MESA_", "DRI_", "NODEVICE_SELECT", "DISABLE_", "ENABLE_"];

/// The manifests that the loader takes, and a text of everything that determines their behaviour
/// and the loader's. None if there is no manifest.
#[cfg(has_examination)]
pub(super) fn fingerprint(lookup: Lookup<'_>) -> Option<(Vec<PathBuf>, String)> {
    let manifests = admitted(lookup);
    if manifests.is_empty() {
        return None;
    }
    let set = |name: &str| lookup(name).filter(|v| !v.is_empty());
    let mut files = manifests.clone();
    files.extend(manifests.iter().filter_map(|m| libraries(m).ok()).flatten());
    let mut layers = Vec::new();
    for directory in data_directories(&set) {
        for kind in ["implicit_layer.d", "explicit_layer.d"] {
            add(&mut layers, &directory.join("vulkan").join(kind));
        }
    }
    // An overlay's layer is switched on by a variable that its manifest names.
    let mut switches = Vec::new();
    for manifest in layers {
        if let Ok(json) = json(&manifest) {
            let described = ["layer", "layers"].into_iter().flat_map(|key| objects(&json, key));
            for layer in described {
                files.extend(library(&manifest, layer));
                for key in ["enable_environment", "disable_environment"] {
                    let named = layer.get(key).and_then(Value::as_object);
                    switches.extend(named.into_iter().flat_map(|named| named.keys().cloned()));
                }
            }
        }
        files.push(manifest);
    }
    // The GPUs of the machine, which may have changed while it was off.
    let mut text: Vec<String> = std::fs::read_dir("/sys/class/drm")
        .into_iter()
        .flatten()
        .flatten()
        .map(|card| {
            let of = |name: &str| std::fs::read_to_string(card.path().join("device").join(name));
            let [vendor, device] = ["vendor", "device"].map(|name| of(name).unwrap_or_default());
            format!("{} {} {}", card.path().display(), vendor.trim(), device.trim())
        })
        .collect();
    text.sort();
    // The version of the kernel's driver, for libraries that have the same name in each version.
    let said = ["/proc/driver/nvidia/version", "/proc/sys/kernel/osrelease"];
    text.extend(said.iter().filter_map(|path| std::fs::read_to_string(path).ok()));
    text.extend(files.iter().map(|file| {
        let metadata = file.metadata().ok();
        let changed = metadata.as_ref().and_then(|m| m.modified().ok());
        format!("{} {:?} {changed:?}", file.display(), metadata.map(|m| m.len()))
    }));
    let mut variables: Vec<String> = std::env::vars_os()
        .filter(|(name, _)| {
            let name = name.to_string_lossy();
            PREFIXES.iter().any(|prefix| name.starts_with(prefix))
                || switches.iter().any(|switch| *switch == name)
        })
        .map(|(name, value)| format!("{}={}", name.display(), value.display()))
        .collect();
    variables.sort();
    text.extend(variables);
    Some((manifests, text.join("\n")))
}

/// The rules of `VK_LOADER_DRIVERS_SELECT` and `VK_LOADER_DRIVERS_DISABLE` for manifests: lists of
/// names with `*` at either end.
struct Filter {
    /// Empty if every driver is selected.
    select: Vec<String>,
    disable: Vec<String>,
}

impl Filter {
    fn new(lookup: Lookup<'_>) -> Self {
        let list = |name: &str| {
            let value = lookup(name).unwrap_or_default().to_string_lossy().to_lowercase();
            value.split(',').filter(|glob| !glob.is_empty()).map(str::to_owned).collect()
        };
        Self {
            select: list("VK_LOADER_DRIVERS_SELECT"),
            disable: list("VK_LOADER_DRIVERS_DISABLE"),
        }
    }

    /// Whether the loader takes a manifest, by the name of its file.
    fn admits(&self, manifest: &Path) -> bool {
        let name = manifest.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let any = |globs: &[String]| globs.iter().any(|glob| is_match(glob, &name));
        (self.select.is_empty() || any(&self.select)) && !any(&self.disable)
    }
}

fn is_match(glob: &str, name: &str) -> bool {
    if matches!(glob, "*" | "**" | "~all~") {
        return true;
    }
    match (glob.strip_prefix('*'), glob.strip_suffix('*')) {
        (Some(_), Some(_)) => name.contains(&glob[1..glob.len() - 1]),
        (Some(end), None) => name.ends_with(end),
        (None, Some(start)) => name.starts_with(start),
        (None, None) => name == glob,
    }
}

/// The driver manifests in the Vulkan loader's order, without duplicates.
fn manifests(lookup: Lookup<'_>) -> Vec<PathBuf> {
    let set = |name: &str| lookup(name).filter(|v| !v.is_empty());
    let mut found = Vec::new();
    // Either of these replaces everything else; VK_ICD_FILENAMES is the old name.
    if let Some(files) = set("VK_DRIVER_FILES").or_else(|| set("VK_ICD_FILENAMES")) {
        std::env::split_paths(&files).for_each(|path| add(&mut found, &path));
        return found;
    }
    if let Some(files) = set("VK_ADD_DRIVER_FILES") {
        std::env::split_paths(&files).for_each(|path| add(&mut found, &path));
    }
    for directory in data_directories(&set) {
        add(&mut found, &directory.join("vulkan/icd.d"));
    }
    found
}

/// The directories whose `vulkan/icd.d` the loader searches.
fn data_directories(set: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let home =
        |below: &str| set("HOME").map(|home| PathBuf::from(home).join(below).into_os_string());
    let list = |name: &str, default: &str| set(name).unwrap_or_else(|| default.into());
    let lists = [
        set("XDG_CONFIG_HOME").or_else(|| home(".config")),
        Some(list("XDG_CONFIG_DIRS", "/etc/xdg")),
        Some("/usr/local/etc:/etc".into()),
        set("XDG_DATA_HOME").or_else(|| home(".local/share")),
        Some(list("XDG_DATA_DIRS", "/usr/local/share:/usr/share")),
    ];
    lists
        .iter()
        .flatten()
        .flat_map(std::env::split_paths)
        .filter(|p| !p.as_os_str().is_empty())
        .collect()
}

/// Adds a manifest, or the manifests in a directory in the order of their names.
fn add(found: &mut Vec<PathBuf>, path: &Path) {
    let mut files = match std::fs::read_dir(path) {
        Ok(entries) => entries
            .flatten()
            .map(|e| e.path())
            .filter(|p| p.extension() == Some(OsStr::new("json")))
            .collect(),
        Err(_) if path.is_file() => vec![path.to_owned()],
        Err(_) => Vec::new(),
    };
    files.sort();
    for file in files {
        if !found.contains(&file) {
            found.push(file);
        }
    }
}

fn json(manifest: &Path) -> Result<Value, String> {
    let text = std::fs::read_to_string(manifest).map_err(|e| e.to_string())?;
    serde_json::from_str(&text).map_err(|e| e.to_string())
}

/// The objects under a key, whose value is an object or a list of objects.
fn objects<'a>(json: &'a Value, key: &str) -> Vec<&'a Value> {
    match json.get(key) {
        Some(Value::Array(list)) => list.iter().collect(),
        Some(one @ Value::Object(_)) => vec![one],
        _ => Vec::new(),
    }
}

/// The library that a driver's or a layer's object names. A bare file name is left to the system's
/// search path; other relative paths start at the manifest.
fn library(manifest: &Path, object: &Value) -> Option<PathBuf> {
    let path = object.get("library_path")?.as_str().filter(|p| !p.is_empty())?;
    let path = PathBuf::from(path);
    let directory = manifest.parent().unwrap_or(Path::new("."));
    // `join` leaves absolute paths as they are.
    Some(if path.components().count() == 1 { path } else { directory.join(path) })
}

/// The libraries of a driver's manifest.
fn libraries(manifest: &Path) -> Result<Vec<PathBuf>, String> {
    let json = json(manifest)?;
    let drivers = objects(&json, "ICD");
    if drivers.is_empty() {
        return Err("it has no ICD object".into());
    }
    let paths: Vec<PathBuf> = drivers.iter().filter_map(|d| library(manifest, d)).collect();
    if paths.is_empty() { Err("it names no library_path".into()) } else { Ok(paths) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that is removed at the end.
    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("tensorflow-wgpu-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn file(&self, name: &str, text: &str) -> PathBuf {
            let path = self.0.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            path
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    const DRIVER: &str = r#"{"file_format_version": "1.0.0",
        "ICD": {"library_path": "libdriver.so", "api_version": "1.1.0"}}"#;

    #[test]
    fn a_library_path_is_a_name_relative_or_absolute() {
        let directory = Directory::new("paths");
        for (path, expected) in [
            ("libdriver.so", PathBuf::from("libdriver.so")),
            ("../lib/libdriver.so", directory.0.join("../lib/libdriver.so")),
            ("./libdriver.so", directory.0.join("./libdriver.so")),
            ("/opt/libdriver.so", PathBuf::from("/opt/libdriver.so")),
        ] {
            let manifest =
                directory.file("one.json", &format!(r#"{{"ICD": {{"library_path": "{path}"}}}}"#));
            assert_eq!(libraries(&manifest).unwrap(), [expected]);
        }
    }

    #[test]
    fn the_icd_is_an_object_or_a_list() {
        let directory = Directory::new("forms");
        let list = directory.file(
            "list.json",
            r#"{"ICD": [{"library_path": "a.so"}, {}, {"library_path": "b.so"}]}"#,
        );
        assert_eq!(libraries(&list).unwrap(), [PathBuf::from("a.so"), PathBuf::from("b.so")]);
        assert_eq!(
            libraries(&directory.file("object.json", DRIVER)).unwrap(),
            [PathBuf::from("libdriver.so")]
        );
    }

    #[test]
    fn broken_manifests_say_why() {
        let directory = Directory::new("broken");
        for (text, why) in [
            ("{", "EOF"),
            ("[]", "no ICD"),
            (r#"{"ICD": 3}"#, "no ICD"),
            (r#"{"ICD": {}}"#, "library_path"),
            (r#"{"ICD": {"library_path": 3}}"#, "library_path"),
            (r#"{"ICD": {"library_path": ""}}"#, "library_path"),
        ] {
            let error = libraries(&directory.file("broken.json", text)).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        assert!(libraries(&directory.0.join("missing.json")).is_err());
    }

    #[test]
    fn the_environment_replaces_or_precedes_the_directories() {
        let directory = Directory::new("order");
        let (b, a) = (directory.file("own/b.json", DRIVER), directory.file("own/a.json", DRIVER));
        directory.file("own/readme.txt", "");
        let data = directory.file("data/vulkan/icd.d/c.json", DRIVER);
        let config = directory.file("config/vulkan/icd.d/d.json", DRIVER);
        let own = directory.0.join("own").into_os_string();
        let run = |driver: Option<&OsStr>, old: Option<&OsStr>, extra: Option<&OsStr>| {
            manifests(&|name| match name {
                "VK_DRIVER_FILES" => driver.map(OsStr::to_owned),
                "VK_ICD_FILENAMES" => old.map(OsStr::to_owned),
                "VK_ADD_DRIVER_FILES" => extra.map(OsStr::to_owned),
                "XDG_CONFIG_HOME" => Some(directory.0.join("config").into()),
                "XDG_DATA_HOME" => Some(directory.0.join("data").into()),
                "XDG_DATA_DIRS" | "XDG_CONFIG_DIRS" => Some("/nonexistent".into()),
                _ => None,
            })
        };
        assert_eq!(run(Some(&own), None, Some(data.as_os_str())), [a.clone(), b.clone()]);
        assert_eq!(run(None, Some(b.as_os_str()), None), std::slice::from_ref(&b));
        assert_eq!(run(Some(a.as_os_str()), Some(b.as_os_str()), None), std::slice::from_ref(&a));
        let all = run(None, None, Some(&own));
        assert_eq!(all[..3], [a, b, config], "added files first, then configuration");
        assert_eq!(all.last(), Some(&data), "then data directories");
        assert!(run(Some(OsStr::new("/nonexistent/driver.json")), None, None).is_empty());
    }

    #[test]
    fn the_loader_s_filters_select_and_disable() {
        let directory = Directory::new("filters");
        for name in ["lvp_icd.json", "Radeon_icd.json", "nvidia.json"] {
            let stem = name.split('.').next().unwrap();
            directory.file(name, &format!(r#"{{"ICD": {{"library_path": "{stem}"}}}}"#));
        }
        let run = |select: &str, disable: &str| {
            drivers(&|name| match name {
                "VK_DRIVER_FILES" => Some(directory.0.clone().into()),
                "VK_LOADER_DRIVERS_SELECT" => Some(select.into()),
                "VK_LOADER_DRIVERS_DISABLE" => Some(disable.into()),
                _ => None,
            })
        };
        let (lvp, radeon, nvidia) = ("lvp_icd", "Radeon_icd", "nvidia");
        for (select, disable, expected) in [
            ("", "", &[radeon, lvp, nvidia][..]),
            (",", ",", &[radeon, lvp, nvidia]),
            ("lvp*", "", &[lvp]),
            ("*_icd.json", "", &[radeon, lvp]),
            ("*RADEON*,nvidia.json", "", &[radeon, nvidia]),
            ("nvidia", "", &[]),
            ("", "*icd*", &[nvidia]),
            ("lvp*,nvidia*", "LVP*", &[nvidia]),
            ("", "*", &[]),
            ("", "~all~", &[]),
            ("**", "radeon_icd.json", &[lvp, nvidia]),
        ] {
            let expected: Vec<PathBuf> = expected.iter().map(PathBuf::from).collect();
            assert_eq!(run(select, disable), expected, "select {select:?}, disable {disable:?}");
        }
    }
}
