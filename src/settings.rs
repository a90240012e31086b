//! The environment variables of this crate and of the Python package: their names, and the words
//! that they accept.
//!
//! The one list of names is here. Each module reads its own variable. This module reports, once,
//! when TensorFlow loads the plug-in, the variables that no module understands.
//! `docs/ENVIRONMENT.md` describes each variable.

/// A variable.
#[derive(Debug)]
pub struct Variable {
    /// The variable's name.
    pub name: &'static str,
    values: Values,
}

/// The values that a variable accepts, besides an empty one.
#[derive(Debug)]
enum Values {
    /// One of some words, in any case.
    Words(&'static [&'static str]),
    /// A filter of env_logger.
    Filter,
    /// Any value that the reading module accepts. That module reports invalid values itself.
    Own,
}

const fn words(name: &'static str, words: &'static [&'static str]) -> Variable {
    Variable { name, values: Values::Words(words) }
}

const fn own(name: &'static str) -> Variable {
    Variable { name, values: Values::Own }
}

const SWITCH: &[&str] = &["1", "on", "true", "0", "off", "false"];

/// The variables for users.
pub const VARIABLES: &[Variable] = &[
    own("TF_WGPU_VISIBLE_DEVICES"),
    own("TF_WGPU_DEVICE_TYPE"),
    Variable { name: "TF_WGPU_LOG", values: Values::Filter },
    own("TF_WGPU_OPTIMIZER"),
    own("TF_WGPU_DUMP"),
    words("TF_WGPU_AUTOTUNE", SWITCH),
    words("TF_WGPU_TUNED", &["on", "off"]),
    words("TF_WGPU_CAPTURE", &["on", "off", "check"]),
    own("TF_WGPU_CACHE"),
    words("TF_WGPU_CHECK", SWITCH),
    words("TF_WGPU_COOPERATIVE_MATRIX", SWITCH),
    words("TF_WGPU_NATIVE_FLOAT16", SWITCH),
    words("TF_WGPU_BARRIERS", &["data", "off"]),
    words("TF_WGPU_STAGING", &["on", "off"]),
    own("TF_WGPU_MAX_MEMORY"),
    own("TF_WGPU_PAGING"),
    words(
        "TF_WGPU_PROFILE",
        &["amd", "intel", "nvidia", "apple", "webgpu", "llvmpipe", "swiftshader"],
    ),
    words("TF_WGPU_DRIVER_SHIELD", &["on", "off"]),
    words("TF_WGPU_FALLBACK", &["log", "error"]),
    words("TF_WGPU_DISTRIBUTE", &["on", "off", "collective"]),
    words("TF_WGPU_JIT", &["error"]),
    words("TF_WGPU_RECURRENT", &["fused", "loop"]),
    own("WGPU_BACKEND"),
    own("WGPU_ADAPTER_NAME"),
    own("WGPU_POWER_PREF"),
];

/// Variables of the build, of tests and of tools, which users need not know. A name that begins
/// with one of these counts as known too.
const OF_DEVELOPMENT: &[&str] = &[
    "TF_WGPU_CARGO_",
    "TF_WGPU_DEVICE_GRAPHS",
    "TF_WGPU_DXC",
    "TF_WGPU_FAULT",
    "TF_WGPU_GRAPHS",
    "TF_WGPU_LOOPS",
    "TF_WGPU_MAX_BINDING",
    "TF_WGPU_PARTS",
    "TF_WGPU_PICTURES",
    "TF_WGPU_SWEEP",
    "TF_WGPU_TARGET",
    "TF_WGPU_TEST_",
    "TF_WGPU_TRACES",
];

/// The prefix of our variables.
const PREFIX: &str = "TF_WGPU_";

/// Whether two names mean the same variable: Windows ignores case.
pub fn is_same(a: &str, b: &str) -> bool {
    a == b || (cfg!(windows) && a.eq_ignore_ascii_case(b))
}

/// The words that a variable accepts, if it accepts words.
pub fn accepted(name: &str) -> Option<&'static [&'static str]> {
    VARIABLES.iter().find(|v| v.name == name).and_then(|v| match v.values {
        Values::Words(words) => Some(words),
        _ => None,
    })
}

/// A line for each of the environment's `variables` that has no meaning: an unknown name with our
/// prefix, or an invalid value.
pub fn problems<'a>(variables: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let mut lines: Vec<_> = variables.filter_map(|(name, value)| problem(name, value)).collect();
    lines.sort_unstable();
    lines
}

fn problem(name: &str, value: &str) -> Option<String> {
    let Some(variable) = VARIABLES.iter().find(|v| is_same(v.name, name)) else {
        let upper = name.to_ascii_uppercase();
        if !upper.starts_with(PREFIX) || OF_DEVELOPMENT.iter().any(|known| upper.starts_with(known))
        {
            return None;
        }
        return Some(match nearest(&upper) {
            Some(known) => {
                format!("{name} is not a variable of tensorflow-wgpu; did you mean {known}?")
            }
            None => format!(
                "{name} is not a variable of tensorflow-wgpu; docs/ENVIRONMENT.md lists them"
            ),
        });
    };
    let value = value.trim();
    if value.is_empty() {
        return None;
    }
    match variable.values {
        Values::Words(words) if !words.iter().any(|word| word.eq_ignore_ascii_case(value)) => {
            Some(match words {
                [one] => format!("{name}={value} is ignored: the only value is {one}"),
                _ => format!("{name}={value} is ignored: the values are {}", listed(words)),
            })
        }
        Values::Filter => {
            let part = unclear(value)?;
            Some(format!(
                "{name}={value}: {part:?} is neither a level (error, warn, info, debug, trace, \
                 off) nor a part of this library, such as tensorflow_wgpu=debug"
            ))
        }
        _ => None,
    }
}

/// A part of a filter that matches nothing. A directive is a level, a module, or both with `=`
/// between them. Every module that logs belongs to one of these crates.
fn unclear(filter: &str) -> Option<&str> {
    const CRATES: [&str; 4] = ["tensorflow_wgpu", "wgpu", "naga", "env_logger"];
    let is_level = |text: &str| text.trim().parse::<log::LevelFilter>().is_ok();
    let is_module = |text: &str| CRATES.iter().any(|name| text.trim().starts_with(name));
    // A slash begins a pattern for the text of the lines.
    let directives = filter.split('/').next().unwrap_or_default();
    directives.split(',').map(str::trim).filter(|part| !part.is_empty()).find(|part| {
        match part.split_once('=') {
            Some((module, level)) => !(is_module(module) && (level.is_empty() || is_level(level))),
            None => !(is_level(part) || is_module(part)),
        }
    })
}

/// The known name that differs from `name` in the fewest letters, unless they have little in
/// common.
fn nearest(name: &str) -> Option<&'static str> {
    let candidates = VARIABLES.iter().map(|v| v.name).filter(|known| known.starts_with(PREFIX));
    let own = &name[PREFIX.len()..];
    candidates
        .map(|known| (distance(own.as_bytes(), &known.as_bytes()[PREFIX.len()..]), known))
        .min()
        .filter(|(distance, known)| *distance * 2 <= known.len() - PREFIX.len())
        .map(|(_, known)| known)
}

/// The number of letters that must be inserted, deleted or replaced to turn `a` into `b`: the
/// Levenshtein distance.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// "a and b", "a, b and c".
fn listed(words: &[&str]) -> String {
    match words {
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
        [] => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(name: &str, value: &str) -> String {
        problems(std::iter::once((name, value))).join("\n")
    }

    #[test]
    fn unknown_names_are_told_with_the_nearest_known_one() {
        for (name, known) in [
            ("TF_WGPU_VISIBLE_DEVICE", "TF_WGPU_VISIBLE_DEVICES"),
            ("TF_WGPU_FALLBACKS", "TF_WGPU_FALLBACK"),
            ("TF_WGPU_LOGS", "TF_WGPU_LOG"),
            ("TF_WGPU_DRIVERSHIELD", "TF_WGPU_DRIVER_SHIELD"),
            ("TF_WGPU_AUTO_TUNE", "TF_WGPU_AUTOTUNE"),
            ("TF_WGPU_MEMORY", "TF_WGPU_MAX_MEMORY"),
            ("tf_wgpu_cach", "TF_WGPU_CACHE"),
        ] {
            let line = told(name, "1");
            assert!(
                line.contains(name) && line.ends_with(&format!("did you mean {known}?")),
                "{line}"
            );
        }
        assert!(told("TF_WGPU_QUUX_OF_SORTS", "1").contains("docs/ENVIRONMENT.md"));
        for other in ["PATH", "WGPU_DEBUG", "TF_CPP_MIN_LOG_LEVEL", "TF_WGPU_TEST_STORE"] {
            assert_eq!(told(other, "anything"), "");
        }
    }

    #[test]
    fn values_without_a_meaning_are_told() {
        assert_eq!(
            told("TF_WGPU_FALLBACK", "maybe"),
            "TF_WGPU_FALLBACK=maybe is ignored: the values are log and error"
        );
        assert!(told("TF_WGPU_AUTOTUNE", "yes").contains("1, on, true, 0, off and false"));
        assert!(told("TF_WGPU_LOG", "verbose").contains("\"verbose\" is neither a level"));
        assert!(told("TF_WGPU_LOG", "info,tensorflow=debug").contains("\"tensorflow=debug\""));
        assert!(told("TF_WGPU_LOG", "wgpu_hal=loud").contains("\"wgpu_hal=loud\""));
    }

    #[test]
    fn values_with_a_meaning_are_not_told() {
        for variable in VARIABLES {
            assert_eq!(told(variable.name, " "), "");
            for word in accepted(variable.name).unwrap_or_default() {
                assert_eq!(told(variable.name, &format!(" {} ", word.to_uppercase())), "");
            }
        }
        for filter in [
            "debug",
            "tensorflow_wgpu",
            "warn,tensorflow_wgpu::device=debug,wgpu_core=Trace",
            "info/pipeline|batch",
            "wgpu=",
        ] {
            assert_eq!(told("TF_WGPU_LOG", filter), "", "{filter}");
        }
    }

    #[test]
    fn distances_count_letters() {
        for (a, b, want) in
            [("", "", 0), ("abc", "abc", 0), ("abc", "ac", 1), ("kitten", "sitting", 3)]
        {
            assert_eq!(distance(a.as_bytes(), b.as_bytes()), want);
            assert_eq!(distance(b.as_bytes(), a.as_bytes()), want);
        }
    }
}
