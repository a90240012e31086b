//! The rules of the house: how wide lines are, which way imports point, where software adapters
//! live, that each suite runs, and which words comments leave out.

#![cfg(test)]

use std::path::{Path, PathBuf};

mod imports;
mod lines;
mod rooms;
mod suites;
mod words;

/// The repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}
