//! The walk's side of a process in which calls fail.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use crate::layer;
use crate::walk::SERVER;

/// A fault takes a second or two; if there is no answer for this long, the process hangs.
const HANG: Duration = Duration::from_secs(120);

/// The outcome of a training.
#[derive(Debug)]
pub struct Answer {
    pub word: String,
    /// The number of calls of the function.
    pub calls: u64,
    pub text: String,
}

/// The process. It ends with the value.
pub struct Server {
    child: Child,
    questions: Option<ChildStdin>,
    answers: Receiver<String>,
    directory: PathBuf,
}

impl Server {
    pub fn start() -> Result<Self, String> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let directory = directory.join(format!("faults-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).map_err(|e| e.to_string())?;
        let mut command = Command::new(std::env::current_exe().map_err(|e| e.to_string())?);
        command.envs(layer::environment(&directory)).env(SERVER, directory.join("cache"));
        let log = std::fs::File::create(directory.join("stderr")).map_err(|e| e.to_string())?;
        command.env("RUST_BACKTRACE", "1").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().map_err(|e| e.to_string())?;
        let output = child.stdout.take().expect("it is piped");
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let questions = child.stdin.take();
        Ok(Self { child, questions, answers, directory })
    }

    /// Makes calls `first` to `last` of `function` return `result` in a training. An error means
    /// that the process died or hangs.
    pub fn ask(
        &mut self,
        function: &str,
        first: u64,
        last: u64,
        result: i32,
    ) -> Result<Answer, String> {
        let questions = self.questions.as_mut().expect("it is piped");
        // The missing answer shows that a process is dead.
        let _ = writeln!(questions, "{function} {first} {last} {result}")
            .and_then(|()| questions.flush());
        loop {
            match self.answers.recv_timeout(HANG) {
                Ok(line) => {
                    let Some(answer) = line.strip_prefix("= ") else { continue };
                    let mut parts = answer.splitn(3, ' ');
                    let mut part = || parts.next().unwrap_or_default().to_owned();
                    let (word, calls, text) = (part(), part().parse().unwrap_or_default(), part());
                    return Ok(Answer { word, calls, text });
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("it hangs{}", self.last_words()));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.child.wait().map_err(|e| e.to_string())?;
                    let how = status
                        .signal()
                        .map_or(format!("{status}"), |signal| format!("signal {signal}"));
                    return Err(format!("the process died of {how}{}", self.last_words()));
                }
            }
        }
    }

    /// The end of its standard error.
    fn last_words(&self) -> String {
        let text = std::fs::read(self.directory.join("stderr")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(60)..].iter().map(|line| format!("\n    {line}")).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.questions = None;
        // A process that hangs does not end by itself; the outcome of one that ends is in its last
        // answer.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
