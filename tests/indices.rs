//! The fault layer's check of indices: which accesses it checks, and that a process ends whose
//! shader breaks a bound.

use fault_layer::indices::{Access, checked};
use naga::back::spv;
use naga::valid::{Capabilities, ValidationFlags, Validator};

/// A shader with these statements, in which `i` is a loaded index.
fn shader(statements: &str) -> String {
    format!(
        "@group(0) @binding(0) var<storage, read_write> a: array<u32>;\n\
         var<workgroup> shared_sums: array<u32, 8>;\nvar<workgroup> pairs: array<vec2<u32>, 3>;\n\
         @compute @workgroup_size(1) fn main() {{\n\
         let i = a[0];\nvar local: array<u32, 5>;\n{statements}\n}}"
    )
}

fn compiled(text: &str) -> Vec<u32> {
    let module = naga::front::wgsl::parse_str(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let info = Validator::new(ValidationFlags::all(), Capabilities::empty()).validate(&module);
    let options = spv::Options { flags: spv::WriterFlags::DEBUG, ..Default::default() };
    spv::write_vec(&module, &info.unwrap(), &options, None).unwrap()
}

#[test]
fn indices_that_are_not_constants_are_checked() {
    let of = |array: &str, length| Access { array: array.to_owned(), length };
    for (statements, accesses) in [
        ("a[1] = shared_sums[i];", vec![of("shared_sums", 8)]),
        ("shared_sums[i + 1u] = local[i];", vec![of("local", 5), of("shared_sums", 8)]),
        ("pairs[i][a[1]] = 3u;", vec![of("pairs", 3), of("pairs", 2)]),
        ("let pair = pairs[2]; a[1] = pair[i];", vec![of("", 2)]),
    ] {
        let (_, found) = checked(&compiled(&shader(statements)), 0, 0).expect("accesses to check");
        assert_eq!(found, accesses, "{statements}");
    }
    for statements in ["a[i] = 1u;", "a[1] = shared_sums[7] + local[0]; pairs[1].x = i;"] {
        assert!(checked(&compiled(&shader(statements)), 0, 0).is_none(), "{statements}");
    }
}

#[cfg(target_os = "linux")]
mod in_a_process {
    use std::process::{Command, Output};

    use wgpu::util::DeviceExt;

    use super::shader;

    /// The variable with the index that the shader of a process takes.
    const INDEX: &str = "TEST_INDICES_INDEX";

    /// Runs a shader whose index comes from [`INDEX`], if there is one.
    #[test]
    fn access() {
        let Ok(index) = std::env::var(INDEX) else { return };
        let index: u32 = index.parse().unwrap();
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
            backends: wgpu::Backends::VULKAN,
            ..wgpu::InstanceDescriptor::new_without_display_handle()
        });
        let adapter = pollster::block_on(instance.request_adapter(&Default::default())).unwrap();
        let (device, queue) =
            pollster::block_on(adapter.request_device(&Default::default())).unwrap();
        let source =
            wgpu::ShaderSource::Wgsl(shader("shared_sums[i] = 1u; a[1] = shared_sums[i];").into());
        // SAFETY: the layer keeps the index in its bounds.
        let module = unsafe {
            device.create_shader_module_trusted(
                wgpu::ShaderModuleDescriptor { label: None, source },
                wgpu::ShaderRuntimeChecks::unchecked(),
            )
        };
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: None,
            module: &module,
            entry_point: None,
            compilation_options: Default::default(),
            cache: None,
        });
        let buffer = device.create_buffer_init(&wgpu::util::BufferInitDescriptor {
            label: None,
            contents: bytemuck::cast_slice(&[index, 0]),
            usage: wgpu::BufferUsages::STORAGE,
        });
        let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &[wgpu::BindGroupEntry { binding: 0, resource: buffer.as_entire_binding() }],
        });
        let mut encoder = device.create_command_encoder(&Default::default());
        let mut pass = encoder.begin_compute_pass(&Default::default());
        pass.set_pipeline(&pipeline);
        pass.set_bind_group(0, &group, &[]);
        pass.dispatch_workgroups(1, 1, 1);
        drop(pass);
        queue.submit([encoder.finish()]);
        device.poll(wgpu::PollType::wait_indefinitely()).unwrap();
    }

    /// The outcome of a process whose shader takes this index.
    fn run(index: u32) -> Output {
        let own = std::env::current_exe().unwrap();
        let library = own.parent().unwrap().join("libfault_layer.so");
        let directory =
            std::env::temp_dir().join(format!("indices-{}-{index}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let manifest = fault_layer::manifest(library.to_str().unwrap());
        std::fs::write(directory.join("layer.json"), manifest).unwrap();
        let output = Command::new(own)
            .args(["--exact", "in_a_process::access"])
            .env(INDEX, index.to_string())
            .env("VK_LAYER_PATH", &directory)
            .env("VK_INSTANCE_LAYERS", fault_layer::NAME)
            .env("NODEVICE_SELECT", "1")
            .env("FAULT_LAYER_INDICES", "on")
            .output()
            .unwrap();
        std::fs::remove_dir_all(directory).unwrap();
        output
    }

    #[test]
    fn an_index_out_of_range_ends_the_process() {
        let good = run(7);
        assert!(good.status.success(), "{good:?}");
        for index in [8, u32::MAX] {
            let bad = run(index);
            let said = String::from_utf8_lossy(&bad.stderr);
            assert!(!bad.status.success() && said.contains("an index is out of range"), "{said}");
        }
    }
}
