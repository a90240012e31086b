//! The GPU kit's program: runs the kit's steps on this machine's adapter, each in a separate
//! process with a time limit, and writes the outcomes as JSON and as a table.
//!
//! It knows nothing of the crate and never touches the GPU, so that a driver that hangs or crashes
//! ends a step, not the run. `run.sh` starts it; docs/GPU-KIT.md explains the steps.

mod options;
mod outcome;
mod plan;
mod process;
mod report;
mod results;
mod run;
mod table;
#[cfg(test)]
mod tests;

use std::process::ExitCode;

use options::Options;

const HELP: &str = "\
Runs the kernel tests and the benchmark of tensorflow-wgpu on this machine's adapter.

Usage: run.sh [OPTIONS]

  --short        a sample of everything, for software adapters
  --out DIR      where gpu-kit.json, gpu-kit.md and gpu-kit.log are written (.)
  --seconds N    how long the whole may take (540; 270 with --short)
  --help         this text

Environment: TF_WGPU_VISIBLE_DEVICES, WGPU_ADAPTER_NAME and WGPU_BACKEND choose the adapter.
The exit code is 0 when every step ended well, 1 when not, 2 when nothing could be run.";

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args_os().skip(1).collect()) {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(e) => {
            eprintln!("{e}; --help lists the options");
            return ExitCode::from(2);
        }
    };
    match run::all(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("gpu-kit: {e}");
            ExitCode::from(2)
        }
    }
}
