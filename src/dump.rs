//! The folder of `TF_WGPU_DUMP`: shaders, graphs and timings in readable files.
//!
//! This module owns the paths of files and the format of tables; `device` writes shaders,
//! `optimizer` writes graphs. Nothing here fails: an error of the file system is one line in the
//! log.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

/// The variable's name.
pub const VARIABLE: &str = "TF_WGPU_DUMP";

/// The most characters of a label in a file's name.
const LONGEST_NAME: usize = 60;

/// The folder of one process, which is made with the first file.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Held while a table grows.
    tables: Mutex<()>,
    failed: AtomicBool,
}

/// The folder for graphs that a caller asked for, in place of the environment's.
static ASKED: Mutex<Option<Arc<Folder>>> = Mutex::new(None);

impl Folder {
    /// Makes `path` the folder for graphs that are optimized from now on. `None` ends that.
    pub fn ask_for_graphs(path: Option<PathBuf>) {
        *ASKED.lock() = path.map(|path| Arc::new(Self::new(path)));
    }

    /// The folder for graphs: the one that a caller asked for, or the process's.
    pub fn of_graphs() -> Option<Arc<Self>> {
        ASKED.lock().clone().or_else(Self::of_process)
    }

    /// The folder at `path`.
    pub fn new(path: PathBuf) -> Self {
        Self { path, tables: Mutex::new(()), failed: AtomicBool::new(false) }
    }

    /// The folder below the one that the environment names. Its name is the process's number. None
    /// if the environment names no folder.
    pub fn of_process() -> Option<Arc<Self>> {
        static FOLDER: OnceLock<Option<Arc<Folder>>> = OnceLock::new();
        FOLDER
            .get_or_init(|| {
                let named = std::env::var_os(VARIABLE).filter(|value| !value.is_empty())?;
                let path = std::path::absolute(named).ok()?.join(std::process::id().to_string());
                Some(Arc::new(Self::new(path)))
            })
            .clone()
    }

    /// Writes the file at `path`, relative to the folder.
    pub fn write(&self, path: &str, contents: impl AsRef<[u8]>) {
        self.tell(path, |path| fs::write(path, contents));
    }

    /// Appends a row to a table of tab-separated columns, which begins with `header`.
    pub fn append(&self, table: &str, header: &[&str], row: &[&dyn std::fmt::Display]) {
        let row: Vec<String> = row.iter().map(|cell| one_line(&cell.to_string())).collect();
        let _guard = self.tables.lock();
        self.tell(table, |path| {
            let mut file = fs::OpenOptions::new().create(true).append(true).open(path)?;
            if file.metadata()?.len() == 0 {
                writeln!(file, "{}", header.join("\t"))?;
            }
            writeln!(file, "{}", row.join("\t"))
        });
    }

    fn tell(&self, name: &str, work: impl FnOnce(&Path) -> std::io::Result<()>) {
        let path = self.path.join(name);
        let made = path.parent().map_or(Ok(()), fs::create_dir_all);
        if let Err(e) = made.and_then(|()| work(&path))
            && !self.failed.swap(true, Ordering::Relaxed)
        {
            log::warn!("{VARIABLE}: {}: {e}; later errors are not shown", path.display());
        }
    }
}

/// Numbers files from 0 on, in the order in which they are begun.
#[derive(Debug, Default)]
pub struct Counter(AtomicU32);

impl Counter {
    /// Counts from 0.
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// The next number, with at least four digits.
    pub fn next(&self) -> String {
        format!("{:04}", self.0.fetch_add(1, Ordering::Relaxed))
    }
}

/// The label as a part of a file name that is valid on every system.
pub fn file_name(label: &str) -> String {
    let words: Vec<&str> =
        label.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let mut name = words.join("_");
    name.truncate(LONGEST_NAME);
    name
}

/// A cell: tabs and line breaks become spaces.
fn one_line(text: &str) -> String {
    text.replace(['\t', '\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_tables_lie_in_the_folder() {
        let path = std::env::temp_dir().join(format!("tensorflow-wgpu-{}", std::process::id()));
        let folder = Folder::new(path.clone());
        assert!(!path.exists(), "it is made with the first file");
        folder.write("shaders/0000_a.wgsl", "text");
        for ms in [1.5, 2.0] {
            folder.append("shaders.tsv", &["ms", "label"], &[&ms, &"two\nlines"]);
        }
        let read = |name: &str| fs::read_to_string(path.join(name)).unwrap();
        let found = (read("shaders/0000_a.wgsl"), read("shaders.tsv"));
        fs::remove_dir_all(&path).unwrap();
        assert_eq!(found.0, "text");
        assert_eq!(found.1, "ms\tlabel\n1.5\ttwo lines\n2\ttwo lines\n");
    }

    #[test]
    fn trouble_with_files_is_no_error() {
        let file = std::env::temp_dir().join(format!("tensorflow-wgpu-f{}", std::process::id()));
        fs::write(&file, "").unwrap();
        let folder = Folder::new(file.clone());
        folder.write("a", "text");
        folder.append("table", &["a"], &[&1]);
        fs::remove_file(file).unwrap();
        assert!(folder.failed.load(Ordering::Relaxed));
    }

    #[test]
    fn names_hold_on_every_system() {
        assert_eq!(
            file_name("contract Subgroup 16x1 (f32): a/b"),
            "contract_Subgroup_16x1_f32_a_b"
        );
        assert_eq!(file_name(&"x".repeat(200)).len(), LONGEST_NAME);
        let counter = Counter::new();
        assert_eq!([counter.next(), counter.next()], ["0000", "0001"]);
    }
}
