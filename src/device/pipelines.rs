//! Compiled pipelines by key. Compilation happens outside every lock that recording needs.

use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;

use super::Capabilities;
use super::cache::DiskCache;
use super::program::{Key, Program};
use crate::error::{Error, Result};
use crate::shader::Shader;

/// A compiled shader and what recording must know of it.
#[derive(Debug)]
pub(crate) struct Pipeline {
    pub raw: wgpu::ComputePipeline,
    pub layout: wgpu::BindGroupLayout,
    /// Number of bind group entries, with the parameter buffer if there is one.
    pub entries: u32,
    /// Bytes of the parameter block.
    pub params_size: u32,
    /// Parameters come from a storage buffer, for they exceed the adapter's immediates.
    pub params_buffer: bool,
}

type Slot = Arc<OnceLock<Result<Arc<Pipeline>>>>;

pub(crate) struct Pipelines {
    device: wgpu::Device,
    capabilities: Capabilities,
    cache: Option<DiskCache>,
    compiled: RwLock<FxHashMap<Key, Slot>>,
    layouts: Mutex<FxHashMap<(u32, bool), wgpu::BindGroupLayout>>,
}

impl Pipelines {
    pub fn new(device: wgpu::Device, capabilities: Capabilities, cache: Option<DiskCache>) -> Self {
        Self { device, capabilities, cache, compiled: RwLock::default(), layouts: Mutex::default() }
    }

    /// The pipeline of `program`, compiled at the first call with its key.
    pub fn get(&self, program: &Program<'_>) -> Result<Arc<Pipeline>> {
        let slot = match self.compiled.read().get(&program.key) {
            Some(slot) => match slot.get() {
                Some(compiled) => return compiled.clone(),
                None => Some(slot.clone()),
            },
            None => None,
        };
        let slot = slot.unwrap_or_else(|| self.compiled.write().entry(program.key.clone()).or_default().clone());
        slot.get_or_init(|| self.compile(&(program.shader)()).map(Arc::new)).clone()
    }

    /// Number of pipelines compiled so far.
    pub fn len(&self) -> usize {
        self.compiled.read().len()
    }

    /// The cache on disk.
    pub const fn cache(&self) -> Option<&DiskCache> {
        self.cache.as_ref()
    }

    fn compile(&self, shader: &Shader) -> Result<Pipeline> {
        let units = shader.units();
        let params_size = shader.params_size();
        let params_buffer = params_size > self.capabilities.immediates;
        let entries = units.len() as u32 + u32::from(params_buffer);
        if entries > self.capabilities.max_bindings {
            return Err(Error::Unimplemented(format!(
                "shader {} binds {entries} buffers, this adapter allows {}",
                shader.label(),
                self.capabilities.max_bindings
            )));
        }
        let wgsl = shader.render(self.capabilities.immediates);
        log::trace!("compiling shader {}:\n{wgsl}", shader.label());
        let layout = self.layout(entries, params_buffer);
        let scope = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let internal = self.device.push_error_scope(wgpu::ErrorFilter::Internal);
        let module = crate::ffi::trusted_shader::create(&self.device, shader.label(), wgsl);
        let pipeline_layout = self.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: Some(shader.label()),
            bind_group_layouts: &[Some(&layout)],
            immediate_size: if params_buffer { 0 } else { params_size },
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
        Ok(Pipeline { raw, layout, entries, params_size, params_buffer })
    }

    /// The layout of a group of `n` read_write storage buffers. Parameters in the last of them lie elsewhere in each dispatch.
    fn layout(&self, n: u32, params_buffer: bool) -> wgpu::BindGroupLayout {
        let make = || {
            let entries: Vec<_> = (0..n)
                .map(|binding| wgpu::BindGroupLayoutEntry {
                    binding,
                    visibility: wgpu::ShaderStages::COMPUTE,
                    ty: wgpu::BindingType::Buffer {
                        ty: wgpu::BufferBindingType::Storage { read_only: false },
                        has_dynamic_offset: params_buffer && binding + 1 == n,
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
