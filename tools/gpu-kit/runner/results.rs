//! The results of the steps, which [`crate::run`] collects and [`crate::report`] and
//! [`crate::table`] write.

use serde_json::Value;

use crate::outcome::Outcome;
use crate::process::Ran;

/// The tests of a suite.
#[derive(Debug, Default)]
pub struct Suite {
    /// Its name.
    pub name: String,
    /// The outcomes of its tests.
    pub outcome: Outcome,
    /// Tests that never finished, because their process crashed or ran into its limit, and how it
    /// ended.
    pub unfinished: Vec<(String, String)>,
}

/// A step that ran, or the reason why it did not.
#[derive(Debug)]
pub struct Done {
    /// Its name.
    pub name: String,
    /// The name of its group.
    pub group: &'static str,
    /// Its outcome. None if it was left out.
    pub ran: Option<Ran>,
    /// The reason if it was left out.
    pub left_out: Option<&'static str>,
}

impl Done {
    /// Whether it has no problem. A step that was left out because the program lacks an option has
    /// none.
    pub fn is_fine(&self) -> bool {
        self.ran.as_ref().map_or(self.left_out != Some(NO_TIME), |ran| ran.end.is_success())
    }
}

/// The reason why a step was left out: the whole run's time is over.
pub const NO_TIME: &str = "no time was left";
/// The reason why a step was left out: the kit holds an older program.
pub const NOT_OFFERED: &str = "this kit's program has no such option";

/// The results so far.
#[derive(Debug, Default)]
pub struct Results {
    /// Each step, in order.
    pub steps: Vec<Done>,
    /// Each suite, in order.
    pub suites: Vec<Suite>,
    /// The JSON of each run of `kernels`, by the run's name.
    pub runs: Vec<(&'static str, Value)>,
    /// The output of steps with text.
    pub texts: Vec<(String, String)>,
    /// Whether it is a short run.
    pub short: bool,
    /// Seconds since the start.
    pub seconds: f64,
}

impl Results {
    /// Whether every step ended well and every test passed.
    pub fn is_fine(&self) -> bool {
        self.steps.iter().all(Done::is_fine)
            && self.suites.iter().all(|s| s.outcome.failed.is_empty() && s.unfinished.is_empty())
    }
}
