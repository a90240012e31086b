//! `_WgpuRegion`: replays change variables as the first run did, by one handle or two, fail on a
//! lost device, fail at the same allocation as the nodes do, and overwrite no input that something
//! else reads.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tensorflow_wgpu::device::trace::Origin;
use tensorflow_wgpu::device::{Device, Selection};
use tensorflow_wgpu::kernels::fused::region::OP;
use tensorflow_wgpu::kernels::op::{Kernel, OpContext, UpdateAll, VariableUpdate};
use tensorflow_wgpu::local::{Input, Node, Session};
use tensorflow_wgpu::optimizer::graph::Graph;
use tensorflow_wgpu::optimizer::passes::REGIONS;
use tensorflow_wgpu::{DType, Error, HostTensor, Tensor};

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
    node = node.attr("nodes", attr("nodes").byte_strings().unwrap().to_vec());
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

/// The variables of [`STEP`].
fn two_variables(session: &mut Session) -> [Input; 2] {
    [[-3.0, -2.0], [0.0, 0.0]]
        .map(|v| Input::Variable(session.variable(&HostTensor::f32(&[2], &v)).unwrap()))
}

#[test]
fn a_replay_on_a_lost_device_is_an_error() {
    let mut session = Session::new(own_device());
    let kernel = region(&session, STEP);
    let inputs = two_variables(&mut session);
    until_replayed(&mut session, &*kernel, &inputs);
    session.device.destroy();
    for _ in 0..2 {
        let outcome = session.run_kernel(&*kernel, &inputs);
        assert!(matches!(outcome, Err(Error::Unavailable(_))), "{outcome:?}");
    }
}

/// What an allocation does before.
type Then = fn(&Device) -> Result<(), Error>;

/// A context in which allocations fail, or no input may become an output.
struct Faulty<'c> {
    ctx: &'c mut dyn OpContext,
    /// The allocations that succeed.
    left: &'c mut usize,
    /// What each later one does before.
    then: Then,
    holds_inputs: bool,
    /// The inputs that became outputs.
    forwarded: &'c mut usize,
    /// The node that has failed, with its inputs.
    failed: &'c mut Option<String>,
}

impl Faulty<'_> {
    fn allocation(&mut self) -> Result<(), Error> {
        match self.left.checked_sub(1) {
            Some(left) => *self.left = left,
            None => (self.then)(self.ctx.device())?,
        }
        Ok(())
    }
}

impl OpContext for Faulty<'_> {
    fn device(&self) -> &Device {
        self.ctx.device()
    }
    fn num_inputs(&self) -> usize {
        self.ctx.num_inputs()
    }
    fn input(&mut self, i: usize) -> Result<Tensor, Error> {
        self.ctx.input(i)
    }
    fn host_input(&mut self, i: usize) -> Result<HostTensor, Error> {
        self.ctx.host_input(i)
    }
    fn output(&mut self, i: usize, dtype: DType, dims: &[usize]) -> Result<Tensor, Error> {
        self.allocation()?;
        self.ctx.output(i, dtype, dims)
    }
    fn forward_or_output(
        &mut self,
        candidates: &[usize],
        i: usize,
        dtype: DType,
        dims: &[usize],
    ) -> Result<Tensor, Error> {
        if self.holds_inputs {
            return self.output(i, dtype, dims);
        }
        *self.forwarded += 1;
        self.ctx.forward_or_output(candidates, i, dtype, dims)
    }
    fn forward_input(&mut self, i: usize, o: usize, dims: &[usize]) -> Result<(), Error> {
        self.ctx.forward_input(i, o, dims)
    }
    fn host_output(&mut self, i: usize, value: &HostTensor) -> Result<(), Error> {
        self.ctx.host_output(i, value)
    }
    fn temp(&mut self, dtype: DType, dims: &[usize]) -> Result<Tensor, Error> {
        self.allocation()?;
        self.ctx.temp(dtype, dims)
    }
    fn release(&mut self, temporary: &Tensor) {
        self.ctx.release(temporary);
    }
    fn output_temp(&mut self, o: usize, temporary: &Tensor) -> Result<(), Error> {
        self.ctx.output_temp(o, temporary)
    }
    fn work_for(&mut self, node: &Arc<Origin>, inputs: Option<String>) {
        *self.failed = inputs.map(|inputs| format!("{} of {inputs}", node.node));
    }
    fn read_variable(&mut self, i: usize) -> Result<Tensor, Error> {
        self.ctx.read_variable(i)
    }
    fn update_variable(
        &mut self,
        i: usize,
        mode: VariableUpdate,
        update: &mut dyn FnMut(&mut dyn OpContext, &Tensor, &Tensor) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.allocation()?;
        self.ctx.update_variable(i, mode, update)
    }
    fn update_variables(
        &mut self,
        inputs: &[usize],
        update: &mut UpdateAll<'_>,
    ) -> Result<(), Error> {
        self.allocation()?;
        self.ctx.update_variables(inputs, update)
    }
}

/// What a faulty run gives.
#[derive(Debug, PartialEq)]
struct Run {
    outputs: Result<Vec<HostTensor>, Error>,
    forwarded: usize,
    failed: Option<String>,
    /// The region's input of a tensor after the run, if there is one.
    input: Option<HostTensor>,
}

/// The memory is full.
fn full(_: &Device) -> Result<(), Error> {
    Err(Error::ResourceExhausted("full".to_owned()))
}

/// The device is lost.
fn lost(device: &Device) -> Result<(), Error> {
    device.destroy();
    Ok(())
}

/// Runs a kernel. The allocations behind `left` others do `then` before. If `holds_inputs`, no
/// input becomes an output.
fn faulty(
    session: &mut Session,
    kernel: &dyn Kernel,
    inputs: &[Input],
    (left, then): (usize, Then),
    holds_inputs: bool,
) -> Run {
    let seen = parking_lot::Mutex::new((0, None, None));
    let outer = |ctx: &mut dyn OpContext| {
        let (mut left, mut forwarded, mut failed) = (left, 0, None);
        let computed = kernel.compute(&mut Faulty {
            ctx: &mut *ctx,
            left: &mut left,
            then,
            holds_inputs,
            forwarded: &mut forwarded,
            failed: &mut failed,
        });
        let input = ctx.input(0).ok().map(|x| {
            let mut bytes = vec![0; x.bytes() as usize];
            ctx.device().download(x.address, &mut bytes).unwrap();
            HostTensor { dtype: x.dtype, dims: x.dims, bytes }
        });
        *seen.lock() = (forwarded, failed, input);
        computed
    };
    let outputs = session.run_kernel(&outer, inputs);
    let (forwarded, failed, input) = seen.into_inner();
    Run { outputs, forwarded, failed, input }
}

/// Each allocation of a replay fails in turn: the error, its node and the variables are those of a
/// run of the nodes, and the next replay is right.
#[test]
fn a_failed_allocation_of_a_replay_is_that_of_the_nodes() {
    let mut session = Session::new(own_device());
    let start = [vec![-3.0, -2.5], vec![1.0, 2.0]];
    let variables = |session: &mut Session| {
        start.clone().map(|v| session.variable(&HostTensor::f32(&[2], &v)).unwrap())
    };
    let replayed = region(&session, STEP);
    let warm = variables(&mut session).map(Input::Variable);
    until_replayed(&mut session, &*replayed, &warm);
    let mut names = Vec::new();
    for left in 0.. {
        let outcome = |session: &mut Session, kernel: &dyn Kernel| {
            let own = variables(session);
            let run = faulty(session, kernel, &own.map(Input::Variable), (left, full), false);
            (run, own.map(|v| session.variable_value(v).unwrap()))
        };
        // A kernel that has not run has no record.
        let fresh = region(&session, STEP);
        let want = outcome(&mut session, &*fresh);
        let got = outcome(&mut session, &*replayed);
        assert_eq!(got, want, "after {left} allocations");
        let Err(error) = &got.0.outputs else {
            assert_close(&got.1[0], &{
                let mut v = start[0].clone();
                step(&mut v, Some(&mut start[1].clone()));
                v
            });
            break;
        };
        assert_eq!(*error, Error::ResourceExhausted("full".to_owned()));
        names.push(got.0.failed.expect("a node"));
    }
    let names: Vec<&str> = names.iter().filter_map(|name| name.split(' ').next()).collect();
    assert_eq!(names, ["a", "b", "u", "t"]);
}

/// The device is lost in the midst of a replay, at each of its allocations.
#[test]
fn a_device_that_is_lost_during_a_replay_is_an_error() {
    for left in 0..4 {
        let mut session = Session::new(own_device());
        let kernel = region(&session, STEP);
        let inputs = two_variables(&mut session);
        until_replayed(&mut session, &*kernel, &inputs);
        let run = faulty(&mut session, &*kernel, &inputs, (left, lost), false);
        assert!(matches!(run.outputs, Err(Error::Unavailable(_))), "{left}: {run:?}");
    }
}

/// A value that failed work should have written: a region with a record says so for the member that
/// reads it, and its next runs are right.
#[test]
fn a_poisoned_input_is_an_error_of_the_member_that_reads_it() {
    let mut session = Session::new(own_device());
    let kernel = region(&session, INPUTS);
    let inputs = [&[0.5, 1.0, -2.0][..], &[0.25]];
    let inputs = inputs.map(|v| Input::Value(HostTensor::f32(&[v.len()], v)));
    until_replayed(&mut session, &*kernel, &inputs);
    let want = session.run_kernel(&*kernel, &inputs).unwrap();
    let failed = parking_lot::Mutex::new(None);
    let spoiled = |ctx: &mut dyn OpContext| {
        let x = ctx.input(0)?;
        let error = Error::Unimplemented("the driver refused a shader".to_owned());
        ctx.device().spoil(x.address, x.bytes(), &error);
        let (mut left, mut forwarded, mut node) = (usize::MAX, 0, None);
        let computed = kernel.compute(&mut Faulty {
            ctx,
            left: &mut left,
            then: full,
            holds_inputs: false,
            forwarded: &mut forwarded,
            failed: &mut node,
        });
        *failed.lock() = node;
        computed
    };
    let error = session.run_kernel(&spoiled, &inputs).unwrap_err();
    let is_it = |e: &Error| matches!(e, Error::Unimplemented(m) if m.contains("refused a shader"));
    assert!(is_it(&error), "{error:?}");
    assert_eq!(failed.into_inner().as_deref(), Some("c of float32[3]"));
    for _ in 0..2 {
        assert_eq!(session.run_kernel(&*kernel, &inputs).unwrap(), want);
    }
}

/// Two members read the input `x`, and the last of them may overwrite it, though another one reads
/// the result, too.
const INPUTS: &str = "x = Placeholder -> float32[3]
    y = Placeholder -> float32[1]
    a = Neg(y) {T: float32} -> float32[1]
    b = Exp(a) {T: float32} -> float32[1]
    c = Sin(x) {T: float32} -> float32[3]
    d = Mul(c, b) {T: float32} -> float32[3]
    e = Mul(x, b) {T: float32} -> float32[3]
    f = Neg(e) {T: float32} -> float32[3]
    out = Custom(d, e, f)";

/// An input whose place an output takes in some runs, and that something else reads in others. A
/// replay that does otherwise than its record copies it; after two in turn another record holds.
#[test]
fn an_input_that_must_stay_is_copied_until_a_record_leaves_it_alone() {
    let mut session = Session::new(own_device());
    let kernel = region(&session, INPUTS);
    let (x, y) = ([0.5_f32, 1.0, -2.0], 0.25_f32);
    let inputs = [&x[..], &[y]].map(|v| Input::Value(HostTensor::f32(&[v.len()], v)));
    until_replayed(&mut session, &*kernel, &inputs);
    let run = |session: &mut Session, holds_inputs| {
        let before = session.device.statistics().copies;
        let run = faulty(session, &*kernel, &inputs, (usize::MAX, full), holds_inputs);
        let outputs = run.outputs.unwrap();
        let scale = (-y).exp();
        assert_close(&outputs[0], &x.map(|x| x.sin() * scale));
        assert_close(&outputs[1], &x.map(|x| x * scale));
        assert_close(&outputs[2], &x.map(|x| -x * scale));
        if holds_inputs {
            assert_eq!(run.input.unwrap().values::<f32>(), x, "the input stays");
        }
        (run.forwarded, session.device.statistics().copies - before)
    };
    let (taken, held) = (false, true);
    assert_eq!(run(&mut session, taken), (1, 0), "the output takes the place of the input");
    // As in the first iteration of a loop.
    assert_eq!(run(&mut session, held), (0, 1), "a copy of the input does");
    assert_eq!(run(&mut session, taken), (1, 0), "the record is kept");
    assert_eq!(run(&mut session, held), (0, 1));
    assert_eq!(run(&mut session, held), (0, 1));
    for _ in 0..4 {
        assert_eq!(run(&mut session, held), (0, 0), "the output has memory of its own");
    }
    assert_eq!(run(&mut session, taken), (1, 1), "the record reads a copy");
    assert_eq!(run(&mut session, held), (0, 0), "the record is kept");
    assert_eq!(run(&mut session, taken), (1, 1));
    assert_eq!(run(&mut session, taken), (1, 1));
    assert_eq!(run(&mut session, taken), (1, 0), "the first record again");
    // The comparison of the new record's first replay took place in these runs.
    let dispatches = |session: &mut Session| {
        let before = session.device.statistics().dispatches;
        session.run_kernel(&*kernel, &inputs).unwrap();
        session.device.statistics().dispatches - before
    };
    assert_eq!(dispatches(&mut session), dispatches(&mut session));
}
