//! Sessions of the tracer: the events that they keep of dispatches, copies, the host and memory,
//! for each way in which an adapter can report the time.

use std::sync::Arc;

use tensorflow_wgpu::device::trace::{DeviceEvent, HostWork, Trace, Work};
use tensorflow_wgpu::device::{Capabilities, Device, Profile, Selection, Timestamps};
use tensorflow_wgpu::local::{Input, Node, Session};
use tensorflow_wgpu::{DType, HostTensor};

const LEVELS: [Timestamps; 4] =
    [Timestamps::None, Timestamps::Passes, Timestamps::Encoders, Timestamps::Dispatches];

/// A session on a separate device that uses at most `timestamps` to read the GPU's time, and the
/// level that it uses.
fn session(timestamps: Timestamps, own_barriers: bool) -> (Session, Timestamps) {
    let selection = Selection::enumerate(&|name| std::env::var(name).ok());
    let adapter = selection.adapters.first().expect("a Vulkan driver");
    let shared = Session::shared().expect("a Vulkan driver").device.profile();
    let timestamps = timestamps.min(shared.capabilities.timestamps);
    let capabilities = Capabilities { timestamps, ..shared.capabilities };
    let profile = Profile { capabilities, own_barriers, ..shared };
    let device = Device::open_with(adapter, profile, None).expect("a device");
    (Session::new(device), timestamps)
}

fn matmul(session: &mut Session, n: usize) -> Vec<HostTensor> {
    let node = Node::new("MatMul")
        .attr("T", DType::F32)
        .attr("transpose_a", false)
        .attr("transpose_b", false);
    let x = HostTensor::f32(&[n, n], &vec![0.5_f32; n * n]);
    session.run(&node, &[Input::from(x.clone()), Input::from(x)]).unwrap()
}

fn end(device: &Arc<Device>) -> Trace {
    device.end_trace().unwrap().expect("a session")
}

fn dispatches(trace: &Trace) -> Vec<&DeviceEvent> {
    trace.device.iter().filter(|e| matches!(e.work, Work::Dispatch { .. })).collect()
}

#[test]
fn every_way_to_tell_the_time_sees_the_same_work() {
    for (wanted, own_barriers) in
        LEVELS.into_iter().map(|l| (l, false)).chain([(Timestamps::Dispatches, true)])
    {
        let (mut session, timestamps) = session(wanted, own_barriers);
        let device = session.device.clone();
        let untraced = matmul(&mut session, 64);
        device.trace().unwrap();
        let traced = matmul(&mut session, 64);
        matmul(&mut session, 64);
        let trace = end(&device);
        assert_eq!(untraced, traced, "{wanted:?}");
        assert_eq!(trace.timestamps, timestamps, "{wanted:?}");
        assert_eq!(trace.clock_error.is_some(), timestamps > Timestamps::None);
        let dispatches = dispatches(&trace);
        let flops: u64 = dispatches
            .iter()
            .map(|e| match &e.work {
                Work::Dispatch { flops, .. } => *flops,
                _ => 0,
            })
            .sum();
        assert_eq!(flops, 2 * 2 * 64 * 64 * 64, "{wanted:?}");
        let copies = |work: &Work| {
            let found = trace.device.iter().filter(|e| e.work == *work);
            (found.clone().count(), found.map(|e| e.bytes).sum::<u64>())
        };
        assert_eq!(copies(&Work::Upload), (4, 4 * 64 * 64 * 4), "{wanted:?}");
        assert_eq!(copies(&Work::Download), (2, 2 * 64 * 64 * 4), "{wanted:?}");
        for event in &dispatches {
            let origin = event.origin.as_ref().expect("an op");
            assert_eq!((&*origin.op, event.correlation > 0), ("MatMul", true));
            assert_eq!(event.is_timed, timestamps > Timestamps::None, "{event:?}");
        }
        for event in &trace.device {
            assert!(event.begin <= event.end, "{wanted:?}: {event:?}");
            let error = trace.clock_error.unwrap_or_default();
            assert!(event.begin >= -error && event.end <= trace.duration + error, "{event:?}");
            let copied = event.work == Work::Upload || event.work == Work::Download;
            assert!(!copied || event.is_timed == (timestamps >= Timestamps::Encoders));
        }
        let ends: Vec<_> = dispatches.iter().map(|e| e.end).collect();
        assert!(ends.is_sorted(), "{wanted:?}: {ends:?}");
    }
}

#[test]
fn the_host_and_memory_are_told_too() {
    let (mut session, _) = session(Timestamps::Dispatches, false);
    let device = session.device.clone();
    device.trace().unwrap();
    matmul(&mut session, 48);
    let trace = end(&device);
    let count = |is: &dyn Fn(&HostWork) -> bool| trace.host.iter().filter(|e| is(&e.work)).count();
    assert_eq!(count(&|w| matches!(w, HostWork::Op(o) if o.op == "MatMul")), 1);
    assert!(count(&|w| matches!(w, HostWork::Submit)) > 0);
    assert!(count(&|w| matches!(w, HostWork::WaitForGpu)) > 0);
    assert!(count(&|w| matches!(w, HostWork::Compile(_))) > 0, "the first product compiles");
    assert!(count(&|w| matches!(w, HostWork::ReadBack(bytes) if *bytes == 48 * 48 * 4)) > 0);
    let submits = trace.host.iter().filter(|e| e.work == HostWork::Submit);
    assert!(submits.clone().all(|e| e.begin <= e.end && e.thread.id != 0));
    let used: Vec<_> = trace.memory.iter().map(|m| m.in_use).collect();
    let peak = used.iter().max().copied().unwrap_or_default();
    assert!(peak >= 3 * 48 * 48 * 4, "{used:?}");
    assert!(used.last().is_some_and(|last| *last < peak), "everything is freed: {used:?}");
}

#[test]
fn there_is_one_session_at_a_time() {
    let (mut session, _) = session(Timestamps::Dispatches, false);
    let device = session.device.clone();
    assert!(device.end_trace().unwrap().is_none(), "none has begun");
    device.trace().unwrap();
    let error = device.trace().unwrap_err().to_string();
    assert!(error.contains("one profiler at a time"), "{error}");
    matmul(&mut session, 8);
    assert!(!dispatches(&end(&device)).is_empty(), "the first one goes on");
    device.trace().unwrap();
    let trace = end(&device);
    assert!(trace.device.is_empty(), "the second one is new: {:?}", trace.device);
    assert!(!device.is_traced());
}

#[test]
fn a_batch_of_more_commands_than_queries_is_told_whole() {
    let (session, timestamps) = session(Timestamps::Dispatches, false);
    let device = session.device;
    let address = device.allocate(4096).unwrap();
    device.trace().unwrap();
    for i in 0..1500_u32 {
        device.upload(address, &i.to_le_bytes()).unwrap();
    }
    let mut bytes = [0; 4];
    device.download(address, &mut bytes).unwrap();
    let trace = end(&device);
    assert_eq!(u32::from_le_bytes(bytes), 1499);
    let uploads: Vec<_> = trace.device.iter().filter(|e| e.work == Work::Upload).collect();
    assert_eq!(uploads.len(), 1500);
    let timed = timestamps >= Timestamps::Encoders;
    assert!(uploads.iter().all(|e| e.is_timed == timed));
    assert_eq!(trace.dropped, 0);
    device.deallocate(address).unwrap();
}
