//! Prints docs/OPS.md.

fn main() -> std::io::Result<()> {
    let sweep = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python/sweep");
    print!("{}", tensorflow_wgpu::report::ops_table(sweep.as_ref())?);
    Ok(())
}
