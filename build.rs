//! Compiles `proto/` into Rust, without protoc; names the library for macOS, and
//! gives it an entry point on Linux.

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
    // Python's way to write a pre-release.
    let version = std::env::var("CARGO_PKG_VERSION")?;
    let version = [("-alpha.", "a"), ("-beta.", "b"), ("-rc.", "rc")]
        .iter()
        .fold(version, |version, (cargo, python)| version.replace(cargo, python));
    println!("cargo:rustc-env=PACKAGE_VERSION={version}");
    println!("cargo:rustc-check-cfg=cfg(has_examination)");
    let target = |what: &str| std::env::var(format!("CARGO_CFG_TARGET_{what}"));
    let is_glibc = target("OS")? == "linux" && target("ENV")? == "gnu";
    if is_glibc && ["x86_64", "aarch64"].contains(&&*target("ARCH")?) {
        // The entry point of src/sys/examination/linux.rs: the library is a program too.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-e,tensorflow_wgpu_examine");
        println!("cargo:rustc-cfg=has_examination");
    }
    if target("VENDOR")? == "apple" {
        // Else the library would carry the path where it was built.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-install_name,@rpath/libtensorflow_wgpu.dylib");
    }
    Ok(())
}
