//! Environment variables of the process.

/// A variable's value, if it is set. What is not Unicode counts as a value that no check accepts.
pub(crate) fn lookup(name: &str) -> Option<String> {
    std::env::var_os(name).map(|v| v.to_string_lossy().into_owned())
}
