//! The environment variable `TF_WGPU_OPTIMIZER`: which passes run, and where graphs are written to.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::graph::Graph;
use super::passes::{self, PASSES, Pass};

/// The variable's name.
pub const VARIABLE: &str = "TF_WGPU_OPTIMIZER";

/// What the optimizer does.
pub struct Settings {
    /// The passes to run, in their order.
    pub passes: Vec<&'static Pass>,
    /// Where to write each graph before and after.
    pub dump: Option<PathBuf>,
}

impl Settings {
    /// Reads a value of the variable: `off`, or a list of passes (none: all) and `dump=DIR`, separated by commas.
    ///
    /// What is not understood is described for a log line, and the rest counts.
    pub fn parse(text: &str) -> (Self, Vec<String>) {
        let mut settings = Self { passes: Vec::new(), dump: None };
        let mut problems = Vec::new();
        let mut named: Vec<&str> = Vec::new();
        let mut off = false;
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            if part == "off" {
                off = true;
            } else if let Some(dir) = part.strip_prefix("dump=") {
                settings.dump = Some(PathBuf::from(dir));
            } else if passes::find(part).is_some() {
                named.push(part);
            } else {
                let known: Vec<&str> = PASSES.iter().map(|p| p.name).collect();
                problems.push(format!(
                    "{VARIABLE} names {part:?}, which is neither off nor dump=DIR nor one of the passes {}",
                    known.join(", ")
                ));
            }
        }
        if !off {
            settings.passes = PASSES.iter().filter(|p| named.is_empty() || named.contains(&p.name)).collect();
        }
        (settings, problems)
    }
}

/// The files of one optimization: `0007_before.txt`, `0007_after.txt`.
pub struct Dump {
    stem: PathBuf,
}

impl Dump {
    /// Writes the graph as it came.
    pub fn begin(dir: &Path, graph: &Graph) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        if let Err(e) = std::fs::create_dir_all(dir) {
            log::warn!("{}: {e}", dir.display());
        }
        let dump = Self { stem: dir.join(format!("{number:04}")) };
        dump.write("before", graph);
        dump
    }

    /// Writes the graph as it became.
    pub fn end(self, graph: &Graph) {
        self.write("after", graph);
    }

    fn write(&self, when: &str, graph: &Graph) {
        let path = format!("{}_{when}.txt", self.stem.display());
        if let Err(e) = std::fs::write(&path, graph.to_text()) {
            log::warn!("{path}: {e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(settings: &Settings) -> Vec<&'static str> {
        settings.passes.iter().map(|p| p.name).collect()
    }

    #[test]
    fn nothing_means_everything_and_off_means_nothing() {
        let all: Vec<_> = PASSES.iter().map(|p| p.name).collect();
        assert_eq!(names(&Settings::parse("").0), all);
        assert!(Settings::parse("off").0.passes.is_empty());
        let (settings, _) = Settings::parse("dump=/tmp/graphs");
        assert_eq!((names(&settings), settings.dump), (all, Some(PathBuf::from("/tmp/graphs"))));
    }

    #[test]
    fn passes_are_chosen_by_name_and_unknown_ones_are_told() {
        let (settings, problems) = Settings::parse("cleanup, nonsense");
        assert_eq!(names(&settings), ["cleanup"]);
        assert!(problems[0].contains("nonsense") && problems[0].contains("cleanup"), "{problems:?}");
    }
}
