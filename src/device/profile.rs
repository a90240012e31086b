//! The properties that kernels may ask about an adapter: one [`Profile`], set when a device is
//! opened.
//!
//! Capabilities are facts, which the driver reports. The rest is our knowledge of a kind of
//! adapter, which no driver reports: a preset for each vendor, and for the software adapters. A
//! kernel that chooses between two forms asks for the property that decides, such as the cost of a
//! barrier, not for a name.

use std::{env, fmt};

use super::unstaged::shares_memory;
use super::{Capabilities, Family};
use crate::kind::Kind;
use crate::sys::cores::cores;
use crate::sys::integer_dot;

/// The kind of processor that computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// On the processor.
    Software,
    /// A GPU that shares the processor's memory, a virtual GPU, or one of unknown kind.
    Integrated,
    /// A GPU with memory of its own.
    Discrete,
}

/// The cost of a barrier among the invocations of a workgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Barriers {
    /// About as much as a load. Up to 256 invocations add up their sums through workgroup memory.
    Cheap,
    /// More than the work that it saves: the adapter runs a workgroup's invocations one after the
    /// other.
    Dear,
}

/// How the workgroups of a contraction share its tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Schedule {
    /// One workgroup for each tile, or for each part of a tile.
    DataParallel,
    /// `n` workgroups, the number that runs at once. Each computes every `n`-th tile.
    Persistent,
    /// Stream-K (Osama et al., 2023): as many workgroups as run at once, with equal shares of the
    /// steps of all tiles. A second dispatch adds up the tiles that are cut by the shares.
    StreamK,
}

/// What kernels may ask about an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    /// The preset's name, for the doctor and `TF_WGPU_PROFILE`.
    pub name: &'static str,
    /// How it computes.
    pub class: Class,
    /// The family of GPUs that the adapter belongs to: the table of tuned choices has rows for it.
    /// None if the adapter is in no family, and with `TF_WGPU_TUNED=off`.
    pub family: Option<Family>,
    /// The smallest number of invocations of a subgroup, which run in step.
    pub simd_width: u32,
    /// Registers of 32 bits that an invocation has before its compiler spills to memory.
    pub registers: u32,
    /// The cost of a barrier.
    pub barriers: Barriers,
    /// The cost of a dispatch that waits for the one before it, in multiply-adds of one invocation.
    pub dispatch_cost: u32,
    /// The number of invocations that the adapter runs at once, including those that wait for
    /// memory. Work is not cut into more.
    pub invocations: usize,
    /// The number of workgroups that keep it busy.
    pub workgroups: usize,
    /// The number of workgroups of 256 invocations with a tile in workgroup memory that the adapter
    /// runs at once. [`Schedule::Persistent`] and [`Schedule::StreamK`] are chosen by it; with 0
    /// they are never chosen.
    pub resident_workgroups: usize,
    /// Whether the scalar product of two words of four signed bytes takes fewer instructions than
    /// its four products.
    pub packed_dot: bool,
    /// The largest number of iterations of all loops of an invocation together. Beyond 65,535
    /// llvmpipe leaves every loop without an error. A GPU's watchdog ends programs that run for
    /// seconds.
    pub loop_limit: usize,
    /// Whether dispatches wait for each other only because of their data, and not whenever they
    /// share a buffer, which is wgpu's rule. For Vulkan only. Off until a measurement on a GPU
    /// shows a gain.
    pub own_barriers: bool,
    /// Whether the host reads and writes tensors where they are, not through staging buffers, as
    /// far as the GPU's work allows. For adapters that share the processor's memory, on Vulkan and
    /// Metal. Off until a measurement on a GPU shows a gain.
    pub unstaged: bool,
    /// The fewest parts that a dispatch is cut into, see `parts.rs`: for tests.
    pub parts: usize,
    /// The id of the tile that every contraction uses if its sums fit it: for tests. 0 is none.
    pub tile: u32,
    /// The schedule of all tiles that support [`Schedule`]s: for tests.
    pub schedule: Option<Schedule>,
    /// Types, limits and features.
    pub capabilities: Capabilities,
}

/// The registers of an invocation of Intel's SIMD8, with 4 KiB for a thread, and of Apple's GPUs.
/// AMD's have 256, NVIDIA's 255. AMD's GCN, whose subgroups never have 32 invocations, counts as
/// having 128: with more registers each SIMD holds one subgroup, which hides no latency.
const FEW_REGISTERS: u32 = 128;

// Workgroups that run at once, where the driver does not report how many cores the GPU has (see
// `Profile::with_cores`). Each number is for one card or chip of its kind: the number of cores from
// its maker's data, times the number of larger tiles that a core holds. It is not measured: none of
// these GPUs has run the kernels that use it. A number that is too small leaves a part of a larger
// GPU idle, one that is too large makes workgroups wait for each other; results are right in any
// case.

/// AMD's RX 7900 XTX: 96 compute units with 64 KiB of workgroup memory each, which is two tiles of
/// 32 KiB.
const RESIDENT_AMD: usize = 2 * 96;
/// NVIDIA's RTX 4090, and about an H100 or an A100 (132 and 108): 128 multiprocessors of 65,536
/// registers, which are 256 invocations with 128 registers, twice.
const RESIDENT_NVIDIA: usize = 2 * 128;
/// Intel's Arc A770: 32 Xe cores of 128 threads, which are 2048 invocations at SIMD16.
const RESIDENT_INTEL_DISCRETE: usize = 8 * 32;
/// Intel's Iris Xe with 96 units: 6 subslices of 112 threads, which are 1792 invocations at SIMD16.
const RESIDENT_INTEL: usize = 7 * 6;
/// AMD's Radeon 780M: 12 compute units, with two tiles each as above.
const RESIDENT_AMD_INTEGRATED: usize = 2 * 12;
/// Apple's M4: 10 cores, whose register files of about 208 KiB (as others measured on earlier
/// chips) hold three times 256 invocations with 64 registers.
const RESIDENT_APPLE: usize = 3 * 10;

/// The base of the presets for GPUs with their own memory.
const DISCRETE: Profile = Profile {
    name: "discrete",
    class: Class::Discrete,
    family: None,
    simd_width: 32,
    registers: 255,
    barriers: Barriers::Cheap,
    dispatch_cost: 2000,
    invocations: 1 << 16,
    workgroups: 512,
    // The vendor is unknown, so there is no number.
    resident_workgroups: 0,
    packed_dot: true,
    loop_limit: 1 << 24,
    own_barriers: false,
    unstaged: false,
    parts: 1,
    tile: 0,
    schedule: None,
    capabilities: Capabilities::FULL,
};

/// The base of the presets for GPUs that share the processor's memory.
const INTEGRATED: Profile = Profile {
    name: "integrated",
    class: Class::Integrated,
    registers: FEW_REGISTERS,
    invocations: 1 << 13,
    workgroups: 64,
    ..DISCRETE
};

/// Prints its name.
impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Profile {
    /// AMD's GPUs from GCN on: subgroups of 32 (RDNA) or 64.
    pub const AMD: Self = Self {
        name: "amd",
        family: Some(Family::Rdna3),
        resident_workgroups: RESIDENT_AMD,
        ..DISCRETE
    };
    /// Intel's GPUs: SIMD8 to SIMD32, as the compiler likes.
    pub const INTEL: Self =
        Self { name: "intel", simd_width: 8, resident_workgroups: RESIDENT_INTEL, ..INTEGRATED };
    /// NVIDIA's GPUs.
    pub const NVIDIA: Self = Self {
        name: "nvidia",
        family: Some(Family::Ada),
        resident_workgroups: RESIDENT_NVIDIA,
        ..DISCRETE
    };
    /// Apple's GPUs, which have no float64.
    pub const APPLE: Self = Self {
        name: "apple",
        family: Some(Family::Apple),
        resident_workgroups: RESIDENT_APPLE,
        packed_dot: false,
        capabilities: Capabilities { float64: false, ..Capabilities::FULL },
        ..INTEGRATED
    };
    /// The guarantees of WebGPU for every adapter: no optional feature, and its default limits.
    pub const WEBGPU: Self = Self {
        name: "webgpu",
        simd_width: 4,
        packed_dot: false,
        capabilities: Capabilities::WEBGPU,
        ..INTEGRATED
    };
    /// Mesa's llvmpipe with vectors of 256 bits or more. It loads and stores lane by lane, word by
    /// word.
    pub const LLVMPIPE: Self = Self {
        name: "llvmpipe",
        class: Class::Software,
        simd_width: 8,
        barriers: Barriers::Dear,
        invocations: 1 << 11,
        workgroups: 16,
        packed_dot: false,
        loop_limit: 65_535,
        ..INTEGRATED
    };
    /// Software adapters with subgroups of fewer invocations: SwiftShader, WARP, llvmpipe on an old
    /// processor.
    pub const SWIFTSHADER: Self = Self { name: "swiftshader", simd_width: 4, ..Self::LLVMPIPE };

    /// All presets.
    pub const PRESETS: [Self; 7] = [
        Self::AMD,
        Self::INTEL,
        Self::NVIDIA,
        Self::APPLE,
        Self::WEBGPU,
        Self::LLVMPIPE,
        Self::SWIFTSHADER,
    ];

    /// One preset for every table and kernel form: tests compute everything under these.
    pub const DISTINCT: [Self; 4] = [Self::SWIFTSHADER, Self::LLVMPIPE, Self::INTEL, Self::NVIDIA];

    /// The profile of an adapter, or its preset from `TF_WGPU_PROFILE`.
    pub(crate) fn of(adapter: &wgpu::Adapter) -> Self {
        let own_barriers = own_barriers(&|name| env::var(name).ok());
        let unstaged = unstaged(&|name| env::var(name).ok()) && shares_memory(adapter);
        let parts = env::var("TF_WGPU_PARTS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
        let known = Self::from_parts(&adapter.get_info(), Capabilities::of(adapter));
        let packed_dot = known.packed_dot && integer_dot::is_accelerated(adapter).unwrap_or(true);
        let known = known.with_cores(cores(adapter));
        let own = Self { own_barriers, unstaged, parts, packed_dot, ..known };
        // An unknown preset is reported once, by `settings::problems`.
        let preset = env::var("TF_WGPU_PROFILE").ok().and_then(|name| Self::named(&name));
        let profile = preset.map_or(own, |preset| preset.on(own));
        let family = profile.family.filter(|_| follows_table(&|name| env::var(name).ok()));
        Self { family, ..profile }
    }

    /// The profile of an adapter with this description and these capabilities.
    pub(crate) fn from_parts(info: &wgpu::AdapterInfo, capabilities: Capabilities) -> Self {
        let class = match info.device_type {
            wgpu::DeviceType::Cpu => Class::Software,
            wgpu::DeviceType::DiscreteGpu => Class::Discrete,
            _ => Class::Integrated,
        };
        let simd_width = info.subgroup_min_size;
        let kind = match class {
            Class::Software if simd_width >= Self::LLVMPIPE.simd_width => Self::LLVMPIPE,
            Class::Software => Self::SWIFTSHADER,
            Class::Integrated => INTEGRATED,
            Class::Discrete => DISCRETE,
        };
        // Whether the GPU has its own memory says more about it than its vendor.
        let name = match (class, info.vendor) {
            (Class::Software, _) => kind.name,
            (_, 0x1002) => Self::AMD.name,
            (_, 0x8086) => Self::INTEL.name,
            (_, 0x10de) => Self::NVIDIA.name,
            (_, 0x106b) => Self::APPLE.name,
            _ => kind.name,
        };
        let registers = match (class, info.vendor) {
            (Class::Software, _) => kind.registers,
            (_, 0x1002) if simd_width > 32 => FEW_REGISTERS,
            (_, 0x1002 | 0x10de) => DISCRETE.registers,
            (_, 0x8086 | 0x106b) => FEW_REGISTERS,
            _ => kind.registers,
        };
        let resident_workgroups = match (class, info.vendor) {
            (Class::Software, _) => 0,
            (Class::Discrete, 0x1002) => RESIDENT_AMD,
            (Class::Discrete, 0x8086) => RESIDENT_INTEL_DISCRETE,
            (Class::Discrete, 0x10de) => RESIDENT_NVIDIA,
            (Class::Integrated, 0x1002) => RESIDENT_AMD_INTEGRATED,
            (Class::Integrated, 0x8086) => RESIDENT_INTEL,
            (Class::Integrated, 0x106b) => RESIDENT_APPLE,
            _ => kind.resident_workgroups,
        };
        // Metal has no such instruction.
        let packed_dot = kind.packed_dot && info.backend != wgpu::Backend::Metal;
        let family = Family::of(info);
        Self {
            name,
            family,
            simd_width,
            registers,
            resident_workgroups,
            packed_dot,
            capabilities,
            ..kind
        }
    }

    /// The profile of a GPU with this many cores, if the number is known: AMD's compute units or
    /// NVIDIA's multiprocessors. Each holds two workgroups of 256 invocations with a tile in
    /// workgroup memory.
    #[must_use]
    const fn with_cores(self, cores: Option<u32>) -> Self {
        let Some(cores) = cores else { return self };
        let resident_workgroups = 2 * cores as usize;
        let (workgroups, invocations) = (2 * resident_workgroups, 256 * resident_workgroups);
        Self { resident_workgroups, workgroups, invocations, ..self }
    }

    /// The preset of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::PRESETS.into_iter().find(|p| p.name.eq_ignore_ascii_case(name.trim()))
    }

    /// This preset on an adapter whose own profile is `own`: a preset adds nothing that the adapter
    /// lacks, and removes no limit that avoids an error of its driver.
    #[must_use]
    pub fn on(self, own: Self) -> Self {
        Self {
            simd_width: self.simd_width.min(own.simd_width),
            loop_limit: self.loop_limit.min(own.loop_limit),
            parts: self.parts.max(own.parts),
            own_barriers: self.own_barriers || own.own_barriers,
            unstaged: self.unstaged || own.unstaged,
            capabilities: Capabilities {
                matrices: self.capabilities.matrices.on(own.capabilities.matrices),
                ..self.capabilities.common(own.capabilities)
            },
            ..self
        }
    }

    /// The profile of an adapter that has no more than WebGPU's guarantees, for forms of kernels
    /// that every driver should accept. The types stay, because TensorFlow has registered kernels
    /// for them.
    #[must_use]
    pub fn portable(self) -> Self {
        let float64 = self.capabilities.float64;
        let portable = Self::WEBGPU.on(self);
        // Floats of 64 bits are read as 64-bit integers.
        let capabilities = Capabilities { float64, int64: float64, ..portable.capabilities };
        Self { capabilities, ..portable }
    }

    /// The kind of adapter, for choosing tiles and forms of kernels.
    pub const fn kind(&self) -> Kind {
        match self.class {
            Class::Software => Kind::Software,
            _ if self.registers <= FEW_REGISTERS => Kind::FewRegisters,
            _ => Kind::ManyRegisters,
        }
    }

    /// Whether the adapter computes on the processor.
    pub const fn is_software(&self) -> bool {
        matches!(self.class, Class::Software)
    }

    /// Whether a workgroup of this many invocations is one subgroup.
    pub const fn has_subgroups_of(&self, lanes: u32) -> bool {
        self.capabilities.subgroups && self.simd_width == lanes
    }

    /// Whether eight invocations load one element each and broadcast it to the others, since a load
    /// goes lane by lane and costs more than the subgroup operation.
    pub const fn shares_loads(&self) -> bool {
        self.is_software() && self.capabilities.subgroups && self.simd_width >= 8
    }
}

/// Whether `TF_WGPU_BARRIERS`, as `lookup` gives it, asks for barriers only where data needs them.
fn own_barriers(lookup: &dyn Fn(&str) -> Option<String>) -> bool {
    lookup("TF_WGPU_BARRIERS").is_some_and(|v| v.trim().eq_ignore_ascii_case("data"))
}

/// Whether `TF_WGPU_STAGING`, as `lookup` gives it, leaves staging buffers out.
fn unstaged(lookup: &dyn Fn(&str) -> Option<String>) -> bool {
    lookup("TF_WGPU_STAGING").is_some_and(|v| v.trim().eq_ignore_ascii_case("off"))
}

/// Whether the table of tuned choices is asked, unless `TF_WGPU_TUNED`, as `lookup` gives it, turns
/// it off.
fn follows_table(lookup: &dyn Fn(&str) -> Option<String>) -> bool {
    !lookup("TF_WGPU_TUNED").is_some_and(|v| v.trim().eq_ignore_ascii_case("off"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_takes_the_presets() {
        let names = Profile::PRESETS.map(|preset| preset.name);
        assert_eq!(crate::settings::accepted("TF_WGPU_PROFILE").unwrap(), names);
    }

    fn info(device_type: wgpu::DeviceType, vendor: u32, simd_width: u32) -> wgpu::AdapterInfo {
        wgpu::AdapterInfo {
            vendor,
            subgroup_min_size: simd_width,
            ..wgpu::AdapterInfo::new(device_type, wgpu::Backend::Vulkan)
        }
    }

    #[test]
    fn an_adapter_gets_its_vendors_name_and_its_own_class() {
        use wgpu::DeviceType::{Cpu, DiscreteGpu, IntegratedGpu, Other};
        let of = |kind, vendor, simd| {
            let profile = Profile::from_parts(&info(kind, vendor, simd), Capabilities::FULL);
            (profile.name, profile.kind(), profile.simd_width)
        };
        assert_eq!(of(DiscreteGpu, 0x10de, 32), ("nvidia", Kind::ManyRegisters, 32));
        assert_eq!(of(IntegratedGpu, 0x1002, 32), ("amd", Kind::ManyRegisters, 32));
        assert_eq!(of(DiscreteGpu, 0x1002, 64), ("amd", Kind::FewRegisters, 64), "GCN");
        assert_eq!(of(DiscreteGpu, 0x8086, 8), ("intel", Kind::FewRegisters, 8));
        assert_eq!(of(IntegratedGpu, 0x106b, 32), ("apple", Kind::FewRegisters, 32));
        assert_eq!(of(Other, 0x1234, 4), ("integrated", Kind::FewRegisters, 4));
        assert_eq!(of(Cpu, 0x10005, 8), ("llvmpipe", Kind::Software, 8));
        assert_eq!(of(Cpu, 0x1ae0, 4), ("swiftshader", Kind::Software, 4));
    }

    #[test]
    fn a_reported_number_of_cores_counts() {
        let sizes = |p: Profile| (p.resident_workgroups, p.workgroups, p.invocations);
        let flagship = Profile::NVIDIA.with_cores(Some(128));
        assert_eq!(sizes(flagship), sizes(Profile::NVIDIA), "the preset is that of one card");
        assert_eq!(sizes(Profile::NVIDIA.with_cores(Some(28))), (56, 112, 14_336));
        assert_eq!(Profile::AMD.with_cores(None), Profile::AMD);
    }

    #[test]
    fn software_and_unknown_adapters_have_no_number_of_workgroups_to_go_by() {
        use wgpu::DeviceType::{Cpu, DiscreteGpu, IntegratedGpu, VirtualGpu};
        let of = |kind, vendor| {
            Profile::from_parts(&info(kind, vendor, 32), Capabilities::FULL).resident_workgroups
        };
        assert_eq!([of(Cpu, 0x10de), of(DiscreteGpu, 0x1234), of(VirtualGpu, 0x1af4)], [0; 3]);
        assert_eq!(of(DiscreteGpu, 0x10de), Profile::NVIDIA.resident_workgroups);
        assert_eq!(of(IntegratedGpu, 0x8086), Profile::INTEL.resident_workgroups);
        assert!(of(DiscreteGpu, 0x8086) > of(IntegratedGpu, 0x8086));
        for software in [Profile::LLVMPIPE, Profile::SWIFTSHADER, Profile::WEBGPU] {
            assert_eq!(software.resident_workgroups, 0, "{software}");
        }
        for gpu in [Profile::AMD, Profile::INTEL, Profile::NVIDIA, Profile::APPLE] {
            assert!(gpu.resident_workgroups > 0, "{gpu}");
        }
    }

    /// An environment that holds one variable at most.
    fn lookup(name: &'static str, value: Option<&'static str>) -> impl Fn(&str) -> Option<String> {
        move |asked| value.filter(|_| asked == name).map(ToOwned::to_owned)
    }

    #[test]
    fn a_variable_asks_for_fewer_barriers() {
        let with = |value| own_barriers(&lookup("TF_WGPU_BARRIERS", value));
        assert!(with(Some(" Data ")) && !with(Some("wgpu")) && !with(Some("")) && !with(None));
        let asked = Profile { own_barriers: true, ..Profile::LLVMPIPE };
        assert!(Profile::NVIDIA.on(asked).own_barriers && !Profile::NVIDIA.own_barriers);
    }

    #[test]
    fn a_variable_leaves_staging_buffers_out() {
        let with = |value| unstaged(&lookup("TF_WGPU_STAGING", value));
        assert!(with(Some(" Off ")) && !with(Some("on")) && !with(Some("")) && !with(None));
        let asked = Profile { unstaged: true, ..Profile::LLVMPIPE };
        assert!(Profile::INTEL.on(asked).unstaged && !Profile::INTEL.unstaged);
    }

    #[test]
    fn a_variable_turns_the_table_off() {
        let with = |value| follows_table(&lookup("TF_WGPU_TUNED", value));
        assert!(with(None) && with(Some("on")) && with(Some("")) && !with(Some(" Off ")));
        assert_eq!(Profile::NVIDIA.portable().family, None, "the table is for a GPU's own forms");
    }

    #[test]
    fn the_portable_profile_has_the_types_and_nothing_else() {
        let portable = Profile::NVIDIA.portable();
        let types = Capabilities { float64: true, int64: true, ..Capabilities::WEBGPU };
        assert_eq!(portable.capabilities, types);
        assert_eq!(Profile::APPLE.portable().capabilities, Capabilities::WEBGPU);
    }

    #[test]
    fn a_preset_adds_nothing_that_the_adapter_lacks() {
        let poor = Capabilities { float64: false, max_binding: 4096, ..Capabilities::FULL };
        let own = Profile { capabilities: poor, ..Profile::SWIFTSHADER };
        for preset in Profile::PRESETS {
            let on = preset.on(own);
            assert_eq!((on.name, on.class), (preset.name, preset.class));
            assert!(!on.capabilities.float64 && on.capabilities.max_binding <= 4096, "{on:?}");
            assert!(on.simd_width <= 4 && on.loop_limit <= 65_535, "{on:?}");
        }
        assert_eq!(Profile::named(" NVIDIA "), Some(Profile::NVIDIA));
        assert_eq!(Profile::named("riva"), None);
    }
}
