//! The reasons why a node is in no region.

use std::fmt;
use std::sync::Arc;

/// Why a node is in no region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outside {
    /// It runs on this device, which is not ours. Without a name TensorFlow has not placed it yet.
    Elsewhere(Arc<str>),
    /// It decides which nodes run, or calls a function.
    ControlFlow,
    /// TensorFlow's own kernel runs it.
    NotOurs,
    /// No kernel of ours takes tensors of its types on the device.
    Types,
    /// The type of a result is unknown.
    NoType,
    /// A region does not hold its kernel: what the host does for it.
    Host(&'static str),
    /// Its kernel uses functions that only TensorFlow has.
    Needs,
    /// A result is in host memory.
    ResultOnHost,
    /// It has state other than variables, or an effect.
    State,
    /// Its result must keep its name.
    Preserved,
    /// Nothing reads its result.
    Unread,
    /// It lacks an attribute or an input of its op.
    Malformed,
    /// It changes a variable, and another node hands the variable's value to the region.
    Held,
    /// Its neighbours are too few, or only read variables.
    Small,
}

impl fmt::Display for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Elsewhere(device) if !device.is_empty() => {
                return write!(f, "it runs on {device}");
            }
            Self::Host(note) => return write!(f, "its kernel needs the host: {note}"),
            Self::Elsewhere(_) => "it runs on another device",
            Self::ControlFlow => "it decides which nodes run, or calls a function",
            Self::NotOurs => "TensorFlow's own kernel runs it",
            Self::Types => "no kernel takes its types on the device",
            Self::NoType => "the type of a result is unknown",
            Self::Needs => "its kernel needs functions that only TensorFlow has",
            Self::ResultOnHost => "a result is in host memory",
            Self::State => "it has an effect, or state other than variables",
            Self::Preserved => "its result is fetched or must keep its name",
            Self::Unread => "nothing reads its result",
            Self::Malformed => "it lacks an attribute or an input",
            Self::Held => {
                "it changes a variable whose value another node hands to the region, which \
                 TensorFlow holds until the region has run"
            }
            Self::Small => "with its neighbours it would be too small a region",
        })
    }
}
