use std::sync::OnceLock;

use super::*;
use crate::device::Selection;
use crate::device::scratch::Scratch;

/// The device of all tests, which waits for the searches.
fn device() -> &'static Device {
    static DEVICE: OnceLock<Arc<Device>> = OnceLock::new();
    DEVICE.get_or_init(|| {
        let selection = Selection::enumerate(&|name| std::env::var(name).ok());
        Device::open(selection.adapters.first().expect("a Vulkan driver")).unwrap()
    })
}

fn tuner(directory: Option<&Path>) -> Tuner {
    Tuner::open(device().info(), directory, || false)
}

fn question(n: u32) -> Key {
    Key::new("question").number(n)
}

/// The answer to a question with these candidates. `time` gives the time of each.
fn ask(
    tuner: &Tuner,
    question: &Key,
    names: &[Name],
    time: impl Fn(Name) -> Result<u64>,
) -> Option<Name> {
    tuner.answer(question, device(), &|| Names::from_slice(names), &mut |_, name| time(name))
}

/// The answer that is known without a search.
fn known(tuner: &Tuner, question: &Key) -> Option<Name> {
    ask(tuner, question, &[1, 2], |_| unreachable!("it is known"))
}

/// Times by which the second of two candidates is the fastest.
fn second(name: Name) -> Result<u64> {
    Ok(1000 / name)
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
fn the_first_call_has_the_answer_on_a_device_of_its_own() {
    let tuner = tuner(None);
    let own: *const Device = device();
    let found = tuner.answer(
        &question(0),
        device(),
        &|| Names::from_slice(&[10, 11, 12]),
        &mut |apart, name| {
            assert_ne!(Arc::as_ptr(apart), own);
            assert_eq!(apart.profile(), device().profile());
            Ok([500, 300, 400][name as usize - 10])
        },
    );
    assert_eq!((found, tuner.timings()), (Some(11), 9));
    assert_eq!(known(&tuner, &question(0)), Some(11));
    assert_eq!(tuner.answers(), [(question(0), 11)]);
    assert_eq!(ask(&tuner, &question(1), &[1, 2], second), Some(2), "another question");
    tuner.forget(&question(0));
    assert_eq!(tuner.answers(), [(question(1), 2)]);
}

#[test]
fn one_candidate_is_no_question() {
    let tuner = tuner(None);
    assert_eq!(ask(&tuner, &question(0), &[1], |_| unreachable!()), None);
    assert!(tuner.table.read().is_empty());
}

#[test]
fn a_search_that_comes_to_nothing_is_not_repeated() {
    let tuner = tuner(None);
    let refused = |_| Err(Error::Internal("refused".into()));
    assert_eq!(ask(&tuner, &question(0), &[1, 2], refused), None);
    assert_eq!(known(&tuner, &question(0)), None);
    let full = |_| Err(Error::ResourceExhausted("full".into()));
    assert_eq!(ask(&tuner, &question(1), &[1, 2], full), None);
    assert_eq!(known(&tuner, &question(1)), None);
    assert_eq!(tuner.answers(), []);
}

#[test]
fn a_lost_device_ends_all_searches_and_its_question_in_other_processes() {
    let scratch = Scratch::new("lost");
    let first = tuner(Some(&scratch.0));
    let lost = |_| Err(Error::Unavailable("lost".into()));
    assert_eq!(ask(&first, &question(0), &[1, 2], lost), None);
    assert_eq!(known(&first, &question(0)), None);
    assert_eq!(known(&first, &question(1)), None, "nothing is tried any more");
    let next = tuner(Some(&scratch.0));
    assert_eq!(next.answers(), []);
    assert_eq!(known(&next, &question(0)), Some(1), "the estimate's choice");
    assert_eq!(ask(&next, &question(1), &[1, 2], second), Some(2));
}

#[test]
fn determinism_silences_it_at_any_moment() {
    let on = Arc::new(AtomicBool::new(true));
    let asked = on.clone();
    let tuner = Tuner::open(device().info(), None, move || asked.load(Ordering::Relaxed));
    assert_eq!(known(&tuner, &question(0)), None);
    assert!(tuner.table.read().is_empty(), "not even a search begins");
    on.store(false, Ordering::Relaxed);
    assert_eq!(ask(&tuner, &question(0), &[1, 2], second), Some(2));
    on.store(true, Ordering::Relaxed);
    assert_eq!(known(&tuner, &question(0)), None, "an answer is none either");
    on.store(false, Ordering::Relaxed);
    assert_eq!(known(&tuner, &question(0)), Some(2));
}

#[test]
fn questions_are_not_without_end() {
    let tuner = tuner(None);
    for n in 0..MOST_QUESTIONS as u32 {
        tuner.tell(&question(n), 1);
    }
    let one_more = question(MOST_QUESTIONS as u32);
    assert_eq!(known(&tuner, &one_more), None);
    assert_eq!(tuner.table.read().len(), MOST_QUESTIONS);
}

#[test]
fn answers_are_there_for_the_next_process() {
    let scratch = Scratch::new("again");
    let first = tuner(Some(&scratch.0));
    for n in 0..3 {
        ask(&first, &question(n), &[1, 2], second);
    }
    let refused = |_| Err(Error::Internal("refused".into()));
    ask(&first, &question(3), &[1, 2], refused);
    let mut answers = first.answers();
    drop(first);
    let next = tuner(Some(&scratch.0));
    let mut read = next.answers();
    answers.sort_unstable_by_key(|(key, _)| key.bytes().to_vec());
    read.sort_unstable_by_key(|(key, _)| key.bytes().to_vec());
    assert_eq!((read.len(), read), (3, answers));
    assert_eq!(ask(&next, &question(3), &[1, 2], second), Some(2), "nothing was found out");
    // A forgotten answer is removed for good.
    next.forget(&question(0));
    assert_eq!(tuner(Some(&scratch.0)).answers().len(), 3);
}

#[test]
fn processes_that_start_together_agree() {
    let scratch = Scratch::new("together");
    let [first, second_one, third] = [(); 3].map(|()| tuner(Some(&scratch.0)));
    // The second one waits for the first in vain, and finds another answer.
    let inner = std::cell::Cell::new(None);
    let found = ask(&first, &question(0), &[1, 2], |name| {
        if inner.get().is_none() {
            inner.set(ask(&second_one, &question(0), &[1, 2], |name| Ok(name * 1000)));
        }
        second(name)
    });
    assert_eq!((inner.get(), found), (Some(1), Some(1)), "the first that has ended");
    assert_eq!(known(&third, &question(0)), Some(1), "it looks into the file first");
}

#[test]
fn answers_of_other_drivers_and_garbage_are_none() {
    let scratch = Scratch::new("foreign");
    let here = device().info();
    let store = Tuner::store(here, &scratch.0);
    let good = record::encode(vec![Kept { question: question(0), name: 7, is_begun: false }]);
    store.write(&good);
    let answers = [(question(0), 7)];
    assert_eq!(tuner(Some(&scratch.0)).answers(), answers);
    let newer = wgpu::AdapterInfo { driver_info: "another version".into(), ..here.clone() };
    assert_eq!(Tuner::open(&newer, Some(&scratch.0), || false).answers(), []);
    assert_eq!(tuner(Some(&scratch.0)).answers(), answers, "which harms nobody");
    // The file is whole, but not a record.
    store.write(b"no record");
    assert_eq!(tuner(Some(&scratch.0)).answers(), []);
    assert!(!store.path().exists());
    for garbage in [&b""[..], &[0xff; 3000], &good] {
        std::fs::write(store.path(), garbage).unwrap();
        assert_eq!(tuner(Some(&scratch.0)).answers(), []);
        assert!(!store.path().exists(), "{} bytes of garbage stay", garbage.len());
    }
}
