//! Compiles `proto/` into Rust, without protoc; names the library for macOS.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let mut files =
        std::fs::read_dir("proto")?.map(|e| Ok(e?.path())).collect::<std::io::Result<Vec<_>>>()?;
    files.retain(|f| f.extension().is_some_and(|e| e == "proto"));
    files.sort();
    let descriptors = protox::compile(files, ["proto"])?;
    let mut config = prost_build::Config::new();
    config.btree_map(["."]);
    // Comments of the schemas are no Rust documentation: their lists would be read as code.
    config.disable_comments(["."]);
    config.compile_fds(descriptors)?;
    if std::env::var("CARGO_CFG_TARGET_VENDOR")? == "apple" {
        // Else the library would carry the path where it was built.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-install_name,@rpath/libtensorflow_wgpu.dylib");
    }
    Ok(())
}
