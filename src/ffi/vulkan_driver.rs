//! Loads Vulkan drivers before the Vulkan loader does, shielded from TensorFlow's LLVM.
//!
//! `libtensorflow_framework` exports thousands of `llvm::` symbols with global visibility. A Mesa driver that uses LLVM
//! (lavapipe, radv's LLVM path) would bind to those and crash while it compiles a shader. Loaded with RTLD_DEEPBIND, a driver
//! prefers its own dependencies; the Vulkan loader then gets the copy that is loaded already. So the manifests that the
//! loader will read are read here first, in its order. What is broken is skipped: the loader has the last word.

/// Loads the drivers, once in the process. Does nothing where no driver can clash.
pub(crate) fn preload() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| linux::preload(&|name| std::env::var_os(name)));
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod linux {
    use std::ffi::{OsStr, OsString};
    use std::path::{Path, PathBuf};

    use libloading::os::unix::Library;
    use serde_json::Value;

    type Lookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

    pub fn preload(lookup: Lookup<'_>) {
        let mut loaded: Vec<PathBuf> = Vec::new();
        for manifest in manifests(lookup) {
            let libraries = match libraries(&manifest) {
                Ok(libraries) => libraries,
                Err(why) => {
                    log::debug!("Vulkan manifest {} is skipped: {why}", manifest.display());
                    continue;
                }
            };
            for library in libraries {
                if loaded.contains(&library) {
                    continue;
                }
                let flags = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_DEEPBIND;
                // SAFETY: this runs the initializers of a driver that the Vulkan loader is about to load anyway.
                match unsafe { Library::open(Some(library.as_os_str()), flags) } {
                    // Never closed: the loader, and threads of the driver, may live as long as the process.
                    Ok(driver) => std::mem::forget(driver),
                    Err(e) => log::debug!("Vulkan driver {} is not loaded: {e}", library.display()),
                }
                loaded.push(library);
            }
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
        let home = |below: &str| set("HOME").map(|home| PathBuf::from(home).join(below).into_os_string());
        let list = |name: &str, default: &str| set(name).unwrap_or_else(|| default.into());
        let lists = [
            set("XDG_CONFIG_HOME").or_else(|| home(".config")),
            Some(list("XDG_CONFIG_DIRS", "/etc/xdg")),
            Some("/usr/local/etc:/etc".into()),
            set("XDG_DATA_HOME").or_else(|| home(".local/share")),
            Some(list("XDG_DATA_DIRS", "/usr/local/share:/usr/share")),
        ];
        lists.iter().flatten().flat_map(std::env::split_paths).filter(|p| !p.as_os_str().is_empty()).collect()
    }

    /// Adds a manifest, or the manifests in a directory in the order of their names.
    fn add(found: &mut Vec<PathBuf>, path: &Path) {
        let mut files = match std::fs::read_dir(path) {
            Ok(entries) => {
                entries.flatten().map(|e| e.path()).filter(|p| p.extension() == Some(OsStr::new("json"))).collect()
            }
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

    /// The libraries of a manifest, whose `ICD` is an object or a list of objects. A bare file name is left to the
    /// system's search path; other relative paths start at the manifest.
    fn libraries(manifest: &Path) -> Result<Vec<PathBuf>, String> {
        let text = std::fs::read_to_string(manifest).map_err(|e| e.to_string())?;
        let json: Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
        let drivers = match json.get("ICD") {
            Some(Value::Array(list)) => list.iter().collect(),
            Some(one @ Value::Object(_)) => vec![one],
            _ => return Err("it has no ICD object".into()),
        };
        let paths: Vec<PathBuf> = drivers
            .iter()
            .filter_map(|d| d.get("library_path")?.as_str())
            .filter(|p| !p.is_empty())
            .map(PathBuf::from)
            .collect();
        if paths.is_empty() {
            return Err("it names no library_path".into());
        }
        let directory = manifest.parent().unwrap_or(Path::new("."));
        // `join` leaves absolute paths as they are.
        Ok(paths.into_iter().map(|p| if p.components().count() == 1 { p } else { directory.join(p) }).collect())
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        /// A directory that is removed at the end.
        struct Directory(PathBuf);

        impl Directory {
            fn new(name: &str) -> Self {
                let path = std::env::temp_dir().join(format!("tensorflow-wgpu-{name}-{}", std::process::id()));
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

        const DRIVER: &str =
            r#"{"file_format_version": "1.0.0", "ICD": {"library_path": "libdriver.so", "api_version": "1.1.0"}}"#;

        #[test]
        fn a_library_path_is_a_name_relative_or_absolute() {
            let directory = Directory::new("paths");
            for (path, expected) in [
                ("libdriver.so", PathBuf::from("libdriver.so")),
                ("../lib/libdriver.so", directory.0.join("../lib/libdriver.so")),
                ("./libdriver.so", directory.0.join("./libdriver.so")),
                ("/opt/libdriver.so", PathBuf::from("/opt/libdriver.so")),
            ] {
                let manifest = directory.file("one.json", &format!(r#"{{"ICD": {{"library_path": "{path}"}}}}"#));
                assert_eq!(libraries(&manifest).unwrap(), [expected]);
            }
        }

        #[test]
        fn the_icd_is_an_object_or_a_list() {
            let directory = Directory::new("forms");
            let list =
                directory.file("list.json", r#"{"ICD": [{"library_path": "a.so"}, {}, {"library_path": "b.so"}]}"#);
            assert_eq!(libraries(&list).unwrap(), [PathBuf::from("a.so"), PathBuf::from("b.so")]);
            assert_eq!(libraries(&directory.file("object.json", DRIVER)).unwrap(), [PathBuf::from("libdriver.so")]);
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
        fn drivers_that_do_not_load_are_ignored() {
            let directory = Directory::new("unloadable");
            let manifest = directory.file("bad.json", r#"{"ICD": {"library_path": "./not-there.so"}}"#);
            preload(&|name| (name == "VK_DRIVER_FILES").then(|| manifest.clone().into()));
        }
    }
}
