//! The environment variable `TF_WGPU_OPTIMIZER`, which chooses the passes.

use std::sync::Arc;

use super::passes::{CHECKED_REGIONS, PASSES, Pass, REGIONS};
use crate::device_type::DeviceType;
use crate::dump::Folder;

/// The variable's name.
pub const VARIABLE: &str = "TF_WGPU_OPTIMIZER";

/// The name of the variable that asks for regions.
pub const CAPTURE: &str = "TF_WGPU_CAPTURE";

/// The settings of the optimizer.
pub struct Settings {
    /// The passes to run, in their order.
    pub passes: Vec<&'static Pass>,
    /// The pass that runs after them, if one does.
    pub regions: Option<&'static Pass>,
    /// The folder to which each graph is written.
    pub dump: Option<Arc<Folder>>,
    /// The type of our devices.
    pub device_type: DeviceType,
}

impl Settings {
    /// Reads a value of the variable: `off`, or a list of passes separated by commas. An empty list
    /// means all.
    ///
    /// Each part that is not understood is described in a line for the log, and the rest is used.
    pub fn parse(text: &str) -> (Self, Vec<String>) {
        let mut settings = Self {
            passes: Vec::new(),
            regions: None,
            dump: None,
            device_type: DeviceType::default(),
        };
        let mut problems = Vec::new();
        let mut named: Vec<&str> = Vec::new();
        let mut off = false;
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            if part == "off" {
                off = true;
            } else if PASSES.iter().any(|pass| pass.name == part) {
                named.push(part);
            } else {
                let known: Vec<&str> = PASSES.iter().map(|p| p.name).collect();
                problems.push(format!(
                    "{VARIABLE} names {part:?}, which is neither off nor one of the passes {}",
                    known.join(", ")
                ));
            }
        }
        if !off {
            settings.passes =
                PASSES.iter().filter(|p| named.is_empty() || named.contains(&p.name)).collect();
        }
        (settings, problems)
    }

    /// Reads a value of [`CAPTURE`]: `on` or `check`. Other values, and an optimizer that is off,
    /// make no regions.
    pub fn capture(&mut self, text: &str) {
        self.regions = match text.trim().to_ascii_lowercase().as_str() {
            _ if self.passes.is_empty() => None,
            "on" => Some(&REGIONS),
            "check" => Some(&CHECKED_REGIONS),
            _ => None,
        };
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
    }

    #[test]
    fn passes_are_chosen_by_name_and_unknown_ones_are_told() {
        let (settings, problems) = Settings::parse("cleanup, nonsense");
        assert_eq!(names(&settings), ["cleanup"]);
        assert!(
            problems[0].contains("nonsense") && problems[0].contains("cleanup"),
            "{problems:?}"
        );
    }
}
