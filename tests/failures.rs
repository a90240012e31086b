//! A failure in the device runtime is an error of every value that depends on it; nothing else
//! changes, and no call waits for ever. Faults of drivers are simulated by `Device::destroy`, by
//! shaders that no adapter accepts and by limits of the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use smallvec::smallvec;
use tensorflow_wgpu::Error;
use tensorflow_wgpu::device::{Binding, Device, Grid, Key, Params, Program, Selection};
use tensorflow_wgpu::shader::Shader;

/// Far more time than any call here takes.
const PATIENCE: Duration = Duration::from_secs(120);

fn own_device() -> Arc<Device> {
    let selection = Selection::enumerate(&|name| std::env::var(name).ok());
    Device::open(&selection.adapters[0])
        .expect("a Vulkan driver; on Debian install mesa-vulkan-drivers")
}

/// Runs `f` in a separate thread and fails instead of waiting for ever.
fn in_time<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let _ = sender.send(f());
    });
    receiver.recv_timeout(PATIENCE).expect("it ends, without a panic")
}

fn read(device: &Device, address: u64, words: usize) -> Result<Vec<u32>, Error> {
    let mut got = vec![0_u32; words];
    device.download(address, bytemuck::cast_slice_mut(&mut got)).map(|()| got)
}

/// A workgroup that WGSL allows and no adapter does.
const TOO_LARGE: u32 = 1 << 14;

/// `dst[0] = src[0] + 1`, by a separate shader for each `key` and number of invocations.
fn add_one(device: &Device, key: u32, dst: u64, src: u64, invocations: u32) -> Result<(), Error> {
    let text = format!(
        "// {key}\n@compute @workgroup_size({invocations})\nfn main() {{\n    dst[p.off_dst] = \
         src[p.off_src] + 1u;\n}}\n"
    );
    device.enqueue(&Program {
        key: Key::new("test add one").number(key),
        shader: &|| {
            let shader = Shader::new("add one").bind_raw("src", "u32", 4).bind_raw("dst", "u32", 4);
            shader.workgroup([1, 1, 1]).body(&text)
        },
        bindings: smallvec![
            Binding { address: src, bytes: 4, unit: 4 },
            Binding { address: dst, bytes: 4, unit: 4 }
        ],
        params: Params::new(),
        grid: Grid([1, 1, 1]),
    })
}

fn is_loss(error: &Error) -> bool {
    matches!(error, Error::Unavailable(m) if m.contains("lost")
        && m.contains("restart the process"))
}

#[test]
fn a_device_that_is_lost_in_mid_batch_answers_every_call_with_what_to_do() {
    in_time(|| {
        let device = own_device();
        let a = device.allocate(1 << 20).unwrap();
        device.fill(a, 1 << 20, 7).unwrap();
        device.synchronize().unwrap();
        for value in 0..10 {
            device.fill(a, 1 << 20, value).unwrap();
        }
        let callbacks = Arc::new(AtomicU64::new(0));
        let called = callbacks.clone();
        device.host_callback(move || {
            called.fetch_add(1, Ordering::SeqCst);
        });
        device.fill(a, 1 << 20, 8).unwrap();
        let (sender, receiver) = channel();
        device.destroy();
        // Whether this call is refused at once or at the end, it must not return data.
        match device
            .download_with(a, 4096, move |_, part| sender.send(part.map(<[u8]>::to_vec)).unwrap())
        {
            Ok(()) => {
                let error = receiver.recv().unwrap().unwrap_err();
                assert!(is_loss(&error), "{error}");
            }
            Err(e) => assert!(is_loss(&e), "{e}"),
        }
        let serial = device.serial();
        for round in 0..3 {
            let answers = [
                device.synchronize(),
                device.upload(a, &[0; 4]),
                device.upload(a, &vec![0; 1 << 20]),
                device.download(a, &mut [0; 4]),
                device.fill(a, 1 << 20, 1),
                device.copy(a, a + 4096, 1024),
                device.wait(serial),
                device.check(),
            ];
            for (i, answer) in answers.into_iter().enumerate() {
                let error = answer.expect_err("nothing works");
                assert!(is_loss(&error), "round {round}, call {i}: {error}");
            }
        }
        assert_eq!(callbacks.load(Ordering::SeqCst), 1, "callbacks still come");
        let late = device.serial();
        while !device.is_done(late) {
            std::thread::yield_now();
        }
        device.timer().start(&device);
        let _ = device.allocate(4096).map(|b| device.deallocate(b));
        device.deallocate(a).unwrap();
    });
}

#[test]
fn read_backs_of_gigabytes_have_the_right_data() {
    let device = own_device();
    let largest = device.capabilities().max_buffer & !0xff;
    for wanted in [1_100_000_004, 2_200_000_000_u64] {
        // SwiftShader cannot make a buffer of the size that it reports as possible.
        let mut bytes = wanted.min(largest);
        let a = loop {
            match device.allocate(bytes) {
                Ok(a) => break a,
                Err(Error::ResourceExhausted(e)) if bytes > 512 << 20 => {
                    println!("skipped: {bytes} bytes at once: {e}");
                    bytes = (bytes / 2) & !3;
                }
                Err(e) => panic!("{e}"),
            }
        };
        // Each MiB has different contents, and so have the ends of parts.
        let step = 1 << 20;
        for (k, at) in (0..bytes).step_by(step as usize).enumerate() {
            device.fill(a + at, step.min(bytes - at), k as u32 * 77 + 5).unwrap();
        }
        let mut got = vec![0_u8; bytes as usize];
        device.download(a, &mut got).unwrap();
        for (k, part) in got.chunks(step as usize).enumerate() {
            let want = (k as u32 * 77 + 5).to_le_bytes();
            assert!(part.chunks_exact(4).all(|word| word == want), "MiB {k} of {bytes}");
        }
        drop(got);
        // Parts arrive in order and once.
        let (sender, receiver) = channel();
        let sink = move |at: u64, part: Result<&[u8], Error>| {
            let part = part.unwrap();
            sender.send((at, part.len() as u64, part[0], part[part.len() - 1])).unwrap();
        };
        device.download_with(a + 3, bytes - 3, sink).unwrap();
        let mut next = 0;
        for (at, len, first, last) in receiver {
            assert_eq!(at, next);
            let byte = |at: u64| ((at / step) as u32 * 77 + 5).to_le_bytes()[(at % 4) as usize];
            assert_eq!((first, last), (byte(at + 3), byte(at + 3 + len - 1)), "at {at}");
            next += len;
        }
        assert_eq!(next, bytes - 3);
        assert_eq!(read(&device, a, 1).unwrap(), [5], "and the device lives");
        device.deallocate(a).unwrap();
    }
}

#[test]
fn an_allocation_that_fails_leaves_earlier_tensors_right_and_later_ops_working() {
    let device = own_device();
    let a = device.allocate(1 << 16).unwrap();
    device.fill(a, 1 << 16, 42).unwrap();
    for bytes in [device.capabilities().max_buffer + 1, 1 << 50, u64::MAX] {
        assert!(matches!(device.allocate(bytes), Err(Error::ResourceExhausted(_))), "{bytes}");
    }
    add_one(&device, 0, a + 4, a, 1).unwrap();
    assert_eq!(read(&device, a, 3).unwrap(), [42, 43, 42]);
    device.check().unwrap();
}

/// Under a limit of the address space, in a separate process, memory runs out as on a real GPU.
#[cfg(target_os = "linux")]
#[test]
fn exhausted_memory_is_an_error_and_freed_memory_is_found_again_though_the_gpu_was_using_it() {
    const CHILD: &str = "TENSORFLOW_WGPU_TEST_EXHAUSTED";
    if std::env::var_os(CHILD).is_some() {
        return exhaust();
    }
    // The kit has all suites in one executable, where a test's name begins with its suite's name.
    let name = concat!(
        module_path!(),
        "::exhausted_memory_is_an_error_and_freed_memory_is_found_again_though_the_gpu_was_using_it"
    );
    let name = name.split_once("::").expect("the crate's name").1;
    let test = std::env::current_exe().unwrap();
    // In kilobytes: the reserved addresses, the driver, and some 2 GB for tensors.
    let script =
        format!("ulimit -v 22000000 && exec {} --exact {name} --nocapture", test.display());
    let child =
        std::process::Command::new("sh").args(["-c", &script]).env(CHILD, "1").output().unwrap();
    let output = String::from_utf8_lossy(&child.stdout).into_owned()
        + &String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success() && output.contains("memory was found again"), "{output}");
}

#[cfg(target_os = "linux")]
fn exhaust() {
    const BLOCK: u64 = 128 << 20;
    let device = own_device();
    let first = device.allocate(1 << 16).unwrap();
    device.fill(first, 1 << 16, 42).unwrap();
    device.synchronize().unwrap();
    let mut blocks = Vec::new();
    let refused = loop {
        match device.allocate(BLOCK) {
            Ok(block) => blocks.push(block),
            Err(e) => break e,
        }
        assert!(blocks.len() < 1000, "the limit holds");
    };
    assert!(
        matches!(&refused, Error::ResourceExhausted(m) if m.contains("134217728 bytes")),
        "{refused}"
    );
    assert!(blocks.len() >= 4, "{} blocks, then {refused}", blocks.len());
    // The blocks are in use until they are asked for again.
    for round in 0..3 {
        for block in blocks.drain(blocks.len() - 3..) {
            device.fill(block, 1 << 20, round).unwrap();
            device.copy(block + (1 << 20), block, 1 << 20).unwrap();
            device.deallocate(block).unwrap();
        }
        for _ in 0..3 {
            blocks.push(device.allocate(BLOCK).expect("what was freed is free"));
        }
    }
    add_one(&device, 0, first + 4, first, 1).unwrap();
    assert_eq!(read(&device, first, 3).unwrap(), [42, 43, 42]);
    device.check().unwrap();
    println!("memory was found again");
}

#[test]
fn a_shader_that_fails_late_spoils_what_depends_on_it_and_nothing_else() {
    for round in 0..20 {
        let device = own_device();
        let a = device.allocate(1 << 16).unwrap();
        let at = |k: u64| a + 256 * k;
        device.fill(a, 1 << 16, 10).unwrap();
        device.synchronize().unwrap();
        // The broken dispatch either returns before its shader is compiled, or fails at once and
        // has no effect.
        let broken = add_one(&device, 1, at(1), at(0), TOO_LARGE);
        let dependent = add_one(&device, 2, at(2), at(1), 1);
        let second = add_one(&device, 3, at(3), at(2), 1);
        let independent = add_one(&device, 4, at(4), at(0), 1);
        if let Err(e) = broken {
            assert!(e.to_string().contains("add one"), "{e}");
            continue;
        }
        let (sender, receiver) = channel();
        let _ = device
            .download_with(at(1), 4, move |_, part| sender.send(part.map(<[u8]>::to_vec)).unwrap());
        assert!(
            receiver.recv().map_or(true, |part| part.is_err()),
            "round {round}: what was never written is no data"
        );
        // A call that was refused has changed nothing.
        let missing = [true, dependent.is_ok(), dependent.is_ok() && second.is_ok()];
        let told =
            [dependent, second, independent, device.check()].into_iter().filter_map(Result::err);
        assert!(
            told.into_iter().next().is_some_and(|e| e.to_string().contains("add one")),
            "somebody is told"
        );
        let _ = device.check();
        for k in (1..=3).filter(|k| missing[*k as usize - 1]) {
            for _ in 0..2 {
                let error = read(&device, at(k), 1).expect_err("it is missing for ever");
                assert!(
                    error.to_string().contains("value is missing"),
                    "round {round}, {k}: {error}"
                );
            }
            assert!(
                add_one(&device, 5, at(6), at(k), 1)
                    .and_then(|()| read(&device, at(6), 1).map(drop))
                    .is_err()
            );
            let _ = device.check();
            device.fill(at(6), 4, 0).unwrap();
        }
        assert_eq!(read(&device, at(0), 1).unwrap(), [10], "an operand stays what it was");
        // Memory that is written anew is sound again.
        device.fill(at(1), 256, 20).unwrap();
        device.refresh(at(2), 4);
        add_one(&device, 2, at(2), at(1), 1).unwrap();
        device.upload(at(3), &[7, 0, 0, 0]).unwrap();
        assert_eq!(
            (read(&device, at(2), 1).unwrap(), read(&device, at(3), 1).unwrap()),
            (vec![21], vec![7])
        );
        device.copy(at(1), at(2), 4).unwrap();
        assert_eq!(read(&device, at(1), 1).unwrap(), [21]);
        device.check().unwrap();
    }
}

#[test]
fn a_shader_that_fails_fails_again_at_once_and_harms_nobody() {
    let device = own_device();
    let a = device.allocate(4096).unwrap();
    device.fill(a, 4096, 1).unwrap();
    let _ = add_one(&device, 1, a + 256, a, TOO_LARGE);
    let _ = device.synchronize();
    for _ in 0..3 {
        let again = add_one(&device, 1, a + 512, a, TOO_LARGE).unwrap_err();
        assert!(again.to_string().contains("does not compile on this adapter"), "{again}");
    }
    assert_eq!(read(&device, a + 512, 1).unwrap(), [1], "nothing was written there");
    device.check().unwrap();
}

#[test]
fn a_panic_while_a_shader_is_described_leaves_the_device_as_it_was() {
    let device = own_device();
    let a = device.allocate(4096).unwrap();
    device.fill(a, 4096, 3).unwrap();
    let program = Program {
        key: Key::new("test panics"),
        shader: &|| panic!("of a test"),
        bindings: smallvec![Binding { address: a, bytes: 4, unit: 4 }],
        params: Params::new(),
        grid: Grid([1, 1, 1]),
    };
    for _ in 0..2 {
        assert!(
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| device.enqueue(&program)))
                .is_err()
        );
    }
    assert_eq!(read(&device, a, 1).unwrap(), [3], "no lock is held, no dispatch waits");
}

#[test]
fn a_host_callback_that_waits_for_its_device_gets_an_error() {
    in_time(|| {
        let device = own_device();
        let a = device.allocate(4096).unwrap();
        device.fill(a, 4096, 3).unwrap();
        let (sender, receiver) = channel();
        let waiting = device.clone();
        device.host_callback(move || {
            waiting.fill(a, 4096, 4).unwrap();
            sender
                .send([
                    waiting.synchronize(),
                    waiting.download(a, &mut [0; 4]),
                    waiting.upload(a, &[5, 0, 0, 0]),
                ])
                .unwrap();
        });
        let [synchronized, downloaded, uploaded] = receiver.recv().unwrap();
        for refused in [synchronized, downloaded] {
            assert!(
                matches!(&refused, Err(Error::FailedPrecondition(m))
                    if m.contains("host callback")),
                "{refused:?}"
            );
        }
        assert_eq!(
            (uploaded, read(&device, a, 2).unwrap()),
            (Ok(()), vec![5, 4]),
            "what does not wait works"
        );
    });
}

#[test]
fn programs_that_read_nothing_back_do_not_outrun_the_device() {
    let device = own_device();
    let (a, parts) = (device.allocate(32 << 20).unwrap(), 64);
    // The completion thread is blocked, as behind a slow GPU.
    let (go, gone) = channel::<()>();
    device.host_callback(move || {
        let _ = gone.recv();
    });
    let recorded = Arc::new(AtomicU64::new(0));
    let (counter, uploading) = (recorded.clone(), device.clone());
    let writer = std::thread::spawn(move || {
        let data = vec![9_u8; 32 << 20];
        for _ in 0..parts {
            uploading.upload(a, &data).unwrap();
            counter.fetch_add(1, Ordering::SeqCst);
        }
        for k in 0..20_000 {
            uploading.fill(a + 256 * (k % 1000), 256, k as u32).unwrap();
            counter.fetch_add(1, Ordering::SeqCst);
        }
    });
    let mut before = 0;
    let stopped_at = loop {
        std::thread::sleep(Duration::from_millis(500));
        let now = recorded.load(Ordering::SeqCst);
        if now == before && now > 0 {
            break now;
        }
        before = now;
    };
    assert!(stopped_at < parts, "{stopped_at} of {parts} uploads of 32 MiB are on their way");
    go.send(()).unwrap();
    writer.join().unwrap();
    assert_eq!(recorded.load(Ordering::SeqCst), parts + 20_000);
    assert_eq!(read(&device, a, 1).unwrap(), [19_000]);
}

#[test]
fn a_grid_beyond_the_adapters_is_an_error_of_its_call() {
    let device = own_device();
    let a = device.allocate(4096).unwrap();
    device.fill(a, 4096, 1).unwrap();
    let too_large = device.enqueue(&Program {
        key: Key::new("test grid"),
        shader: &|| {
            Shader::new("grid")
                .bind_raw("dst", "u32", 4)
                .body("@compute @workgroup_size(1)\nfn main() {\n}\n")
        },
        bindings: smallvec![Binding { address: a, bytes: 4, unit: 4 }],
        params: Params::new(),
        grid: Grid([1, 1 << 20, 1]),
    });
    assert!(
        matches!(&too_large, Err(Error::ResourceExhausted(m)) if m.contains("workgroups")),
        "{too_large:?}"
    );
    assert_eq!(read(&device, a, 1).unwrap(), [1]);
}
