//! The cost of a dispatch for the host: the CPU time of the thread that enqueues, compared with the
//! cost of the same wgpu calls without this crate around them.
//!
//! The GPU's time is not included, not even on a software adapter, which has its own threads.
//! Submissions are included, because the host has to make them.

use cpu_time::ThreadTime;
use smallvec::smallvec;
use tensorflow_wgpu::device::{Binding, Device, Grid, Key, Params, Program};
use tensorflow_wgpu::kernels::op::Kernel;
use tensorflow_wgpu::kernels::registry::Registry;
use tensorflow_wgpu::local::Node;
use tensorflow_wgpu::shader::{Field, Shader};
use tensorflow_wgpu::{DType, Error, Result, Tensor};

use crate::case::f32s;
use crate::context::Context;

/// The number of dispatches in a round.
const DISPATCHES: usize = 1000;
/// The number of elements of the small tensors.
const ELEMENTS: usize = 64;
/// The number of parameter words that are too many for any adapter's immediates.
const WORDS: usize = 80;

/// Microseconds of a dispatch in each round.
struct Rounds(Vec<f64>);

impl Rounds {
    /// Times rounds of `unit`; the first ones, which fill caches, do not count.
    fn of(
        count: usize,
        unit: &mut dyn FnMut() -> Result<()>,
        idle: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Self> {
        const WARM: usize = 2;
        let mut times = Vec::new();
        for round in 0..count + WARM {
            let start = ThreadTime::now();
            for _ in 0..DISPATCHES {
                unit()?;
            }
            let took = start.elapsed().as_secs_f64();
            idle()?;
            if round >= WARM {
                times.push(took * 1e6 / DISPATCHES as f64);
            }
        }
        times.sort_by(f64::total_cmp);
        Ok(Self(times))
    }

    fn median(&self) -> f64 {
        self.0[self.0.len() / 2]
    }

    fn least(&self) -> f64 {
        self.0[0]
    }
}

/// The table.
pub fn table(
    adapter: &wgpu::Adapter,
    device: &Device,
    registry: &Registry,
    rounds: usize,
) -> Result<String> {
    let mut rows: Vec<(&str, Rounds, f64)> = Vec::new();
    let mut row = |name, unit: &mut dyn FnMut() -> Result<()>| {
        let before = device.statistics();
        let times = Rounds::of(rounds, unit, &mut || device.synchronize())?;
        let after = device.statistics();
        let batch = (after.dispatches - before.dispatches) as f64
            / (after.submissions - before.submissions) as f64;
        rows.push((name, times, batch));
        Ok::<_, Error>(())
    };
    let node = Node::new("AddV2").attr("T", DType::F32);
    let registration = registry
        .find("AddV2", |_| Some(DType::F32))
        .ok_or_else(|| Error::NotFound("AddV2".into()))?;
    let kernel: Box<dyn Kernel> = (registration.create)(&node)?;
    let mut context = Context::new(device, &[f32s(&[ELEMENTS]), f32s(&[ELEMENTS])]);
    row("AddV2 of 64, as a kernel", &mut || {
        context.begin();
        kernel.compute(&mut context)
    })?;
    let mut broadcast = Context::new(device, &[f32s(&[8, 8]), f32s(&[8])]);
    row("AddV2 of 8×8 and 8, as a kernel", &mut || {
        broadcast.begin();
        kernel.compute(&mut broadcast)
    })?;
    let memory = device.allocate(1 << 20)?;
    row("the sum alone", &mut || enqueue(device, memory, 1, 0))?;
    let mut turn = 0;
    row("the sum, 1000 places in turn", &mut || {
        turn = (turn + 1) % DISPATCHES as u64;
        enqueue(device, memory, 1, turn)
    })?;
    row("the sum, 320 bytes of parameters", &mut || enqueue(device, memory, WORDS, 0))?;
    let batch = rows[2].2.round() as usize;
    let raw = raw(adapter, batch, rounds)?;
    context.end()?;
    broadcast.end()?;
    device.deallocate(memory)?;
    let mut text = "| Host µs per dispatch | median | least | dispatches per submission | without \
                    wgpu's, by the least |\n|---|---|---|---|---|\n"
        .to_owned();
    let mut line = |name: &str, times: &Rounds, batch: f64, own: String| {
        text += &format!(
            "| {name} | {:.2} | {:.2} | {batch:.0} | {own} |\n",
            times.median(),
            times.least()
        );
    };
    for (name, times, batch) in &rows {
        line(name, times, *batch, format!("{:.2}", times.least() - raw.least()));
    }
    line("wgpu alone", &raw, batch as f64, "–".to_owned());
    Ok(text)
}

/// One dispatch that adds two small tensors of `memory`.
fn enqueue(device: &Device, memory: u64, words: usize, place: u64) -> Result<()> {
    let shader = || {
        let shader = Shader::new("bench sum")
            .bind("a", DType::F32)
            .bind("b", DType::F32)
            .bind("c", DType::F32);
        let shader = shader
            .u32s(&["count"])
            .body("fn value(i: u32) -> f32 {\n    return load_a(i) + load_b(i);\n}");
        if words == 1 {
            shader.map("c")
        } else {
            shader.param("more", Field::Vec4s(words / 4)).map("c")
        }
    };
    let at = memory + place * 3 * 4 * ELEMENTS as u64;
    let tensor = |k: u64| Tensor::new(DType::F32, &[ELEMENTS], at + k * 4 * ELEMENTS as u64);
    let params = Params::new().u32(ELEMENTS);
    device.enqueue(&Program {
        key: Key::new("bench sum").number(words as u32),
        shader: &shader,
        bindings: smallvec![
            Binding::from(&tensor(0)),
            Binding::from(&tensor(1)),
            Binding::from(&tensor(2))
        ],
        params: if words == 1 { params } else { params.list(&[0_u32; WORDS]) },
        grid: Grid::map(ELEMENTS, DType::F32),
    })
}

/// The same wgpu calls directly: one pass of `batch` dispatches in each submission.
fn raw(adapter: &wgpu::Adapter, batch: usize, rounds: usize) -> Result<Rounds> {
    const SHADER: &str = "var<immediate> count: vec4<u32>;\n@group(0) @binding(0) var<storage, \
                          read_write> a: array<f32>;\n@group(0) @binding(1) var<storage, \
                          read_write> b: array<f32>;\n@group(0) @binding(2) var<storage, \
                          read_write> c: array<f32>;\n@compute @workgroup_size(256) fn \
                          main(@builtin(global_invocation_id) id: vec3<u32>) {\n    if id.x < \
                          count.w { c[id.x] = a[id.x] + b[id.x]; }\n}\n";
    let failed = |e: &dyn std::fmt::Display| Error::Unavailable(format!("wgpu alone: {e}"));
    let (device, queue) = pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor {
        required_features: wgpu::Features::IMMEDIATES,
        required_limits: adapter.limits(),
        ..Default::default()
    }))
    .map_err(|e| failed(&e))?;
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: None,
        source: wgpu::ShaderSource::Wgsl(SHADER.into()),
    });
    let entry = |binding| wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer {
            ty: wgpu::BufferBindingType::Storage { read_only: false },
            has_dynamic_offset: false,
            min_binding_size: None,
        },
        count: None,
    };
    let entries = [entry(0), entry(1), entry(2)];
    let layout = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
        label: None,
        entries: &entries,
    });
    let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: None,
        bind_group_layouts: &[Some(&layout)],
        immediate_size: 16,
    });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: None,
        layout: Some(&pipeline_layout),
        module: &module,
        entry_point: Some("main"),
        compilation_options: wgpu::PipelineCompilationOptions::default(),
        cache: None,
    });
    let buffer = device.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: 1 << 20,
        usage: wgpu::BufferUsages::STORAGE,
        mapped_at_creation: false,
    });
    let part = |binding: u32| {
        let (offset, size) = (u64::from(binding) * 256, wgpu::BufferSize::new(256));
        wgpu::BindGroupEntry {
            binding,
            resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                buffer: &buffer,
                offset,
                size,
            }),
        }
    };
    let entries = [part(0), part(1), part(2)];
    let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &layout,
        entries: &entries,
    });
    let immediates: [u32; 4] = [0, 0, 0, ELEMENTS as u32];
    let mut open = None;
    let mut recorded = 0;
    let mut unit = || {
        let (_, pass) = open.get_or_insert_with(|| {
            let mut encoder =
                device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            let pass = encoder
                .begin_compute_pass(&wgpu::ComputePassDescriptor::default())
                .forget_lifetime();
            (encoder, pass)
        });
        pass.set_pipeline(&pipeline);
        pass.set_bind_group(0, &group, &[]);
        pass.set_immediates(0, bytemuck::cast_slice(&immediates));
        pass.dispatch_workgroups(1, 1, 1);
        recorded += 1;
        if recorded % batch == 0
            && let Some((encoder, pass)) = open.take()
        {
            drop(pass);
            queue.submit([encoder.finish()]);
        }
        Ok(())
    };
    let mut idle =
        || device.poll(wgpu::PollType::wait_indefinitely()).map(drop).map_err(|e| failed(&e));
    Rounds::of(rounds, &mut unit, &mut idle)
}
