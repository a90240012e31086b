//! Queries the adapters' features in a separate process.
//!
//! Some drivers crash when they are loaded or queried, and such a crash must not end the program
//! that imports TensorFlow. So another process queries them first. It is not a fork: it has none of
//! this process's threads, locks and memory.
//!
//! This works on Linux with glibc, where build.rs sets `has_examination`, and on Windows. On other
//! systems, and if no process can be started, nothing is known before the adapters are queried. On
//! macOS all drivers belong to the system.

#[cfg(has_examination)]
#[path = "linux.rs"]
mod system;
#[cfg(windows)]
#[path = "windows.rs"]
mod system;

use std::io::Read;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::{cores, instance, integer_dot, memory_budget, trusted_shader};

/// The outcome of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It finished and printed these lines.
    Well(Vec<String>),
    /// A crash ended it: the name of a signal, or a code of Windows.
    Crashed(String),
    /// It could not be started, did not end in time, or its outcome is unknown.
    Unknown(String),
}

/// How long the process may take. A driver that hangs gives no verdict: it would hang this process,
/// too, and a busy machine is slow.
const PATIENCE: Duration = Duration::from_secs(30);
/// The first argument of the process and, on Linux, the last line that it prints.
const NAME: &str = "tensorflow-wgpu-examination";

/// Whether the process can be started on this system.
pub(crate) fn is_possible() -> bool {
    system::command(&[]).is_some()
}

/// Starts a process with these arguments, see the system's `command`, and additional variables.
pub(crate) fn run(arguments: &[&str], variables: &[(String, String)]) -> Ended {
    let Some(mut command) = system::command(arguments) else {
        return Ended::Unknown("the library cannot be run as a program here".into());
    };
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let (said, status) = match command.spawn().and_then(finished) {
        Ok(Some(ended)) => ended,
        Ok(None) => return Ended::Unknown(format!("it took more than {PATIENCE:?}")),
        Err(e) => return Ended::Unknown(e.to_string()),
    };
    let mut lines: Vec<String> = said.lines().map(str::to_owned).collect();
    if system::is_well(status) || lines.pop().is_some_and(|last| last == NAME) {
        return Ended::Well(lines);
    }
    system::crash(status).map_or_else(|| Ended::Unknown(status.to_string()), Ended::Crashed)
}

/// Waits for the process. Kills it if it takes too long, and returns None.
fn finished(mut child: Child) -> std::io::Result<Option<(String, ExitStatus)>> {
    let start = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if start.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(None) => {
                child.kill()?;
                return child.wait().map(|_| None);
            }
            Err(e) => return Err(e),
        }
    };
    let mut said = String::new();
    // Its short output fits into the pipe.
    child.stdout.take().map_or(Ok(0), |mut pipe| pipe.read_to_string(&mut said))?;
    Ok(Some((said, status)))
}

/// Queries all that the library asks the adapters of a descriptor before it opens a device.
fn query(descriptor: wgpu::InstanceDescriptor) {
    for adapter in instance::adapters(descriptor) {
        let _ = (adapter.get_info(), adapter.features(), adapter.limits());
        let _ = (memory_budget::reported(&adapter), cores::cores(&adapter));
        let _ = trusted_shader::are_buffers_guarded(&adapter);
        let _ = integer_dot::is_accelerated(&adapter);
    }
}
