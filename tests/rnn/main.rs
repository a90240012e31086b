//! Recurrent cells, and networks of recurrent layers.

mod cells;
#[path = "../numeric/close.rs"]
mod close;
mod ctc;
mod network;
mod networks;
#[expect(dead_code, reason = "the comparison of sums is for contractions")]
#[path = "../numeric/mod.rs"]
mod numeric;
