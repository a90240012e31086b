//! The environment variable `TF_WGPU_OPTIMIZER`, which chooses the passes.

use std::sync::Arc;

use super::passes::{CHECKED_REGIONS, PASSES, Pass, REGIONS};
use crate::device_type::DeviceType;
use crate::dump::Folder;

/// The variable's name.
pub const VARIABLE: &str = "TF_WGPU_OPTIMIZER";

/// The name of the variable that switches regions off, or has them checked.
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

    /// Reads a value of [`CAPTURE`]: `off`, `check`, or by default `on`. An optimizer that is off
    /// makes no regions.
    pub fn capture(&mut self, text: &str) {
        self.regions = match text.trim().to_ascii_lowercase().as_str() {
            _ if self.passes.is_empty() => None,
            "off" => None,
            "check" => Some(&CHECKED_REGIONS),
            _ => Some(&REGIONS),
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
    fn regions_are_made_unless_they_or_all_passes_are_off() {
        let regions = |passes: &str, text: &str| {
            let mut settings = Settings::parse(passes).0;
            settings.capture(text);
            settings.regions.map(|pass| pass.run as usize)
        };
        let on = regions("", "on");
        assert!(on.is_some());
        assert_eq!(regions("", ""), on);
        assert_eq!(regions("", "nonsense"), on);
        assert_eq!(regions("", " Off "), None);
        assert_eq!(regions("off", "on"), None);
        let checked = regions("cleanup", "check");
        assert!(checked.is_some() && checked != on);
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
