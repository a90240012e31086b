//! Shows a line while pipelines are compiled for long, so that a user does not take a first step
//! for a hang. On a terminal and in a notebook it appears soon, and goes away. In the log of a
//! batch job it appears once, after a longer time.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};

/// How long compiling takes before a line appears in a terminal or a notebook.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long compiling takes before a line appears in a log.
const LONG: Duration = Duration::from_secs(10);
/// How often the line changes.
const TICK: Duration = Duration::from_millis(250);
/// The number of ticks without anything to compile that end a burst: a first step asks for one
/// pipeline after the other, and the compiling threads may catch up with it.
const IDLE_TICKS: u32 = 4;
/// The variable that Jupyter sets for its kernels. A notebook shows their standard error at once.
const NOTEBOOK: &str = "JPY_PARENT_PID";

/// The reader of standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    /// A terminal, which clears lines.
    Terminal,
    /// A notebook, which goes back to a line's start and writes over it.
    Notebook,
    /// A file or a pipe.
    Log,
}

impl Reader {
    fn of_process() -> Self {
        if std::io::stderr().is_terminal() {
            Self::Terminal
        } else if std::env::var_os(NOTEBOOK).is_some() {
            Self::Notebook
        } else {
            Self::Log
        }
    }
}

/// Counts pipelines, and has a thread report them.
#[derive(Debug)]
pub(super) struct Progress {
    counts: Arc<Counts>,
    wake: Sender<()>,
}

#[derive(Debug, Default)]
struct Counts {
    planned: AtomicU64,
    compiled: AtomicU64,
}

impl Progress {
    /// Starts the thread that reports. `is_first_run` returns whether the GPU is busy with the
    /// first dispatch of a pipeline. Some drivers compile then, so this counts as compiling.
    pub fn start(is_first_run: impl Fn() -> bool + Send + 'static) -> Self {
        let counts = Arc::<Counts>::default();
        let (wake, woken) = bounded(1);
        let counted = counts.clone();
        // Without a thread there is no line.
        let _ = std::thread::Builder::new().name("wgpu-progress".into()).spawn(move || {
            let mut teller = Teller::new(Reader::of_process(), std::io::stderr());
            run(&woken, &counted, &is_first_run, &mut teller);
        });
        Self { counts, wake }
    }

    /// Counts a pipeline that is going to be compiled.
    pub fn planned(&self) {
        self.counts.planned.fetch_add(1, Ordering::Relaxed);
        let _ = self.wake.try_send(());
    }

    /// Counts a pipeline that is compiled, or failed to.
    pub fn compiled(&self) {
        self.counts.compiled.fetch_add(1, Ordering::Relaxed);
    }
}

/// Reports each burst until the sender is gone.
fn run(
    woken: &Receiver<()>,
    counts: &Counts,
    is_first_run: &dyn Fn() -> bool,
    teller: &mut Teller<impl Write>,
) {
    while woken.recv().is_ok() {
        let begin = Instant::now();
        let before = counts.compiled.load(Ordering::Relaxed);
        let mut idle = 0;
        while idle < IDLE_TICKS {
            std::thread::sleep(TICK);
            let planned = counts.planned.load(Ordering::Relaxed);
            let compiled = counts.compiled.load(Ordering::Relaxed).min(planned);
            if compiled == planned && !is_first_run() {
                idle += 1;
                continue;
            }
            idle = 0;
            teller.tell(planned - before, compiled - before, begin.elapsed());
        }
        teller.end();
    }
}

/// Writes the line in the form for its reader. Write errors are ignored.
struct Teller<W> {
    reader: Reader,
    out: W,
    /// The number of characters of the line that is shown.
    shown: usize,
    /// Whether a log has got its line.
    told: bool,
}

impl<W: Write> Teller<W> {
    const fn new(reader: Reader, out: W) -> Self {
        Self { reader, out, shown: 0, told: false }
    }

    /// Reports that `compiled` of `planned` pipelines are compiled after `elapsed`. If all are,
    /// reports that the first run of some is still going on.
    fn tell(&mut self, planned: u64, compiled: u64, elapsed: Duration) {
        let seconds = elapsed.as_secs();
        let text = if compiled == planned {
            format!(
                "new shaders run for the first time, and the driver may compile them: {seconds} s"
            )
        } else {
            format!("compiling shaders: {compiled} of {planned}, {seconds} s")
        };
        match self.reader {
            Reader::Log if elapsed >= LONG && !self.told => {
                self.told = true;
                log::warn!("{text}; compiled shaders are cached for the next run");
            }
            Reader::Terminal | Reader::Notebook if elapsed >= PATIENCE => {
                self.show(&format!("tensorflow-wgpu: {text}"));
            }
            _ => {}
        }
    }

    /// Ends the burst.
    fn end(&mut self) {
        if self.shown > 0 {
            self.show("");
        }
    }

    /// Shows a line in place of the one that is shown.
    fn show(&mut self, line: &str) {
        let shown = std::mem::replace(&mut self.shown, line.len());
        let _ = match self.reader {
            Reader::Terminal => write!(self.out, "\r\x1b[2K{line}"),
            _ if line.is_empty() => write!(self.out, "\r{:shown$}\r", ""),
            _ => write!(self.out, "\r{line:shown$}"),
        }
        .and_then(|()| self.out.flush());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output for a reader after a burst that takes a little longer than its patience.
    fn seen(reader: Reader) -> String {
        let (wake, woken) = bounded(1);
        let counts = Arc::<Counts>::default();
        counts.planned.store(7, Ordering::Relaxed);
        counts.compiled.store(3, Ordering::Relaxed);
        wake.send(()).unwrap();
        let counted = counts.clone();
        let thread = std::thread::spawn(move || {
            let mut teller = Teller::new(reader, Vec::new());
            run(&woken, &counted, &|| false, &mut teller);
            String::from_utf8(teller.out).unwrap()
        });
        std::thread::sleep(PATIENCE + 3 * TICK);
        counts.compiled.store(7, Ordering::Relaxed);
        drop(wake);
        thread.join().unwrap()
    }

    #[test]
    fn a_long_burst_has_a_line_that_goes_away() {
        let terminal = seen(Reader::Terminal);
        assert!(terminal.contains("compiling shaders: 0 of 4, 2 s"), "{terminal:?}");
        assert!(terminal.ends_with("\r\x1b[2K"), "{terminal:?}");
    }

    #[test]
    fn a_first_run_counts_as_compiling() {
        let (wake, woken) = bounded(1);
        let counts = Counts::default();
        counts.planned.store(7, Ordering::Relaxed);
        counts.compiled.store(7, Ordering::Relaxed);
        wake.send(()).unwrap();
        drop(wake);
        let end = Instant::now() + PATIENCE + 3 * TICK;
        let mut teller = Teller::new(Reader::Terminal, Vec::new());
        run(&woken, &counts, &|| Instant::now() < end, &mut teller);
        let text = String::from_utf8(teller.out).unwrap();
        assert!(
            text.contains("run for the first time, and the driver may compile them: 2 s"),
            "{text:?}"
        );
    }

    #[test]
    fn a_notebook_s_line_is_written_over() {
        let mut teller = Teller::new(Reader::Notebook, Vec::new());
        teller.tell(100, 9, PATIENCE / 2);
        teller.tell(100, 9, Duration::from_secs(11));
        teller.tell(9, 1, Duration::from_secs(3));
        teller.end();
        teller.end();
        let text = String::from_utf8(teller.out).unwrap();
        let long = "tensorflow-wgpu: compiling shaders: 9 of 100, 11 s";
        let short = "tensorflow-wgpu: compiling shaders: 1 of 9, 3 s";
        let (filled, empty) = (format!("{short:0$}", long.len()), " ".repeat(short.len()));
        assert_eq!(text, format!("\r{long}\r{filled}\r{empty}\r"));
    }

    #[test]
    fn a_log_has_one_line_after_long() {
        let mut teller = Teller::new(Reader::Log, Vec::new());
        teller.tell(7, 3, LONG - TICK);
        assert!(!teller.told);
        teller.tell(7, 3, LONG);
        assert!(teller.told);
        teller.tell(9, 3, LONG * 2);
        teller.end();
        assert!(teller.out.is_empty(), "it goes the way of other log lines");
    }

    #[test]
    fn a_short_burst_has_none() {
        let mut teller = Teller::new(Reader::Terminal, Vec::new());
        teller.tell(4, 1, PATIENCE / 2);
        teller.end();
        assert!(teller.out.is_empty());
    }
}
