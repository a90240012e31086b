//! `_WgpuRegion`: replays change variables as the first run did, by one handle or two, and fail on
//! a lost device.

use std::time::{Duration, Instant};

use tensorflow_wgpu::device::{Device, Selection};
use tensorflow_wgpu::kernels::fused::region::OP;
use tensorflow_wgpu::kernels::op::Kernel;
use tensorflow_wgpu::local::{Input, Node, Session};
use tensorflow_wgpu::optimizer::graph::Graph;
use tensorflow_wgpu::optimizer::passes::REGIONS;
use tensorflow_wgpu::{Error, HostTensor};

/// A graph's only region, as a kernel that compares its first replay.
fn region(session: &Session, text: &str) -> Box<dyn Kernel> {
    let mut graph = Graph::from_text(text).unwrap();
    (REGIONS.run)(&mut graph).unwrap();
    let mut found = graph.ids().filter(|id| graph.node(*id).op() == OP);
    let id = found.next().unwrap_or_else(|| panic!("no region in {}", graph.to_text()));
    let attrs = graph.node(id).attrs();
    let attr = |name: &str| &attrs[name];
    let mut node = Node::new(OP).attr("NR", attr("NR").int().unwrap()).attr("check", true);
    for name in ["Ttensors", "Thost", "Tout"] {
        node = node.attr(name, &attr(name).dtypes().unwrap()[..]);
    }
    node = node.attr("nodes", attr("nodes").byte_strings().unwrap());
    node = node.attr("outputs", attr("outputs").ints().unwrap());
    let row = session.registry().find(OP, |_| None).expect("the op");
    (row.create)(&node).unwrap()
}

/// Runs a kernel until a run is repeated, which takes compiled shaders. Returns the outputs of all
/// runs.
fn until_replayed(
    session: &mut Session,
    kernel: &dyn Kernel,
    inputs: &[Input],
) -> Vec<Vec<HostTensor>> {
    let end = Instant::now() + Duration::from_secs(60);
    let (mut runs, mut least) = (Vec::new(), u64::MAX);
    loop {
        let before = session.device.statistics().dispatches;
        runs.push(session.run_kernel(kernel, inputs).unwrap());
        let count = session.device.statistics().dispatches - before;
        // The run that compares a replay does the work twice.
        if count > least {
            return runs;
        }
        least = count;
        assert!(Instant::now() < end, "no run is repeated");
    }
}

/// A read, a step that depends on it, and changes of two variables.
const STEP: &str = "v = Placeholder -> resource[]
    w = Placeholder -> resource[]
    r = ReadVariableOp(v) {dtype: float32} -> float32[?]
    a = Exp(r) {T: float32} -> float32[?]
    b = Neg(a) {T: float32} -> float32[?]
    u = AssignSubVariableOp(v, b, ^r) {dtype: float32}
    t = AssignAddVariableOp(w, a, ^u) {dtype: float32}
    out = Custom(b, ^t)";

/// One step on the host, for `v` and `w`, which may be one variable.
fn step(v: &mut [f32], w: Option<&mut [f32]>) -> Vec<f32> {
    let exp: Vec<f32> = v.iter().map(|v| v.exp()).collect();
    v.iter_mut().zip(&exp).for_each(|(v, e)| *v += e);
    match w {
        Some(w) => w.iter_mut().zip(&exp).for_each(|(w, e)| *w += e),
        None => v.iter_mut().zip(&exp).for_each(|(v, e)| *v += e),
    }
    exp.iter().map(|e| -e).collect()
}

fn assert_close(got: &HostTensor, want: &[f32]) {
    let got = got.values::<f32>();
    assert_eq!(got.len(), want.len());
    for (g, w) in got.iter().zip(want) {
        assert!((g - w).abs() <= 1e-4 * w.abs().max(1.0), "{got:?} {want:?}");
    }
}

#[test]
fn variables_change_in_each_replay() {
    let mut session = Session::new(own_device());
    let kernel = region(&session, STEP);
    let (three, one) = (vec![-3.0, -2.5, -2.0], vec![-4.0]);
    let cases = [(false, &three), (false, &one), (false, &three), (true, &three), (true, &one)];
    for (k, (aliased, start)) in cases.into_iter().enumerate() {
        let (mut v, mut w) = (start.clone(), vec![1.0; start.len()]);
        let first = session.variable(&HostTensor::f32(&[v.len()], &v)).unwrap();
        let second = session.variable(&HostTensor::f32(&[w.len()], &w)).unwrap();
        let second = if aliased { first } else { second };
        let inputs = [Input::Variable(first), Input::Variable(second)];
        // Later cases have shapes that are recorded.
        let mut runs = match k {
            0 | 1 => until_replayed(&mut session, &*kernel, &inputs),
            _ => Vec::new(),
        };
        runs.extend((0..3).map(|_| session.run_kernel(&*kernel, &inputs).unwrap()));
        for outputs in runs {
            let want = step(&mut v, (!aliased).then_some(&mut w));
            assert_close(&outputs[0], &want);
        }
        assert_close(&session.variable_value(first).unwrap(), &v);
        if !aliased {
            assert_close(&session.variable_value(second).unwrap(), &w);
        }
    }
}

/// A device that no other test uses, so that its dispatches can be counted.
fn own_device() -> std::sync::Arc<Device> {
    let selection = Selection::enumerate(&|name| std::env::var(name).ok());
    Device::open(&selection.adapters[0]).expect("a Vulkan driver")
}

#[test]
fn a_replay_on_a_lost_device_is_an_error() {
    let mut session = Session::new(own_device());
    let kernel = region(&session, STEP);
    let one = session.variable(&HostTensor::f32(&[2], &[-3.0, -2.0])).unwrap();
    let two = session.variable(&HostTensor::f32(&[2], &[0.0, 0.0])).unwrap();
    let inputs = [Input::Variable(one), Input::Variable(two)];
    until_replayed(&mut session, &*kernel, &inputs);
    session.device.destroy();
    for _ in 0..2 {
        let outcome = session.run_kernel(&*kernel, &inputs);
        assert!(matches!(outcome, Err(Error::Unavailable(_))), "{outcome:?}");
    }
}
