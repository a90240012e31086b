//! The rules of the house: how wide lines are, and which way imports point.

mod imports;
mod lines;
