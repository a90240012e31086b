use std::sync::atomic::AtomicBool;

use super::*;
use crate::device::scratch::Scratch;

const SHAPE: Shape = [64, 64, 1, 64, 1];

fn info() -> wgpu::AdapterInfo {
    let selection = crate::device::Selection::enumerate(&|name| std::env::var(name).ok());
    selection.adapters.first().expect("a Vulkan driver").get_info()
}

fn tuner(directory: Option<&Path>) -> Arc<Tuner> {
    Arc::new(Tuner::open(&info(), directory, || false))
}

fn question(n: u32) -> Key {
    Key::new("question").number(n)
}

/// Calls until there is an answer, where each candidate takes as many nanoseconds as `time` says.
fn answer(
    tuner: &Arc<Tuner>,
    question: &Key,
    names: &[Name],
    time: impl Fn(Name) -> Option<u64>,
) -> Pick {
    tuner.pick(question, SHAPE, &|| Names::from_slice(names));
    for _ in 0..100 {
        match tuner.pick(question, SHAPE, &|| Names::from_slice(names)) {
            Pick::Time(wanted) => {
                let name = wanted[0];
                let (_marking, timing) = tuner.begin(question, SHAPE, name).expect("it is wanted");
                timing.end(time(name));
            }
            done => return done,
        }
    }
    panic!("no end of timings");
}

#[test]
fn a_variable_asks_for_it_but_not_on_software_adapters() {
    let with = |value: Option<&'static str>, software| {
        is_wanted(
            &move |name| value.filter(|_| name == "TF_WGPU_AUTOTUNE").map(ToOwned::to_owned),
            software,
        )
    };
    for on in ["1", " On ", "true"] {
        assert!(with(Some(on), false) && !with(Some(on), true), "{on}");
    }
    for off in [None, Some(""), Some("0"), Some("off")] {
        assert!(!with(off, false), "{off:?}");
    }
}

#[test]
fn the_first_call_is_not_timed_and_the_fastest_answers() {
    let tuner = tuner(None);
    let names = || Names::from_slice(&[10, 11, 12]);
    assert_eq!(tuner.pick(&question(0), SHAPE, &names), Pick::Estimate);
    assert_eq!(tuner.pick(&question(0), SHAPE, &names), Pick::Time(names()));
    let found =
        answer(&tuner, &question(0), &names(), |name| Some([500, 300, 400][name as usize - 10]));
    assert_eq!((found, tuner.timings()), (Pick::Answer(11), 9));
    // Whatever the shape from now on.
    assert_eq!(tuner.pick(&question(0), [50; 5], &names), Pick::Answer(11));
    assert_eq!(tuner.pick(&question(1), SHAPE, &names), Pick::Estimate, "another question");
    assert_eq!(tuner.answers(), [(question(0), 11)]);
    tuner.forget(&question(0));
    assert_eq!(tuner.answers(), []);
}

#[test]
fn one_candidate_is_no_question() {
    let tuner = tuner(None);
    for _ in 0..3 {
        assert_eq!(tuner.pick(&question(0), SHAPE, &|| Names::from_slice(&[1])), Pick::Estimate);
    }
    assert!(tuner.table.read().is_empty());
}

#[test]
fn timings_that_come_to_nothing_end() {
    let tuner = tuner(None);
    assert_eq!(answer(&tuner, &question(0), &[1, 2], |_| None), Pick::Estimate);
    assert_eq!(tuner.answers(), []);
}

#[test]
fn one_call_at_a_time_is_between_its_marks() {
    let tuner = tuner(None);
    let names = || Names::from_slice(&[1, 2]);
    for n in 0..2 {
        tuner.pick(&question(n), SHAPE, &names);
    }
    let first = tuner.begin(&question(0), SHAPE, 1).expect("nobody else is");
    assert!(tuner.begin(&question(1), SHAPE, 1).is_none());
    drop(first);
    assert!(tuner.begin(&question(2), SHAPE, 1).is_none(), "nobody asked");
    assert!(tuner.begin(&question(1), SHAPE, 1).is_some(), "what did not begin holds nobody up");
}

#[test]
fn another_shape_takes_over_from_one_that_is_gone() {
    let tuner = tuner(None);
    let other = [65, 64, 1, 64, 1];
    tuner.pick(&question(0), SHAPE, &|| Names::from_slice(&[1, 2]));
    let late = tuner.begin(&question(0), SHAPE, 1).unwrap().1;
    let calls = (0..1000).take_while(|_| {
        tuner.pick(&question(0), other, &|| Names::from_slice(&[2, 3]))
            != Pick::Time(Names::from_slice(&[2, 3]))
    });
    assert!((10..999).contains(&calls.count()));
    late.end(Some(1));
    assert_eq!(answer_of(&tuner, other), Pick::Answer(3));
}

/// Times candidates of question 0 for `shape`, where greater names take less time.
fn answer_of(tuner: &Arc<Tuner>, shape: Shape) -> Pick {
    loop {
        match tuner.pick(&question(0), shape, &Names::new) {
            Pick::Time(wanted) => {
                tuner.begin(&question(0), shape, wanted[0]).unwrap().1.end(Some(1000 / wanted[0]));
            }
            done => return done,
        }
    }
}

#[test]
fn determinism_silences_it_at_any_moment() {
    let on = Arc::new(AtomicBool::new(false));
    let asked = on.clone();
    let tuner = Arc::new(Tuner::open(&info(), None, move || asked.load(Ordering::Relaxed)));
    let names = || Names::from_slice(&[1, 2]);
    let pick = |deterministic| {
        on.store(deterministic, Ordering::Relaxed);
        tuner.pick(&question(0), SHAPE, &names)
    };
    assert_eq!(pick(true), Pick::Estimate);
    assert!(tuner.table.read().is_empty(), "not even a search begins");
    pick(false);
    assert_eq!(pick(true), Pick::Estimate);
    assert_eq!(pick(false), Pick::Time(names()));
    assert_eq!(answer(&tuner, &question(0), &names(), |name| Some(100 / name)), Pick::Answer(2));
    assert_eq!(pick(true), Pick::Estimate, "an answer is none either");
    assert_eq!(pick(false), Pick::Answer(2));
}

#[test]
fn questions_are_not_without_end() {
    let tuner = tuner(None);
    for n in 0..MOST_QUESTIONS as u32 + 10 {
        assert_eq!(tuner.pick(&question(n), SHAPE, &|| Names::from_slice(&[1, 2])), Pick::Estimate);
    }
    assert_eq!(tuner.table.read().len(), MOST_QUESTIONS);
}

#[test]
fn answers_are_there_for_the_next_process() {
    let scratch = Scratch::new("again");
    let first = tuner(Some(&scratch.0));
    for n in 0..3 {
        answer(&first, &question(n), &[1, 2], |name| Some(1000 / name));
    }
    // A search that has not ended is not kept.
    first.pick(&question(3), SHAPE, &|| Names::from_slice(&[1, 2]));
    let mut known = first.answers();
    drop(first);
    let mut read = tuner(Some(&scratch.0)).answers();
    known.sort_unstable_by_key(|(key, _)| key.bytes().to_vec());
    read.sort_unstable_by_key(|(key, _)| key.bytes().to_vec());
    assert_eq!((read.len(), read), (3, known));
}

#[test]
fn answers_of_other_drivers_and_garbage_are_none() {
    let scratch = Scratch::new("foreign");
    let here = info();
    let store = Tuner::store(&here, &scratch.0);
    let answers = [(question(0), 7)];
    let good = record::encode(answers.iter().map(|(key, name)| (key, *name)));
    store.write(&good);
    assert_eq!(tuner(Some(&scratch.0)).answers(), answers);
    let newer = wgpu::AdapterInfo { driver_info: "another version".into(), ..here };
    assert_eq!(Tuner::open(&newer, Some(&scratch.0), || false).answers(), []);
    assert_eq!(tuner(Some(&scratch.0)).answers(), answers, "which harms nobody");
    // Whole, and none of ours.
    store.write(b"no record");
    assert_eq!(tuner(Some(&scratch.0)).answers(), []);
    assert!(!store.path().exists());
    for garbage in [&b""[..], &[0xff; 3000], &good] {
        std::fs::write(store.path(), garbage).unwrap();
        assert_eq!(tuner(Some(&scratch.0)).answers(), []);
        assert!(!store.path().exists(), "{} bytes of garbage stay", garbage.len());
    }
}
