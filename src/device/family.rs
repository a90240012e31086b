//! Families of GPUs: chips with the same cores, for which one compiler makes the same programs.
//! What was found out on one chip of a family holds for the others.

use std::ops::RangeInclusive;

/// A family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// AMD's Radeon RX 7000, and the GPUs of Phoenix and Hawk Point.
    Rdna3,
    /// AMD's Radeon RX 9000.
    Rdna4,
    /// NVIDIA's GeForce RTX 20 and GTX 16.
    Turing,
    /// NVIDIA's GeForce RTX 30. The A100 has other cores.
    Ampere,
    /// NVIDIA's GeForce RTX 40.
    Ada,
    /// NVIDIA's GeForce RTX 50.
    Blackwell,
    /// Intel's Arc A.
    Alchemist,
    /// Intel's Arc B.
    Battlemage,
    /// Apple's M1 and later chips.
    Apple,
    /// Qualcomm's Adreno 740 and its kin of Snapdragon 8 Gen 2.
    Adreno740,
}

/// PCI vendors, as Vulkan and DX12 tell them.
const AMD: u32 = 0x1002;
const NVIDIA: u32 = 0x10de;
const INTEL: u32 = 0x8086;
const APPLE: u32 = 0x106b;
const QUALCOMM: u32 = 0x5143;

/// Device ids. AMD, NVIDIA and Intel use PCI ids, of which each chip has a block. Qualcomm uses the
/// number of the chip.
const IDS: &[(Family, u32, RangeInclusive<u32>)] = &[
    // Navi 31, 32 and 33; Phoenix; Hawk Point.
    (Family::Rdna3, AMD, 0x7440..=0x749f),
    (Family::Rdna3, AMD, 0x15bf..=0x15bf),
    (Family::Rdna3, AMD, 0x15c8..=0x15c8),
    (Family::Rdna3, AMD, 0x1900..=0x1901),
    // Navi 48 and 44.
    (Family::Rdna4, AMD, 0x7550..=0x755f),
    (Family::Rdna4, AMD, 0x7590..=0x759f),
    // TU102, TU104, TU106 and TU117; TU116.
    (Family::Turing, NVIDIA, 0x1e00..=0x1fff),
    (Family::Turing, NVIDIA, 0x2180..=0x21ff),
    // GA102; GA103, GA104, GA106 and GA107. GH100 lies between them.
    (Family::Ampere, NVIDIA, 0x2200..=0x22ff),
    (Family::Ampere, NVIDIA, 0x2400..=0x25ff),
    // AD102, AD103, AD104, AD106 and AD107.
    (Family::Ada, NVIDIA, 0x2680..=0x28ff),
    // GB202, GB203, GB205, GB206 and GB207.
    (Family::Blackwell, NVIDIA, 0x2b80..=0x2fff),
    // ACM-G10, ACM-G11 and ACM-G12.
    (Family::Alchemist, INTEL, 0x5690..=0x56c2),
    // BMG-G21 and BMG-G31.
    (Family::Battlemage, INTEL, 0xe200..=0xe2ff),
    (Family::Apple, APPLE, 0..=u32::MAX),
    (Family::Adreno740, QUALCOMM, 0x4305_0a00..=0x4305_0bff),
];

/// The beginning of the names of Apple's chips. Metal and Mesa's driver tell no vendor of PCI.
const APPLE_NAME: &str = "Apple M";

impl Family {
    /// All families.
    pub const ALL: [Self; 10] = [
        Self::Rdna3,
        Self::Rdna4,
        Self::Turing,
        Self::Ampere,
        Self::Ada,
        Self::Blackwell,
        Self::Alchemist,
        Self::Battlemage,
        Self::Apple,
        Self::Adreno740,
    ];

    /// The family of an adapter, if it is in one of them. Software adapters are in none.
    pub fn of(info: &wgpu::AdapterInfo) -> Option<Self> {
        if info.device_type == wgpu::DeviceType::Cpu {
            return None;
        }
        if info.name.starts_with(APPLE_NAME) {
            return Some(Self::Apple);
        }
        let found = IDS
            .iter()
            .find(|(_, vendor, devices)| *vendor == info.vendor && devices.contains(&info.device));
        found.map(|(family, ..)| *family)
    }

    /// Its name in tables and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rdna3 => "rdna3",
            Self::Rdna4 => "rdna4",
            Self::Turing => "turing",
            Self::Ampere => "ampere",
            Self::Ada => "ada",
            Self::Blackwell => "blackwell",
            Self::Alchemist => "alchemist",
            Self::Battlemage => "battlemage",
            Self::Apple => "apple",
            Self::Adreno740 => "adreno740",
        }
    }

    /// The family of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|family| family.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(name: &str, vendor: u32, device: u32) -> wgpu::AdapterInfo {
        let of = wgpu::AdapterInfo::new(wgpu::DeviceType::DiscreteGpu, wgpu::Backend::Vulkan);
        wgpu::AdapterInfo { name: name.to_owned(), vendor, device, ..of }
    }

    #[test]
    fn cards_are_in_the_family_of_their_chip() {
        for (name, vendor, device, family) in [
            ("Radeon RX 7900 XTX", AMD, 0x744c, Some(Family::Rdna3)),
            ("Radeon 780M", AMD, 0x15bf, Some(Family::Rdna3)),
            ("Radeon RX 6900 XT", AMD, 0x73bf, None),
            ("Radeon RX 9070 XT", AMD, 0x7550, Some(Family::Rdna4)),
            ("GeForce RTX 2080 Ti", NVIDIA, 0x1e07, Some(Family::Turing)),
            ("GeForce GTX 1660", NVIDIA, 0x2184, Some(Family::Turing)),
            ("A100", NVIDIA, 0x20b0, None),
            ("GeForce RTX 3090", NVIDIA, 0x2204, Some(Family::Ampere)),
            ("H100", NVIDIA, 0x2330, None),
            ("GeForce RTX 3050", NVIDIA, 0x2507, Some(Family::Ampere)),
            ("GeForce RTX 4090", NVIDIA, 0x2684, Some(Family::Ada)),
            ("GeForce RTX 5090", NVIDIA, 0x2b85, Some(Family::Blackwell)),
            ("Arc A770", INTEL, 0x56a0, Some(Family::Alchemist)),
            ("Arc B580", INTEL, 0xe20b, Some(Family::Battlemage)),
            ("Iris Xe", INTEL, 0x9a49, None),
            ("Apple M2 Pro", 0, 0, Some(Family::Apple)),
            ("another vendor's with the id of an Arc", AMD, 0xe20b, None),
        ] {
            assert_eq!(Family::of(&info(name, vendor, device)), family, "{name}");
        }
    }

    #[test]
    fn software_adapters_are_of_no_family() {
        let software = wgpu::AdapterInfo {
            device_type: wgpu::DeviceType::Cpu,
            ..info("llvmpipe", NVIDIA, 0x2684)
        };
        assert_eq!(Family::of(&software), None);
    }

    #[test]
    fn ranges_are_apart_and_names_are_known() {
        for (i, (_, vendor, ids)) in IDS.iter().enumerate() {
            assert!(!ids.is_empty());
            let is_apart = |(_, other, taken): &(Family, u32, RangeInclusive<u32>)| {
                other != vendor || ids.end() < taken.start() || taken.end() < ids.start()
            };
            assert!(IDS[..i].iter().all(is_apart), "{vendor:#x} {ids:x?}");
        }
        for family in Family::ALL {
            assert_eq!(Family::named(family.name()), Some(family));
        }
        assert_eq!(Family::named("riva"), None);
    }
}
