//! SPIR-V of a shader, for pipelines whose bindings wgpu is not to look at.

use naga::back::spv;
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, ShaderStages, SubgroupOperationSet, ValidationFlags, Validator};

use crate::error::{Error, Result};

/// Like what wgpu makes of it, but that all accesses are checked: whether the driver checks those
/// of buffers itself is only known to wgpu.
/// Cooperative matrices ask for a newer version, which their drivers have.
pub(super) fn of(module: &naga::Module, has_matrices: bool) -> Result<Vec<u32>> {
    let failed = |what: &str| Error::Internal(what.to_owned());
    // What the adapter lacks, no program asks of it.
    let mut validator = Validator::new(ValidationFlags::all(), Capabilities::all());
    validator.subgroup_stages(ShaderStages::COMPUTE);
    validator.subgroup_operations(SubgroupOperationSet::all());
    let info = validator.validate(module).map_err(|e| failed(&e.into_inner().to_string()))?;
    let checked = BoundsCheckPolicy::Restrict;
    let options = spv::Options {
        lang_version: if has_matrices { (1, 6) } else { (1, 3) },
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
    spv::write_vec(module, &info, &options, Some(&entry)).map_err(|e| failed(&e.to_string()))
}
