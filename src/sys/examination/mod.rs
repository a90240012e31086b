//! The adapters, asked by a process of their own what they can do.
//!
//! Some drivers crash when they are loaded or asked, and such a crash must not end the program that
//! imports TensorFlow. So another process asks first. It is no fork: it has none of this one's
//! threads, locks and memory.
//!
//! Linux with glibc, where build.rs sets `has_examination`, and Windows. Elsewhere, and where no
//! process may be started, nothing is known before the adapters are asked. On macOS all drivers are
//! the system's own.

#[cfg(has_examination)]
#[path = "linux.rs"]
mod system;
#[cfg(windows)]
#[path = "windows.rs"]
mod system;

use std::io::Read;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// What a process said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It came to its end and printed these lines.
    Well(Vec<String>),
    /// A crash ended it: the name of a signal, or a code of Windows.
    Crashed(String),
    /// It could not be started, or did not end in time, or nobody knows.
    Unknown(String),
}

/// How long the process may take. A driver that hangs is no verdict: it would hang this process,
/// too, and a busy machine is slow.
const PATIENCE: Duration = Duration::from_secs(30);
/// What names the process, and the last line that it prints.
const NAME: &str = "tensorflow-wgpu-examination";

/// Whether there can be such a process.
pub(crate) fn is_possible() -> bool {
    system::command(&[]).is_some()
}

/// Starts a process with these arguments, see `command` of the system, and further variables.
pub(crate) fn run(arguments: &[&str], variables: &[(String, String)]) -> Ended {
    let Some(mut command) = system::command(arguments) else {
        return Ended::Unknown("the library cannot be run as a program here".into());
    };
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let (said, status) = match command.spawn().and_then(finished) {
        Ok(ended) => ended,
        Err(e) => return Ended::Unknown(e.to_string()),
    };
    let mut lines: Vec<String> = said.lines().map(str::to_owned).collect();
    if lines.pop().is_some_and(|last| last == NAME) {
        return Ended::Well(lines);
    }
    system::crash(status).map_or_else(|| Ended::Unknown(status.to_string()), Ended::Crashed)
}

/// Waits for the process, and ends it where it takes too long.
fn finished(mut child: Child) -> std::io::Result<(String, ExitStatus)> {
    let start = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if start.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(None) => {
                child.kill()?;
                break child.wait()?;
            }
            Err(e) => return Err(e),
        }
    };
    let mut said = String::new();
    // The little that it prints fits into the pipe.
    child.stdout.take().map_or(Ok(0), |mut pipe| pipe.read_to_string(&mut said))?;
    Ok((said, status))
}
