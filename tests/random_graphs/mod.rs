//! Random graphs for the optimizer's tests: a generator that knows how exact each value can be, and
//! an interpreter.

pub mod executor;
pub mod flow;
pub mod functions;
pub mod generate;
pub mod patterns;
pub mod run;
pub mod scopes;
