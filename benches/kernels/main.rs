//! Times every family of kernels on one adapter, without TensorFlow, and compares each with the
//! adapter's limits.
//!
//! `cargo build --release --example kernels` makes one file, `target/release/examples/kernels`,
//! which needs nothing but a driver: copy it to a machine with a GPU and run it there. `--help`
//! lists the options.

mod barriers;
mod case;
mod context;
mod device;
mod families;
mod host;
mod measure;
mod once;
mod options;
mod report;
mod run;
mod serve;
#[cfg(test)]
mod tests;

use std::process::ExitCode;

fn main() -> ExitCode {
    run::main(std::env::args_os().skip(1).collect())
}
