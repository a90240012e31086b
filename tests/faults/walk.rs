//! The faults that are tried for each function.

use fault_layer::{FUNCTIONS, Row};
use libtest_mimic::{Arguments, Failed, Trial};

use crate::serve;
use crate::server::{Answer, Server};

/// The variable of the process in which calls fail.
pub const SERVER: &str = "TF_WGPU_FAULT_SERVER";
/// The number of calls of a function that are tried for each result in a sample.
const SAMPLES: u64 = 3;
/// More calls than any training makes: no end of the fault.
const ENDLESS: u64 = u64::MAX;
/// `VK_ERROR_UNKNOWN`.
const UNKNOWN: i32 = -13;
/// A word in place of a function, see `serve.rs`.
const SHADERS: &str = "shaders";
/// Another one.
const LATE: &str = "late";
/// The factor of a slow GPU whose watchdog ends no submission of the training.
const SLOW: u64 = 20;
/// The factor of a slow GPU whose watchdog ends one.
const TOO_SLOW: u64 = 1_000_000;
/// Fewer shaders than any training has.
const FEWEST_SHADERS: u64 = 4;
/// `VK_TIMEOUT`. If each call of a wait without a limit returned it, that would be a hang and not a
/// fault.
const TIMEOUT: i32 = 2;
/// Functions that wgpu does not use on this system, or that are called at random times.
const MAY_BE_UNUSED: &[&str] = &[
    "vkQueueSubmit2",
    "vkWaitForFences",
    "vkGetFenceStatus",
    "vkCreateFence",
    "vkGetQueryPoolResults",
    "vkFlushMappedMemoryRanges",
    "vkInvalidateMappedMemoryRanges",
    "vkDeviceWaitIdle",
    "vkQueueWaitIdle",
    "vkGetPipelineCacheData",
    "vkResetCommandPool",
];

/// The walk, or the process in which calls fail.
pub fn main() {
    if let Ok(directory) = std::env::var(SERVER) {
        return serve::serve(directory.as_ref());
    }
    let of = |row: &'static Row| Trial::test(row.name.to_str().unwrap(), move || walk(row));
    let shaders = Trial::test(SHADERS, refused_shaders);
    let late = Trial::test(LATE, late_fences);
    let trials = FUNCTIONS.iter().map(of).chain([shaders, late]).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// A fault: calls `first` to `last` return `result`.
#[derive(Debug, Clone, Copy)]
struct Fault {
    first: u64,
    last: u64,
    result: i32,
}

/// The faults of a function that is called `calls` times.
fn faults(row: &Row, calls: u64) -> Vec<Fault> {
    let all = std::env::var("TF_WGPU_FAULTS").is_ok_and(|v| v == "all");
    // Other threads call too, so the number varies.
    let firsts: Vec<u64> = if all {
        (1..=calls).collect()
    } else {
        (0..SAMPLES).map(|k| 1 + k * calls / SAMPLES).collect()
    };
    let mut faults = Vec::new();
    for &result in row.results {
        for (k, &first) in firsts.iter().enumerate() {
            faults.push(Fault { first, last: first, result });
            if result != TIMEOUT && (all || k == 1) {
                faults.push(Fault { first, last: ENDLESS, result });
            }
        }
    }
    faults.dedup_by_key(|f| (f.first, f.last, f.result));
    faults
}

/// Each shader of a training is refused, which changes only the way it is compiled. Then all
/// shaders from that one on are refused, which is the error of an op.
fn refused_shaders() -> Result<(), Failed> {
    let mut server = Server::start()?;
    let Answer { word, calls, text } = server.ask(SHADERS, 0, 0, 0)?;
    if word != "none" || calls < FEWEST_SHADERS {
        return Err(format!("without a fault: {word}, {calls} shaders, {text}").into());
    }
    for number in 1..=calls {
        for (last, wanted) in [(number, "right"), (ENDLESS, "error")] {
            let Answer { word, text, .. } = server.ask(SHADERS, number, last, UNKNOWN)?;
            if word != wanted {
                return Err(format!("shader {number} of {calls}: {word}, {text}").into());
            }
        }
    }
    println!("{calls} shaders");
    Ok(())
}

/// Fences and semaphores of a slow GPU come late, which changes nothing; those of a far slower one
/// never come, because a watchdog ends its work.
fn late_fences() -> Result<(), Failed> {
    let mut server = Server::start()?;
    for (factor, wanted) in [(SLOW, "right"), (TOO_SLOW, "lost"), (SLOW, "right")] {
        let Answer { word, calls, text } = server.ask(LATE, factor, 0, 0)?;
        if word != wanted {
            return Err(format!("{factor} times slower: {word}, {calls} ms, {text}").into());
        }
    }
    Ok(())
}

/// Tries all faults of a function.
fn walk(row: &'static Row) -> Result<(), Failed> {
    let name = row.name.to_str().unwrap();
    let mut server = Server::start()?;
    let calls = match server.ask(name, 0, 0, 0)? {
        Answer { word, calls, .. } if word == "none" => calls,
        answer => return Err(format!("without a fault: {answer:?}").into()),
    };
    if calls == 0 && !MAY_BE_UNUSED.contains(&name) {
        return Err("the function is never called".into());
    }
    let (mut bad, mut words) = (Vec::new(), std::collections::BTreeMap::<String, u64>::new());
    for fault in faults(row, calls) {
        let Fault { first, last, result } = fault;
        let word = match server.ask(name, first, last, result) {
            Ok(Answer { word, .. }) if word != "bad" => word,
            Ok(answer) => {
                bad.push(format!("{fault:?}: {}", answer.text));
                answer.word
            }
            Err(why) => {
                bad.push(format!("{fault:?}: {why}"));
                server = Server::start()?;
                "dead".to_owned()
            }
        };
        *words.entry(word).or_default() += 1;
    }
    println!("faults put into the {calls} calls of {name} were followed by {words:?}");
    if bad.is_empty() { Ok(()) } else { Err(bad.join("\n").into()) }
}
