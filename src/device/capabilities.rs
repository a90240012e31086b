//! The capabilities of an adapter that matter to kernels and registration.

use super::matrices::{Cooperative, Matrices};
use crate::dtype::DType;

/// The places where a device can read the GPU's clock. Each value includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timestamps {
    /// Nowhere.
    None,
    /// At the beginning and the end of compute passes.
    Passes,
    /// Between the commands of an encoder: passes and copies.
    Encoders,
    /// Between the dispatches of a pass.
    Dispatches,
}

impl Timestamps {
    /// What an adapter with these features can do.
    fn of(features: wgpu::Features) -> Self {
        let all = [Self::Dispatches, Self::Encoders, Self::Passes];
        let offered = all.into_iter().find(|level| features.contains(level.features()));
        offered.unwrap_or(Self::None)
    }

    /// The features of wgpu that it needs.
    const fn features(self) -> wgpu::Features {
        let (query, encoders, passes) = (
            wgpu::Features::TIMESTAMP_QUERY,
            wgpu::Features::TIMESTAMP_QUERY_INSIDE_ENCODERS,
            wgpu::Features::TIMESTAMP_QUERY_INSIDE_PASSES,
        );
        match self {
            Self::None => wgpu::Features::empty(),
            Self::Passes => query,
            Self::Encoders => query.union(encoders),
            Self::Dispatches => query.union(encoders).union(passes),
        }
    }
}

/// The properties of a device that decide which kernels exist and how they are launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// 64-bit integers in shaders. Without them, [`crate::shader::int64`] uses pairs of words. So
    /// this decides how fast 64-bit ops are, not which ops there are.
    pub int64: bool,
    /// 64-bit floats in shaders.
    pub float64: bool,
    /// 16-bit floats in shaders, through Vulkan. Kernels convert to float16 with them if the device
    /// finds that they are rounded as IEEE 754 wants (`float16.rs`).
    pub float16: bool,
    /// Subgroup operations.
    pub subgroups: bool,
    /// Where the GPU's clock can be read.
    pub timestamps: Timestamps,
    /// Matrices that subgroups multiply and sum in f32.
    pub matrices: Matrices,
    /// Bytes of immediates (push constants); 0 when there are none.
    pub immediates: u32,
    /// Largest storage binding in bytes.
    pub max_binding: u64,
    /// Largest buffer in bytes.
    pub max_buffer: u64,
    /// Alignment of a storage binding's offset.
    pub storage_alignment: u32,
    /// Storage buffers in one shader.
    pub max_bindings: u32,
    /// Storage buffers whose offsets may be given with each dispatch.
    pub max_dynamic_bindings: u32,
    /// Whether a flag that one invocation has put into workgroup memory may decide a branch of all.
    /// Metal's compiler may read it before the barrier, since naga passes workgroup memory as an
    /// argument of the entry point (gfx-rs/wgpu#4500).
    pub workgroup_flags: bool,
    /// Invocations in one workgroup.
    pub max_invocations: u32,
    /// Bytes of workgroup memory.
    pub workgroup_memory: u32,
}

impl Capabilities {
    /// An adapter that has everything, for documentation and for checks of all kernels.
    pub const FULL: Self = Self {
        int64: true,
        float64: true,
        float16: true,
        subgroups: true,
        timestamps: Timestamps::Dispatches,
        matrices: Matrices { f16: Some(Cooperative::F16), f32: None },
        immediates: 128,
        max_binding: MOST_BINDING,
        max_buffer: MOST_BUFFER,
        storage_alignment: 32,
        max_bindings: 32,
        max_dynamic_bindings: 32,
        workgroup_flags: true,
        max_invocations: 1024,
        workgroup_memory: 32 << 10,
    };

    /// The guarantees of WebGPU for every adapter: no optional feature, and its default limits.
    pub const WEBGPU: Self = Self {
        int64: false,
        float64: false,
        float16: false,
        subgroups: false,
        timestamps: Timestamps::None,
        matrices: Matrices::NONE,
        immediates: 0,
        max_binding: 128 << 20,
        max_buffer: 256 << 20,
        storage_alignment: 256,
        max_bindings: 8,
        max_dynamic_bindings: 4,
        workgroup_flags: false,
        max_invocations: 256,
        workgroup_memory: 16 << 10,
    };

    /// Reads the capabilities of an adapter.
    pub(crate) fn of(adapter: &wgpu::Adapter) -> Self {
        let mut capabilities =
            Self::from_parts(&adapter.get_info(), adapter.features(), &adapter.limits());
        if let Some(most) = binding_limit(&|name| std::env::var(name).ok()) {
            capabilities.max_binding = capabilities.max_binding.min(most);
        }
        capabilities.matrices = Matrices::of(adapter);
        capabilities
    }

    /// Reads them from an adapter's description, which does not include cooperative matrices.
    pub(crate) fn from_parts(
        info: &wgpu::AdapterInfo,
        features: wgpu::Features,
        limits: &wgpu::Limits,
    ) -> Self {
        let has = |f: wgpu::Features| features.contains(f);
        Self {
            int64: has(wgpu::Features::SHADER_INT64),
            // The bits of a float64 are read as a u64. naga's HLSL writer converts the value where
            // it should reinterpret the bits.
            float64: has(wgpu::Features::SHADER_F64 | wgpu::Features::SHADER_INT64)
                && info.backend != wgpu::Backend::Dx12,
            float16: has(wgpu::Features::SHADER_F16) && info.backend == wgpu::Backend::Vulkan,
            subgroups: has(wgpu::Features::SUBGROUP),
            timestamps: Timestamps::of(features),
            matrices: Matrices::NONE,
            immediates: if has(wgpu::Features::IMMEDIATES) { limits.max_immediate_size } else { 0 },
            max_binding: limits.max_storage_buffer_binding_size.min(MOST_BINDING),
            max_buffer: limits.max_buffer_size.min(MOST_BUFFER),
            storage_alignment: limits.min_storage_buffer_offset_alignment,
            max_bindings: limits.max_storage_buffers_per_shader_stage,
            max_dynamic_bindings: limits.max_dynamic_storage_buffers_per_pipeline_layout,
            workgroup_flags: info.backend != wgpu::Backend::Metal,
            max_invocations: limits.max_compute_invocations_per_workgroup,
            workgroup_memory: limits.max_compute_workgroup_storage_size,
        }
    }

    /// The features of wgpu that a device is opened with. wgpu refuses work that needs others, so a
    /// device under a preset shows whether kernels keep to it.
    pub(crate) fn features(&self) -> wgpu::Features {
        let listed = [
            (self.int64, wgpu::Features::SHADER_INT64),
            (self.float64, wgpu::Features::SHADER_F64),
            (self.float16, wgpu::Features::SHADER_F16),
            (self.subgroups, wgpu::Features::SUBGROUP),
            (self.immediates > 0, wgpu::Features::IMMEDIATES),
        ];
        let had = listed.into_iter().filter(|(has, _)| *has);
        had.fold(self.timestamps.features(), |all, (_, feature)| all | feature)
    }

    /// The limits of wgpu that a device is opened with. `own` are the limits of the adapter.
    pub(crate) fn limits(&self, own: wgpu::Limits) -> wgpu::Limits {
        wgpu::Limits {
            max_immediate_size: self.immediates,
            // `TF_WGPU_MAX_BINDING` cuts tensors into windows; bindings reach a little beyond their
            // tensors.
            max_buffer_size: self.max_buffer,
            min_storage_buffer_offset_alignment: self.storage_alignment,
            max_storage_buffers_per_shader_stage: self.max_bindings,
            max_dynamic_storage_buffers_per_pipeline_layout: self.max_dynamic_bindings,
            max_compute_invocations_per_workgroup: self.max_invocations,
            max_compute_workgroup_storage_size: self.workgroup_memory,
            ..own
        }
    }

    /// Whether tensors of this type can be computed on the device. Handles (resource, variant) are
    /// always fine.
    pub const fn supports(&self, dtype: DType) -> bool {
        match dtype {
            DType::F64 | DType::C128 => self.float64,
            _ => true,
        }
    }

    /// The capabilities that several devices have in common. TensorFlow registers kernels for the
    /// device type, not for a device, so only kernels for the common part may be registered.
    #[must_use]
    pub fn common(self, other: Self) -> Self {
        Self {
            int64: self.int64 && other.int64,
            float64: self.float64 && other.float64,
            float16: self.float16 && other.float16,
            subgroups: self.subgroups && other.subgroups,
            timestamps: self.timestamps.min(other.timestamps),
            matrices: self.matrices.common(other.matrices),
            immediates: self.immediates.min(other.immediates),
            max_binding: self.max_binding.min(other.max_binding),
            max_buffer: self.max_buffer.min(other.max_buffer),
            storage_alignment: self.storage_alignment.max(other.storage_alignment),
            max_bindings: self.max_bindings.min(other.max_bindings),
            max_dynamic_bindings: self.max_dynamic_bindings.min(other.max_dynamic_bindings),
            workgroup_flags: self.workgroup_flags && other.workgroup_flags,
            max_invocations: self.max_invocations.min(other.max_invocations),
            workgroup_memory: self.workgroup_memory.min(other.workgroup_memory),
        }
    }
}

/// The most bytes of a binding. Metal computes wrong results with 4 GiB and more
/// (gfx-rs/wgpu#10305), and kernels count bytes with 32 bits.
const MOST_BINDING: u64 = (4 << 30) - 256;
/// The most bytes of a buffer, for the same reason.
const MOST_BUFFER: u64 = (4 << 30) - 1;
/// The least value that `TF_WGPU_MAX_BINDING` may set.
const LEAST_BINDING: u64 = 1024;

/// The bytes that `TF_WGPU_MAX_BINDING`, as `lookup` gives it, lets programs bind at once: for
/// tests in which small tensors are computed in windows.
fn binding_limit(lookup: &dyn Fn(&str) -> Option<String>) -> Option<u64> {
    lookup("TF_WGPU_MAX_BINDING")?.trim().parse().ok().map(|bytes: u64| bytes.max(LEAST_BINDING))
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn a_device_is_opened_with_what_its_capabilities_have() {
        let adapter = wgpu::Limits { max_bind_groups: 7, ..wgpu::Limits::defaults() };
        let limits = Capabilities::WEBGPU.limits(adapter.clone());
        assert_eq!(Capabilities::WEBGPU.features(), wgpu::Features::empty());
        assert_eq!(limits, adapter, "the floor is WebGPU's default limits");
        let info = wgpu::AdapterInfo::new(wgpu::DeviceType::Other, wgpu::Backend::Vulkan);
        for capabilities in [Capabilities::WEBGPU, Capabilities::FULL] {
            let (features, limits) = (capabilities.features(), capabilities.limits(limits.clone()));
            let read = Capabilities::from_parts(&info, features, &limits);
            // Kernels decide how much is bound, and the correctness of a backend is no limit.
            let max_binding = limits.max_storage_buffer_binding_size;
            let (matrices, workgroup_flags) = (Matrices::NONE, true);
            let same = Capabilities { matrices, max_binding, workgroup_flags, ..capabilities };
            assert_eq!(read, same);
        }
    }

    #[test]
    fn bindings_and_buffers_stay_below_4_gib() {
        let limits = wgpu::Limits {
            max_storage_buffer_binding_size: 1 << 35,
            max_buffer_size: 1 << 35,
            ..Default::default()
        };
        for backend in [wgpu::Backend::Metal, wgpu::Backend::Vulkan, wgpu::Backend::Dx12] {
            let info = wgpu::AdapterInfo::new(wgpu::DeviceType::IntegratedGpu, backend);
            let read = Capabilities::from_parts(&info, wgpu::Features::empty(), &limits);
            assert_eq!((read.max_binding, read.max_buffer), (MOST_BINDING, MOST_BUFFER));
        }
    }

    #[test]
    fn a_variable_limits_bindings() {
        let with =
            |value: Option<&'static str>| binding_limit(&move |_| value.map(ToOwned::to_owned));
        assert_eq!(with(Some(" 65536 ")), Some(65_536));
        assert_eq!(with(Some("1")), Some(LEAST_BINDING));
        assert_eq!((with(None), with(Some("much"))), (None, None));
    }
}
