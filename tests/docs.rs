//! The documents that are written from the source are up to date.

#[test]
fn the_ops_table_is_that_of_the_registry() {
    let written = include_str!("../docs/OPS.md").replace("\r\n", "\n");
    assert!(written == tensorflow_wgpu::report::ops_table(), "docs/OPS.md is out of date: run `make docs`");
}
