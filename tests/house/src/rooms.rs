//! What is there for software adapters stays in its own rooms.

use std::collections::BTreeSet;
use std::path::Path;

/// The kernels' files that ask whether an adapter computes on the processor.
const ROOMS: &[&str] = &[
    "contract/choice.rs",
    "contract/software.rs",
    "contract/tables.rs",
    "conv/depthwise/rolling.rs",
    "fused/attention/shape/rule.rs",
    "lanes.rs",
    "rnn/cudnn/software.rs",
];
/// How they ask.
const QUESTIONS: [&str; 4] = ["is_software()", "shares_loads()", "::Software", "Barriers::"];

fn askers(folder: &Path, root: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            askers(&path, root, found);
        } else {
            let text = std::fs::read_to_string(&path).unwrap();
            if QUESTIONS.iter().any(|question| text.contains(question)) {
                let name = path.strip_prefix(root).unwrap().to_string_lossy();
                found.insert(name.replace('\\', "/"));
            }
        }
    }
}

#[test]
fn software_adapters_have_their_rooms() {
    let root = crate::root().join("src/kernels");
    let mut found = BTreeSet::new();
    askers(&root, &root, &mut found);
    let rooms: BTreeSet<String> = ROOMS.iter().map(|room| (*room).to_owned()).collect();
    assert_eq!(found, rooms, "kernels that ask for software adapters; see docs/DECISIONS.md");
}
