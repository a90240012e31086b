//! Environment variables of the process.

/// A variable's value, if it is set. Invalid Unicode is replaced, so that no check accepts the
/// value.
pub(crate) fn lookup(name: &str) -> Option<String> {
    std::env::var_os(name).map(|v| v.to_string_lossy().into_owned())
}

/// All variables that have Unicode names.
pub(crate) fn all() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
        })
        .collect()
}
