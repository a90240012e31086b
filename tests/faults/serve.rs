//! The process in which calls fail. It reads faults from its input, a line each, and answers with
//! the outcome of a training.
//!
//! Required are an error that describes the fault or the right numbers, afterwards a device that
//! works or reports that it is lost, and a process that works on a new device.

use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::io::BufRead;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tensorflow_wgpu::device::{Device, Selection};
use tensorflow_wgpu::{Error, Result};

use crate::layer::Layer;
use crate::step::{Training, is_lost};

/// Functions that are called before there is a device.
const BEFORE_DEVICES: &[&CStr] =
    &[c"vkCreateInstance", c"vkEnumeratePhysicalDevices", c"vkEnumerateDeviceExtensionProperties"];
/// Functions that are called if pipelines are kept on disk, some time after they were compiled.
const OF_CACHES: &[&CStr] = &[c"vkCreatePipelineCache", c"vkGetPipelineCacheData"];
/// How long a cache waits for more pipelines before it is written.
const CACHE_DELAY: Duration = Duration::from_millis(900);
/// The number of steps within which a device that is not lost must be right again: the first one
/// may return an earlier error that was not reported yet.
const ATTEMPTS: u64 = 2;

/// Serves until the input ends. An answer is `= word calls text`, where the word is `none` if no
/// call failed, `right`, `error`, `lost`, or `bad` for an outcome that must not happen.
pub fn serve(caches: &Path) {
    let layer = Layer::load();
    let mut adapter = None;
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("the input is text");
        let mut words = line.split(' ');
        let mut word = || words.next().expect("four words");
        let function = CString::new(word()).unwrap();
        let fault = (word().parse().unwrap(), word().parse().unwrap(), word().parse().unwrap());
        let scene = Scene {
            layer: &layer,
            calls: Cell::new(0),
            is_disarmed: Cell::new(false),
            what: What::of(&function),
            function: &function,
            caches,
            fault,
        };
        let attempted = caught("at the end of the device", || scene.attempt(&mut adapter));
        let answer = match attempted.and_then(|attempted| attempted) {
            Ok((word, text)) => format!("{word} {} {text}", scene.calls.get()),
            Err(text) => format!("bad {} {text}", scene.calls.get()),
        };
        println!("= {}", answer.replace('\n', " "));
    }
}

/// Runs `f`. A panic in it is a wrong number or a bug.
fn caught<T>(what: &str, f: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|payload| {
        let text = payload.downcast_ref::<String>().cloned();
        let text = text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        format!("{what}: {}", text.unwrap_or_default())
    })
}

fn enumerate() -> Result<wgpu::Adapter> {
    let Selection { adapters, problem, .. } =
        Selection::enumerate(&|name| std::env::var(name).ok());
    adapters.into_iter().next().ok_or_else(|| Error::Unavailable(problem.unwrap_or_default()))
}

/// The kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// Calls of a function.
    Calls,
    /// Shaders are refused, with whatever calls they are made.
    Shaders,
    /// The GPU is slow, by the factor given as the number of the first call, so fences are late.
    Fences,
}

impl What {
    /// The kind for a function, or for a word in its place.
    fn of(name: &CStr) -> Self {
        match name.to_bytes() {
            b"shaders" => Self::Shaders,
            b"late" => Self::Fences,
            _ => Self::Calls,
        }
    }
}

struct Scene<'a> {
    layer: &'a Layer,
    /// The number of calls of the function in the training.
    calls: Cell<u64>,
    is_disarmed: Cell<bool>,
    what: What,
    function: &'a CStr,
    caches: &'a Path,
    /// The first and the last call or shader that fails, and the result.
    fault: (u64, u64, i32),
}

impl Scene<'_> {
    /// Begins with the faults of a function. Faults of shaders begin when the device is open,
    /// because wgpu has some shaders of its own when it opens a device.
    fn arm(&self, is_open: bool) {
        let (first, last, result) = self.fault;
        match (self.what, is_open) {
            (What::Shaders, true) => self.layer.refuse(first, last, result),
            (What::Fences, true) => self.layer.slow(first),
            (What::Calls, false) => self.layer.arm(self.function, first, last, result),
            (What::Shaders | What::Fences, false) | (What::Calls, true) => {}
        }
    }

    fn disarm(&self) {
        self.is_disarmed.set(true);
        match self.what {
            What::Shaders => self.layer.refuse(0, 0, 0),
            What::Fences => {
                self.layer.slow(0);
                // Ends a loss by the watchdog.
                self.layer.disarm();
            }
            What::Calls => self.layer.disarm(),
        }
    }

    /// The number of calls of the function or of shaders, and the number of failed calls. For a
    /// slow GPU its milliseconds, twice.
    fn counts(&self) -> (u64, u64) {
        match self.what {
            What::Shaders => self.layer.shaders(),
            What::Fences => [self.layer.slow_total(); 2].into(),
            What::Calls => (self.layer.calls(self.function), self.layer.injected()),
        }
    }

    fn open(&self, adapter: &wgpu::Adapter) -> Result<Arc<Device>> {
        let cached = OF_CACHES.contains(&self.function);
        if cached {
            // Nothing of the last attempt is read.
            let _ = std::fs::remove_dir_all(self.caches);
        }
        Device::open_cached(adapter, cached.then_some(self.caches))
    }

    /// Opens a device and trains for two steps.
    fn train(
        &self,
        adapter: &mut Option<wgpu::Adapter>,
        training: &mut Option<Training>,
    ) -> Result<()> {
        if adapter.is_none() {
            *adapter = Some(enumerate()?);
        }
        let device = self.open(adapter.as_ref().expect("it was enumerated"))?;
        let training = training.insert(Training::new(device));
        if !self.is_disarmed.get() {
            self.arm(true);
        }
        training.keep()?;
        training.step(1)?;
        if OF_CACHES.contains(&self.function) {
            std::thread::sleep(CACHE_DELAY);
        }
        training.step(2)
    }

    /// The outcome of a training in which calls `first` to `last` of the function return `result`.
    fn attempt(
        &self,
        adapter: &mut Option<wgpu::Adapter>,
    ) -> Result<(&'static str, String), String> {
        if BEFORE_DEVICES.contains(&self.function) {
            *adapter = None;
        } else if adapter.is_none() {
            *adapter = Some(enumerate().map_err(|e| format!("no device: {e}"))?);
        }
        self.arm(false);
        let mut training = None;
        let trained = caught("in the step of the fault", || self.train(adapter, &mut training));
        let (calls, failed) = self.counts();
        self.calls.set(calls);
        let word = if failed == 0 { "none" } else { "right" };
        self.disarm();
        let trained = trained?;
        if word == "none" {
            trained.map_err(|e| format!("an error without a fault: {e}"))?;
            return Ok((word, String::new()));
        }
        let (word, text) = match trained {
            Ok(()) => (word, String::new()),
            Err(e) => (if is_lost(&e) { "lost" } else { "error" }, check_error(&e)?),
        };
        let lives = match training {
            None => false,
            // Its op keeps the error for ever.
            Some(_) if self.what == What::Shaders && word == "error" => false,
            Some(mut training) => {
                let lives = recover(&mut training).map_err(|e| format!("{e} (after {text:?})"))?;
                drop(training);
                lives
            }
        };
        if !lives {
            let again = caught("on a new device", || {
                let mut training = None;
                self.train(adapter, &mut training)
            })?;
            again.map_err(|e| format!("on a new device: {e} (after {text:?})"))?;
        }
        Ok((if lives || word != "right" { word } else { "lost" }, text))
    }
}

/// The error's text, if its class is one that a fault of the GPU may have.
fn check_error(error: &Error) -> Result<String, String> {
    match error {
        Error::Unavailable(_) if is_lost(error) || error.to_string().contains("cannot open") => {
            Ok(error.to_string())
        }
        Error::Unavailable(m) if m.contains("no usable GPU") => Ok(m.clone()),
        Error::ResourceExhausted(m) => Ok(m.clone()),
        // The driver has refused a shader, and the device continues.
        Error::Unimplemented(m) if m.contains("refused it") => Ok(m.clone()),
        other => Err(format!("an error that is neither a lost nor an exhausted device: {other:?}")),
    }
}

/// Whether a device works after a fault; if not, it must report that.
fn recover(training: &mut Training) -> Result<bool, String> {
    let mut last = String::new();
    for attempt in 0..ATTEMPTS {
        let result = caught("after the fault", || {
            training.keep()?;
            training.check_kept()?;
            training.step(10 + attempt)
        })?;
        match result {
            Ok(()) => return Ok(true),
            Err(e) if is_lost(&e) => {
                caught("on the lost device", || training.assert_lost())?;
                return Ok(false);
            }
            Err(e) => last = format!("{e:?}"),
        }
    }
    Err(format!("after the fault: step {ATTEMPTS} still fails: {last}"))
}
