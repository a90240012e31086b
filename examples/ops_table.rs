//! Prints docs/OPS.md.

fn main() {
    print!("{}", tensorflow_wgpu::report::ops_table());
}
