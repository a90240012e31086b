//! The rules of the house: how wide lines are, which way imports point, and where software
//! adapters live.

mod imports;
mod lines;
mod rooms;
mod suites;
