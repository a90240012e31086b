//! Compiles shader variants of all families on one adapter, one after the other, without running
//! any: `tools/drivers` reads what the driver's compiler says of each.
//!
//!     cargo run --example compile -- [--every N] [--offset O] [--start I] [--family NAME]
//!         [--contains TEXT] [--list] [--hlsl FOLDER]
//!
//! `--every` takes each N-th variant, from the first or from number O on; `--start` begins at
//! number I of those; `--family` and `--contains` choose by family and by label. A line
//! `@@ begin I FAMILY LABEL` on standard error precedes what the driver prints, `@@ end SECONDS` or
//! `@@ refused MESSAGE` follows it; what the adapter has no types for is `@@ skipped`, and `@@
//! other` says that no kernel chooses the variant on this kind of adapters. `--list` only prints
//! the labels. With `--hlsl` no adapter is asked: each text is written to a file, as DX12 gets it.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use naga::back::hlsl;
use naga::valid::{Capabilities, ValidationFlags, Validator};
use smallvec::SmallVec;
use tensorflow_wgpu::device::{Device, Grid, Key, Params, Program, Selection};
use tensorflow_wgpu::kernels::FAMILIES;
use tensorflow_wgpu::shader::Shader;

struct Options {
    every: usize,
    offset: usize,
    contains: String,
    list: bool,
    start: usize,
    family: Option<String>,
    hlsl: Option<PathBuf>,
}

fn options() -> Result<Options, lexopt::Error> {
    use lexopt::prelude::*;
    let mut found = Options {
        every: 1,
        offset: 0,
        contains: String::new(),
        list: false,
        start: 0,
        family: None,
        hlsl: None,
    };
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("every") => found.every = arguments.value()?.parse()?,
            Long("offset") => found.offset = arguments.value()?.parse()?,
            Long("contains") => found.contains = arguments.value()?.string()?,
            Long("list") => found.list = true,
            Long("start") => found.start = arguments.value()?.parse()?,
            Long("family") => found.family = Some(arguments.value()?.string()?),
            Long("hlsl") => found.hlsl = Some(arguments.value()?.into()),
            _ => return Err(argument.unexpected()),
        }
    }
    Ok(found)
}

/// Each distinct text once, with its family.
fn variants(options: &Options, immediates: u32) -> Vec<(&'static str, Shader)> {
    let mut seen = HashSet::new();
    let families = FAMILIES.iter().filter(|f| options.family.as_ref().is_none_or(|n| n == f.name));
    families
        .flat_map(|family| (family.shaders)().into_iter().map(|shader| (family.name, shader)))
        .filter(|(_, shader)| shader.label().contains(&options.contains))
        .filter(|(_, shader)| seen.insert(shader.render(immediates)))
        .skip(options.offset)
        .step_by(options.every)
        .collect()
}

/// What an adapter has of what shaders may need.
fn supported(device: &Device) -> Capabilities {
    let has = device.profile().capabilities;
    let mut all = Capabilities::IMMEDIATES | Capabilities::SHADER_FLOAT16_IN_FLOAT32;
    all.set(Capabilities::SHADER_INT64, has.int64);
    all.set(Capabilities::FLOAT64, has.float64);
    all.set(Capabilities::SUBGROUP | Capabilities::SUBGROUP_BARRIER, has.subgroups);
    all.set(Capabilities::COOPERATIVE_MATRIX, has.matrices.are_real());
    all.set(Capabilities::SHADER_FLOAT16, has.matrices.f16.is_some());
    all
}

/// Whether kernels on this device choose a variant.
enum Choice {
    Chosen,
    /// It is for adapters of another kind, or for subgroups of another size.
    Other,
    /// It multiplies cooperative matrices that the adapter does not list.
    Impossible,
}

fn choice(device: &Device, shader: &Shader, wgsl: &str) -> Choice {
    let profile = device.profile();
    let is_of_kind = shader.kinds().contains(&profile.kind());
    if !wgsl.contains("coop_mat") {
        return if is_of_kind { Choice::Chosen } else { Choice::Other };
    }
    // As the label of a contraction tells them.
    let matrices = profile.capabilities.matrices;
    let own = matrices.iter().find_map(|c| {
        let text = format!("{:?}, element: {:?}, lanes: ", c.size, c.element);
        shader.label().contains(&text).then(|| format!("{text}{},", c.lanes))
    });
    match own {
        None => Choice::Impossible,
        Some(own) if is_of_kind && shader.label().contains(&own) => Choice::Chosen,
        Some(_) => Choice::Other,
    }
}

fn module(
    shader: &Shader,
    immediates: u32,
    capabilities: Capabilities,
) -> Option<(naga::Module, naga::valid::ModuleInfo)> {
    let module = shader.module(immediates).ok()?;
    let mut validator = Validator::new(ValidationFlags::all(), capabilities);
    validator.subgroup_stages(naga::valid::ShaderStages::COMPUTE);
    validator.subgroup_operations(naga::valid::SubgroupOperationSet::all());
    let info = validator.validate(&module).ok()?;
    Some((module, info))
}

fn compile(options: &Options) -> Result<(), tensorflow_wgpu::Error> {
    let selection = Selection::enumerate(&|name| std::env::var(name).ok());
    let Some(adapter) = selection.adapters.first() else {
        let problem = selection.problem.unwrap_or_else(|| "no adapter".to_owned());
        return Err(tensorflow_wgpu::Error::Unavailable(problem));
    };
    let device = Device::open(adapter)?;
    let capabilities = supported(&device);
    eprintln!("@@ adapter {}", adapter.get_info().name);
    let immediates = device.profile().capabilities.immediates;
    let all = variants(options, immediates);
    eprintln!("@@ variants {}", all.len());
    for (i, (family, shader)) in all.iter().enumerate().skip(options.start) {
        eprintln!("@@ begin {i} {family} {}", shader.label());
        let choice = choice(&device, shader, &shader.render(immediates));
        if matches!(choice, Choice::Impossible)
            || module(shader, immediates, capabilities).is_none()
        {
            eprintln!("@@ skipped");
            continue;
        }
        if matches!(choice, Choice::Other) {
            eprintln!("@@ other");
        }
        let begin = Instant::now();
        let made = device.prepare(&Program {
            key: Key::new("compile").number(i as u32),
            shader: &|| shader.clone(),
            bindings: SmallVec::new(),
            params: Params::new(),
            grid: Grid::groups(1),
        });
        match made {
            Ok(()) => eprintln!("@@ end {:.4}", begin.elapsed().as_secs_f64()),
            Err(e) => eprintln!("@@ refused {}", e.to_string().replace('\n', " ")),
        }
    }
    Ok(())
}

/// Writes `NUMBER.hlsl` for each variant: its label in a comment, then the text.
fn write_hlsl(options: &Options, folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    // No adapter of DX12 is offered float64: see `device::Capabilities`.
    let capabilities =
        Capabilities::all() - Capabilities::COOPERATIVE_MATRIX - Capabilities::FLOAT64;
    for (i, (family, shader)) in variants(options, 128).iter().enumerate() {
        let Some((module, info)) = module(shader, 128, capabilities) else { continue };
        let settings = hlsl::Options {
            shader_model: hlsl::ShaderModel::V6_0,
            // As wgpu sets them: a place for the number of workgroups, and loops as they are.
            special_constants_binding: Some(hlsl::BindTarget { space: 2, ..Default::default() }),
            force_loop_bounding: false,
            immediates_target: Some(hlsl::BindTarget { space: 1, ..Default::default() }),
            ..Default::default()
        };
        let entry = hlsl::PipelineOptions {
            entry_point: Some((naga::ShaderStage::Compute, "main".to_owned())),
        };
        let mut text = format!("// {family} {}\n", shader.label());
        let written = hlsl::Writer::new(&mut text, &settings, &entry).write(&module, &info, None);
        if let Err(e) = written {
            text = format!("// {family} {}\n#error naga: {e}\n", shader.label());
        }
        std::fs::write(folder.join(format!("{i}.hlsl")), text)?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let done = options().map_err(|e| e.to_string()).and_then(|options| match &options.hlsl {
        Some(folder) => write_hlsl(&options, folder).map_err(|e| e.to_string()),
        None if options.list => {
            for (family, shader) in variants(&options, 128) {
                println!("{family} {}", shader.label());
            }
            Ok(())
        }
        None => compile(&options).map_err(|e| e.to_string()),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("compile: {e}");
            ExitCode::FAILURE
        }
    }
}
