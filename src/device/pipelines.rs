//! Pipelines by key. They are compiled by threads of their own, several at once, while recording goes on; who needs one at
//! once compiles it where no thread has begun. No lock is held meanwhile.

use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender};
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;

use super::Capabilities;
use super::cache::DiskCache;
use super::program::{Key, Program};
use crate::error::{Error, Result};
use crate::shader::Shader;

/// More threads would fight for the driver's own locks.
const MAX_WORKERS: usize = 8;

/// A compiled shader and what recording must know of it.
#[derive(Debug)]
pub(crate) struct Pipeline {
    pub raw: wgpu::ComputePipeline,
    pub layout: wgpu::BindGroupLayout,
    /// Parameters come from a storage buffer, for they exceed the adapter's immediates.
    pub params_buffer: bool,
    /// The bindings' offsets are given with each dispatch. Else the parameters' alone are.
    pub dynamic: bool,
}

/// A pipeline that is compiled, or will be.
pub(crate) struct Planned {
    shader: Shader,
    /// Number of bind group entries, with the parameter buffer if there is one.
    pub entries: u32,
    /// Bytes of the parameter block.
    pub params_size: u32,
    /// Parameters come from a storage buffer, for they exceed the adapter's immediates.
    pub params_buffer: bool,
    compiler: Arc<Compiler>,
    compiled: OnceLock<Result<Pipeline>>,
}

impl Planned {
    /// The pipeline, if it is compiled by now.
    pub fn get(&self) -> Option<&Result<Pipeline>> {
        self.compiled.get()
    }

    /// The pipeline. Compiles it or waits for who does.
    pub fn wait(&self) -> &Result<Pipeline> {
        self.compiled.get_or_init(|| self.compiler.compile(self))
    }
}

/// All pipelines of a device.
pub(crate) struct Pipelines {
    compiler: Arc<Compiler>,
    planned: RwLock<FxHashMap<Key, Arc<Planned>>>,
    /// Started with the first pipeline.
    workers: OnceLock<Workers>,
}

impl Pipelines {
    pub fn new(device: wgpu::Device, capabilities: Capabilities, cache: Option<DiskCache>) -> Self {
        let compiler = Compiler { device, capabilities, cache, layouts: Mutex::default() };
        Self { compiler: Arc::new(compiler), planned: RwLock::default(), workers: OnceLock::new() }
    }

    /// The pipeline of `program`, which begins to be compiled at the first call with its key.
    pub fn get(&self, program: &Program<'_>) -> Result<Arc<Planned>> {
        if let Some(planned) = self.planned.read().get(&program.key) {
            return Ok(planned.clone());
        }
        let made = Arc::new(self.plan((program.shader)())?);
        let planned = self.planned.write().entry(program.key.clone()).or_insert_with(|| made.clone()).clone();
        if Arc::ptr_eq(&planned, &made) {
            self.workers.get_or_init(Workers::start).send(made);
        }
        Ok(planned)
    }

    /// Number of pipelines so far.
    pub fn len(&self) -> usize {
        self.planned.read().len()
    }

    /// The cache on disk.
    pub fn cache(&self) -> Option<&DiskCache> {
        self.compiler.cache.as_ref()
    }

    fn plan(&self, shader: Shader) -> Result<Planned> {
        let params_size = shader.params_size();
        let params_buffer = params_size > self.compiler.capabilities.immediates;
        let entries = shader.units().len() as u32 + u32::from(params_buffer);
        let allowed = self.compiler.capabilities.max_bindings;
        if entries > allowed {
            return Err(Error::Unimplemented(format!(
                "shader {} binds {entries} buffers, this adapter allows {allowed}",
                shader.label(),
            )));
        }
        let compiler = self.compiler.clone();
        Ok(Planned { shader, entries, params_size, params_buffer, compiler, compiled: OnceLock::new() })
    }
}

/// What compiling takes.
struct Compiler {
    device: wgpu::Device,
    capabilities: Capabilities,
    cache: Option<DiskCache>,
    layouts: Mutex<FxHashMap<(u32, bool), wgpu::BindGroupLayout>>,
}

impl Compiler {
    fn compile(&self, planned: &Planned) -> Result<Pipeline> {
        let Planned { shader, entries, params_size, params_buffer, .. } = planned;
        let wgsl = shader.render(self.capabilities.immediates);
        log::trace!("compiling shader {}:\n{wgsl}", shader.label());
        let dynamic = *entries <= self.capabilities.max_dynamic_bindings;
        let layout = self.layout(*entries, *params_buffer, dynamic);
        let scope = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let internal = self.device.push_error_scope(wgpu::ErrorFilter::Internal);
        let module = crate::ffi::trusted_shader::create(&self.device, shader.label(), wgsl);
        let pipeline_layout = self.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: Some(shader.label()),
            bind_group_layouts: &[Some(&layout)],
            immediate_size: if *params_buffer { 0 } else { *params_size },
        });
        let raw = self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(shader.label()),
            layout: Some(&pipeline_layout),
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions {
                zero_initialize_workgroup_memory: false,
                ..Default::default()
            },
            cache: self.cache.as_ref().map(DiskCache::raw),
        });
        let internal = pollster::block_on(internal.pop());
        if let Some(e) = pollster::block_on(scope.pop()).or(internal) {
            return Err(Error::Internal(format!("shader {} does not compile on this adapter: {e}", shader.label())));
        }
        if let Some(cache) = &self.cache {
            cache.changed();
        }
        Ok(Pipeline { raw, layout, params_buffer: *params_buffer, dynamic })
    }

    /// The layout of a group of `n` read_write storage buffers. Parameters in the last of them lie elsewhere in each dispatch.
    fn layout(&self, n: u32, params_buffer: bool, dynamic: bool) -> wgpu::BindGroupLayout {
        let make = || {
            let entries: Vec<_> = (0..n)
                .map(|binding| wgpu::BindGroupLayoutEntry {
                    binding,
                    visibility: wgpu::ShaderStages::COMPUTE,
                    ty: wgpu::BindingType::Buffer {
                        ty: wgpu::BufferBindingType::Storage { read_only: false },
                        has_dynamic_offset: dynamic || params_buffer && binding + 1 == n,
                        min_binding_size: None,
                    },
                    count: None,
                })
                .collect();
            self.device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries })
        };
        self.layouts.lock().entry((n, params_buffer)).or_insert_with(make).clone()
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
                    let _ = planned.wait();
                }
            };
            std::thread::Builder::new().name("wgpu-compile".into()).spawn(work).ok()
        };
        Self { queue: Some(queue), threads: (0..count).filter_map(|_| spawn(received.clone())).collect() }
    }

    /// Without any thread, and after one has panicked, who waits for a pipeline compiles it.
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
