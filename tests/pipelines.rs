//! Dispatches whose pipelines are still being compiled: their order, and shaders that do not
//! compile.

use std::sync::Arc;

use smallvec::smallvec;
use tensorflow_wgpu::Error;
use tensorflow_wgpu::device::{Binding, Device, Grid, Key, Params, Program, Selection};
use tensorflow_wgpu::shader::Shader;

/// A device that has no pipeline yet.
fn device() -> Arc<Device> {
    let selection = Selection::enumerate(&|name| std::env::var(name).ok());
    let adapter =
        selection.adapters.first().expect("a Vulkan driver; on Debian install mesa-vulkan-drivers");
    Device::open(adapter).unwrap()
}

/// Runs `statement` on the word at `address`, called `x[0]`.
fn run(device: &Device, address: u64, statement: &str) -> Result<(), Error> {
    let main = format!("@compute @workgroup_size(1)\nfn main() {{\n    {statement}\n}}");
    device.enqueue(&Program {
        key: Key::new("test").name(statement),
        shader: &|| Shader::new(statement).bind_raw("x", "u32", 4).body(&main),
        bindings: smallvec![Binding { address, bytes: 4, unit: 4 }],
        params: Params::new(),
        grid: Grid::groups(1),
    })
}

fn read(device: &Device, address: u64) -> Result<u32, Error> {
    let mut bytes = [0; 4];
    device.download(address, &mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

#[cfg(debug_assertions)]
#[test]
fn a_key_has_one_text() {
    let device = device();
    let address = device.allocate(256).unwrap();
    let run = |value: u32| {
        let main =
            format!("@compute @workgroup_size(1)\nfn main() {{\n    x[p.off_x] = {value}u;\n}}");
        device.enqueue(&Program {
            key: Key::new("one key"),
            shader: &|| Shader::new("one label").bind_raw("x", "u32", 4).body(&main),
            bindings: smallvec![Binding { address, bytes: 4, unit: 4 }],
            params: Params::new(),
            grid: Grid::groups(1),
        })
    };
    run(1).unwrap();
    run(1).unwrap();
    let error = run(2).unwrap_err().to_string();
    assert!(error.contains("two shaders have the key one key: line "), "{error}");
    assert!(error.contains("x[p.off_x] = 1u;") && error.contains("x[p.off_x] = 2u;"), "{error}");
}

#[cfg(debug_assertions)]
#[test]
fn elements_of_a_binding_have_the_size_of_the_shaders() {
    let device = device();
    let address = device.allocate(256).unwrap();
    let main = "@compute @workgroup_size(1)\nfn main() {\n    x[p.off_x] = vec2<u32>();\n}";
    let program = Program {
        key: Key::new("two words"),
        shader: &|| Shader::new("two words").bind_raw("x", "vec2<u32>", 8).body(main),
        bindings: smallvec![Binding { address, bytes: 8, unit: 4 }],
        params: Params::new(),
        grid: Grid::groups(1),
    };
    let error = device.enqueue(&program).unwrap_err().to_string();
    assert!(error.contains("elements of [4] bytes, its shader declares [8]"), "{error}");
}

#[test]
fn nothing_overtakes_a_pipeline_that_is_being_compiled() {
    let device = device();
    let address = device.allocate(256).unwrap();
    device.upload(address, &1u32.to_le_bytes()).unwrap();
    let mut expected = 1u32;
    for round in 0..3 {
        // Each statement is a pipeline of its own. The statements do not commute.
        for k in 0..12u32 {
            run(&device, address, &format!("x[0] = x[0] * {}u + {k}u;", k + 2)).unwrap();
            expected = expected.wrapping_mul(k + 2).wrapping_add(k);
            if k % 5 == 3 {
                // Copies and read-backs keep their place as well.
                device.copy(address + 8, address, 4).unwrap();
                device.copy(address, address + 8, 4).unwrap();
            }
        }
        assert_eq!(read(&device, address).unwrap(), expected, "round {round}");
    }
    // Twelve statements and the copy.
    assert_eq!(device.statistics().pipelines, 13);
    assert_eq!(device.statistics().dispatches, 36 + 12);
}

#[test]
fn threads_that_want_the_same_pipeline_share_it() {
    let device = device();
    let address = device.allocate(256).unwrap();
    device.fill(address, 256, 0).unwrap();
    let pipelines = device.statistics().pipelines;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..20).for_each(|_| run(&device, address, "x[0] += 1u;").unwrap()));
        }
    });
    assert_eq!(read(&device, address).unwrap(), 80);
    assert_eq!(device.statistics().pipelines, pipelines + 1);
}

#[test]
fn a_shader_that_does_not_compile_is_an_error_before_its_result_is_read() {
    let device = device();
    let address = device.allocate(256).unwrap();
    device.fill(address, 256, 0).unwrap();
    let bad = "x[0] = no_such_thing;";
    let refused = |result: Result<(), Error>| {
        let error = result.expect_err("the shader is wrong");
        assert!(matches!(&error, Error::Internal(m) if m.contains("no_such_thing")), "{error}");
    };
    // At once if the compiler was faster, otherwise by the next wait.
    refused(run(&device, address, bad).and_then(|()| device.synchronize()));
    refused(run(&device, address, bad));
    // The shader's output is missing until the host writes the memory anew.
    device.fill(address, 256, 0).unwrap();
    run(&device, address, "x[0] = 7u;").unwrap();
    assert_eq!(read(&device, address).unwrap(), 7, "the device goes on");
}
