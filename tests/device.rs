//! The device runtime on a real driver: memory, copies of any alignment, ordering, errors.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use smallvec::smallvec;
use tensorflow_wgpu::device::{
    Binding, Device, Grid, Key, Params, Profile, Program, Selection, Statistics,
};
use tensorflow_wgpu::local::Session;
use tensorflow_wgpu::shader::{Field, Shader};
use tensorflow_wgpu::{DType, Error};

fn device() -> Arc<Device> {
    Session::shared().expect("a Vulkan driver; on Debian install mesa-vulkan-drivers").device
}

fn pattern(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 7 + 3) as u8).collect()
}

/// Each workgroup writes its index and the number of all, in whatever part of the dispatch it is.
#[test]
fn dispatches_in_parts_have_all_workgroups() {
    let shader = || {
        Shader::new("workgroups")
            .workgroup([1, 1, 1])
            .bind("out", DType::U32)
            .u32s(&["offset"])
            .param("unused", Field::Vec4s(1))
            .body(
                "{{ENTRY}} {
                    let w = workgroup_id;
                    let n = num_workgroups;
                    let i = (w.z * n.y + w.y) * n.x + w.x;
                    let all = (n.x * 100u + n.y) * 100u + n.z;
                    store_out(i, p.offset + i * 1000000u + all + local_index);
                }",
            )
    };
    for (parts, grid, dispatches) in [
        (1, [2, 7, 3], 1),
        (3, [2, 7, 3], 3),
        (3, [1, 2, 1], 2),
        (3, [1, 1, 1], 1),
        (3, [9, 1, 4], 3),
    ] {
        let device = Session::under(Profile { parts, ..Profile::NVIDIA }).unwrap().device;
        let groups: u32 = grid.iter().product();
        let address = device.allocate(u64::from(groups) * 4).unwrap();
        let before = device.statistics().dispatches;
        let program = Program {
            key: Key::new("test_workgroups"),
            shader: &shader,
            bindings: smallvec![Binding { address, bytes: u64::from(groups) * 4, unit: 4 }],
            params: Params::new().u32(7_u32).list(&[1_u32]),
            grid: Grid(grid),
        };
        device.enqueue(&program).unwrap();
        let mut got = vec![0; groups as usize * 4];
        device.download(address, &mut got).unwrap();
        let [x, y, z] = grid;
        let want =
            (0..groups).flat_map(|i| (7 + i * 1_000_000 + (x * 100 + y) * 100 + z).to_le_bytes());
        assert!(got.iter().copied().eq(want), "{parts} parts of {grid:?}");
        assert_eq!(device.statistics().dispatches - before, dispatches, "{grid:?}");
    }
}

#[test]
fn copies_of_any_offset_and_length() {
    let device = device();
    let (a, b) = (device.allocate(4096).unwrap(), device.allocate(4096).unwrap());
    for (to, from, n) in [
        (0, 0, 1024),
        (1, 0, 1),
        (3, 1, 2),
        (5, 2, 4),
        (2, 7, 3),
        (0, 3, 61),
        (9, 4, 100),
        (4, 8, 12),
        (32, 16, 48),
    ] {
        device.fill(a, 4096, 0xaaaa_aaaa).unwrap();
        device.upload(b + from, &pattern(n)).unwrap();
        device.copy(a + to, b + from, n as u64).unwrap();
        let mut got = vec![0; n + 2];
        device.download(a + to, &mut got).unwrap();
        assert_eq!(got[..n], pattern(n), "to {to} from {from} len {n}");
        assert_eq!(got[n..], [0xaa, 0xaa], "bytes behind stay, to {to} from {from} len {n}");
        if to > 0 {
            device.download(a + to - 1, &mut got[..1]).unwrap();
            assert_eq!(got[0], 0xaa, "the byte before stays");
        }
    }
    device.deallocate(a).unwrap();
    device.deallocate(b).unwrap();
}

#[test]
fn copies_within_one_block() {
    let device = device();
    let a = device.allocate(1 << 20).unwrap();
    device.upload(a, &pattern(1000)).unwrap();
    device.copy(a + 100_001, a + 1, 999).unwrap();
    let mut got = vec![0; 999];
    device.download(a + 100_001, &mut got).unwrap();
    assert_eq!(got, pattern(1000)[1..]);
    device.deallocate(a).unwrap();
}

#[test]
fn fills_keep_their_phase() {
    let device = device();
    let a = device.allocate(256).unwrap();
    device.fill(a, 256, 0).unwrap();
    device.fill(a + 3, 9, u32::from_le_bytes([1, 2, 3, 4])).unwrap();
    let mut got = [0; 16];
    device.download(a, &mut got).unwrap();
    assert_eq!(got, [0, 0, 0, 1, 2, 3, 4, 1, 2, 3, 4, 1, 0, 0, 0, 0]);
    device.deallocate(a).unwrap();
}

#[test]
fn large_copies_use_several_windows() {
    let device = Session::binding(1 << 16).unwrap().device;
    let n = 3 << 16 | 12_345;
    let (a, b) = (device.allocate(n as u64 + 4).unwrap(), device.allocate(n as u64 + 4).unwrap());
    let data = pattern(n);
    // After a shift by a byte, each word is put together from two words.
    for shift in 0..2 {
        device.upload(a, &data).unwrap();
        device.copy(b + shift, a, n as u64).unwrap();
        let mut got = vec![0; n];
        device.download(b + shift, &mut got).unwrap();
        assert!(got == data, "{n} bytes survive a copy to {shift}");
    }
    device.deallocate(a).unwrap();
    device.deallocate(b).unwrap();
}

#[test]
fn large_uploads_share_staging_memory_and_keep_their_contents() {
    let device = device();
    let n = 4 << 20;
    let a = device.allocate(n).unwrap();
    let data =
        |k: u64, len: u64| (0..len).map(|i| (i * 5 + i / 256 + k * 11) as u8).collect::<Vec<_>>();
    for round in 0..6 {
        // All copies are on their way at once, with other lengths in each round.
        let part = n / 8;
        let len = |k: u64| part - 4 * (k * 7919 + round * 1009);
        for k in 0..8 {
            device.upload(a + k * part, &data(k + round, part)).unwrap();
            device.upload(a + k * part, &data(k * 3 + round, len(k))).unwrap();
        }
        let mut got = vec![0; n as usize];
        device.download(a, &mut got).unwrap();
        for (k, got) in (0..8).zip(got.chunks_exact(part as usize)) {
            let (head, tail) = got.split_at(len(k) as usize);
            assert!(head == data(k * 3 + round, len(k)), "part {k} of round {round}");
            assert!(
                *tail == data(k + round, part)[head.len()..],
                "end of part {k} of round {round}"
            );
        }
    }
    device.deallocate(a).unwrap();
}

#[test]
fn serials_complete_in_order_and_callbacks_follow_the_work() {
    let device = device();
    let a = device.allocate(1024).unwrap();
    device.fill(a, 1024, 7).unwrap();
    let serial = device.serial();
    let seen = Arc::new(AtomicUsize::new(0));
    let inner = seen.clone();
    device.host_callback(move || {
        inner.store(1, Ordering::SeqCst);
    });
    while !device.is_done(serial) {
        std::thread::yield_now();
    }
    device.synchronize().unwrap();
    assert_eq!(seen.load(Ordering::SeqCst), 1);
    assert!(device.is_done(0));
    device.deallocate(a).unwrap();
}

#[test]
fn threads_share_the_queue() {
    let device = device();
    std::thread::scope(|scope| {
        for t in 0..8u32 {
            let device = &device;
            scope.spawn(move || {
                let a = device.allocate(4096).unwrap();
                for round in 0..20u32 {
                    device.fill(a, 4096, t * 1000 + round).unwrap();
                    let mut got = [0; 4];
                    device.download(a + 2048, &mut got).unwrap();
                    assert_eq!(u32::from_le_bytes(got), t * 1000 + round);
                }
                device.deallocate(a).unwrap();
            });
        }
    });
}

#[test]
fn impossible_allocations_are_refused_and_harm_nothing() {
    let device = device();
    let a = device.allocate(16).unwrap();
    device.upload(a, &[1, 2, 3, 4]).unwrap();
    assert!(matches!(device.allocate(1 << 60), Err(Error::ResourceExhausted(_))));
    assert!(matches!(device.download(a + (1 << 30), &mut [0; 4]), Err(Error::Internal(_))));
    let mut got = [0; 4];
    device.download(a, &mut got).unwrap();
    assert_eq!(got, [1, 2, 3, 4]);
    device.deallocate(a).unwrap();
}

#[test]
fn a_timer_measures_work() {
    let device = device();
    let a = device.allocate(32 << 20).unwrap();
    device.fill(a, 32 << 20, 0).unwrap();
    let timer = device.timer();
    timer.start(&device);
    for i in 0..8 {
        device.fill(a, 32 << 20, i).unwrap();
    }
    timer.stop(&device);
    let t = timer.nanoseconds(&device).unwrap();
    assert!(t > 10_000 && t < 60_000_000_000, "{t} ns for 256 MiB");
    device.deallocate(a).unwrap();
}

#[test]
fn statistics_count_work_when_it_is_recorded() {
    let device = own_device();
    assert_eq!(device.statistics(), Statistics::default());
    let (a, b) = (device.allocate(4096).unwrap(), device.allocate(4096).unwrap());
    device.upload(a, &pattern(1000)).unwrap();
    device.fill(b, 4096, 0).unwrap();
    device.copy(b + 4, a, 1000).unwrap();
    let recorded = Statistics {
        dispatches: 2,
        bytes: 4096 + 2 * 1000,
        barriers: 1,
        barriers_needed: 1,
        uploads: 1,
        uploaded: 1000,
        copies: 1,
        pipelines: 2,
        bind_groups: 2,
        bind_groups_held: 2,
        ..Statistics::default()
    };
    assert_eq!(device.statistics(), recorded);
    device.copy(b, a, 8).unwrap();
    device.download(b, &mut [0; 6]).unwrap();
    let done = Statistics {
        dispatches: 3,
        bytes: recorded.bytes + 16,
        barriers: 2,
        barriers_needed: 2,
        submissions: 1,
        downloads: 1,
        downloaded: 6,
        copies: 2,
        bind_groups: 3,
        bind_groups_held: 3,
        ..recorded
    };
    assert_eq!(device.statistics(), done);
}

#[test]
fn others_record_and_submit_while_a_read_back_waits() {
    let device = own_device();
    let (a, b) = (device.allocate(4096).unwrap(), device.allocate(4096).unwrap());
    device.fill(a, 4096, 5).unwrap();
    // The thread that hands out read-backs is blocked, so that the one below waits until the thread
    // goes on.
    let (go, gone) = std::sync::mpsc::channel::<()>();
    device.host_callback(move || gone.recv().unwrap());
    let before = device.statistics();
    std::thread::scope(|scope| {
        let read = scope.spawn(|| {
            let mut got = [0; 4];
            device.download(a, &mut got).unwrap();
            (got, device.statistics().dispatches)
        });
        while device.statistics().downloads == before.downloads {
            std::thread::yield_now();
        }
        for value in 0..200 {
            device.fill(b, 4096, value).unwrap();
        }
        let serial = device.flush();
        let now = device.statistics();
        assert_eq!(now.dispatches, before.dispatches + 200);
        assert!(now.submissions >= before.submissions + 4, "{now:?}");
        assert!(!device.is_done(serial) && !read.is_finished());
        go.send(()).unwrap();
        let (got, dispatches) = read.join().unwrap();
        assert_eq!((got, dispatches), ([5, 0, 0, 0], before.dispatches + 200));
        device.wait(serial).unwrap();
    });
    let mut got = [0; 4];
    device.download(b, &mut got).unwrap();
    assert_eq!(u32::from_le_bytes(got), 199);
    device.deallocate(a).unwrap();
    device.deallocate(b).unwrap();
}

/// A separate device, whose counts no other test changes.
fn own_device() -> Arc<Device> {
    let selection = Selection::enumerate(&|name| std::env::var(name).ok());
    Device::open(&selection.adapters[0]).unwrap()
}

#[test]
fn a_panic_on_the_completion_thread_is_the_devices_error_and_nobody_waits_forever() {
    for in_read_back in [false, true] {
        let device = own_device();
        let a = device.allocate(1024).unwrap();
        device.fill(a, 1024, 7).unwrap();
        if in_read_back {
            device.download_with(a, 4, |_, _| panic!("of a test")).unwrap();
        } else {
            device.host_callback(|| panic!("of a test"));
        }
        let (sender, receiver) = std::sync::mpsc::channel();
        let waiting = device.clone();
        std::thread::spawn(move || {
            // The second wait is for a submission after the panic.
            let answers = [waiting.synchronize(), waiting.download(a, &mut [0; 4])];
            sender.send((answers, waiting.check())).unwrap();
        });
        let (answers, check) =
            receiver.recv_timeout(Duration::from_secs(60)).expect("the waits end");
        for answer in answers.into_iter().chain([check]) {
            let is_told =
                matches!(&answer, Err(Error::Internal(m)) if m.contains("panicked: of a test"));
            assert!(is_told, "in a read-back: {in_read_back}: {answer:?}");
        }
    }
}

#[test]
fn equal_work_makes_its_bind_groups_once() {
    let device = own_device();
    let (a, b) = (device.allocate(4096).unwrap(), device.allocate(4096).unwrap());
    let step = || {
        for (address, value) in [(a, 1), (b, 2), (a + 256, 3), (b + 1000, 4)] {
            device.fill(address, 200, value).unwrap();
        }
        device.copy(b + 1, a, 999).unwrap();
        device.statistics().bind_groups
    };
    let first = step();
    assert!((3..=5).contains(&first), "{first}");
    for _ in 0..200 {
        assert_eq!(step(), first);
    }
    let mut got = vec![0; 4096];
    device.download(b, &mut got).unwrap();
    assert_eq!((got[1], got[257], got[1000]), (1, 3, 4));
    device.deallocate(a).unwrap();
    device.deallocate(b).unwrap();
}

#[test]
fn equal_work_elsewhere_in_a_block_makes_no_bind_group() {
    let device = own_device();
    assert!(device.capabilities().max_dynamic_bindings >= 4, "what WebGPU guarantees");
    let a = device.allocate(1 << 20).unwrap();
    let mut made = Vec::new();
    for k in 0..1000 {
        device.fill(a + 1024 * k, 512, 7 + k as u32).unwrap();
        device.copy(a + 1024 * k + 512, a + 1024 * ((k * 7) % (k + 1)), 256).unwrap();
        made.push(device.statistics().bind_groups);
    }
    assert_eq!((made[0], made[999]), (2, 2));
    let mut got = vec![0_u32; 1 << 18];
    device.download(a, bytemuck::cast_slice_mut(&mut got)).unwrap();
    for (k, got) in (0..1000).zip(got.chunks_exact(256)) {
        let from = 7 + (k * 7) % (k + 1);
        assert_eq!((got[0], got[127], got[128], got[191]), (7 + k, 7 + k, from, from), "{k}");
    }
    device.deallocate(a).unwrap();
}

/// The sum of two words and of many parameters, more than any adapter's immediates hold.
fn sum_of_parameters(device: &Device, to: u64, numbers: &[u32]) {
    let count = numbers.len();
    device
        .enqueue(&Program {
            key: Key::new("test sum of parameters").number(count as u32),
            shader: &|| {
                let text = format!(
                    "@compute @workgroup_size(1)\nfn main() {{\n    var sum = 0u;\n    for \
                         (var k = 0u; k < {count}u; k += 1u) {{\n        sum += p.numbers[k / \
                         4u][k % 4u];\n    }}\n    dst[p.off_dst] = sum + p.extra;\n}}\n"
                );
                Shader::new("sum of parameters")
                    .bind_raw("dst", "u32", 4)
                    .u32s(&["extra"])
                    .param("numbers", Field::Vec4s(count / 4))
                    .workgroup([1, 1, 1])
                    .body(&text)
            },
            bindings: smallvec![Binding { address: to, bytes: 4, unit: 4 }],
            params: Params::new().u32(7_u32).list(numbers),
            grid: Grid([1, 1, 1]),
        })
        .unwrap();
}

#[test]
fn parameters_beyond_the_immediates_arrive_in_every_dispatch_of_every_submission() {
    let device = own_device();
    // The parameters of the second kind fill their buffer before the dispatches fill a submission.
    for (words, rounds) in [(128, 1000), (4400, 150)] {
        let before = device.statistics().submissions;
        let out = device.allocate(4 * rounds).unwrap();
        let numbers = |round: u64| (0..words).map(|k| k * 3 + round as u32).collect::<Vec<_>>();
        for round in 0..rounds {
            sum_of_parameters(&device, out + 4 * round, &numbers(round));
        }
        let mut got = vec![0; 4 * rounds as usize];
        device.download(out, &mut got).unwrap();
        for (round, got) in (0..rounds).zip(got.chunks_exact(4)) {
            let want = 7 + numbers(round).iter().sum::<u32>();
            assert_eq!(
                u32::from_le_bytes(got.try_into().unwrap()),
                want,
                "{words} words, round {round}"
            );
        }
        assert!(
            device.statistics().submissions - before < rounds / 10,
            "parameters alone submit nothing"
        );
        device.deallocate(out).unwrap();
    }
}

/// The sum of every `stride`-th word of a table.
fn sum_of_table(device: &Device, to: u64, table: Vec<u32>, stride: u32) {
    let program = Program {
        key: Key::new("test sum of a table"),
        shader: &|| {
            let text = "@compute @workgroup_size(1)\nfn main() {\n    var sum = 0u;\n    for (var \
                        k = 0u; k < p.count; k += 1u) {\n        sum += table[p.off_table + k * \
                        p.stride];\n    }\n    dst[p.off_dst] = sum;\n}\n";
            Shader::new("sum of a table")
                .bind_raw("table", "u32", 4)
                .bind_raw("dst", "u32", 4)
                .u32s(&["count", "stride"])
                .workgroup([1, 1, 1])
                .body(text)
        },
        bindings: smallvec![Binding { address: to, bytes: 4, unit: 4 }],
        params: Params::new().u32(table.len() / stride as usize).u32(stride),
        grid: Grid([1, 1, 1]),
    };
    device.enqueue_table(&program, table, 4, 0).unwrap();
}

/// A device that does not take offsets with its dispatches and, if `buffers`, no parameters as
/// immediates.
fn plain_device(buffers: bool) -> Arc<Device> {
    let selection = Selection::enumerate(&|name| std::env::var(name).ok());
    let mut profile = own_device().profile();
    let capabilities = &mut profile.capabilities;
    capabilities.max_dynamic_bindings = 0;
    capabilities.immediates = if buffers { 0 } else { capabilities.immediates };
    Device::open_with(&selection.adapters[0], profile, None).unwrap()
}

#[test]
fn tables_arrive_in_every_dispatch_of_every_submission() {
    for device in [own_device(), plain_device(false), plain_device(true)] {
        // Tables of the last kind exceed the buffer that the others share.
        for (words, stride, rounds) in
            [(100, 1, 1000), (40_000, 40, 50), (400_000, 400, 3), (100, 1, 10)]
        {
            let out = device.allocate(256 * rounds).unwrap();
            let table = |round: u64| {
                (0..words).map(|k: u32| k.wrapping_mul(3) + round as u32).collect::<Vec<_>>()
            };
            let before = device.statistics();
            for round in 0..rounds {
                sum_of_table(&device, out + 256 * round, table(round), stride);
            }
            let after = device.statistics();
            let mut got = vec![0; 256 * rounds as usize];
            device.download(out, &mut got).unwrap();
            for (round, got) in (0..rounds).zip(got.chunks_exact(256)) {
                let want = table(round)
                    .iter()
                    .step_by(stride as usize)
                    .fold(0_u32, |sum, v| sum.wrapping_add(*v));
                assert_eq!(
                    u32::from_le_bytes(got[..4].try_into().unwrap()),
                    want,
                    "{words} words, round {round}"
                );
            }
            assert_eq!(after.bytes - before.bytes, rounds * (4 * u64::from(words) + 4));
            assert_eq!(after.uploads, 0, "they travel with the submissions");
            if device.capabilities().max_dynamic_bindings > 0 {
                assert_eq!(after.bind_groups - before.bind_groups, 1, "{words} words");
            }
            device.deallocate(out).unwrap();
        }
    }
}

#[test]
fn adapters_without_dynamic_offsets_bind_each_place() {
    for buffers in [false, true] {
        let device = plain_device(buffers);
        let a = device.allocate(1 << 16).unwrap();
        for _ in 0..2 {
            for k in 0..64 {
                device.fill(a + 1024 * k, 1024, k as u32).unwrap();
            }
        }
        assert_eq!(device.statistics().bind_groups, 64);
        let mut got = vec![0_u32; 1 << 14];
        device.download(a, bytemuck::cast_slice_mut(&mut got)).unwrap();
        assert!(got.chunks_exact(256).zip(0..).all(|(got, k)| got.iter().all(|v| *v == k)));
        device.deallocate(a).unwrap();
    }
}

#[test]
fn buffers_kept_by_bind_groups_are_not_in_use() {
    let device = own_device();
    // Each block is bound once and freed.
    for round in 0..400 {
        let a = device.allocate(1 << 20).unwrap();
        device.fill(a, 1 << 20, round).unwrap();
        let mut got = [0; 4];
        device.download(a + 4096, &mut got).unwrap();
        assert_eq!(u32::from_le_bytes(got), round);
        device.deallocate(a).unwrap();
    }
    assert_eq!(device.memory_stats().in_use, 0);
}
