//! Pipelines by key. Separate threads compile several at once, while recording goes on. A thread
//! that needs one immediately compiles it itself if no other thread has begun. No lock is held
//! meanwhile.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender};
use parking_lot::RwLock;
use rustc_hash::FxHashMap;

use super::cache::DiskCache;
use super::compiler::{Compiler, Pipeline};
use super::pending::{Effort, Plan, Uses};
use super::process;
use super::program::{Key, Program};
use super::progress::Progress;
use crate::error::{Error, Result};
use crate::shader::Shader;
use crate::sys::guard::caught;

/// The largest number of threads. More would compete for the driver's own locks.
const MAX_WORKERS: usize = 8;
/// The number of pipelines in a generation: at most twice as many are kept.
const GENERATION: usize = 4096;

/// In debug builds, the programs of a key whose texts are all compared.
const ALL_COMPARED: u32 = 16;

/// A pipeline that is compiled, or will be.
pub(crate) struct Planned {
    key: Key,
    shader: Shader,
    /// The number of storage buffers, including a table's.
    pub storage_buffers: u32,
    /// Bytes of the parameter block.
    pub params_size: u32,
    compiler: Arc<Compiler>,
    progress: Arc<Progress>,
    /// Whether it was sent to the threads that compile.
    begun: AtomicBool,
    /// Whether a warning has reported that another pipeline is used in its place.
    told: AtomicBool,
    /// In debug builds, how often a program with the key was found here.
    found: AtomicU32,
    compiled: OnceLock<Result<Pipeline>>,
    /// The pipeline without optimizations, if the driver refuses the optimized one.
    unoptimized: OnceLock<Result<Pipeline>>,
    uses: OnceLock<Uses>,
}

impl Planned {
    /// The pipeline with the driver's optimizations, if it is compiled by now.
    pub fn get(&self) -> Option<&Result<Pipeline>> {
        self.compiled.get()
    }

    /// The pipeline with the driver's optimizations. Compiles it, or waits for the thread that
    /// does. A panic meanwhile becomes its error, so that it is not compiled again and again.
    pub fn wait(&self) -> &Result<Pipeline> {
        self.compiled.get_or_init(|| {
            let compiled = self.caught(|| self.compiler.compile(&self.key, &self.shader));
            self.progress.compiled();
            compiled
        })
    }

    /// The pipeline, without optimizations if the driver refuses it with them.
    pub fn wait_for_any(&self) -> &Result<Pipeline> {
        let optimized = self.wait();
        let Err(refusal @ Error::Unimplemented(_)) = optimized else { return optimized };
        if !self.compiler.has_unoptimized() {
            return optimized;
        }
        self.unoptimized.get_or_init(|| {
            let compile = || self.compiler.compile_unoptimized(&self.key, &self.shader, refusal);
            self.caught(compile).map_err(|_| refusal.clone())
        })
    }

    /// Fails if a binding has elements of another size than the shader's.
    pub fn check_units(&self, given: &[u32]) -> Result<()> {
        let declared = self.shader.units();
        if given == declared {
            return Ok(());
        }
        Err(Error::Internal(format!(
            "program {}: bindings with elements of {given:?} bytes, its shader declares \
             {declared:?}",
            self.key
        )))
    }

    /// Whether a program that was found here is compared: the first programs are, and then ever
    /// fewer of them, for to make a text takes longer than a dispatch.
    fn is_compared(&self) -> bool {
        let found = self.found.fetch_add(1, Ordering::Relaxed);
        found < ALL_COMPARED || found.is_power_of_two()
    }

    /// Fails if `shader`, which came with the same key, has another text.
    fn check_equal(&self, shader: &Shader) -> Result<()> {
        if self.shader == *shader {
            return Ok(());
        }
        let [first, now] = [&self.shader, shader].map(|shader| shader.render(0));
        let end = || std::iter::once("the end");
        let mut lines = (1..).zip(first.lines().chain(end()).zip(now.lines().chain(end())));
        let Some((number, (first, now))) = lines.find(|(_, (first, now))| first != now) else {
            return Ok(());
        };
        Err(Error::Internal(format!(
            "two shaders have the key {}: line {number} is {first:?} in one, {now:?} in the other",
            self.key
        )))
    }

    fn caught(&self, compile: impl FnOnce() -> Result<Pipeline>) -> Result<Pipeline> {
        let label = self.shader.label();
        caught("a shader's compilation", compile).map_err(|e| {
            e.map_message(|m| format!("shader {label} does not compile on this adapter: {m}"))
        })
    }

    /// The uses of its bindings, as far as they are known by now.
    pub fn known_uses(&self) -> Uses {
        self.uses.get().copied().unwrap_or(Uses::ALL)
    }

    /// Whether it failed for a reason that may no longer hold.
    fn may_be_tried_again(&self) -> bool {
        matches!(self.get(), Some(Err(Error::ResourceExhausted(_))))
    }
}

impl Plan for Planned {
    fn outcome(&self, effort: Effort) -> Option<Result<()>> {
        let compiled = match (self.get()?, effort) {
            (Err(Error::Unimplemented(_)), Effort::Any) if self.compiler.has_unoptimized() => {
                self.unoptimized.get()?
            }
            (compiled, _) => compiled,
        };
        Some(compiled.as_ref().map(drop).map_err(Clone::clone))
    }

    fn wait_for_it(&self, effort: Effort) -> Result<()> {
        let compiled = match effort {
            Effort::Optimized => self.wait(),
            Effort::Any => self.wait_for_any(),
        };
        compiled.as_ref().map(drop).map_err(Clone::clone)
    }

    /// The uses that naga finds in the text. A thread computes them once the pipeline is compiled,
    /// or the caller does if it needs them earlier. If the text is invalid, all bindings count as
    /// used.
    fn uses(&self) -> Uses {
        *self.uses.get_or_init(|| {
            let text = self.compiler.text(&self.shader);
            caught("a shader's analysis", || Ok(uses_of(&text))).ok().flatten().unwrap_or(Uses::ALL)
        })
    }

    fn replaced(&self, refusal: &Error) {
        if !self.told.swap(true, Ordering::Relaxed) {
            self.compiler.tell(refusal, "a simpler one computes the same");
        }
    }
}

/// The bindings that a shader's entry point reads and writes.
fn uses_of(text: &str) -> Option<Uses> {
    use naga::valid::{Capabilities, GlobalUse, ValidationFlags, Validator};
    let module = naga::front::wgsl::parse_str(text).ok()?;
    let info =
        Validator::new(ValidationFlags::all(), Capabilities::all()).validate(&module).ok()?;
    let entry = info.get_entry_point(0);
    let mut uses = Uses { read: 0, written: 0 };
    for (handle, variable) in module.global_variables.iter() {
        let Some(binding) = variable.binding else { continue };
        let bit = 1_u64.checked_shl(binding.binding)?;
        uses.read |= if entry[handle].contains(GlobalUse::READ) { bit } else { 0 };
        uses.written |= if entry[handle].contains(GlobalUse::WRITE) { bit } else { 0 };
    }
    Some(uses)
}

/// All pipelines of a device by key. They have two generations; the older one is dropped when the
/// younger one is full, so that pipelines in use stay.
#[derive(Default)]
struct Generations {
    young: FxHashMap<Key, Arc<Planned>>,
    old: FxHashMap<Key, Arc<Planned>>,
}

impl Generations {
    /// A usable pipeline, if it is in the younger generation.
    fn find(&self, key: &Key) -> Option<Arc<Planned>> {
        self.young.get(key).filter(|planned| !planned.may_be_tried_again()).cloned()
    }

    /// A usable pipeline from either generation, or else `made`, which is kept then.
    fn find_or_insert(
        &mut self,
        key: &Key,
        made: impl FnOnce() -> Result<Planned>,
    ) -> Result<Arc<Planned>> {
        if let Some(planned) = self.find(key) {
            return Ok(planned);
        }
        let kept = self.old.remove(key).filter(|planned| !planned.may_be_tried_again());
        let planned = kept.map_or_else(|| made().map(Arc::new), Ok)?;
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key.clone(), planned.clone());
        Ok(planned)
    }
}

/// All pipelines of a device.
pub(crate) struct Pipelines {
    compiler: Arc<Compiler>,
    progress: Arc<Progress>,
    planned: RwLock<Generations>,
    /// The number of pipelines begun so far.
    made: AtomicU64,
    /// Started with the first pipeline.
    workers: OnceLock<Workers>,
}

impl Pipelines {
    /// `is_first_run` returns whether the GPU is busy with the first dispatch of a pipeline: some
    /// drivers compile then.
    pub fn new(compiler: Compiler, is_first_run: impl Fn() -> bool + Send + 'static) -> Self {
        Self {
            compiler: Arc::new(compiler),
            progress: Arc::new(Progress::start(is_first_run)),
            planned: RwLock::default(),
            made: AtomicU64::new(0),
            workers: OnceLock::new(),
        }
    }

    /// The pipeline of `program`. Its compilation begins at the first call with its key.
    pub fn get(&self, program: &Program<'_>) -> Result<Arc<Planned>> {
        let planned = self.later(program)?;
        if !planned.begun.load(Ordering::Relaxed) && !planned.begun.swap(true, Ordering::Relaxed) {
            self.progress.planned();
            self.made.fetch_add(1, Ordering::Relaxed);
            self.workers.get_or_init(Workers::start).send(planned.clone());
        }
        Ok(planned)
    }

    /// Like [`Self::get`], but the pipeline is compiled only when a thread waits for it.
    pub fn later(&self, program: &Program<'_>) -> Result<Arc<Planned>> {
        if let Some(planned) = self.planned.read().find(&program.key) {
            if cfg!(debug_assertions) && planned.is_compared() {
                planned.check_equal(&self.compiler.prepared((program.shader)()))?;
            }
            return Ok(planned);
        }
        let made = self.plan(&program.key, (program.shader)())?;
        self.planned.write().find_or_insert(&program.key, || Ok(made))
    }

    /// The number of pipelines begun so far.
    pub fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// The cache on disk.
    pub fn cache(&self) -> Option<&DiskCache> {
        self.compiler.cache()
    }

    fn plan(&self, key: &Key, shader: Shader) -> Result<Planned> {
        let shader = self.compiler.prepared(shader);
        let params_size = shader.params_size();
        let storage_buffers = shader.units().len() as u32;
        let allowed = self.compiler.capabilities().max_bindings;
        if storage_buffers > allowed {
            return Err(Error::Unimplemented(format!(
                "shader {} binds {storage_buffers} buffers, this adapter allows {allowed}",
                shader.label(),
            )));
        }
        let compiler = self.compiler.clone();
        Ok(Planned {
            key: key.clone(),
            shader,
            storage_buffers,
            params_size,
            compiler,
            progress: self.progress.clone(),
            begun: AtomicBool::new(false),
            told: AtomicBool::new(false),
            found: AtomicU32::new(0),
            compiled: OnceLock::new(),
            unoptimized: OnceLock::new(),
            uses: OnceLock::new(),
        })
    }
}

/// The threads that compile, at most one per processor. They end with the device.
struct Workers {
    queue: Option<Sender<Arc<Planned>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    fn start() -> Self {
        let (queue, received) = crossbeam_channel::unbounded();
        let count = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_WORKERS);
        let spawn = |received: Receiver<Arc<Planned>>| {
            let work = move || {
                for planned in received {
                    if process::check().is_err() {
                        return;
                    }
                    if planned.wait().is_ok() {
                        let _ = planned.uses();
                    }
                }
            };
            std::thread::Builder::new().name("wgpu-compile".into()).spawn(work).ok()
        };
        Self {
            queue: Some(queue),
            threads: (0..count).filter_map(|_| spawn(received.clone())).collect(),
        }
    }

    /// If there is no thread, the thread that waits for a pipeline compiles it.
    fn send(&self, planned: Arc<Planned>) {
        let _ = self.queue.as_ref().map(|queue| queue.send(planned));
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.queue = None;
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}
