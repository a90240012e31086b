//! Every shader variant of every family is valid WGSL and has a translation to SPIR-V (Vulkan), MSL
//! (Metal) and HLSL (DX12), with parameters in immediates and in a buffer, and with 64-bit integers
//! and without. No variant exceeds the limits that WebGPU guarantees for every adapter. No device
//! is needed, so Linux checks the shaders of the other systems.
//!
//! One test for each family: `cargo test --test shaders scalar`.

use std::collections::HashSet;

use libtest_mimic::{Arguments, Failed, Trial};
use naga::back::{hlsl, msl, spv};
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use tensorflow_wgpu::kernels::{FAMILIES, Family};
use tensorflow_wgpu::shader::{Shader, int64};

/// The optional features of an adapter that the crate uses.
const WANTED: Capabilities = Capabilities::IMMEDIATES
    .union(Capabilities::SHADER_INT64)
    .union(Capabilities::FLOAT64)
    .union(Capabilities::SUBGROUP)
    .union(Capabilities::SUBGROUP_BARRIER)
    // `unpack2x16float`; every adapter of wgpu but some of OpenGL ES has it.
    .union(Capabilities::SHADER_FLOAT16_IN_FLOAT32);

/// Sizes of the immediates: 128 bytes as nearly everywhere, and none.
const IMMEDIATE_LIMITS: [u32; 2] = [128, 0];

/// Families with more than a thousand shaders. Each is cut into tests that run at once. One of
/// [`SAMPLED`] shaders is also checked with parameters in a buffer; the lines for that are the same
/// in all.
const LARGE: &[&str] = &["scalar", "fused", "reduce", "matmul"];
const PARTS: usize = 4;
const SAMPLED: usize = 4;

fn main() {
    let mut trials = Vec::new();
    for family in FAMILIES {
        if LARGE.contains(&family.name) {
            trials.extend((0..PARTS).map(|part| {
                let name = format!("{}, part {} of {PARTS}", family.name, part + 1);
                Trial::test(name, move || check_family(family, part, PARTS))
            }));
        } else {
            trials.push(Trial::test(family.name, || check_family(family, 0, 1)));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// Families that only copy, and families whose kernels are TensorFlow's own, on tensors of this
/// device.
const WITHOUT_SHADERS: &[&str] = &["parallel_concat", "parked", "variant"];

/// Checks the shaders of a family whose number modulo `parts` is `part`.
fn check_family(family: &Family, part: usize, parts: usize) -> Result<(), Failed> {
    let all = (family.shaders)();
    let shaders: Vec<_> = all.iter().skip(part).step_by(parts).collect();
    let mut problems = Vec::new();
    if shaders.is_empty() && !WITHOUT_SHADERS.contains(&family.name) {
        problems.push("the family lists no shader".to_owned());
    }
    let (mut seen, mut labels) = (HashSet::new(), HashSet::new());
    for (number, shader) in shaders.iter().copied().enumerate() {
        let is_whole = parts == 1 || number % SAMPLED == 0;
        for limit in IMMEDIATE_LIMITS.into_iter().filter(|limit| is_whole || *limit > 0) {
            // Libraries of float64 have a second form.
            let wgsl = shader.clone().hiding_constants().render(limit);
            let is_hiding = wgsl.contains("hidden_f64(");
            if is_hiding
                && seen.insert(wgsl.clone())
                && let Err(problem) = check_text(&shader.clone().hiding_constants(), &wgsl, limit)
            {
                problems.push(format!("{} with hidden constants: {problem}", shader.label()));
            }
            let native = shader.clone().with_native_float16(true);
            let wgsl = native.render(limit);
            if wgsl.contains("f32(f16(v))")
                && seen.insert(wgsl.clone())
                && let Err(problem) = check_native_float16(&native, &wgsl, limit)
            {
                problems.push(format!("{} with native float16: {problem}", shader.label()));
            }
            let wgsl = shader.render(limit);
            if seen.insert(wgsl.clone())
                && let Err(problem) =
                    check_limits(&wgsl, family.name, buffers(family.name, shader.label()))
                        .and_then(|()| check_text(shader, &wgsl, limit))
            {
                problems.push(format!(
                    "{} with {limit} bytes of immediates: {problem}",
                    shader.label()
                ));
            }
        }
        problems.extend(undefined(shader));
        // Long dispatches use the form for parts, which differs only at the entry point.
        let in_parts = shader.clone().in_parts();
        if labels.insert(shader.label())
            && let Err(problem) = check_text(&in_parts, &in_parts.render(128), 128)
        {
            problems.push(format!("{} in parts: {problem}", shader.label()));
        }
    }
    println!("{}: {} shader variants, {} texts", family.name, shaders.len(), seen.len());
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n\n").into()) }
}

/// Families with contractions, whose tiles are chosen by the adapter's workgroup memory.
const WITH_TILES: &[&str] = &["conv", "einsum", "fused", "matmul"];

/// The beginnings of the labels of fused programs that bind more tensors than every adapter
/// supports, with the number of their bindings. Their kernels check the adapter's limit, and have
/// other programs for lower limits.
const WIDE: &[(&str, usize)] =
    &[("attention gradient", 9), ("contract joined", 10), ("reduce", 12)];

/// The number of storage buffers that a shader may bind.
fn buffers(family: &str, label: &str) -> usize {
    let wide = WIDE.iter().find(|(start, _)| family == "fused" && label.starts_with(start));
    wide.map_or(8, |(_, most)| *most)
}

/// Whether a shader keeps to the limits of every adapter: those of WebGPU, except that it may bind
/// `most_buffers` buffers and have only 16 KiB of parameters.
fn check_limits(wgsl: &str, family: &str, most_buffers: usize) -> Result<(), String> {
    let module = naga::front::wgsl::parse_str(wgsl).map_err(|e| e.emit_to_string(wgsl))?;
    let in_space = |space: naga::AddressSpace| {
        module.global_variables.iter().filter(move |(_, v)| v.space == space).map(|(_, v)| v.ty)
    };
    let bytes = |space| -> u32 {
        in_space(space).map(|ty| module.types[ty].inner.size(module.to_ctx())).sum()
    };
    let memory = bytes(naga::AddressSpace::WorkGroup);
    let parameters = bytes(naga::AddressSpace::Uniform);
    // Tiles of cooperative matrices are chosen on adapters that have these.
    let most = match wgsl {
        _ if wgsl.contains("enable wgpu_cooperative_matrix;") => 48 << 10,
        _ if WITH_TILES.contains(&family) => 32 << 10,
        _ => 16 << 10,
    };
    let is_storage = |space| matches!(space, naga::AddressSpace::Storage { .. });
    let buffers = module.global_variables.iter().filter(|(_, v)| is_storage(v.space)).count();
    let [x, y, z] = module.entry_points[0].workgroup_size;
    if memory > most || parameters > 16 << 10 || buffers > most_buffers || x * y * z > 256 || z > 64
    {
        return Err(format!(
            "beyond WebGPU's limits: {memory} bytes of workgroup memory, {parameters} of \
             parameters, {buffers} buffers, workgroups of {x}, {y}, {z}"
        ));
    }
    Ok(())
}

/// A `{{NAME}}` that no define replaced.
fn undefined(shader: &Shader) -> Option<String> {
    let wgsl = shader.render(0);
    let at = wgsl.find("{{")?;
    Some(format!(
        "{}: not defined: {}",
        shader.label(),
        &wgsl[at..].lines().next().unwrap_or_default()
    ))
}

/// The capabilities that only cooperative matrices need.
const COOPERATIVE: Capabilities = FLOAT16.union(Capabilities::COOPERATIVE_MATRIX);

/// Of programs that convert to float16 as the adapter does.
const FLOAT16: Capabilities = WANTED.union(Capabilities::SHADER_FLOAT16);

/// The text of a program with the adapter's conversions to float16, which only Vulkan's have.
fn check_native_float16(native: &Shader, wgsl: &str, limit: u32) -> Result<(), String> {
    let module = native.module(limit).map_err(|e| e.to_string())?;
    let capabilities = if wgsl.contains("coop_mat") { COOPERATIVE } else { FLOAT16 };
    let info = validate(&module, wgsl, capabilities)?;
    to_spirv(&module, &info)?;
    if wgsl.contains("coop_mat") || !int64::is_needed(wgsl) || wgsl.contains("f64") {
        return Ok(());
    }
    let module = int64::lowered(wgsl).map_err(|e| format!("without int64: {e}"))?;
    let info = validate(&module, wgsl, FLOAT16.difference(Capabilities::SHADER_INT64))?;
    to_spirv(&module, &info)
}

fn check_text(shader: &Shader, wgsl: &str, limit: u32) -> Result<(), String> {
    let module = shader.module(limit).map_err(|e| e.to_string())?;
    let validate = |capabilities: Capabilities| validate(&module, wgsl, capabilities);
    if wgsl.contains("coop_mat") {
        let info = validate(COOPERATIVE)?;
        to_spirv(&module, &info)?;
        // Metal has matrices of eight rows and columns, DX12 has none.
        return if wgsl.contains("coop_mat8x8") { to_msl(&module, &info) } else { Ok(()) };
    }
    let info = validate(WANTED)?;
    to_spirv(&module, &info)?;
    to_hlsl(&module, &info)?;
    // Metal has no double, and naga's MSL writer panics on it. The registry offers float64 only
    // where the adapter has it.
    let needs_f64 = validate(WANTED.difference(Capabilities::FLOAT64)).is_err();
    if needs_f64 {
        return Ok(());
    }
    to_msl(&module, &info)?;
    check_without_int64(wgsl)
}

/// The same text for an adapter without 64-bit integers.
fn check_without_int64(wgsl: &str) -> Result<(), String> {
    let none = WANTED.difference(Capabilities::SHADER_INT64 | Capabilities::FLOAT64);
    if !int64::is_needed(wgsl) {
        let module = naga::front::wgsl::parse_str(wgsl).map_err(|e| e.emit_to_string(wgsl))?;
        return validate(&module, wgsl, none).map(drop);
    }
    let module = int64::lowered(wgsl).map_err(|e| format!("without int64: {e}"))?;
    let info = validate(&module, wgsl, none).map_err(|e| format!("without int64: {e}"))?;
    to_spirv(&module, &info)?;
    to_hlsl(&module, &info)?;
    to_msl(&module, &info)
}

fn validate(
    module: &naga::Module,
    wgsl: &str,
    capabilities: Capabilities,
) -> Result<ModuleInfo, String> {
    let mut validator = Validator::new(ValidationFlags::all(), capabilities);
    validator.subgroup_stages(naga::valid::ShaderStages::COMPUTE);
    validator.subgroup_operations(naga::valid::SubgroupOperationSet::all());
    validator.validate(module).map_err(|e| e.emit_to_string(wgsl))
}

fn to_spirv(module: &naga::Module, info: &ModuleInfo) -> Result<(), String> {
    let options = spv::Options { lang_version: (1, 3), ..Default::default() };
    let entry = spv::PipelineOptions {
        shader_stage: naga::ShaderStage::Compute,
        entry_point: "main".to_owned(),
    };
    spv::write_vec(module, info, &options, Some(&entry))
        .map(drop)
        .map_err(|e| format!("SPIR-V: {e}"))
}

/// For macOS 12 and 15, which have these versions of the language.
fn to_msl(module: &naga::Module, info: &ModuleInfo) -> Result<(), String> {
    [(2, 4), (3, 2)].into_iter().try_for_each(|version| to_msl_of(version, module, info))
}

fn to_msl_of(version: (u8, u8), module: &naga::Module, info: &ModuleInfo) -> Result<(), String> {
    let options = msl::Options { lang_version: version, ..Default::default() };
    let entry = msl::PipelineOptions {
        entry_point: Some((naga::ShaderStage::Compute, "main".to_owned())),
        ..Default::default()
    };
    let (_, translation) =
        msl::write_string(module, info, &options, &entry).map_err(|e| format!("MSL: {e}"))?;
    translation
        .entry_point_names
        .into_iter()
        .collect::<Result<Vec<_>, _>>()
        .map(drop)
        .map_err(|e| format!("MSL: {e}"))
}

fn to_hlsl(module: &naga::Module, info: &ModuleInfo) -> Result<(), String> {
    let options = hlsl::Options {
        shader_model: hlsl::ShaderModel::V6_0,
        immediates_target: Some(hlsl::BindTarget { space: 1, ..Default::default() }),
        ..Default::default()
    };
    let entry = hlsl::PipelineOptions {
        entry_point: Some((naga::ShaderStage::Compute, "main".to_owned())),
    };
    let mut text = String::new();
    let mut writer = hlsl::Writer::new(&mut text, &options, &entry);
    let reflection = writer.write(module, info, None).map_err(|e| format!("HLSL: {e}"))?;
    reflection
        .entry_point_names
        .into_iter()
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| format!("HLSL: {e}"))?;
    match defined_twice(&text) {
        Some(line) => Err(format!("HLSL: defined twice: {line}")),
        None => Ok(()),
    }
}

/// A zero value that naga defines for two functions, which DX12's compiler refuses.
fn defined_twice(hlsl: &str) -> Option<&str> {
    let mut seen = HashSet::new();
    hlsl.lines()
        .filter(|line| line.contains(" ZeroValue") && line.ends_with("() {"))
        .find(|line| !line.starts_with(' ') && !seen.insert(*line))
}
