//! SPIR-V of a shader, for pipelines whose bindings are hidden from wgpu.

use naga::back::spv;
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, ModuleInfo, ShaderStages, SubgroupOperationSet};
use naga::valid::{ValidationFlags, Validator};

use crate::error::{Error, Result};

/// Like wgpu's own SPIR-V (`sys::trusted_shader`). Cooperative matrices need a newer version of
/// SPIR-V, which their drivers support.
pub(super) fn of(module: &naga::Module, are_buffers_guarded: bool) -> Result<Vec<u32>> {
    let info = validated(module)?;
    let checked = if are_buffers_guarded {
        BoundsCheckPolicy::Unchecked
    } else {
        BoundsCheckPolicy::Restrict
    };
    let options = spv::Options {
        lang_version: if has_matrices(module) { (1, 6) } else { (1, 3) },
        flags: spv::WriterFlags::empty(),
        fake_missing_bindings: true,
        bounds_check_policies: BoundsCheckPolicies {
            index: checked,
            buffer: checked,
            image_load: checked,
            binding_array: checked,
        },
        zero_initialize_workgroup_memory: spv::ZeroInitializeWorkgroupMemoryMode::None,
        force_loop_bounding: false,
        ..Default::default()
    };
    let entry = spv::PipelineOptions {
        shader_stage: naga::ShaderStage::Compute,
        entry_point: "main".to_owned(),
    };
    spv::write_vec(module, &info, &options, Some(&entry))
        .map_err(|e| Error::Internal(e.to_string()))
}

/// Validates a module for naga's writers, with all capabilities: no program asks for one that its
/// adapter lacks.
pub(super) fn validated(module: &naga::Module) -> Result<ModuleInfo> {
    let mut validator = Validator::new(ValidationFlags::all(), Capabilities::all());
    validator.subgroup_stages(ShaderStages::COMPUTE);
    validator.subgroup_operations(SubgroupOperationSet::all());
    validator.validate(module).map_err(|e| Error::Internal(e.into_inner().to_string()))
}

/// Whether it multiplies cooperative matrices. The expressions are searched, because loaded
/// matrices need no type in the module.
fn has_matrices(module: &naga::Module) -> bool {
    let functions = module.functions.iter().map(|(_, function)| function);
    functions.chain(module.entry_points.iter().map(|entry| &entry.function)).any(|function| {
        let mut expressions = function.expressions.iter();
        expressions.any(|(_, e)| matches!(e, naga::Expression::CooperativeLoad { .. }))
    })
}

#[cfg(test)]
mod tests {
    use super::of;

    /// Word 1 of a module.
    fn version(wgsl: &str) -> u32 {
        of(&naga::front::wgsl::parse_str(wgsl).unwrap(), true).unwrap()[1]
    }

    #[test]
    fn matrices_of_every_size_ask_for_a_newer_version() {
        let plain = "@compute @workgroup_size(32) fn main() {}";
        assert_eq!(version(plain), 0x0001_0300);
        let square = "enable f16;\nenable wgpu_cooperative_matrix;\n\
                      var<workgroup> x: array<f16, 64>;\n\
                      @compute @workgroup_size(32) fn main() {\n\
                      let a = coopLoadT<coop_mat8x8<f16, A>>(&x[0], 8u);\n}";
        assert_eq!(version(square), 0x0001_0600);
    }
}
