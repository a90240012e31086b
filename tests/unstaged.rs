//! Copies between the host and host-visible device memory, without staging buffers: the bytes are
//! those of staged copies, in whatever order work and copies come.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tensorflow_wgpu::device::{Device, Profile, Selection};
use tensorflow_wgpu::local::Session;

/// A device of the first adapter without staging; None if its memory is not the processor's.
fn device() -> Option<Arc<Device>> {
    let selection = Selection::enumerate(&|name| std::env::var(name).ok());
    let adapter = selection.adapters.first().expect("a Vulkan driver");
    let shared = Session::shared().expect("a Vulkan driver").device.profile();
    let device = Device::open_with(adapter, Profile { unstaged: true, ..shared }, None).unwrap();
    if device.profile().unstaged {
        return Some(device);
    }
    let name = &device.info().name;
    assert!(!name.contains("llvmpipe"), "{name} computes in the processor's memory");
    println!("{name} has memory of its own");
    None
}

/// Bytes that differ from their neighbours, and from those of other seeds.
fn bytes(len: usize, seed: u32) -> Vec<u8> {
    let word = |i: usize| (i as u32 + 1).wrapping_mul(2_654_435_761).wrapping_add(seed * 97);
    (0..len).map(|i| (word(i) >> 13) as u8).collect()
}

#[test]
fn copies_of_idle_memory_need_no_staging() {
    let Some(device) = device() else { return };
    for (len, offset) in [(4, 0), (1, 3), (1000, 1), (4096, 256), (300_001, 77), (5 << 20, 0)] {
        let address = device.allocate(len as u64 + offset).unwrap();
        let sent = bytes(len, 1);
        let before = device.statistics();
        device.upload(address + offset, &sent).unwrap();
        let mut found = vec![0; len];
        device.download(address + offset, &mut found).unwrap();
        assert!(found == sent, "{len} bytes at {offset}");
        let after = device.statistics();
        assert_eq!(after.unstaged - before.unstaged, 2, "{len} bytes at {offset}");
        assert_eq!(after.uploaded - before.uploaded, len as u64);
        assert_eq!(after.downloaded - before.downloaded, len as u64);
        device.deallocate(address).unwrap();
    }
}

#[test]
fn kernels_see_what_the_host_wrote_and_the_host_sees_what_they_wrote() {
    let Some(device) = device() else { return };
    const LEN: u64 = 1 << 16;
    let [from, to] = [(); 2].map(|()| device.allocate(LEN).unwrap());
    for round in 0..50 {
        // A read is over a little before its submission is done.
        device.synchronize().unwrap();
        let sent = bytes(LEN as usize, round);
        // The second half alone, so that wgpu has a reason to clear the first one.
        device.upload(from + LEN / 2, &sent[LEN as usize / 2..]).unwrap();
        device.copy(to, from, LEN).unwrap();
        device.fill(to, LEN / 4, round).unwrap();
        let mut found = vec![0; LEN as usize];
        device.download(to, &mut found).unwrap();
        assert!(found[LEN as usize / 2..] == sent[LEN as usize / 2..], "round {round}");
        assert!(found[..LEN as usize / 4].chunks(4).all(|w| w == round.to_le_bytes()));
        assert!(found[LEN as usize / 4..LEN as usize / 2].iter().all(|b| *b == 0));
    }
    let counted = device.statistics();
    assert_eq!((counted.uploads, counted.downloads, counted.unstaged), (50, 50, 100));
}

#[test]
fn memory_in_use_is_written_by_a_staged_copy() {
    let Some(device) = device() else { return };
    const LEN: u64 = 4 << 20;
    let [from, to] = [(); 2].map(|()| device.allocate(LEN).unwrap());
    let [old, new] = [1, 2].map(|seed| bytes(LEN as usize, seed));
    device.upload(from, &old).unwrap();
    let before = device.statistics().unstaged;
    for _ in 0..20 {
        device.copy(to, from, LEN).unwrap();
    }
    // Their submission is not done before this callback is.
    let (done, waiting) = std::sync::mpsc::channel();
    device.host_callback(move || waiting.recv().unwrap());
    // The copies above read the old bytes, whenever they run.
    device.upload(from, &new).unwrap();
    assert_eq!(device.statistics().unstaged, before);
    done.send(()).unwrap();
    let mut found = vec![0; LEN as usize];
    device.download(to, &mut found).unwrap();
    assert!(found == old);
    device.download(from, &mut found).unwrap();
    assert!(found == new);
}

#[test]
fn memory_that_is_being_read_is_not_overwritten() {
    let Some(device) = device() else { return };
    const LEN: usize = 8 << 20;
    let address = device.allocate(LEN as u64).unwrap();
    let wrong = Arc::new(AtomicUsize::new(0));
    let writes: [&dyn Fn(&Device); 3] = [
        &|device| device.fill(address, LEN as u64, u32::MAX).unwrap(),
        &|device| device.upload(address + 8, &vec![9; LEN - 8]).unwrap(),
        &|device| device.fill(address + LEN as u64 - 4, 4, 1).unwrap(),
    ];
    for (round, write) in writes.iter().cycle().take(30).enumerate() {
        let value = round as u32 + 1;
        device.fill(address, LEN as u64, value).unwrap();
        let failures = wrong.clone();
        let sink = move |_, part: tensorflow_wgpu::Result<&[u8]>| {
            let bytes = part.unwrap();
            // Slowly, so that the work below would come in between.
            for chunk in bytes.chunks(LEN / 8) {
                std::thread::sleep(std::time::Duration::from_millis(1));
                let differing = chunk.chunks(4).filter(|w| **w != value.to_le_bytes()).count();
                failures.fetch_add(differing, Ordering::Relaxed);
            }
        };
        device.download_with(address, LEN as u64, sink).unwrap();
        write(&device);
    }
    device.synchronize().unwrap();
    assert_eq!(wrong.load(Ordering::Relaxed), 0);
}

#[test]
fn any_order_of_work_and_copies_gives_the_bytes_of_that_order() {
    let Some(device) = device() else { return };
    std::thread::scope(|scope| {
        for seed in [12_345, 678, 91_011] {
            let device = &device;
            scope.spawn(move || any_order(device, seed));
        }
    });
    let counted = device.statistics();
    assert!(counted.unstaged > counted.downloads, "some uploads were unstaged: {counted:?}");
    assert!(counted.unstaged < counted.downloads + counted.uploads, "and some staged");
}

/// Enqueues work and copies in memory of its own, in an order that `seed` gives, and compares all
/// bytes that come back with those of the same steps on the host.
fn any_order(device: &Device, seed: u32) {
    const LEN: usize = 20_000;
    let [x, y] = [(); 2].map(|()| device.allocate(LEN as u64).unwrap());
    for address in [x, y] {
        device.upload(address, &[0; LEN]).unwrap();
    }
    // What the memory holds once everything so far is done.
    let mut held = [vec![0_u8; LEN], vec![0_u8; LEN]];
    let wrong = Arc::new(AtomicUsize::new(0));
    let mut state = seed;
    let mut random = |below: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % below
    };
    for step in 0..1500 {
        let (which, start) = (random(2), random(LEN - 1));
        let len = 1 + random((LEN - start).min(if step % 3 == 0 { LEN } else { 600 }));
        let (address, range) = ([x, y][which] + start as u64, start..start + len);
        match random(5) {
            0 | 1 => {
                let sent = bytes(len, step);
                device.upload(address, &sent).unwrap();
                held[which][range].copy_from_slice(&sent);
            }
            2 => {
                let (other, to) = (1 - which, [y, x][which] + start as u64);
                device.copy(to, address, len as u64).unwrap();
                let copied = held[which][range.clone()].to_vec();
                held[other][range].copy_from_slice(&copied);
            }
            3 => {
                device.fill(address, len as u64, step).unwrap();
                let pattern = step.to_le_bytes().into_iter().cycle();
                held[which][range].iter_mut().zip(pattern).for_each(|(b, p)| *b = p);
            }
            _ => {
                let (wanted, failures) = (held[which][range].to_vec(), wrong.clone());
                let sink = move |_, part: tensorflow_wgpu::Result<&[u8]>| {
                    failures.fetch_add(usize::from(part.unwrap() != wanted), Ordering::Relaxed);
                };
                device.download_with(address, len as u64, sink).unwrap();
            }
        }
        if random(40) == 0 {
            device.synchronize().unwrap();
        }
    }
    for (address, held) in [x, y].into_iter().zip(&held) {
        let mut found = vec![0; LEN];
        device.download(address, &mut found).unwrap();
        assert!(found == *held);
    }
    assert_eq!(wrong.load(Ordering::Relaxed), 0);
}

#[test]
fn a_lost_device_gives_its_error_for_reads_and_writes() {
    let Some(device) = device() else { return };
    let address = device.allocate(1 << 20).unwrap();
    device.upload(address, &[7; 1 << 20]).unwrap();
    device.synchronize().unwrap();
    device.destroy();
    // Work whose result the read would bring.
    let _ = device.fill(address, 1 << 20, 9);
    let (sender, received) = std::sync::mpsc::channel();
    let sink = move |_, part: tensorflow_wgpu::Result<&[u8]>| {
        let _ = sender.send(part.map(<[u8]>::len));
    };
    let asked = device.download_with(address, 1 << 20, sink);
    let error = match asked {
        Err(e) => e,
        Ok(()) => received.recv().unwrap().unwrap_err(),
    };
    assert!(error.to_string().contains("lost"), "{error}");
    // A write either fails or goes nowhere.
    let _ = device.upload(address, &[8; 1 << 20]);
    let error = device.synchronize().unwrap_err();
    assert!(error.to_string().contains("lost"), "{error}");
}
