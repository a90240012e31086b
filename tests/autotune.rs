//! Tuning of contractions on a real queue: results are right, on this device and on the next one.
//!
//! Which candidate wins is noise here. That one wins, and the consequences, are tested.

mod numeric;
#[path = "numeric/scratch.rs"]
mod scratch;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use numeric::{Random, assert_close};
use scratch::Scratch;
use tensorflow_wgpu::device::{Capabilities, Device, Profile, Selection, Timestamps};
use tensorflow_wgpu::local::{Input, Node, Session};
use tensorflow_wgpu::report::tuning_of;
use tensorflow_wgpu::{DType, HostTensor};

fn adapter() -> wgpu::Adapter {
    let selection = Selection::enumerate(&|name| std::env::var(name).ok());
    selection
        .adapters
        .into_iter()
        .next()
        .expect("a Vulkan driver; on Debian install mesa-vulkan-drivers")
}

fn untuned() -> Arc<Device> {
    Device::open(&adapter()).unwrap()
}

/// The profile of a GPU with its own memory: software adapters have too few tiles to time.
fn gpu() -> Profile {
    Profile::NVIDIA.on(untuned().profile())
}

fn device(directory: Option<&Path>) -> Arc<Device> {
    Device::open_tuning(&adapter(), gpu(), directory, || false).unwrap()
}

/// An op with its inputs and expected results.
struct Case {
    node: Node,
    inputs: Vec<Input>,
    want: Vec<f64>,
    scale: f64,
}

impl Case {
    /// `a[m][k] * b[k][n]`.
    fn matmul(dtype: DType, [m, k, n]: [usize; 3]) -> Self {
        let mut random = Random::new((m * 31 + k * 7 + n) as u64);
        let ((a, av), (b, bv)) = (random.tensor(dtype, &[m, k]), random.tensor(dtype, &[k, n]));
        let element = |i: usize| (0..k).map(|l| av[i / n * k + l] * bv[l * n + i % n]).sum();
        Self {
            node: Node::new("MatMul")
                .attr("T", dtype)
                .attr("transpose_a", false)
                .attr("transpose_b", false),
            inputs: vec![a.into(), b.into()],
            want: (0..m * n).map(element).collect(),
            scale: k as f64,
        }
    }

    /// A batch of products.
    fn batched(batch: usize, [m, k, n]: [usize; 3]) -> Self {
        let mut random = Random::new((m * 31 + k * 7 + n) as u64);
        let (a, av) = random.tensor(DType::F32, &[batch, m, k]);
        let (b, bv) = random.tensor(DType::F32, &[batch, k, n]);
        let element = |i: usize| {
            let (z, row, column) = (i / (m * n), i / n % m, i % n);
            (0..k).map(|l| av[(z * m + row) * k + l] * bv[(z * k + l) * n + column]).sum()
        };
        Self {
            node: Node::new("BatchMatMulV2")
                .attr("T", DType::F32)
                .attr("adj_x", false)
                .attr("adj_y", false),
            inputs: vec![a.into(), b.into()],
            want: (0..batch * m * n).map(element).collect(),
            scale: k as f64,
        }
    }

    /// `relu(a[m][k] * b[k][n] + bias[n])` as one op.
    fn fused(shape: [usize; 3]) -> Self {
        let Self { inputs, mut want, scale, .. } = Self::matmul(DType::F32, shape);
        let (bias, values) = Random::new(7).tensor(DType::F32, &shape[2..]);
        want.iter_mut().enumerate().for_each(|(i, w)| *w = (*w + values[i % shape[2]]).max(0.0));
        let text = "x: float32, float32; c: 0; s0 = AddV2<float32>(x0, x1); s1 = \
                    Relu<float32>(s0); return s1";
        let node =
            Node::new("_WgpuFusedMatMul").attr("transpose_a", false).attr("transpose_b", false);
        let node =
            node.attr("T", DType::F32).attr("T_out", DType::F32).attr("T_extra", &[DType::F32][..]);
        Self {
            node: node.attr("expression", text).attr("constants", &[][..] as &[f32]),
            inputs: inputs.into_iter().chain([bias.into()]).collect(),
            want,
            scale: scale + 1.0,
        }
    }

    /// A convolution of 3 by 3 in a plane of `edge` by `edge`, or one of its gradients.
    fn conv(suffix: &str, edge: usize, channels: usize, filters: usize) -> Self {
        let (out, batch) = (edge - 2, 2);
        let dims =
            [[batch, edge, edge, channels], [3, 3, channels, filters], [batch, out, out, filters]];
        let mut random = Random::new(edge as u64);
        let [x, w, y] = dims.map(|dims| random.tensor(DType::F32, &dims));
        let mut sums = dims.map(|dims| vec![0.0; dims.iter().product()]);
        for z in 0..batch * out * out * 9 * channels * filters {
            let (f, c, t) = (z % filters, z / filters % channels, z / (filters * channels) % 9);
            let position = z / (filters * channels * 9);
            let (b, i, j) = (position / (out * out), position / out % out, position % out);
            let at_x = ((b * edge + i + t / 3) * edge + j + t % 3) * channels + c;
            let (at_w, at_y) = ((t * channels + c) * filters + f, position * filters + f);
            sums[0][at_x] += y.1[at_y] * w.1[at_w];
            sums[1][at_w] += x.1[at_x] * y.1[at_y];
            sums[2][at_y] += x.1[at_x] * w.1[at_w];
        }
        let sizes = |i: usize| HostTensor::i32(&[4], &dims[i].map(|d| d as i32));
        let (inputs, which) = match suffix {
            "BackpropInput" => (vec![sizes(0), w.0, y.0], 0),
            "BackpropFilter" => (vec![x.0, sizes(1), y.0], 1),
            _ => (vec![x.0, w.0], 2),
        };
        let node = Node::new(&format!("Conv2D{suffix}"))
            .attr("T", DType::F32)
            .attr("strides", &[1, 1, 1, 1][..]);
        let node = node
            .attr("dilations", &[1, 1, 1, 1][..])
            .attr("padding", "VALID")
            .attr("data_format", "NHWC");
        Self {
            node: node.attr("explicit_paddings", &[][..] as &[i64]),
            inputs: inputs.into_iter().map(Input::from).collect(),
            want: std::mem::take(&mut sums[which]),
            scale: 9.0 * (channels.max(filters) * batch * out * out) as f64,
        }
    }

    /// Runs it under a GPU's profile and compares.
    fn run(&self, session: &mut Session) -> HostTensor {
        let got = session.run(&self.node, &self.inputs).unwrap();
        assert_close(&got[0], &self.want, self.scale, &format!("{:?}", self.node));
        got.into_iter().next().unwrap()
    }
}

fn answers(device: &Device) -> usize {
    device.tuner().unwrap().answers().len()
}

fn timings(device: &Device) -> u64 {
    device.tuner().unwrap().timings()
}

#[test]
fn contractions_of_all_kinds_are_tuned_and_stay_right() {
    let mut session = Session::new(device(None));
    for case in [
        Case::matmul(DType::F32, [40, 96, 72]),
        Case::matmul(DType::F16, [3, 700, 20]),
        Case::matmul(DType::F32, [5, 3000, 6]),
        Case::batched(3, [20, 40, 24]),
        Case::fused([40, 96, 72]),
        Case::fused([5, 3000, 6]),
        Case::conv("", 12, 8, 16),
        Case::conv("BackpropInput", 12, 8, 16),
        Case::conv("BackpropFilter", 12, 8, 16),
    ] {
        let before = timings(&session.device);
        case.run(&mut session);
        let needed = timings(&session.device);
        assert!(needed >= before + 4, "at least two candidates: {:?}", case.node);
        for _ in 0..3 {
            case.run(&mut session);
        }
        assert_eq!(timings(&session.device), needed, "nothing is timed once there is an answer");
    }
    assert_eq!(answers(&session.device), 9, "each has a question of its own");
}

/// What a user sends, for the shipped table.
#[test]
fn a_report_has_the_times_of_each_candidate_once() {
    let mut session = Session::new(device(None));
    let other = Session::new(device(None));
    for _ in 0..2 {
        Case::matmul(DType::F32, [40, 96, 72]).run(&mut session);
        Case::conv("", 12, 8, 16).run(&mut session);
    }
    let found = tuning_of(&session.device);
    let found = found.as_array().unwrap();
    assert_eq!(found.len(), 2, "a search for each question");
    let class = &found[0]["class"];
    let sizes = ["m", "n", "k", "batch"].map(|name| class[name].as_str().unwrap());
    assert_eq!((&class["family"], sizes), (&"ada".into(), ["64", "128", "128", "1"]), "{class}");
    assert_eq!((&class["operation"], &class["type"]), (&"product".into(), &"float32".into()));
    assert_eq!(found[1]["class"]["operation"], "conv");
    for search in found {
        let candidates = search["candidates"].as_array().unwrap();
        assert!(candidates.len() >= 2, "{search}");
        for (i, candidate) in candidates.iter().enumerate() {
            assert!(candidate["nanoseconds"].as_u64().unwrap() > 0, "{search}");
            let name =
                |c: &serde_json::Value| [&c["tile"], &c["parts"], &c["schedule"]].map(Clone::clone);
            assert!(candidates[..i].iter().all(|c| name(c) != name(candidate)), "{search}");
        }
    }
    assert_eq!(tuning_of(&other.device), serde_json::json!([]), "another device timed nothing");
}

#[test]
fn without_timestamps_the_host_keeps_the_time() {
    let capabilities = Capabilities { timestamps: Timestamps::None, ..gpu().capabilities };
    let profile = Profile { capabilities, ..gpu() };
    let device = Device::open_tuning(&adapter(), profile, None, || false).unwrap();
    let mut session = Session::new(device);
    let case = Case::matmul(DType::F32, [40, 96, 72]);
    case.run(&mut session);
    assert_eq!(answers(&session.device), 1);
}

#[test]
fn sizes_between_two_powers_of_two_share_an_answer() {
    let mut session = Session::new(device(None));
    Case::matmul(DType::F32, [40, 96, 72]).run(&mut session);
    let needed = timings(&session.device);
    for shape in [[33, 68, 68], [64, 128, 128], [36, 100, 80]] {
        Case::matmul(DType::F32, shape).run(&mut session);
    }
    assert_eq!((answers(&session.device), timings(&session.device)), (1, needed));
}

#[test]
fn the_next_device_knows_the_answers() {
    let scratch = Scratch::new("again");
    let case = Case::matmul(DType::F32, [40, 96, 72]);
    let mut first = Session::new(device(Some(&scratch.0)));
    let tuned = case.run(&mut first);
    let known = first.device.tuner().unwrap().answers();
    drop(first);
    let mut second = Session::new(device(Some(&scratch.0)));
    assert_eq!(second.device.tuner().unwrap().answers(), known);
    assert_eq!(case.run(&mut second).bytes, tuned.bytes, "the same program, so the same bits");
    assert_eq!(timings(&second.device), 0);
}

#[test]
fn garbage_in_the_file_is_discarded_and_replaced() {
    let scratch = Scratch::new("garbage");
    let case = Case::matmul(DType::F32, [40, 96, 72]);
    let mut session = Session::new(device(Some(&scratch.0)));
    case.run(&mut session);
    drop(session);
    let files = || std::fs::read_dir(&scratch.0).unwrap().map(|e| e.unwrap().path());
    let path = files()
        .find(|p| p.extension().is_some_and(|e| e == "tuning"))
        .expect("a file beside the pipelines");
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let mut session = Session::new(device(Some(&scratch.0)));
    assert_eq!(answers(&session.device), 0);
    case.run(&mut session);
    drop(session);
    assert_ne!(std::fs::read(&path).unwrap(), bytes);
    assert_eq!(answers(&device(Some(&scratch.0))), 1);
}

#[test]
fn determinism_keeps_to_the_estimate() {
    let on = Arc::new(AtomicBool::new(true));
    let asked = on.clone();
    let profile = gpu();
    let device =
        Device::open_tuning(&adapter(), profile, None, move || asked.load(Ordering::Relaxed))
            .unwrap();
    let mut session = Session::new(device);
    // Long sums, whose last bits depend on their order.
    let case = Case::matmul(DType::F32, [5, 3000, 6]);
    let untuned = case.run(&mut Session::under(Profile::NVIDIA).unwrap());
    for _ in 0..4 {
        assert_eq!(case.run(&mut session).bytes, untuned.bytes);
    }
    assert_eq!(timings(&session.device), 0);
    on.store(false, Ordering::Relaxed);
    case.run(&mut session);
    on.store(true, Ordering::Relaxed);
    assert_eq!(case.run(&mut session).bytes, untuned.bytes, "whatever was found out meanwhile");
}

#[test]
fn threads_may_tune_at_once() {
    let device = device(None);
    let cases =
        [[40, 96, 72], [40, 100, 72], [20, 50, 200]].map(|shape| Case::matmul(DType::F32, shape));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (device, cases) = (&device, &cases);
            scope.spawn(move || {
                let mut session = Session::new(device.clone());
                for i in thread..thread + 3 {
                    cases[i % 3].run(&mut session);
                }
            });
        }
    });
    let needed = timings(&device);
    let mut session = Session::new(device);
    cases.iter().for_each(|case| drop(case.run(&mut session)));
    assert_eq!((answers(&session.device), timings(&session.device)), (2, needed));
}

/// Set in the child process of the next test.
const CHILD: &str = "TF_WGPU_TEST_AUTOTUNE";

#[test]
fn the_variable_counts_on_gpus_alone() {
    if std::env::var_os(CHILD).is_some() {
        for adapter in Selection::enumerate(&|name| std::env::var(name).ok()).adapters {
            let device = Device::open(&adapter).unwrap();
            // Under a GPU's preset a software adapter counts as a GPU.
            let software = device.profile().is_software();
            assert_eq!(device.tuner().is_none(), software, "{}", device.info().name);
        }
        return;
    }
    // The kit has all suites in one executable, where a test's name begins with its suite's name.
    let name = concat!(module_path!(), "::the_variable_counts_on_gpus_alone");
    let name = name.split_once("::").expect("the crate's name").1;
    let ran = std::process::Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact"])
        .envs([(CHILD, "1"), ("TF_WGPU_AUTOTUNE", "1")])
        .stdout(std::process::Stdio::null())
        .status();
    assert!(ran.unwrap().success());
    assert!(untuned().tuner().is_none(), "off by default");
}
