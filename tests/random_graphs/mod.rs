//! Random graphs for the optimizer's tests: a generator that computes the possible error of each
//! value, and an interpreter.

pub mod executor;
pub mod flow;
pub mod functions;
pub mod generate;
pub mod patterns;
pub mod run;
pub mod scopes;
