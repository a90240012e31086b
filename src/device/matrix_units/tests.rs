use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::device::MatrixSize;
use crate::device::scratch::Scratch;

const PAYS: Verdict = Verdict::Pays { lanes: 16 };
const SLOWER: Verdict = Verdict::Slower { lanes: 32 };

const F16: Cooperative = Cooperative { fewest_lanes: 8, ..Cooperative::F16 };
const F32: Cooperative = Cooperative { size: MatrixSize::new(8, 8, 8), element: DType::F32, ..F16 };
const BOTH: Matrices = Matrices { f16: Some(F16), f32: Some(F32) };

fn info(driver: &str) -> wgpu::AdapterInfo {
    wgpu::AdapterInfo {
        name: "a card".into(),
        driver_info: driver.into(),
        ..wgpu::AdapterInfo::new(wgpu::DeviceType::DiscreteGpu, wgpu::Backend::Vulkan)
    }
}

fn units(policy: Policy, scratch: Option<&Scratch>) -> MatrixUnits {
    let directory = scratch.map(|s| &*s.0);
    MatrixUnits::open(policy, &BOTH, &info("1"), directory, Arc::new(|| false))
}

/// The lanes of the usable matrices of F16 if a probe finds `found`.
fn used(units: &MatrixUnits, found: Option<Verdict>) -> Option<u32> {
    let finding = found.map_or(Finding::Nothing, Finding::Verdict);
    units.usable(F16, |_| finding).map(|c| c.lanes)
}

/// The same if no probe may run.
fn known(units: &MatrixUnits) -> Option<u32> {
    units.usable(F16, |_| unreachable!("it is known")).map(|c| c.lanes)
}

#[test]
fn a_variable_decides_and_without_it_a_probe() {
    let with = |value: Option<&'static str>, software| {
        let lookup = move |name: &str| {
            value.filter(|_| name == "TF_WGPU_COOPERATIVE_MATRIX").map(ToOwned::to_owned)
        };
        Policy::of(&lookup, software)
    };
    for software in [false, true] {
        assert_eq!([with(Some("1"), software), with(Some(" On "), software)], [Policy::Forced; 2]);
        assert_eq!([with(Some("0"), software), with(Some("OFF"), software)], [Policy::Off; 2]);
    }
    assert_eq!([with(None, false), with(Some(""), false)], [Policy::Probed; 2]);
    assert_eq!(with(None, true), Policy::Off);
}

#[test]
fn a_verdict_decides_what_is_used() {
    use Policy::{Forced, Off, Probed};
    for (policy, found, used_lanes) in [
        (Probed, Some(PAYS), Some(16)),
        (Probed, Some(SLOWER), None),
        (Probed, Some(Verdict::Wrong), None),
        (Probed, None, None),
        (Forced, Some(PAYS), Some(16)),
        (Forced, Some(SLOWER), Some(32)),
        (Forced, Some(Verdict::Wrong), None),
        (Forced, None, None),
    ] {
        let units = units(policy, None);
        assert_eq!(used(&units, found), used_lanes, "{policy:?} {found:?}");
        assert_eq!(units.verdict(DType::F16), found);
        assert_eq!(units.verdict(DType::F32), None, "of another type");
        if found.is_some() {
            assert_eq!(known(&units), used_lanes, "it is tried once");
        }
    }
    let off = units(Off, None);
    assert_eq!((known(&off), off.verdict(DType::F16)), (None, None), "nothing is tried");
}

#[test]
fn a_refusal_is_final() {
    let units = units(Policy::Forced, None);
    assert_eq!(used(&units, Some(PAYS)), Some(16));
    assert!(units.refuse(&F16) && !units.refuse(&F16));
    assert_eq!(known(&units), None);
    // A refusal in the middle of a probe counts, too.
    let found = units.usable(F32, |_| {
        units.refuse(&F32);
        Finding::Verdict(PAYS)
    });
    assert_eq!((found, units.verdict(DType::F32)), (None, Some(Verdict::Wrong)));
}

#[test]
fn determinism_leaves_nothing_to_timings() {
    let on = Arc::new(AtomicBool::new(true));
    let open = |policy| {
        let asked = on.clone();
        let deterministic = Arc::new(move || asked.load(Ordering::Relaxed));
        MatrixUnits::open(policy, &BOTH, &info("1"), None, deterministic)
    };
    let (probed, forced) = (open(Policy::Probed), open(Policy::Forced));
    assert_eq!(known(&probed), None, "not even a probe");
    assert_eq!(used(&forced, Some(SLOWER)), Some(32));
    on.store(false, Ordering::Relaxed);
    assert_eq!(used(&probed, Some(PAYS)), Some(16));
    on.store(true, Ordering::Relaxed);
    assert_eq!(known(&probed), None);
}

#[test]
fn verdicts_are_there_for_the_next_process() {
    for found in [PAYS, SLOWER, Verdict::Wrong] {
        let scratch = Scratch::new("matrix-units-matrices");
        let first = units(Policy::Probed, Some(&scratch));
        let lanes = used(&first, Some(found));
        first.usable(F32, |_| Finding::Verdict(PAYS));
        drop(first);
        let next = units(Policy::Probed, Some(&scratch));
        assert_eq!((next.verdict(DType::F16), known(&next)), (Some(found), lanes));
        assert_eq!(next.verdict(DType::F32), Some(PAYS));
        // Another driver has no verdicts, and a smaller matrix needs its own.
        let open = |matrices, driver| {
            let directory = Some(&*scratch.0);
            MatrixUnits::open(Policy::Probed, matrices, &info(driver), directory, Arc::new(|| true))
        };
        let smaller = Cooperative { size: MatrixSize::new(8, 16, 16), ..F16 };
        let smaller = Matrices { f16: Some(smaller), ..BOTH };
        assert_eq!(open(&smaller, "1").verdict(DType::F16), None);
        assert_eq!(open(&BOTH, "2").verdict(DType::F16), None);
        // The verdict's lanes are too few for this adapter.
        let wide =
            Matrices { f16: Some(Cooperative { fewest_lanes: 64, lanes: 64, ..F16 }), ..BOTH };
        let wrong = Some(found).filter(|v| *v == Verdict::Wrong);
        assert_eq!(open(&wide, "1").verdict(DType::F16), wrong);
    }
}

#[test]
fn what_is_forced_is_tried_again() {
    let scratch = Scratch::new("matrix-units-forced");
    assert_eq!(used(&units(Policy::Probed, Some(&scratch)), Some(Verdict::Wrong)), None);
    assert_eq!(used(&units(Policy::Forced, Some(&scratch)), Some(SLOWER)), Some(32));
    assert_eq!(known(&units(Policy::Probed, Some(&scratch))), None, "slower is known now");
}

#[test]
fn a_probe_that_kills_processes_is_left_alone() {
    let scratch = Scratch::new("matrix-units-killed");
    let open = || units(Policy::Probed, Some(&scratch));
    for _ in 0..MOST_BEGUN {
        let units = open();
        assert_eq!(units.verdict(DType::F16), None);
        // The probe of a process that has ended.
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let probe = record::Probe::of(child.id());
        child.wait().unwrap();
        units.file.as_ref().unwrap().lock().own = probe;
        // As if the process ended in the probe: nothing is written after it.
        let died = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            units.usable(F16, |_| std::panic::resume_unwind(Box::new("killed")))
        }));
        assert!(died.is_err());
    }
    assert_eq!((open().verdict(DType::F16), known(&open())), (Some(Verdict::Wrong), None));
    assert_eq!(used(&units(Policy::Forced, Some(&scratch)), Some(PAYS)), Some(16));
    assert_eq!(known(&open()), Some(16));
}

#[test]
fn processes_that_start_together_agree_and_count_no_crash() {
    let scratch = Scratch::new("matrix-units-together");
    let all: Vec<MatrixUnits> =
        (0..MOST_BEGUN + 1).map(|_| units(Policy::Probed, Some(&scratch))).collect();
    // Each process waits in vain for the one before, begins its probe before any has ended, and has
    // its own start time.
    fn together(all: &[MatrixUnits], scratch: &Scratch) {
        let Some((first, rest)) = all.split_first() else {
            assert_eq!(units(Policy::Probed, Some(scratch)).verdict(DType::F16), None);
            return;
        };
        first.usable(F16, |_| {
            together(rest, scratch);
            Finding::Verdict(if rest.is_empty() { SLOWER } else { PAYS })
        });
    }
    together(&all, &scratch);
    for units in &all {
        assert_eq!((units.verdict(DType::F16), known(units)), (Some(SLOWER), None));
    }
    assert_eq!(units(Policy::Probed, Some(&scratch)).verdict(DType::F16), Some(SLOWER));
}

#[test]
fn a_process_asks_before_it_tries() {
    let scratch = Scratch::new("matrix-units-turns");
    let [first, second] = [(); 2].map(|()| units(Policy::Probed, Some(&scratch)));
    assert_eq!(used(&first, Some(PAYS)), Some(16));
    assert_eq!(known(&second), Some(16), "it was opened before the first one knew");
    // Forced matrices are tried even if they were wrong.
    let forced = units(Policy::Forced, Some(&scratch));
    assert_eq!(used(&forced, Some(Verdict::Wrong)), Some(16), "it pays, as is known");
}

#[test]
fn a_lost_device_counts_like_a_process_that_ended() {
    let scratch = Scratch::new("matrix-units-lost");
    for lost in 0..MOST_BEGUN {
        let units = units(Policy::Probed, Some(&scratch));
        assert_eq!(units.verdict(DType::F16), None, "{lost} devices were lost");
        assert_eq!(units.usable(F16, |_| Finding::Lost), None);
        assert_eq!(known(&units), None, "this process does not try again");
    }
    let next = units(Policy::Probed, Some(&scratch));
    assert_eq!((next.verdict(DType::F16), known(&next)), (Some(Verdict::Wrong), None));
}

#[test]
fn processes_keep_each_others_rows() {
    let scratch = Scratch::new("matrix-units-rows");
    let (first, second) =
        (units(Policy::Probed, Some(&scratch)), units(Policy::Probed, Some(&scratch)));
    first.usable(F16, |_| Finding::Verdict(PAYS));
    second.usable(F32, |_| Finding::Verdict(SLOWER));
    let next = units(Policy::Probed, Some(&scratch));
    assert_eq!((next.verdict(DType::F16), next.verdict(DType::F32)), (Some(PAYS), Some(SLOWER)));
    // Matrices that one process finds wrong are wrong for all later processes.
    assert!(second.refuse(&F16));
    assert_eq!(units(Policy::Probed, Some(&scratch)).verdict(DType::F16), Some(Verdict::Wrong));
    assert_eq!(units(Policy::Probed, Some(&scratch)).verdict(DType::F32), Some(SLOWER));
}

#[test]
fn a_probe_that_cannot_tell_leaves_no_trace() {
    let scratch = Scratch::new("matrix-units-unprobed");
    for _ in 0..2 * MOST_BEGUN {
        assert_eq!(used(&units(Policy::Probed, Some(&scratch)), None), None);
    }
    assert_eq!(used(&units(Policy::Probed, Some(&scratch)), Some(PAYS)), Some(16));
}

#[test]
fn garbage_is_no_verdict() {
    let scratch = Scratch::new("matrix-units-garbage");
    let store = || Store::of("file of matrix units", &info("1"), &scratch.0, "matrices");
    for bytes in [&b"no record"[..], &[], &[0x08, 0x02]] {
        store().write(bytes);
        assert_eq!(units(Policy::Probed, Some(&scratch)).verdict(DType::F16), None);
        assert!(!store().path().exists(), "{bytes:?} stay");
    }
}
