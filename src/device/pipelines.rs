//! Pipelines by key. They are compiled by threads of their own, several at once, while recording
//! goes on; who needs one at once compiles it where no thread has begun. No lock is held meanwhile.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender};
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;

use super::Capabilities;
use super::cache::DiskCache;
use super::checked::checked;
use super::dump::{ShaderDump, Text};
use super::pending::{Plan, Uses};
use super::process;
use super::profile::Profile;
use super::program::{Key, Program};
use super::progress::Progress;
use super::trace::{About, HostWork, Tracer};
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::shader::{Shader, int64};
use crate::sys::guard::caught;
use crate::sys::refusals::{self, Refusal};
use crate::sys::trusted_shader;

/// More threads would fight for the driver's own locks.
const MAX_WORKERS: usize = 8;
/// Shaders without optimizations that a warning names.
const UNOPTIMIZED_TOLD: u32 = 4;
/// Pipelines of a generation: at most twice as many are kept.
const GENERATION: usize = 4096;

/// A compiled shader and what recording must know of it.
#[derive(Debug)]
pub(crate) struct Pipeline {
    pub raw: wgpu::ComputePipeline,
    pub layout: wgpu::BindGroupLayout,
    /// Parameters come from a uniform buffer, for they exceed the adapter's immediates.
    pub uniform: bool,
    /// The tensors' offsets are given with each dispatch. Those of a uniform buffer always are.
    pub dynamic: bool,
    /// What profiles tell of it.
    pub about: Arc<About>,
    /// Whether a dispatch has used it. Some drivers compile when the first one runs.
    pub used: AtomicBool,
}

/// A pipeline that is compiled, or will be.
pub(crate) struct Planned {
    key: Key,
    shader: Shader,
    /// Number of storage buffers, a table's among them.
    pub storage_buffers: u32,
    /// Bytes of the parameter block.
    pub params_size: u32,
    /// Parameters come from a uniform buffer, for they exceed the adapter's immediates.
    pub uniform: bool,
    compiler: Arc<Compiler>,
    compiled: OnceLock<Result<Pipeline>>,
    uses: OnceLock<Uses>,
}

impl Planned {
    /// The pipeline, if it is compiled by now.
    pub fn get(&self) -> Option<&Result<Pipeline>> {
        self.compiled.get()
    }

    /// The pipeline. Compiles it or waits for who does. A panic meanwhile is its error, so that
    /// nobody compiles it over and over.
    pub fn wait(&self) -> &Result<Pipeline> {
        self.compiled.get_or_init(|| {
            let compiled = caught("a shader's compilation", || self.compiler.compile(self))
                .map_err(|e| {
                    e.map_message(|m| {
                        format!(
                            "shader {} does not compile on this adapter: {m}",
                            self.shader.label()
                        )
                    })
                });
            self.compiler.progress.compiled();
            compiled
        })
    }

    /// What its text does with its bindings, as far as it is known by now.
    pub fn known_uses(&self) -> Uses {
        self.uses.get().copied().unwrap_or(Uses::ALL)
    }

    /// Whether it failed for a reason that may have gone since.
    fn may_be_tried_again(&self) -> bool {
        matches!(self.get(), Some(Err(Error::ResourceExhausted(_))))
    }
}

impl Plan for Planned {
    fn outcome(&self) -> Option<Result<()>> {
        self.get().map(|compiled| compiled.as_ref().map(drop).map_err(Clone::clone))
    }

    fn wait_for_it(&self) -> Result<()> {
        self.wait().as_ref().map(drop).map_err(Clone::clone)
    }

    /// As naga finds them in the text, which a thread asks once the pipeline is compiled, or who
    /// must know. All of them if the text makes no sense.
    fn uses(&self) -> Uses {
        *self.uses.get_or_init(|| {
            let text = self.shader.render(self.compiler.capabilities.immediates);
            caught("a shader's analysis", || Ok(uses_of(&text))).ok().flatten().unwrap_or(Uses::ALL)
        })
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

/// All pipelines of a device by key: two generations, of which the older one goes when the younger
/// is full, so that what is in use stays.
#[derive(Default)]
struct Generations {
    young: FxHashMap<Key, Arc<Planned>>,
    old: FxHashMap<Key, Arc<Planned>>,
    /// Pipelines made so far.
    made: u64,
}

impl Generations {
    /// One that can be used, if it is in the younger generation.
    fn find(&self, key: &Key) -> Option<Arc<Planned>> {
        self.young.get(key).filter(|planned| !planned.may_be_tried_again()).cloned()
    }

    /// The same from any generation, or `made`, which is kept then. Whether it was.
    fn find_or_insert(
        &mut self,
        key: &Key,
        made: impl FnOnce() -> Result<Planned>,
    ) -> Result<(Arc<Planned>, bool)> {
        if let Some(planned) = self.find(key) {
            return Ok((planned, false));
        }
        let kept = self.old.remove(key).filter(|planned| !planned.may_be_tried_again());
        let is_new = kept.is_none();
        let planned = kept.map_or_else(|| made().map(Arc::new), Ok)?;
        self.made += u64::from(is_new);
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key.clone(), planned.clone());
        Ok((planned, is_new))
    }
}

/// All pipelines of a device.
pub(crate) struct Pipelines {
    compiler: Arc<Compiler>,
    planned: RwLock<Generations>,
    /// Started with the first pipeline.
    workers: OnceLock<Workers>,
}

impl Pipelines {
    /// Where `profile` has `own_barriers`, the recorder puts barriers between dispatches, and wgpu
    /// none. `is_first_run` tells whether the GPU is busy with the first dispatch of a pipeline:
    /// some drivers compile then.
    pub fn new(
        device: wgpu::Device,
        profile: &Profile,
        cache: Option<DiskCache>,
        dump: Option<ShaderDump>,
        tracer: Arc<Tracer>,
        is_first_run: impl Fn() -> bool + Send + 'static,
    ) -> Self {
        let compiler = Compiler {
            device,
            capabilities: profile.capabilities,
            own_barriers: profile.own_barriers,
            hides_constants: profile.kind() == Kind::FewRegisters,
            cache,
            dump,
            tracer,
            progress: Progress::start(is_first_run),
            layouts: Mutex::default(),
            compiled: AtomicU32::new(1),
            unoptimized: AtomicU32::new(0),
        };
        Self { compiler: Arc::new(compiler), planned: RwLock::default(), workers: OnceLock::new() }
    }

    /// The pipeline of `program`, which begins to be compiled at the first call with its key.
    pub fn get(&self, program: &Program<'_>) -> Result<Arc<Planned>> {
        if let Some(planned) = self.planned.read().find(&program.key) {
            return Ok(planned);
        }
        let made = self.plan(&program.key, (program.shader)())?;
        let (planned, is_new) = self.planned.write().find_or_insert(&program.key, || Ok(made))?;
        if is_new {
            self.compiler.progress.planned();
            self.workers.get_or_init(Workers::start).send(planned.clone());
        }
        Ok(planned)
    }

    /// Number of pipelines made so far.
    pub fn made(&self) -> u64 {
        self.planned.read().made
    }

    /// The cache on disk.
    pub fn cache(&self) -> Option<&DiskCache> {
        self.compiler.cache.as_ref()
    }

    fn plan(&self, key: &Key, shader: Shader) -> Result<Planned> {
        let hides = self.compiler.hides_constants;
        let shader = if hides { shader.hiding_constants() } else { shader };
        let params_size = shader.params_size();
        let uniform = params_size > self.compiler.capabilities.immediates;
        let storage_buffers = shader.units().len() as u32;
        let allowed = self.compiler.capabilities.max_bindings;
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
            uniform,
            compiler,
            compiled: OnceLock::new(),
            uses: OnceLock::new(),
        })
    }
}

/// A shader as wgpu gets it.
enum Source {
    /// With all that it binds.
    Seen(Box<wgpu::ShaderSource<'static>>),
    /// As SPIR-V.
    Unseen(Vec<u32>),
}

impl Source {
    /// For a dump, where `wgsl` is the shader's text.
    fn text<'a>(&'a self, wgsl: &'a str) -> Text<'a> {
        match self {
            Self::Unseen(words) => Text::Spirv(words),
            Self::Seen(source) => match &**source {
                wgpu::ShaderSource::Naga(module) => Text::Module(module),
                _ => Text::Wgsl(wgsl),
            },
        }
    }
}

/// What compiling takes.
struct Compiler {
    device: wgpu::Device,
    capabilities: Capabilities,
    own_barriers: bool,
    /// Registers are few, and constants of 64 bits must not stay there.
    hides_constants: bool,
    cache: Option<DiskCache>,
    dump: Option<ShaderDump>,
    tracer: Arc<Tracer>,
    progress: Progress,
    layouts: Mutex<FxHashMap<(u32, bool), wgpu::BindGroupLayout>>,
    /// How many pipelines it has compiled, plus one.
    compiled: AtomicU32,
    /// How many pipelines it has without optimizations, since the driver refused them with.
    unoptimized: AtomicU32,
}

impl Compiler {
    fn compile(&self, planned: &Planned) -> Result<Pipeline> {
        let _inside = process::enter()?;
        let Planned { shader, .. } = planned;
        let _span = self.tracer.span(|| HostWork::Compile(shader.label().to_owned()));
        let wgsl = shader.render(self.capabilities.immediates);
        log::trace!("compiling shader {}:\n{wgsl}", shader.label());
        let Some(dump) = &self.dump else {
            return self.compile_as(planned, self.source(shader, wgsl)?);
        };
        let source = self.source(shader, wgsl.clone());
        let text = source.as_ref().map(|source| source.text(&wgsl));
        let number = dump.write(shader.label(), &wgsl, text);
        let start = Instant::now();
        let compiled = source.and_then(|source| self.compile_as(planned, source));
        dump.end(&number, &planned.key, shader.label(), start.elapsed(), &compiled);
        compiled
    }

    fn compile_as(&self, planned: &Planned, source: Source) -> Result<Pipeline> {
        let Planned { shader, storage_buffers, params_size, uniform, .. } = planned;
        let dynamic = *storage_buffers <= self.capabilities.max_dynamic_bindings;
        let layout = self.layout(*storage_buffers, *uniform, dynamic)?;
        let make = || {
            let (label, size) = (shader.label(), shader.workgroup_size());
            let module = match source {
                Source::Seen(source) => trusted_shader::create(&self.device, label, *source),
                Source::Unseen(spirv) => {
                    trusted_shader::create_unseen(&self.device, label, spirv, size)
                }
            };
            let pipeline_layout =
                self.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                    label: Some(shader.label()),
                    bind_group_layouts: &[Some(&layout)],
                    immediate_size: if *uniform { 0 } else { *params_size },
                });
            self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(shader.label()),
                layout: Some(&pipeline_layout),
                module: &module,
                entry_point: Some("main"),
                compilation_options: wgpu::PipelineCompilationOptions {
                    zero_initialize_workgroup_memory: false,
                    ..Default::default()
                },
                cache: self.cache.as_ref().map(DiskCache::raw),
            })
        };
        let (raw, refused) = refusals::watched(|| checked(&self.device, "its pipeline", make));
        let raw = raw?;
        if let Some(refusal) = refused {
            self.take(&refusal, shader.label())?;
        }
        if let Some(cache) = &self.cache {
            cache.changed();
        }
        // A driver makes more of what its end destroys while it compiles the first ones.
        if self.compiled.fetch_add(1, Ordering::Relaxed).is_power_of_two() {
            super::process::watch_exit();
        }
        let about = About { label: shader.label().to_owned(), workgroup: shader.workgroup_size() };
        Ok(Pipeline {
            raw,
            layout,
            uniform: *uniform,
            dynamic,
            about: Arc::new(about),
            used: AtomicBool::new(false),
        })
    }

    /// Says that the driver has refused a pipeline: a warning if it exists without optimizations,
    /// else the error.
    fn take(&self, refusal: &Refusal, label: &str) -> Result<()> {
        let info = self.device.adapter_info();
        let driver = format!("{} {} ({})", info.driver, info.driver_info, info.name);
        let what = format!("the driver {} refused it ({})", driver.trim(), refusal.reason);
        if refusal.is_unoptimized {
            let told = self.unoptimized.fetch_add(1, Ordering::Relaxed);
            if told < UNOPTIMIZED_TOLD {
                let last = told + 1 == UNOPTIMIZED_TOLD;
                log::warn!(
                    "shader {label}: {what} and compiles it without optimizations: it is slower{}",
                    if last { "; further shaders are not named" } else { "" }
                );
            }
            return Ok(());
        }
        Err(Error::Unimplemented(what))
    }

    /// What wgpu gets of a shader: its text, or its module where the text does not say all. Where
    /// the adapter has no 64-bit integers, the module is without them.
    fn source(&self, shader: &Shader, wgsl: String) -> Result<Source> {
        let limit = self.capabilities.immediates;
        let module = if shader.exceeds_text() {
            Some(shader.module(limit)?)
        } else if !self.capabilities.int64 && int64::is_needed(&wgsl) {
            Some(int64::lowered(&wgsl).map_err(Error::Unimplemented)?)
        } else {
            None
        };
        if self.own_barriers {
            let module = module.map_or_else(|| shader.module(limit), Ok)?;
            return super::spirv::of(&module).map(Source::Unseen);
        }
        let text = || wgpu::ShaderSource::Wgsl(wgsl.into());
        let of_module = |module| wgpu::ShaderSource::Naga(Cow::Owned(module));
        Ok(Source::Seen(Box::new(module.map_or_else(text, of_module))))
    }

    /// The layout of a group of `n` read_write storage buffers, and a uniform buffer behind them if
    /// asked for, whose offset is another in each dispatch. wgpu takes the storage buffers for
    /// read-only ones, between whose uses it puts no barrier, where the recorder does.
    fn layout(&self, n: u32, uniform: bool, dynamic: bool) -> Result<wgpu::BindGroupLayout> {
        let make = || {
            let entry = |binding, ty, has_dynamic_offset| wgpu::BindGroupLayoutEntry {
                binding,
                visibility: wgpu::ShaderStages::COMPUTE,
                ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset, min_binding_size: None },
                count: None,
            };
            let storage = wgpu::BufferBindingType::Storage { read_only: self.own_barriers };
            let entries: Vec<_> = (0..n)
                .map(|binding| entry(binding, storage, dynamic))
                .chain(uniform.then(|| entry(n, wgpu::BufferBindingType::Uniform, true)))
                .collect();
            self.device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
                label: None,
                entries: &entries,
            })
        };
        let mut layouts = self.layouts.lock();
        if let Some(layout) = layouts.get(&(n, uniform)) {
            return Ok(layout.clone());
        }
        let layout = checked(&self.device, "its layout", make)?;
        layouts.insert((n, uniform), layout.clone());
        Ok(layout)
    }
}

/// The threads that compile, as many as there are processors. They end with the device.
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

    /// Without any thread, who waits for a pipeline compiles it.
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
