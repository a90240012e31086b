//! A device that pages on a real driver: tensors that do not fit go to host memory and come back,
//! whatever touches them.

use std::sync::Arc;

use tensorflow_wgpu::device::{Device, Paging, Selection};
use tensorflow_wgpu::local::{Input, Node, Session};
use tensorflow_wgpu::{DType, Error, HostTensor};

const TENSOR: u64 = 1 << 20;

/// A device with `device` MiB of memory of its own.
fn device(device: u64) -> Arc<Device> {
    let adapter = Selection::enumerate(&|name| std::env::var(name).ok())
        .adapters
        .into_iter()
        .next()
        .expect("a Vulkan driver; on Debian install mesa-vulkan-drivers");
    let limits = Paging { device: device << 20, host: 256 << 20 };
    Device::open_paging(&adapter, limits).unwrap()
}

fn pattern(seed: u64, n: u64) -> Vec<u8> {
    (0..n).map(|i| (i * 7 + seed * 31 + i / 251) as u8).collect()
}

fn read(device: &Device, address: u64, bytes: u64) -> Vec<u8> {
    let mut found = vec![0; bytes as usize];
    device.download(address, &mut found).unwrap();
    found
}

#[test]
fn uploads_copies_fills_and_downloads_see_the_bytes_wherever_they_are() {
    let device = device(9);
    let addresses: Vec<u64> = (0..24).map(|_| device.allocate(TENSOR + 300).unwrap()).collect();
    for (seed, address) in (0..).zip(&addresses) {
        device.upload(*address, &pattern(seed, TENSOR + 300)).unwrap();
    }
    let moved = device.statistics();
    assert!(moved.paged_out >= 15 << 20 && moved.paged >= 15 << 20, "{moved:?}");
    assert!(device.memory_stats().peak <= 9 << 20);
    // Parts of tensors, at odd addresses; those of the first tensors are in host memory.
    device.copy(addresses[20] + 1001, addresses[0] + 77, 5000).unwrap();
    device.upload(addresses[1] + 3, b"seven bytes").unwrap();
    device.fill(addresses[2] + 16, 64, 0x0101_0101).unwrap();
    for (seed, address) in (0..).zip(&addresses) {
        let mut expected = pattern(seed, TENSOR + 300);
        match seed {
            20 => expected[1001..6001].copy_from_slice(&pattern(0, TENSOR)[77..5077]),
            1 => expected[3..14].copy_from_slice(b"seven bytes"),
            2 => expected[16..80].fill(1),
            _ => {}
        }
        assert!(read(&device, *address, TENSOR + 300) == expected, "tensor {seed}");
    }
    addresses.iter().for_each(|address| device.deallocate(*address).unwrap());
    assert_eq!((device.memory_stats().in_use < TENSOR, device.statistics().paged), (true, 0));
}

#[test]
fn a_download_takes_the_bytes_from_host_memory() {
    let device = device(9);
    let addresses: Vec<u64> = (0..16).map(|_| device.allocate(TENSOR).unwrap()).collect();
    for (seed, address) in (0..).zip(&addresses) {
        device.upload(*address, &pattern(seed, TENSOR)).unwrap();
    }
    let before = device.statistics();
    assert!(read(&device, addresses[0], TENSOR) == pattern(0, TENSOR));
    assert!(read(&device, addresses[1] + 5, 1000) == pattern(1, TENSOR)[5..1005]);
    let after = device.statistics();
    assert_eq!((after.paged_in, after.paged_out), (before.paged_in, before.paged_out));
}

#[test]
fn kernels_compute_with_tensors_that_take_turns() {
    let mut session = Session::new(device(9));
    let values: Vec<f64> = (0..(1 << 18)).map(|i| f64::from(i % 1000)).collect();
    let handles: Vec<usize> = (0..16)
        .map(|_| session.variable(&HostTensor::floats(DType::F32, &[1 << 18], &values)).unwrap())
        .collect();
    let one = HostTensor::floats(DType::F32, &[1 << 18], &vec![1.0; 1 << 18]);
    let add = Node::new("AssignAddVariableOp").attr("dtype", DType::F32);
    for (k, handle) in handles.iter().enumerate() {
        for _ in 0..=k % 3 {
            session.run(&add, &[Input::Variable(*handle), Input::Value(one.clone())]).unwrap();
        }
    }
    for (k, handle) in handles.iter().enumerate() {
        let expected: Vec<f64> = values.iter().map(|v| v + (k % 3) as f64 + 1.0).collect();
        assert!(session.variable_value(*handle).unwrap().to_f64() == expected, "variable {k}");
    }
    assert!(session.device.statistics().paged_in > 0);
}

#[test]
fn a_tensor_that_exceeds_a_memory_is_an_error_that_harms_nothing() {
    let device = device(9);
    let small = device.allocate(4096).unwrap();
    // From here on the shader is compiled, so that a fill fails in its own call.
    device.fill(small, 4096, 0).unwrap();
    device.synchronize().unwrap();
    device.upload(small, &pattern(1, 4096)).unwrap();
    let large = device.allocate(20 << 20).unwrap();
    let Err(Error::ResourceExhausted(why)) = device.fill(large, 20 << 20, 0) else {
        panic!("20 MB are in 9")
    };
    assert!(why.contains("bytes of large tensors at once"), "{why}");
    assert!(matches!(device.allocate(300 << 20), Err(Error::ResourceExhausted(_))));
    device.deallocate(large).unwrap();
    let next = device.allocate(TENSOR).unwrap();
    device.upload(next, &pattern(2, TENSOR)).unwrap();
    assert!(read(&device, next, TENSOR) == pattern(2, TENSOR));
    assert!(read(&device, small, 4096) == pattern(1, 4096));
}

#[test]
fn a_lost_device_says_so() {
    let device = device(9);
    let addresses: Vec<u64> = (0..12).map(|_| device.allocate(TENSOR).unwrap()).collect();
    for address in &addresses {
        device.upload(*address, &pattern(0, TENSOR)).unwrap();
    }
    device.destroy();
    let found = device.download(addresses[0], &mut [0; 64]);
    assert!(matches!(found, Err(Error::Unavailable(_))), "{found:?}");
    assert!(addresses.iter().all(|address| device.deallocate(*address).is_ok()));
}
