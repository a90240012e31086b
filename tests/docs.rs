//! The documents that are generated from the source are up to date.

#[test]
fn the_ops_table_is_that_of_the_registry_and_of_the_sweep() {
    let sweep = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python/sweep");
    let table = tensorflow_wgpu::report::ops_table(sweep.as_ref()).unwrap();
    let written = include_str!("../docs/OPS.md").replace("\r\n", "\n");
    assert!(written == table, "docs/OPS.md is out of date: run `make docs`");
}
