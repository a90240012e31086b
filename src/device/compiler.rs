//! Compiles shaders. If the driver refuses the usual form of one, another form is tried.
//!
//! A driver may refuse any shader: because of too much scratch memory, too many registers, or a
//! fault of its own. A [`Form`] after the usual one takes another way through the driver's
//! compiler. Refused forms are kept for the adapter and its driver, so that the next process begins
//! with a form that works.

use std::borrow::Cow;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::Capabilities;
use super::cache::DiskCache;
use super::checked::checked;
use super::dump::{ShaderDump, Text};
use super::process;
use super::profile::Profile;
use super::program::Key;
use super::refused::{Form, RefusedForms};
use super::trace::{About, HostWork, Tracer};
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::shader::{Shader, int64};
use crate::sys::refusals::{self, Optimizations};
use crate::sys::trusted_shader;

/// The number of refused shaders that a warning names.
const TOLD: u32 = 4;

/// A compiled shader and the facts that recording needs about it.
#[derive(Debug)]
pub(crate) struct Pipeline {
    pub raw: wgpu::ComputePipeline,
    pub layout: wgpu::BindGroupLayout,
    /// Whether parameters come from a uniform buffer, because they exceed the adapter's immediates.
    pub uniform: bool,
    /// Whether the tensors' offsets are given with each dispatch. A uniform buffer's offset always
    /// is.
    pub dynamic: bool,
    /// The description of it in profiles.
    pub about: Arc<About>,
    /// Whether a dispatch has used it. Some drivers compile at the first dispatch.
    pub used: AtomicBool,
}

/// A shader in the form that wgpu gets.
enum ShaderForm {
    /// wgpu sees its bindings.
    Seen(Box<wgpu::ShaderSource<'static>>),
    /// SPIR-V, whose bindings wgpu does not see.
    Unseen(Vec<u32>),
}

impl ShaderForm {
    /// The text for a dump. `wgsl` is the shader's text.
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

/// The reason why there is no pipeline of a form.
enum Failure {
    /// The driver, or a translator in front of it, refuses the form.
    Refused(Error),
    /// Another error, for which no other form helps.
    Other(Error),
}

/// The shader as a form has it.
fn in_form(shader: &Shader, form: Form) -> Cow<'_, Shader> {
    match form {
        Form::Portable | Form::Unoptimized if shader.has_native_float16() => {
            Cow::Owned(shader.clone().with_native_float16(false))
        }
        _ => Cow::Borrowed(shader),
    }
}

/// The compiler of a device's shaders.
pub(super) struct Compiler {
    device: wgpu::Device,
    capabilities: Capabilities,
    own_barriers: bool,
    are_buffers_guarded: bool,
    /// The GPU has few registers, and 64-bit constants must not stay in them.
    hides_constants: bool,
    cache: Option<DiskCache>,
    dump: Option<ShaderDump>,
    tracer: Arc<Tracer>,
    layouts: Mutex<FxHashMap<(u32, bool), wgpu::BindGroupLayout>>,
    /// The number of pipelines that it has compiled, plus one.
    compiled: AtomicU32,
    refused: RefusedForms,
    /// The number of refused shaders that warnings have reported.
    told: AtomicU32,
}

impl Compiler {
    /// `are_buffers_guarded` is the adapter's answer (`sys::trusted_shader`). `cache` keeps
    /// pipelines. `refused` holds the forms that the driver has refused.
    pub fn new(
        device: wgpu::Device,
        profile: &Profile,
        are_buffers_guarded: bool,
        cache: Option<DiskCache>,
        refused: RefusedForms,
        dump: Option<ShaderDump>,
        tracer: Arc<Tracer>,
    ) -> Self {
        Self {
            device,
            capabilities: profile.capabilities,
            own_barriers: profile.own_barriers,
            are_buffers_guarded,
            hides_constants: profile.kind() == Kind::FewRegisters,
            cache,
            dump,
            tracer,
            layouts: Mutex::default(),
            compiled: AtomicU32::new(1),
            refused,
            told: AtomicU32::new(0),
        }
    }

    /// The adapter's capabilities.
    pub const fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// The cache on disk.
    pub const fn cache(&self) -> Option<&DiskCache> {
        self.cache.as_ref()
    }

    /// The text of a shader's usual form.
    pub fn text(&self, shader: &Shader) -> String {
        shader.render(self.capabilities.immediates)
    }

    /// Whether the backend can be told to compile without optimizations.
    pub fn has_unoptimized(&self) -> bool {
        self.device.adapter_info().backend == wgpu::Backend::Vulkan
    }

    /// The pipeline of the first form with optimizations that the driver takes.
    pub fn compile(&self, key: &Key, shader: &Shader) -> Result<Pipeline> {
        self.compile_as(key, shader, &[Form::Usual, Form::Portable])
    }

    /// Compiles without optimizations, for a shader that has no pipeline with them because of
    /// `refusal` and that no other shader can replace.
    pub fn compile_unoptimized(
        &self,
        key: &Key,
        shader: &Shader,
        refusal: &Error,
    ) -> Result<Pipeline> {
        let compiled = self.compile_as(key, shader, &[Form::Unoptimized])?;
        self.tell(refusal, "it is compiled without optimizations, so it is slower");
        Ok(compiled)
    }

    /// Warns about a refused shader. `instead` says what runs in its place.
    pub fn tell(&self, refusal: &dyn Display, instead: &str) {
        let told = self.told.fetch_add(1, Ordering::Relaxed);
        if told < TOLD {
            let last = if told + 1 == TOLD { "; further shaders are not named" } else { "" };
            log::warn!("{refusal}; {instead}{last}");
        }
    }

    /// The shader, adapted to the adapter's compiler.
    pub fn prepared(&self, shader: Shader) -> Shader {
        let shader = if self.hides_constants { shader.hiding_constants() } else { shader };
        shader.with_native_float16(self.capabilities.float16)
    }

    fn compile_as(&self, key: &Key, shader: &Shader, forms: &[Form]) -> Result<Pipeline> {
        let _inside = process::enter()?;
        let _compiling = process::compiling();
        let _span = self.tracer.span(|| HostWork::Compile(shader.label().to_owned()));
        let known = self.refused.last(key);
        let mut refusal = None;
        for form in forms {
            let is_known = Some(*form) <= known && *form != Form::Unoptimized;
            if is_known || !self.differs(shader, *form) {
                continue;
            }
            match self.attempt(key, &in_form(shader, *form), *form) {
                Ok(pipeline) => {
                    if let Some(refusal) = &refusal {
                        let refusal = format!("shader {}: {refusal}", shader.label());
                        self.tell(&refusal, "its portable form is used");
                    }
                    return Ok(pipeline);
                }
                Err(Failure::Other(e)) => return Err(e),
                Err(Failure::Refused(e)) => {
                    // wgpu's errors have other reasons, too, which may no longer hold in the next
                    // process.
                    if matches!(e, Error::Unimplemented(_)) {
                        self.refused.add(key, *form);
                    }
                    refusal.get_or_insert(e);
                }
            }
        }
        Err(refusal.unwrap_or_else(|| self.refusal("earlier")))
    }

    fn refusal(&self, how: &str) -> Error {
        let info = self.device.adapter_info();
        let driver = format!("{} {} ({})", info.driver, info.driver_info, info.name);
        Error::Unimplemented(format!("the driver {} refused it {how}", driver.trim()))
    }

    /// The bytes of parameters that are immediates in a form, and whether the form has 64-bit
    /// integers.
    fn features(&self, shader: &Shader, form: Form) -> (u32, bool) {
        match form {
            Form::Usual => (self.capabilities.immediates, self.capabilities.int64),
            // Floats of 64 bits are read as 64-bit integers.
            Form::Portable | Form::Unoptimized => (0, shader.has_float64()),
        }
    }

    /// Whether a form differs from the usual one.
    fn differs(&self, shader: &Shader, form: Form) -> bool {
        let usual = self.features(shader, Form::Usual);
        let other = self.features(shader, form);
        let text = || in_form(shader, form).render(other.0);
        let has_integers = usual.1 != other.1 && int64::is_needed(&text());
        form != Form::Portable || has_integers || shader.render(usual.0) != text()
    }

    fn attempt(
        &self,
        key: &Key,
        shader: &Shader,
        form: Form,
    ) -> std::result::Result<Pipeline, Failure> {
        let (immediates, int64) = self.features(shader, form);
        let wgsl = shader.render(immediates);
        log::trace!("compiling shader {}, {form:?}:\n{wgsl}", shader.label());
        let Some(dump) = &self.dump else {
            let source = self.source(shader, wgsl, immediates, int64).map_err(Failure::Other)?;
            return self.make(shader, source, immediates, form);
        };
        let source = self.source(shader, wgsl.clone(), immediates, int64);
        let text = source.as_ref().map(|source| source.text(&wgsl));
        let number = dump.write(shader.label(), &wgsl, text);
        let start = Instant::now();
        let made = source
            .map_err(Failure::Other)
            .and_then(|source| self.make(shader, source, immediates, form));
        let error = made.as_ref().err().map(|(Failure::Refused(e) | Failure::Other(e))| e);
        dump.end(&number, key, shader.label(), start.elapsed(), error);
        made
    }

    /// The shader as wgpu gets it: its text, or its module if the text does not contain everything.
    /// Without `int64`, the module has no 64-bit integers.
    fn source(
        &self,
        shader: &Shader,
        wgsl: String,
        immediates: u32,
        int64: bool,
    ) -> Result<ShaderForm> {
        let module = if shader.exceeds_text() {
            Some(shader.module(immediates)?)
        } else if !int64 && int64::is_needed(&wgsl) {
            Some(int64::lowered(&wgsl).map_err(Error::Unimplemented)?)
        } else {
            None
        };
        if self.own_barriers {
            let module = module.map_or_else(|| shader.module(immediates), Ok)?;
            return super::spirv::of(&module, self.are_buffers_guarded).map(ShaderForm::Unseen);
        }
        let text = || wgpu::ShaderSource::Wgsl(wgsl.into());
        let of_module = |module| wgpu::ShaderSource::Naga(Cow::Owned(module));
        Ok(ShaderForm::Seen(Box::new(module.map_or_else(text, of_module))))
    }

    /// Makes a pipeline through wgpu and the driver.
    fn make(
        &self,
        shader: &Shader,
        source: ShaderForm,
        immediates: u32,
        form: Form,
    ) -> std::result::Result<Pipeline, Failure> {
        let (storage_buffers, params_size) = (shader.units().len() as u32, shader.params_size());
        let uniform = params_size > immediates;
        let dynamic = storage_buffers <= self.capabilities.max_dynamic_bindings;
        let layout = self.layout(storage_buffers, uniform, dynamic).map_err(Failure::Other)?;
        let make = || {
            let (label, size) = (shader.label(), shader.workgroup_size());
            let module = match source {
                ShaderForm::Seen(source) => {
                    let guarded = self.are_buffers_guarded;
                    trusted_shader::create(&self.device, label, *source, guarded)
                }
                ShaderForm::Unseen(spirv) => {
                    trusted_shader::create_unseen(&self.device, label, spirv, size)
                }
            };
            let pipeline_layout =
                self.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                    label: Some(shader.label()),
                    bind_group_layouts: &[Some(&layout)],
                    immediate_size: if uniform { 0 } else { params_size },
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
        let optimizations = match form {
            Form::Usual | Form::Portable => Optimizations::On,
            Form::Unoptimized => Optimizations::Off,
        };
        let (raw, reason) =
            refusals::watched(optimizations, || checked(&self.device, "its pipeline", make));
        let raw = raw.map_err(|e| match e {
            // wgpu passes on refusals of Metal's and DX12's compilers as internal errors.
            Error::Internal(_) => Failure::Refused(e),
            e => Failure::Other(e),
        })?;
        if let Some(reason) = reason {
            return Err(Failure::Refused(self.refusal(&format!("({reason})"))));
        }
        if let Some(cache) = &self.cache {
            cache.changed();
        }
        // While a driver compiles its first shaders, it creates more of the objects that its exit
        // destroys.
        if self.compiled.fetch_add(1, Ordering::Relaxed).is_power_of_two() {
            process::watch_exit();
        }
        let about = About {
            label: shader.label().to_owned(),
            is_copy: shader.is_copy(),
            workgroup: shader.workgroup_size(),
        };
        Ok(Pipeline {
            raw,
            layout,
            uniform,
            dynamic,
            about: Arc::new(about),
            used: AtomicBool::new(false),
        })
    }

    /// The layout of a group of `n` read_write storage buffers and, if `uniform`, a uniform buffer
    /// behind them, whose offset is given with each dispatch. If the recorder puts the barriers,
    /// the layout declares the storage buffers read-only to wgpu, which then puts no barriers
    /// between their uses.
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
