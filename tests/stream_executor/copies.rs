//! Copies and fills, of any offset and length, and between devices.

use super::*;

/// Offsets and lengths around the 4-byte words that GPUs copy.
const RANGES: [(u64, u64, usize); 9] = [
    (0, 0, 1024),
    (1, 0, 1),
    (3, 1, 2),
    (5, 2, 4),
    (2, 7, 3),
    (0, 3, 61),
    (9, 4, 100),
    (4, 8, 12),
    (6, 6, 4093),
];

#[test]
fn synchronous_copies_of_any_offset_and_length() {
    let (d, _guard) = shared();
    let (a, b) = (d.allocate(8192).unwrap(), d.allocate(8192).unwrap());
    for (to, from, n) in RANGES {
        d.write(a.address, &[0xaa; 8192]);
        d.write(b.address + from, &pattern(n));
        d.copy(a.address + to, b.address + from, n as u64);
        let got = d.read(a.address, 8192);
        let at = to as usize;
        assert_eq!(got[at..at + n], pattern(n), "to {to} from {from} length {n}");
        assert!(got[..at].iter().chain(&got[at + n..]).all(|&x| x == 0xaa), "bytes around stay");
        assert_eq!(d.read(a.address + to, n), pattern(n), "read from offset {to}");
    }
    d.write(a.address, &[]);
    d.copy(a.address, b.address, 0);
    assert!(d.read(a.address, 0).is_empty());
}

#[test]
fn asynchronous_copies_keep_their_order_across_streams() {
    let (d, _guard) = shared();
    let streams = [d.stream(), d.stream(), d.stream()];
    let (a, b) = (d.allocate(8192).unwrap(), d.allocate(8192).unwrap());
    let mut results = Vec::new();
    for (to, from, n) in RANGES {
        let [up, across, down] = &streams;
        let mut source = pattern(n);
        up.write(b.address + from, &source);
        // The source may change at once: it was staged.
        source.fill(0);
        across.depend_on(up);
        across.copy(a.address + to, b.address + from, n as u64);
        down.depend_on(across);
        let mut got = vec![0; n];
        down.read_into(&mut got, a.address + to);
        results.push((got, n));
    }
    streams[2].block();
    for (got, n) in results {
        assert_eq!(got, pattern(n));
    }
}

#[test]
fn large_copies_arrive() {
    let (d, _guard) = shared();
    let n = (48 << 20) + 5;
    let (a, b) = (d.allocate(n as u64).unwrap(), d.allocate(n as u64 + 8).unwrap());
    let data = pattern(n);
    d.write(a.address, &data);
    d.copy(b.address + 3, a.address, n as u64);
    assert!(d.read(b.address + 3, n) == data);
}

#[test]
fn fills_of_any_offset_and_length() {
    let (d, _guard) = shared();
    let stream = d.stream();
    let a = d.allocate(8192).unwrap();
    for (to, _, n) in RANGES {
        let at = to as usize;
        let check = |name: &str, expected: &dyn Fn(usize) -> u8| {
            let got = d.read(a.address, 8192);
            for (i, &x) in got.iter().enumerate() {
                let want = if (at..at + n).contains(&i) { expected(i - at) } else { 0x77 };
                assert_eq!(x, want, "{name} to {to} length {n}: byte {i}");
            }
        };
        stream.memset(a.address, 0x77, 8192);
        stream.mem_zero(a.address + to, n as u64);
        check("mem_zero", &|_| 0);
        stream.memset(a.address, 0x77, 8192);
        stream.memset(a.address + to, 0xfe, n as u64);
        check("memset", &|_| 0xfe);
        stream.memset(a.address, 0x77, 8192);
        stream.memset32(a.address + to, u32::from_le_bytes([1, 2, 3, 4]), n as u64);
        check("memset32", &|i| [1, 2, 3, 4][i % 4]);
    }
    stream.mem_zero(a.address, 0);
}

#[test]
fn addresses_of_nobody_are_errors() {
    let (d, _guard) = shared();
    let a = d.allocate(256).unwrap();
    let (se, p) = (d.se(), d.plugin);
    for (address, n) in
        [(4096, 4), (a.address + 250, 100), (a.address + (1 << 35), 4), (u64::MAX - 2, 8)]
    {
        let mut wild = support::range(address, n);
        let mut bytes = [0u8; 128];
        let (host, w) = (bytes.as_mut_ptr().cast::<c_void>(), &raw mut wild);
        // SAFETY: the host memory is large enough; the address is never touched by the CPU.
        unsafe {
            assert_eq!(
                p.status(|s| se.sync_memcpy_dtoh.unwrap()(d.raw, host, w, n, s)).0,
                INTERNAL,
                "{address:#x}"
            );
            assert_eq!(
                p.status(|s| se.sync_memcpy_htod.unwrap()(d.raw, w, host, n, s)).0,
                INTERNAL,
                "{address:#x}"
            );
            let mut to = support::range(a.address, n);
            assert_eq!(
                p.status(|s| se.sync_memcpy_dtod.unwrap()(d.raw, &raw mut to, w, n, s)).0,
                INTERNAL
            );
        }
    }
    d.write(a.address, &[1, 2, 3]);
    assert_eq!(d.read(a.address, 3), [1, 2, 3]);
}

/// Names of lavapipe's manifest on Debian, Fedora and Arch.
#[cfg(target_os = "linux")]
const LAVAPIPE: [&str; 3] = ["lvp_icd.x86_64.json", "lvp_icd.aarch64.json", "lvp_icd.json"];

/// With two manifests, and two copies of it, one driver is two devices. The copies run in a
/// separate process.
#[cfg(target_os = "linux")]
#[test]
fn copies_between_devices() {
    const CHILD: &str = "TENSORFLOW_WGPU_TEST_TWO_DEVICES";
    if std::env::var_os(CHILD).is_some() {
        return between_devices();
    }
    let directory = std::path::Path::new("/usr/share/vulkan/icd.d");
    let Some(manifest) = LAVAPIPE.iter().map(|f| directory.join(f)).find(|f| f.exists()) else {
        eprintln!(
            "skipped: lavapipe, which can be loaded twice, is not installed in {}",
            directory.display()
        );
        return;
    };
    let text = std::fs::read_to_string(&manifest).unwrap();
    let library = text
        .split('"')
        .find(|s| s.contains("libvulkan_lvp"))
        .expect("lavapipe's library")
        .to_owned();
    let library = [
        library.clone(),
        format!("/usr/lib/x86_64-linux-gnu/{library}"),
        format!("/usr/lib64/{library}"),
    ]
    .into_iter()
    .find(|l| std::path::Path::new(l).exists())
    .expect("lavapipe's library");
    let scratch = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("two-devices-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).unwrap();
    let copy = scratch.join("libvulkan_lvp_copy.so");
    std::fs::copy(&library, &copy).unwrap();
    let second = scratch.join("copy.json");
    std::fs::write(
        &second,
        text.replace(
            text.split('"').find(|s| s.contains("libvulkan_lvp")).unwrap(),
            copy.to_str().unwrap(),
        ),
    )
    .unwrap();
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "copies::copies_between_devices", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .env("VK_DRIVER_FILES", std::env::join_paths([&manifest, &second]).unwrap())
        .env_remove("TF_WGPU_VISIBLE_DEVICES")
        .output()
        .unwrap();
    std::fs::remove_dir_all(&scratch).unwrap();
    let output = String::from_utf8_lossy(&child.stdout).into_owned()
        + &String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success() && output.contains("two devices exchanged data"), "{output}");
}

#[cfg(target_os = "linux")]
const SHUT: u64 = 0;
#[cfg(target_os = "linux")]
const OPEN: u64 = 1;

/// Holds the device up until the gate is open. If the test does not open it in time, it continues
/// and reports that.
#[cfg(target_os = "linux")]
unsafe extern "C" fn pass(argument: *mut c_void, _: *mut TF_Status) {
    // SAFETY: the test passes its gate.
    let gate = unsafe { &*argument.cast::<AtomicU64>() };
    let begin = std::time::Instant::now();
    while gate.load(Ordering::SeqCst) == SHUT && begin.elapsed().as_secs() < 30 {
        std::thread::yield_now();
    }
    gate.fetch_or(2, Ordering::SeqCst);
}

#[cfg(target_os = "linux")]
fn between_devices() {
    assert_eq!(plugin().devices.len(), 2, "two manifests, two devices");
    let (a, b) = (Device::nth(0), Device::nth(1));
    let n = 100_003;
    let (on_a, on_b) = (a.allocate(n).unwrap(), b.allocate(n + 8).unwrap());
    let (stream_a, stream_b) = (a.stream(), b.stream());
    let data = pattern(n as usize);
    for round in 0..5 {
        let shift = round % 4;
        stream_b.memset(on_b.address, 0, n + 8);
        stream_a.write(on_a.address, &data);
        // TensorFlow's sequence: one copy on the sender's stream, then the receiver's stream waits
        // for it.
        stream_a.copy(on_b.address + shift, on_a.address, n);
        let event = a.event();
        stream_a.record(&event);
        if round % 2 == 0 {
            stream_b.wait_for(&event);
        } else {
            stream_b.depend_on(&stream_a);
        }
        let mut got = vec![0; n as usize];
        stream_b.read_into(&mut got, on_b.address + shift);
        stream_b.block();
        assert!(got == data, "round {round}");
    }
    // A copy to a busy device blocks no thread, and comes after the work that is there.
    let gate = AtomicU64::new(SHUT);
    let argument = (&raw const gate).cast_mut().cast::<c_void>();
    a.write(on_a.address, &data);
    stream_b.memset(on_b.address, 1, n);
    // SAFETY: the gate lives until the stream is idle.
    unsafe { b.se().host_callback.unwrap()(b.raw, stream_b.raw, Some(pass), argument) };
    stream_a.depend_on(&stream_b);
    stream_a.copy(on_b.address, on_a.address, n);
    let event = a.event();
    stream_a.record(&event);
    while !event.is_complete() {
        std::thread::yield_now();
    }
    assert_eq!(gate.swap(OPEN, Ordering::SeqCst), SHUT, "the sender waited for the receiver");
    stream_b.block();
    assert!(b.read(on_b.address, n as usize) == data);
    // There and back: earlier copies to the sender finish first.
    for round in 0..20_u8 {
        let data: Vec<u8> = data.iter().map(|byte| byte ^ round).collect();
        stream_b.write(on_b.address, &data);
        stream_a.memset(on_a.address, round, n);
        stream_b.copy(on_a.address, on_b.address, n);
        stream_a.depend_on(&stream_b);
        stream_a.copy(on_b.address + 8, on_a.address, n);
        stream_a.block();
        assert!(b.read(on_b.address + 8, n as usize) == data, "round {round}");
    }
    // Synchronous copies in both directions, requested from either device.
    for d in [&a, &b] {
        b.write(on_b.address, &[5; 64]);
        d.copy(on_a.address + 1, on_b.address, 64);
        assert_eq!(a.read(on_a.address, 66)[1..65], [5; 64]);
        a.write(on_a.address, &[6; 64]);
        d.copy(on_b.address, on_a.address, 64);
        assert_eq!(b.read(on_b.address, 64), [6; 64]);
    }
    // Handles of the wrong device are errors.
    // SAFETY: both are alive.
    let (code, _) = a
        .plugin
        .status(|s| unsafe { a.se().record_event.unwrap()(a.raw, stream_a.raw, b.event().raw, s) });
    assert_eq!(code, INVALID_ARGUMENT as c_int);
    // TensorFlow ignores that error and polls the event, which may be complete from an earlier
    // recording.
    let event = b.event();
    stream_b.record(&event);
    event.block();
    stream_b.memset(on_b.address, 3, n);
    let mut got = vec![0; n as usize];
    stream_b.read_into(&mut got, on_b.address);
    // SAFETY: both are alive.
    let (code, _) = a
        .plugin
        .status(|s| unsafe { a.se().record_event.unwrap()(a.raw, stream_a.raw, event.raw, s) });
    assert_eq!(code, INVALID_ARGUMENT as c_int);
    while !event.is_complete() {
        std::thread::yield_now();
    }
    assert!(got.iter().all(|byte| *byte == 3), "complete means that the copy before is done");
    println!("two devices exchanged data");
}
