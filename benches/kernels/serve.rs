//! Rows on demand, so that another program can take turns between this program's rows and others'.

use std::io::{BufRead, Write};

use serde_json::{Value, json};
use tensorflow_wgpu::Result;
use tensorflow_wgpu::device::Device;
use tensorflow_wgpu::kernels::registry::Registry;

use crate::case::Case;
use crate::device::Peaks;
use crate::measure::{self, Budget};
use crate::report::Row;

/// Writes the environment as a line of JSON. Then writes one line for each name that a line of
/// `questions` asks for, until there are no more.
pub fn serve(
    device: &Device,
    registry: &Registry,
    cases: &[Case],
    budget: &Budget,
    (environment, peaks): (&Value, &Peaks),
    questions: impl BufRead,
    mut answers: impl Write,
) -> Result<()> {
    let failed = |e: std::io::Error| tensorflow_wgpu::Error::Internal(format!("cannot talk: {e}"));
    let mut tell =
        |line: &Value| writeln!(answers, "{line}").and_then(|()| answers.flush()).map_err(failed);
    tell(environment)?;
    for question in questions.lines() {
        let name = question.map_err(failed)?;
        let answer = match cases.iter().find(|case| case.name == name) {
            Some(case) => {
                let outcome =
                    measure::run(device, registry, case, budget).map_err(|e| e.to_string());
                Row { case: case.clone(), outcome }.json(peaks)
            }
            None => json!({ "name": name, "error": "no such row" }),
        };
        tell(&answer)?;
    }
    Ok(())
}
