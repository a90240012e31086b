//! Each question about an adapter has its rooms: the kernels' files that ask it. What is there for
//! software adapters stays in rooms of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The kernels' files that ask whether an adapter computes on the processor.
const ROOMS: &[&str] = &[
    "contract/choice.rs",
    "contract/software.rs",
    "contract/tables.rs",
    "conv/depthwise/rolling.rs",
    "fused/attention/shape/rule.rs",
    "lanes.rs",
];
/// How they ask.
const QUESTIONS: [&str; 4] = ["is_software()", "shares_loads()", "::Software", "Barriers::"];

/// The members of `Profile` that kernels may ask for, and the files that do.
const ASKED: &[(&str, &[&str])] = &[
    ("barriers", &["lanes.rs"]),
    ("class", &[]),
    ("dispatch_cost", &["contract/choice.rs"]),
    ("family", &["contract/shipped.rs", "contract/tuned.rs"]),
    (
        "invocations",
        &[
            "norm/program/vec4s.rs",
            "contract/choice.rs",
            "conv/depthwise/mod.rs",
            "conv/depthwise/rolling.rs",
            "norm/program/mod.rs",
            "patches/dilation_grad.rs",
            "reduce/arg/mod.rs",
            "reduce/plan.rs",
        ],
    ),
    (
        "kind()",
        &[
            "contract/choice.rs",
            "contract/tables.rs",
            "conv/depthwise/rolling.rs",
            "fused/attention/matrices.rs",
            "fused/attention/register_tile.rs",
            "linalg/cholesky.rs",
        ],
    ),
    // An invocation with more iterations computes nonsense on llvmpipe and is ended by the watchdog
    // of a GPU, so every kernel whose loops grow with a shape asks for it, or its `iterations.rs`.
    (
        "loop_limit",
        &[
            "contract/shares.rs",
            "conv/depthwise/mod.rs",
            "conv/depthwise/rolling.rs",
            "fused/attention/grad/mod.rs",
            "fused/rowwise/mod.rs",
            "image/crop_grad.rs",
            "image/draw_boxes.rs",
            "iterations.rs",
            "patches/dilation_grad.rs",
            "pool/program/mod.rs",
            "random/multinomial.rs",
            "reduce/arg/mod.rs",
            "rnn/ctc.rs",
            "rnn/cudnn/steps.rs",
            "scan/mod.rs",
            "sort/suppress.rs",
        ],
    ),
    ("name", &["reduce/plan.rs"]),
    ("own_barriers", &[]),
    ("packed_dot", &["contract/bytes.rs"]),
    ("parts", &[]),
    ("registers", &[]),
    ("resident_workgroups", &["contract/shares.rs"]),
    ("schedule", &["contract/choice.rs", "contract/choice/schedule.rs"]),
    ("simd_width", &[]),
    (
        "tile",
        &[
            "contract/choice.rs",
            "contract/plan.rs",
            "contract/siblings.rs",
            "contract/validation.rs",
        ],
    ),
    ("unstaged", &[]),
    (
        "workgroups",
        &[
            "contract/siblings.rs",
            "contract/software.rs",
            "fused/attention/matrices.rs",
            "fused/attention/mod.rs",
            "fused/attention/register_tile.rs",
            "rnn/cudnn/steps.rs",
        ],
    ),
];

/// The files below `folder`, by their names below `root`, without comments.
fn sources(folder: &Path, root: &Path, found: &mut BTreeMap<String, String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, root, found);
        } else {
            let name = path.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/");
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            found.insert(name, code.collect::<Vec<_>>().join("\n"));
        }
    }
}

fn kernels() -> BTreeMap<String, String> {
    let root = crate::root().join("src/kernels");
    let mut found = BTreeMap::new();
    sources(&root, &root, &mut found);
    found
}

/// Whether code asks a profile for a member.
fn asks(code: &str, member: &str) -> bool {
    ["profile.", "profile()."].iter().any(|profile| {
        let question = format!("{profile}{member}");
        code.match_indices(&question).any(|(at, _)| {
            let next = code[at + question.len()..].chars().next();
            !next.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '(')
        })
    })
}

#[test]
fn software_adapters_have_their_rooms() {
    let asks = |code: &String| QUESTIONS.iter().any(|question| code.contains(question));
    let kernels = kernels();
    let found: BTreeSet<&str> =
        kernels.iter().filter(|(_, code)| asks(code)).map(|(name, _)| &**name).collect();
    let rooms: BTreeSet<&str> = ROOMS.iter().copied().collect();
    assert_eq!(found, rooms, "kernels that ask for software adapters; see docs/DECISIONS.md");
}

#[test]
fn questions_about_an_adapter_have_their_rooms() {
    let kernels = kernels();
    for (member, rooms) in ASKED {
        let found: BTreeSet<&str> =
            kernels.iter().filter(|(_, code)| asks(code, member)).map(|(n, _)| &**n).collect();
        let rooms: BTreeSet<&str> = rooms.iter().copied().collect();
        let more: Vec<_> = found.difference(&rooms).collect();
        let gone: Vec<_> = rooms.difference(&found).collect();
        assert!(
            more.is_empty() && gone.is_empty(),
            "{more:?} ask for `{member}` but are not listed, {gone:?} are listed but do not ask"
        );
    }
}

#[test]
fn every_member_of_a_profile_has_a_row() {
    let text = std::fs::read_to_string(crate::root().join("src/device/profile.rs")).unwrap();
    let (_, members) = text.split_once("pub struct Profile {").unwrap();
    let (members, _) = members.split_once("\n}").unwrap();
    let members = members.lines().filter_map(|line| line.trim_start().strip_prefix("pub "));
    let members: Vec<&str> = members.filter_map(|line| Some(line.split_once(':')?.0)).collect();
    assert!(members.len() > 10, "{members:?}");
    // Types, limits and features are no questions of their own: every kernel needs them.
    for member in members.iter().filter(|member| **member != "capabilities") {
        assert!(ASKED.iter().any(|(asked, _)| asked == member), "no row for `{member}`");
    }
}

#[test]
fn questions_are_found() {
    assert!(asks("let n = device.profile().loop_limit / 2;", "loop_limit"));
    assert!(asks("match profile.kind() {", "kind()"));
    assert!(!asks("profile.tile_of(words)", "tile"));
    assert!(!asks("tile.parts", "parts"));
}
