//! CudnnRNN and its relatives against the reference of [`super::network`]: values, and gradients
//! against difference quotients of it.

use super::cells::{close, dot, random, slopes};
use super::network::{Network, SMALL};
use super::numeric::bindings::{session_of, under};
use super::numeric::{Random, session};
use tensorflow_wgpu::device::Profile;
use tensorflow_wgpu::local::{Input, Node, Session};
use tensorflow_wgpu::{DType, Error, HostTensor};

fn forward(
    session: &mut Session,
    n: &Network,
    node: &Node,
    inputs: &[HostTensor],
) -> Vec<HostTensor> {
    let mut inputs: Vec<Input> = inputs.iter().cloned().map(Input::from).collect();
    if n.has_lengths() {
        inputs.push(n.lengths_input().into());
    }
    session.run(node, &inputs).unwrap()
}

/// A network with random inputs and the reference's results.
struct Expected {
    n: Network,
    dtype: DType,
    what: String,
    random: Random,
    inputs: Vec<HostTensor>,
    values: Vec<Vec<f64>>,
    want: [Vec<f64>; 3],
}

impl Expected {
    fn new(n: &Network, dtype: DType) -> Self {
        let n = n.fitted();
        let what = format!(
            "{} {dtype} {}x{} layers, projected to {}",
            n.mode, n.layers, n.directions, n.projection
        );
        let mut random = Random::new(n.units as u64 + 3);
        let (_, mut values) = super::cells::random(&mut random, dtype, &n.shapes());
        if n.units > 64 {
            // Saturated gates would hide errors in the sums.
            let scale = 2.0 / (n.units as f64).sqrt();
            for v in &mut values[3] {
                *v *= scale;
            }
        }
        let rounded = HostTensor::floats(dtype, &[n.params()], &values[3]);
        values[3] = n.fitting(rounded.to_f64());
        let inputs = n.op_inputs(dtype, &values);
        let want = n.run(&values);
        Self { n, dtype, what, random, inputs, values, want }
    }

    /// Runs the network and compares its values; returns its results.
    fn check_values(&self, session: &mut Session) -> Vec<HostTensor> {
        let Self { n, dtype, what, inputs, want, .. } = self;
        let bound = match *dtype {
            DType::F64 => 1e-12,
            DType::F32 => 3e-6 * n.units.max(8) as f64,
            DType::F16 => 4e-3,
            _ => 3e-2,
        };
        let node = n.node(n.op(false), *dtype);
        let got = forward(session, n, &node, inputs);
        assert_eq!(got[0].dims[..], n.output_shape()[..]);
        assert_eq!(got[1].dims[..], n.state_shape()[..]);
        for (k, name) in ["output", "output_h", "output_c"].iter().enumerate() {
            close(&got[k], &want[k], bound, &format!("{what}: {name}"));
        }
        let plain = forward(session, n, &node.clone().attr("is_training", false), inputs);
        for k in 0..3 {
            assert_eq!(plain[k], got[k], "{what}: without training");
        }
        got
    }
}

/// Values and gradients of a network.
fn check(session: &mut Session, n: &Network, dtype: DType, slope_bound: Option<f64>) {
    let expected = Expected::new(n, dtype);
    let got = expected.check_values(session);
    let Expected { n, what, random: mut r, inputs, values, .. } = expected;
    let n = &n;
    let Some(slope_bound) = slope_bound else { return };
    let shapes = [n.output_shape(), n.state_shape(), n.cell_shape()];
    let (d_outputs, d_values) = random(&mut r, dtype, &shapes);
    let mut back: Vec<Input> = inputs.iter().cloned().map(Input::from).collect();
    if n.has_lengths() {
        back.push(n.lengths_input().into());
    }
    back.extend(got[..3].iter().cloned().map(Input::from));
    back.extend(d_outputs.into_iter().map(Input::from));
    back.extend(got[3..].iter().cloned().map(Input::from));
    let node = n.node(n.op(true), dtype);
    let grads = session.run(&node, &back).unwrap();
    let kept = if n.has_cells() { 3 } else { 2 };
    let loss = |p: &[Vec<f64>]| {
        let all = n.run(p);
        (0..kept).map(|k| dot(&all[k], &d_values[k])).sum()
    };
    let mut all = slopes(&values, loss);
    let of_params = n.tensors(&all.remove(3));
    all.extend(of_params.into_iter().map(|(_, slopes)| slopes));
    assert_eq!(grads.len(), all.len(), "{what}");
    for (k, slopes) in all.iter().enumerate() {
        let what = format!("{what}: gradient of input {k}");
        if k == 2 && !n.has_cells() {
            assert_eq!(grads[k].to_f64(), [0.0], "{what}");
        } else {
            close(&grads[k], slopes, slope_bound, &what);
        }
    }
}

/// CudnnRNN's kinds of layers, and those of our own op.
const CUDNN: [&str; 4] = ["lstm", "gru", "rnn_tanh", "rnn_relu"];
const OURS: [&str; 3] = ["gru_reset_before", "rnn_linear", "rnn_sigmoid"];
/// The modes that have a shader text of their own.
const MODES: [&str; 5] = ["lstm", "gru", "gru_reset_before", "rnn_tanh", "rnn_relu"];

/// LSTMs whose outputs are projected.
fn projected() -> Vec<Network> {
    let mut all = Vec::new();
    for n in networks(&["lstm"]) {
        let units = n.units + 2;
        let inputs = if n.skips { units } else { n.inputs };
        all.extend([1, 3].map(|projection| Network { projection, units, inputs, ..n.clone() }));
    }
    // As many outputs as units: no projection.
    all.push(Network { projection: 2, ..SMALL });
    all
}

fn networks(modes: &[&'static str]) -> Vec<Network> {
    let mut all = Vec::new();
    for &mode in modes {
        let small = Network { mode, ..SMALL };
        all.push(small.clone());
        all.push(Network { layers: 2, directions: 2, ..small.clone() });
        all.push(Network { layers: 2, inputs: 2, skips: true, ..small.clone() });
        all.push(Network { directions: 2, time_major: false, ..small.clone() });
        all.push(Network {
            layers: 2,
            directions: 2,
            batch: 4,
            lengths: Some(vec![3, 1, 0, 2]),
            ..small.clone()
        });
        all.push(Network {
            batch: 3,
            time_major: false,
            lengths: Some(vec![2, 3, 1]),
            ..small.clone()
        });
        all.push(Network { steps: 1, batch: 1, inputs: 1, units: 1, ..small });
    }
    all
}

/// Networks of all kinds of layers and with all kinds of weights.
fn all_networks() -> Vec<Network> {
    let keras = networks(&CUDNN).into_iter().map(|n| Network { keras: true, ..n });
    let all = networks(&[&CUDNN[..], &OURS].concat()).into_iter();
    all.chain(keras).chain(projected()).collect()
}

#[test]
fn small_networks_and_their_gradients() {
    let mut session = session();
    for dtype in session.supported([DType::F32, DType::F64]) {
        for n in all_networks() {
            check(&mut session, &n, dtype, Some(if dtype == DType::F32 { 2e-5 } else { 1e-6 }));
        }
    }
}

#[test]
fn narrow_floats_are_computed_wide() {
    let mut session = session();
    for n in all_networks() {
        check(&mut session, &n, DType::F16, Some(2e-2));
        check(&mut session, &n, DType::BF16, Some(1e-1));
    }
}

/// More sequences than a workgroup takes, units that are no power of two, units in slices, and more
/// steps than a dispatch takes.
#[test]
fn extents_of_all_kinds() {
    let extents = [
        (5, 3, 40, 33),
        (4, 19, 7, 64),
        (2, 33, 5, 100),
        (2, 2, 30, 256),
        (3, 5, 20, 257),
        (2, 3, 6, 400),
        (600, 1, 3, 130),
    ];
    let mut all = Vec::new();
    for (at, mode) in MODES.into_iter().enumerate() {
        // For modes that differ only in their gates, each is tested with some of the extents.
        let is_chosen = |number: usize| mode == "lstm" || number % 3 == at % 3;
        for (number, (steps, batch, inputs, units)) in extents.into_iter().enumerate() {
            if !is_chosen(number) {
                continue;
            }
            let n = Network { mode, steps, batch, inputs, units, directions: 2, ..SMALL };
            all.push(Expected::new(&n, DType::F32));
            if mode == "gru" {
                all.push(Expected::new(&Network { keras: true, ..n.clone() }, DType::F32));
            }
            if mode == "lstm" {
                let n = Network { projection: units / 3, time_major: false, ..n };
                all.push(Expected::new(&n, DType::F32));
            }
        }
    }
    for profile in Profile::DISTINCT {
        under(profile, || {
            let mut session = session();
            for expected in &all {
                expected.check_values(&mut session);
            }
        });
    }
}

/// The gradients of networks of many units in a random direction, against the reference's
/// difference quotients in that direction.
#[test]
fn gradients_of_larger_networks() {
    let mut all = Vec::new();
    // A difference quotient of a rectified unit near its kink does not give its slope.
    for mode in ["lstm", "gru", "gru_reset_before", "rnn_tanh"] {
        // The last one has few weights and 1,440 rows, so that sums over the rows are cut.
        for (steps, batch, units) in [(4, 11, 96), (3, 5, 260), (60, 24, 16)] {
            let n = Network { mode, steps, batch, inputs: 9, units, ..SMALL };
            all.push(Slopes::new(&n));
            if mode == "gru" {
                all.push(Slopes::new(&Network { keras: true, ..n.clone() }));
            }
            if mode == "lstm" {
                all.push(Slopes::new(&Network {
                    projection: 40.min(units / 2),
                    layers: 2,
                    directions: 2,
                    ..n
                }));
            }
        }
    }
    for profile in Profile::DISTINCT {
        under(profile, || {
            let mut session = session();
            for slopes in &all {
                slopes.check(&mut session);
            }
        });
    }
}

/// A large network, and its reference's difference quotient in a random direction of each input.
struct Slopes {
    n: Network,
    inputs: Vec<HostTensor>,
    d_outputs: Vec<HostTensor>,
    /// The number of the input, the direction, and the quotient in it.
    quotients: Vec<(usize, Vec<f64>, f64)>,
}

impl Slopes {
    fn new(n: &Network) -> Self {
        let n = n.fitted();
        let mut r = Random::new(11);
        let (_, mut values) = random(&mut r, DType::F32, &n.shapes());
        for v in &mut values[3] {
            *v /= (n.units as f64).sqrt();
        }
        let rounded = HostTensor::floats(DType::F32, &[n.params()], &values[3]);
        values[3] = n.fitting(rounded.to_f64());
        let inputs = n.op_inputs(DType::F32, &values);
        let shapes = [n.output_shape(), n.state_shape(), n.cell_shape()];
        let (d_outputs, d_values) = random(&mut r, DType::F32, &shapes);
        let kept = if n.has_cells() { 3 } else { 2 };
        let quotient = |k: usize| {
            let (_, direction) = r.tensor(DType::F64, &[values[k].len()]);
            let direction = if k == 3 { n.fitting(direction) } else { direction };
            let at = |delta: f64| -> f64 {
                let mut moved = values.clone();
                for (v, d) in moved[k].iter_mut().zip(&direction) {
                    *v += delta * d;
                }
                let all = n.run(&moved);
                (0..kept).map(|k| dot(&all[k], &d_values[k])).sum()
            };
            let quotient = (at(1e-5) - at(-1e-5)) / 2e-5;
            (k, direction, quotient)
        };
        let quotients = (0..4).filter(|k| *k != 2 || n.has_cells()).map(quotient).collect();
        Self { n, inputs, d_outputs, quotients }
    }

    fn check(&self, session: &mut Session) {
        let Self { n, inputs, d_outputs, quotients } = self;
        let got = forward(session, n, &n.node(n.op(false), DType::F32), inputs);
        let mut inputs = inputs.clone();
        if n.has_lengths() {
            inputs.push(n.lengths_input());
        }
        let back = inputs.iter().chain(&got[..3]).chain(d_outputs).chain(&got[3..]);
        let back: Vec<Input> = back.cloned().map(Input::from).collect();
        let grads = session.run(&n.node(n.op(true), DType::F32), &back).unwrap();
        for (k, direction, want) in quotients {
            let (range, direction) = match k {
                3 => (3..grads.len(), n.tensors(direction).into_iter().flat_map(|t| t.1).collect()),
                _ => (*k..k + 1, direction.clone()),
            };
            let found: Vec<f64> = grads[range].iter().flat_map(HostTensor::to_f64).collect();
            let slope = dot(&found, &direction);
            let bound = 1e-4 * dot(&found, &found).sqrt().max(1.0);
            assert!((slope - want).abs() <= bound, "{} input {k}: {slope}, want {want}", n.mode);
        }
    }
}

/// Tensors over all steps are cut by sequences if these come first, else by steps.
#[test]
fn tensors_beyond_one_binding() {
    let mut session = session_of(4096);
    for mode in MODES {
        let base = Network { mode, units: 8, directions: 2, ..SMALL };
        let lengths = Some(vec![9, 10, 0, 4, 7, 1, 10]);
        for n in [
            Network { steps: 10, batch: 7, time_major: false, ..base.clone() },
            Network { steps: 10, batch: 7, time_major: false, lengths, ..base.clone() },
            // Rounding errors grow from step to step if nothing bounds the outputs.
            Network { mode: smooth(mode), steps: 40, batch: 3, layers: 2, ..base.clone() },
            Network { mode: smooth(mode), steps: 70, batch: 1, time_major: false, ..base.clone() },
        ] {
            check(&mut session, &n, DType::F32, (n.steps < 20).then_some(5e-5));
        }
        if mode == "lstm" {
            let lengths = Some(vec![9, 10, 0, 4, 7, 1, 10]);
            let n = Network { steps: 10, batch: 7, time_major: false, lengths, ..base.clone() };
            check(&mut session, &Network { projection: 5, ..n }, DType::F32, Some(5e-5));
            let n = Network { steps: 40, batch: 3, projection: 5, ..base.clone() };
            check(&mut session, &n, DType::F32, None);
        }
        let n = Network { steps: 40, batch: 3, directions: 1, ..base };
        Slopes::new(&Network { mode: smooth(mode), ..n }).check(&mut session);
    }
}

/// A mode without a kink.
fn smooth(mode: &'static str) -> &'static str {
    if mode == "rnn_relu" { "rnn_tanh" } else { mode }
}

/// Values between layers are dropped or kept as a whole, by the node's seed, and the gradient drops
/// the same ones.
#[test]
fn dropout_between_layers() {
    let mut session = session();
    let n = Network { mode: "rnn_relu", layers: 2, steps: 2, batch: 40, units: 8, ..SMALL };
    let mut r = Random::new(5);
    let (inputs, _) = random(&mut r, DType::F32, &n.shapes());
    let node = n.node("CudnnRNNV2", DType::F32).attr("dropout", 0.25);
    let dropped = forward(&mut session, &n, &node, &inputs);
    assert_eq!(
        dropped,
        forward(&mut session, &n, &node, &inputs),
        "a node's first run is its seed's"
    );
    let whole = forward(&mut session, &n, &n.node("CudnnRNNV2", DType::F32), &inputs);
    assert_ne!(dropped[0], whole[0]);
    // reserve_space: outputs of the first layer, then their factors.
    let rows = n.steps * n.batch * n.units;
    let kept = dropped[3].to_f64();
    assert_eq!(kept.len(), 2 * rows);
    let factors = &kept[rows..];
    let scale = f64::from(1.0f32 / 0.75);
    assert!(factors.iter().all(|f| *f == 0.0 || (f - scale).abs() < 1e-6));
    let zeros = factors.iter().filter(|f| **f == 0.0).count() as f64 / rows as f64;
    assert!((0.15..0.35).contains(&zeros), "{zeros}");
    // Without training nothing is dropped.
    let plain = forward(&mut session, &n, &node.clone().attr("is_training", false), &inputs);
    assert_eq!(plain[0], whole[0]);
    // If all values are dropped, nothing of the outputs' gradient reaches the first layer.
    let got = forward(&mut session, &n, &node.clone().attr("dropout", 1.0), &inputs);
    let filled = |dims: &[usize], value: f64| {
        HostTensor::floats(DType::F32, dims, &vec![value; dims.iter().product()])
    };
    let mut back: Vec<HostTensor> = inputs.clone();
    back.extend_from_slice(&got[..3]);
    let shapes = [n.output_shape(), n.state_shape(), vec![]];
    back.extend([1.0, 0.0, 0.0].iter().zip(&shapes).map(|(v, dims)| filled(dims, *v)));
    back.extend_from_slice(&got[3..]);
    let back: Vec<Input> = back.into_iter().map(Input::from).collect();
    let node = n.node("CudnnRNNBackpropV2", DType::F32).attr("dropout", 1.0);
    let grads = session.run(&node, &back).unwrap();
    assert!(grads[0].to_f64().iter().all(|g| *g == 0.0));
    let (first, second) = (n.units * (n.inputs + n.units), n.units * 2 * n.units);
    let weights = grads[3].to_f64();
    assert!(weights[..first].iter().all(|g| *g == 0.0));
    assert!(weights[first..first + second].iter().any(|g| *g != 0.0));
}

#[test]
fn empty_extents() {
    let mut session = session();
    for mode in MODES {
        for (steps, batch) in [(0, 2), (2, 0), (0, 0)] {
            let n = Network { mode, steps, batch, ..SMALL };
            check(&mut session, &n, DType::F32, Some(1e-5));
            if mode == "lstm" {
                check(&mut session, &Network { projection: 1, ..n }, DType::F32, Some(1e-5));
            }
        }
    }
}

#[test]
fn parameters_as_matrices_and_back() {
    let mut session = session();
    let sizes = |n: &Network| {
        [n.layers, n.units, n.inputs].map(|v| Input::from(HostTensor::i32(&[], &[v as i32])))
    };
    for n in networks(&CUDNN).into_iter().chain(projected()) {
        let biases = n.pseudo_layers() * 2 * n.gates();
        let count = biases + if n.projects() { n.pseudo_layers() } else { 0 };
        let projection = n.projection as i64;
        let attrs = |node: Node| {
            node.attr("num_params_weights", count as i64)
                .attr("num_params_biases", biases as i64)
                .attr("num_proj", projection)
        };
        let size = n.node("CudnnRNNParamsSize", DType::F32).attr("S", DType::I32);
        let size = session.run(&size.attr("num_proj", projection), &sizes(&n));
        assert_eq!(size.unwrap()[0], HostTensor::i32(&[1], &[n.params() as i32]));
        let (params, values) = Random::new(3).tensor(DType::F16, &[n.params()]);
        let node = attrs(n.node("CudnnRNNParamsToCanonicalV2", DType::F16));
        let mut inputs = sizes(&n).to_vec();
        inputs.push(params.clone().into());
        let parts = session.run(&node, &inputs).unwrap();
        assert_eq!(parts.len(), count + biases);
        let flat: Vec<f64> = parts.iter().flat_map(HostTensor::to_f64).collect();
        assert_eq!(flat, values);
        assert_eq!(parts[0].dims[..], [n.units, n.weighted(0)]);
        assert_eq!(parts[n.gates()].dims[..], [n.units, n.outputs()]);
        if n.projects() {
            assert_eq!(parts[2 * n.gates()].dims[..], [n.projection, n.units]);
        }
        assert_eq!(parts[count].dims[..], [n.units]);
        let node = attrs(n.node("CudnnRNNCanonicalToParamsV2", DType::F16));
        let mut inputs = sizes(&n).to_vec();
        inputs.extend(parts.into_iter().map(Input::from));
        assert_eq!(session.run(&node, &inputs).unwrap()[0], params);
    }
}

#[test]
fn bad_input_is_told() {
    let mut session = session();
    let n = SMALL;
    let (good, _) = random(&mut Random::new(1), DType::F32, &n.shapes());
    let node = n.node("CudnnRNNV3", DType::F32);
    let mut fails = |change: &dyn Fn(&mut Vec<HostTensor>), words: &str| {
        let mut inputs = good.clone();
        inputs.push(n.lengths_input());
        change(&mut inputs);
        let inputs: Vec<Input> = inputs.into_iter().map(Input::from).collect();
        match session.run(&node, &inputs) {
            Err(Error::InvalidArgument(m)) => assert!(m.contains(words), "{m}"),
            other => panic!("{words}: {other:?}"),
        }
    };
    fails(&|i| i[0] = HostTensor::f32(&[2], &[0.0; 2]), "RNN input must be a 3-D vector.");
    fails(
        &|i| i[1] = HostTensor::f32(&[1, 3, 2], &[0.0; 6]),
        "Invalid input_h shape: [1,3,2] [1,2,2]",
    );
    fails(&|i| i[2] = HostTensor::f32(&[1, 2, 1], &[0.0; 2]), "Invalid input_c shape");
    fails(&|i| i[3] = HostTensor::f32(&[2], &[0.0; 2]), "Invalid params shape: [2] [56]");
    fails(&|i| i[4] = HostTensor::i32(&[1], &[3]), "Invalid sequence_lengths shape");
    fails(
        &|i| i[4] = HostTensor::i32(&[2], &[4, 1]),
        "sequence_lengths[0] must be between 0 and 3",
    );
    fails(&|i| i[4] = HostTensor::i32(&[2], &[1, -1]), "sequence_lengths[1]");
    let two = Network { mode: OURS[0], layers: 2, time_major: false, ..SMALL };
    let (_, values) = random(&mut Random::new(1), DType::F32, &two.shapes());
    let mut inputs = two.op_inputs(DType::F32, &values);
    inputs.push(two.lengths_input());
    let inputs: Vec<Input> = inputs.into_iter().map(Input::from).collect();
    let made = session.run(&two.node(two.op(false), DType::F32), &inputs);
    let told = |m: &str| m.contains("one layer, got 2");
    assert!(matches!(&made, Err(Error::InvalidArgument(m)) if told(m)), "{made:?}");
    let made = session.run(&node.clone().attr("num_proj", -1i64), &[]);
    assert!(matches!(made, Err(Error::InvalidArgument(_))), "{made:?}");
    let mut inputs: Vec<Input> = good.iter().cloned().map(Input::from).collect();
    inputs.push(n.lengths_input().into());
    let made = session.run(&node.clone().attr("num_proj", 1i64), &inputs);
    let words = "Invalid input_h and input_c w/ projection size: 1 [1,2,2] [1,2,2]";
    assert!(matches!(&made, Err(Error::InvalidArgument(m)) if m.contains(words)), "{made:?}");
    // TensorFlow's kernel reads num_proj only for LSTMs; cuDNN has no other network with it.
    let gru = Network { mode: "gru", time_major: false, ..SMALL };
    let (inputs, _) = random(&mut Random::new(1), DType::F32, &gru.shapes());
    let node = gru.node("CudnnRNNV3", DType::F32);
    let plain = forward(&mut session, &gru, &node, &inputs);
    assert_eq!(forward(&mut session, &gru, &node.attr("num_proj", 1i64), &inputs), plain);
    for (mode, projection) in [("gru", 1i64), ("lstm", 3)] {
        let size = Network { mode, ..SMALL }.node("CudnnRNNParamsSize", DType::F32);
        let size = size.attr("S", DType::I32).attr("num_proj", projection);
        let sizes = [1, 2, 3].map(|v| Input::from(HostTensor::i32(&[], &[v])));
        let made = session.run(&size, &sizes);
        assert!(matches!(made, Err(Error::InvalidArgument(_))), "{made:?}");
    }
    let size = session.run(
        &n.node("CudnnRNNParamsSize", DType::F32).attr("S", DType::I32),
        &[1, 1 << 30, 1 << 30].map(|v| Input::from(HostTensor::i32(&[], &[v]))),
    );
    assert!(matches!(size, Err(Error::InvalidArgument(_))), "{size:?}");
}
