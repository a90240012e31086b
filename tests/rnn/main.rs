//! Recurrent cells, and networks of recurrent layers.

mod cells;
mod networks;
#[path = "../numeric/mod.rs"]
mod numeric;
