//! A child process with a time limit, whose output goes to a file.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// By itself.
    Code(i32),
    /// By a signal of the system.
    Signal(i32),
    /// It was killed at its limit.
    TimedOut,
    /// It could not be started.
    NotStarted(String),
}

impl End {
    /// Whether it ended by itself, with success.
    pub fn is_success(&self) -> bool {
        *self == Self::Code(0)
    }

    /// A word for tables.
    pub fn text(&self) -> String {
        match self {
            Self::Code(code) => code.to_string(),
            Self::Signal(signal) => format!("signal {signal}"),
            Self::TimedOut => "time limit".to_owned(),
            Self::NotStarted(why) => format!("not started: {why}"),
        }
    }
}

/// The outcome of a process.
#[derive(Debug)]
pub struct Ran {
    /// How it ended.
    pub end: End,
    /// How long it ran.
    pub seconds: f64,
    /// Its output, from both streams.
    pub output: String,
}

/// Runs a command until it ends or `limit` is over; `scratch` takes its output meanwhile. At the
/// limit, processes that the command started are killed with it. A process that even the system
/// cannot kill, because it waits in a driver, is left behind.
pub fn run(mut command: Command, limit: Duration, scratch: &Path) -> io::Result<Ran> {
    let file = File::create(scratch)?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let start = Instant::now();
    let end = match command.spawn() {
        Err(e) => End::NotStarted(e.to_string()),
        Ok(mut child) => loop {
            if let Some(status) = child.try_wait()? {
                break ended(status);
            }
            if start.elapsed() >= limit {
                kill(&mut child);
                // A killed process must give its memory back before the next one measures.
                let patience = Instant::now();
                while child.try_wait()?.is_none() && patience.elapsed() < Duration::from_secs(3) {
                    std::thread::sleep(Duration::from_millis(20));
                }
                break End::TimedOut;
            }
            std::thread::sleep(Duration::from_millis(10));
        },
    };
    let seconds = start.elapsed().as_secs_f64();
    let output = String::from_utf8_lossy(&std::fs::read(scratch)?).into_owned();
    Ok(Ran { end, seconds, output })
}

fn ended(status: std::process::ExitStatus) -> End {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return End::Signal(signal);
    }
    End::Code(status.code().unwrap_or(-1))
}

/// Kills a child, and on Unix its whole group.
fn kill(child: &mut std::process::Child) {
    #[cfg(unix)]
    {
        let group = format!("kill -s KILL -- -{}", child.id());
        // A shell has a built-in `kill` that handles groups; if it fails, only the child is killed
        // below.
        let _ = Command::new("sh").args(["-c", &group]).stderr(Stdio::null()).status();
    }
    let _ = child.kill();
}
