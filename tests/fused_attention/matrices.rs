//! Attention by cooperative matrices: emulated ones, and the adapter's own.

use parking_lot::Mutex;
use tensorflow_wgpu::DType::{self, *};
use tensorflow_wgpu::HostTensor;
use tensorflow_wgpu::device::trace::Work;
use tensorflow_wgpu::device::{Cooperative, MatrixSize, Means, Policy, Profile};
use tensorflow_wgpu::local::Session;

use super::attention_case::Case;
use super::matrices::{emulated, emulates_matrices, offering};
use super::numeric::bindings::under;
use super::numeric::{Random, session};

/// Devices are shared by the tests of a process, and a device has one trace at a time.
static TRACES: Mutex<()> = Mutex::new(());

/// Checks a case on this session's device, where matrices must multiply.
#[track_caller]
fn check(session: &mut Session, case: &Case, inputs: &[HostTensor], absolute: f64) {
    let _one = TRACES.lock();
    session.device.trace().unwrap();
    case.check_under(session, inputs, absolute);
    let trace = session.device.end_trace().unwrap().expect("a trace");
    let is_ours = |work: &Work| match work {
        Work::Dispatch { shader, .. } => shader.label.starts_with("attention matrices"),
        _ => false,
    };
    assert!(trace.device.iter().any(|event| is_ours(&event.work)), "{case:?}");
}

/// Checks cases with these emulated matrices.
#[track_caller]
fn check_emulated(offered: Cooperative, cases: &[Case]) {
    let mut random = Random::new(21);
    under(offering(offered, 0), || {
        let mut session = session();
        for case in cases {
            let inputs = case.inputs(&mut random);
            check(&mut session, case, &inputs, 4e-6);
        }
    });
}

/// Rows and keys that fill tiles or do not, rows that are filled up by zeros, narrow and wide
/// values, more workgroups than the adapter needs, so that they have 64 rows.
fn plain(dtype: DType) -> Vec<Case> {
    [
        ("BNTH", [1, 2, 40, 50, 16, 16]),
        ("BTNH", [1, 2, 70, 70, 64, 64]),
        ("BNTH", [2, 1, 33, 40, 24, 20]),
        ("BTNH", [1, 3, 16, 97, 8, 48]),
        ("BNTH", [1, 520, 34, 32, 4, 4]),
    ]
    .map(|(layout, sizes)| Case::plain(dtype, layout, sizes))
    .into()
}

/// The matrices of AMD and NVIDIA, Intel, and Apple.
#[test]
fn every_size_that_adapters_list() {
    if !emulates_matrices() {
        return;
    }
    for (i, size) in [[16, 16, 16], [8, 16, 16], [8, 8, 8], [16, 8, 16]].into_iter().enumerate() {
        let [m, n, k] = size;
        let cases = plain(F16);
        check_emulated(emulated(MatrixSize::new(m, n, k), F16), &cases[i..=i]);
    }
    check_emulated(emulated(MatrixSize::new(16, 16, 16), F16), &plain(F16)[4..]);
    let f32 = emulated(MatrixSize::new(8, 8, 8), F32);
    check_emulated(f32, &plain(F32)[..2]);
    check_emulated(f32, &plain(BF16)[2..3]);
}

#[test]
fn masks_groups_and_splits() {
    if !emulates_matrices() {
        return;
    }
    let sizes = [2, 4, 37, 45, 16, 12];
    let [batch, heads, rows, keys, ..] = sizes;
    let of = |layout| Case::plain(F16, layout, sizes);
    let choice = of("BTNH").masked("choice", Bool, &[rows, keys]);
    check_emulated(
        emulated(MatrixSize::new(16, 16, 16), F16),
        &[
            Case { causal: true, ..Case::plain(F16, "BTNH", [1, 2, 70, 70, 16, 16]) },
            of("BNTH").masked("bias", F32, &[batch, heads, rows, keys]),
            Case { zero_masked: true, ..choice.clone() },
            Case { keep: false, causal: true, ..choice },
            Case { fill: -3.0, ..of("BNTH").masked("penalty", Bool, &[batch, 1, 1, keys]) },
            Case { group: 2, ..of("BTNH") },
            // Rows of one head are too few, those of a group are enough.
            Case { group: 8, ..Case::plain(F16, "BNTH", [1, 8, 3, 40, 16, 16]) },
            Case { causal: true, ..Case::plain(F16, "BNTH", [1, 1, 300, 600, 8, 8]) },
        ],
    );
}

/// Rows without any key, and rows that begin or end with minus infinity.
#[test]
fn infinite_scores() {
    if !emulates_matrices() {
        return;
    }
    let keys = 70;
    let case = Case::plain(F16, "BNTH", [1, 1, 16, keys, 8, 8]).masked("bias", F32, &[16, keys]);
    let mut inputs = case.inputs(&mut Random::new(5));
    let bias = (0..16 * keys).map(|i| match (i / keys, i % keys) {
        (0, _) => f32::NEG_INFINITY,
        (1, s) if s < keys - 2 => f32::NEG_INFINITY,
        (2, s) if s > 1 => f32::NEG_INFINITY,
        _ => 0.5,
    });
    inputs[3] = HostTensor::of(F32, &[16, keys], &bias.collect::<Vec<_>>());
    under(offering(emulated(MatrixSize::new(16, 16, 16), F16), 0), || {
        check(&mut session(), &case, &inputs, 4e-6);
    });
}

/// Subgroups that are smaller than a program expects, as large, and so large that there are fewer
/// subgroups than blocks.
#[test]
fn subgroups_of_any_size() {
    if !emulates_matrices() {
        return;
    }
    let cases = [Case::plain(F16, "BNTH", [1, 2, 40, 50, 16, 32])];
    for (lanes, means) in [(64, Means::Emulation), (8, Means::Emulation), (32, Means::TwoSubgroups)]
    {
        let size = MatrixSize::new(16, 16, 16);
        check_emulated(Cooperative { lanes, means, ..emulated(size, F16) }, &cases);
    }
}

/// The adapter's own matrices, if it has any and `TF_WGPU_COOPERATIVE_MATRIX` asks for them. They
/// round weights to halves. A software adapter takes the programs of a GPU.
#[test]
fn matrices_of_the_adapter() {
    let (own, policy) = {
        let device = session().device;
        (device.profile(), device.matrix_units().policy())
    };
    if own.capabilities.matrices.f16.is_none() || policy != Policy::Forced {
        println!("skipped: no matrices of float16, or nothing asks for them");
        return;
    }
    let capabilities = own.capabilities;
    let gpu = if own.is_software() { Profile { capabilities, ..Profile::NVIDIA } } else { own };
    let mut random = Random::new(22);
    let wide = Case::plain(F16, "BTNH", [1, 2, 100, 130, 128, 128]);
    under(gpu, || {
        for case in plain(F16).into_iter().chain([Case { causal: true, ..wide.clone() }, wide]) {
            let inputs = case.inputs(&mut random);
            let largest = inputs[2].to_f64().iter().fold(0.0, |most: f64, v| most.max(v.abs()));
            check(&mut session(), &case, &inputs, largest * 1e-3);
        }
    });
}
