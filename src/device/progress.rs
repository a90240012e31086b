//! One line on a terminal while pipelines are compiled for long, so that nobody takes a first step
//! for a hang. Logs of batch jobs never see it.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};

/// How long compiling takes before it is told.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often the line changes.
const TICK: Duration = Duration::from_millis(250);
/// Ticks without anything to compile that end a burst: a first step asks for one pipeline after the
/// other, and those who compile may catch up with it.
const IDLE_TICKS: u32 = 4;

/// Counts pipelines, and has a thread tell of them.
#[derive(Debug)]
pub(super) struct Progress {
    counts: Arc<Counts>,
    /// None where nobody would see the line.
    wake: Option<Sender<()>>,
}

#[derive(Debug, Default)]
struct Counts {
    planned: AtomicU64,
    compiled: AtomicU64,
}

impl Progress {
    /// With a thread if standard error is a terminal.
    pub fn start() -> Self {
        let counts = Arc::<Counts>::default();
        let wake = std::io::stderr().is_terminal().then(|| {
            let (wake, woken) = bounded(1);
            let counted = counts.clone();
            // Without a thread there is no line.
            let _ = std::thread::Builder::new()
                .name("wgpu-progress".into())
                .spawn(move || run(&woken, &counted, &mut std::io::stderr()));
            wake
        });
        Self { counts, wake }
    }

    /// A pipeline is going to be compiled.
    pub fn planned(&self) {
        self.counts.planned.fetch_add(1, Ordering::Relaxed);
        if let Some(wake) = &self.wake {
            let _ = wake.try_send(());
        }
    }

    /// One is compiled, or failed to.
    pub fn compiled(&self) {
        self.counts.compiled.fetch_add(1, Ordering::Relaxed);
    }
}

/// Tells of each burst until the sender is gone.
fn run(woken: &Receiver<()>, counts: &Counts, out: &mut impl Write) {
    while woken.recv().is_ok() {
        let begin = Instant::now();
        let before = counts.compiled.load(Ordering::Relaxed);
        let (mut shown, mut idle) = (false, 0);
        while idle < IDLE_TICKS {
            std::thread::sleep(TICK);
            let planned = counts.planned.load(Ordering::Relaxed);
            let compiled = counts.compiled.load(Ordering::Relaxed).min(planned);
            if compiled == planned {
                idle += 1;
                continue;
            }
            idle = 0;
            if let Some(line) = line(planned - before, compiled - before, begin.elapsed()) {
                // Whoever cannot be told goes without.
                let _ = write!(out, "\r\x1b[2K{line}").and_then(|()| out.flush());
                shown = true;
            }
        }
        if shown {
            let _ = write!(out, "\r\x1b[2K").and_then(|()| out.flush());
        }
    }
}

/// The line, if it is time for one.
fn line(planned: u64, compiled: u64, elapsed: Duration) -> Option<String> {
    (elapsed >= PATIENCE).then(|| {
        format!(
            "tensorflow-wgpu: compiling shaders: {compiled} of {planned}, {} s",
            elapsed.as_secs()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_burst_has_a_line_that_goes_away() {
        let (wake, woken) = bounded(1);
        let counts = Arc::<Counts>::default();
        counts.planned.store(7, Ordering::Relaxed);
        counts.compiled.store(3, Ordering::Relaxed);
        wake.send(()).unwrap();
        let counted = counts.clone();
        let thread = std::thread::spawn(move || {
            let mut out = Vec::new();
            run(&woken, &counted, &mut out);
            String::from_utf8(out).unwrap()
        });
        std::thread::sleep(PATIENCE + 3 * TICK);
        counts.compiled.store(7, Ordering::Relaxed);
        drop(wake);
        let text = thread.join().unwrap();
        assert!(text.contains("compiling shaders: 0 of 4, 2 s"), "{text:?}");
        assert!(text.ends_with("\r\x1b[2K"), "{text:?}");
    }

    #[test]
    fn a_short_burst_has_none() {
        assert_eq!(line(4, 1, PATIENCE / 2), None);
    }
}
