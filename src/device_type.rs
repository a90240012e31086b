//! The type under which TensorFlow knows the devices.

use std::ffi::CStr;

/// A device type, as in `/device:WGPU:0`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DeviceType {
    /// Their own type.
    #[default]
    Wgpu,
    /// The type that programs request by default.
    Gpu,
}

impl DeviceType {
    /// The type of this name, in any case.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Wgpu, Self::Gpu].into_iter().find(|t| t.name().eq_ignore_ascii_case(name))
    }

    /// `WGPU` or `GPU`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wgpu => "WGPU",
            Self::Gpu => "GPU",
        }
    }

    /// The same name for C.
    pub const fn c_name(self) -> &'static CStr {
        match self {
            Self::Wgpu => c"WGPU",
            Self::Gpu => c"GPU",
        }
    }

    /// TensorFlow's name of a device: `WGPU:0`.
    pub fn device(self, ordinal: impl std::fmt::Display) -> String {
        format!("{}:{ordinal}", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for device_type in [DeviceType::Wgpu, DeviceType::Gpu] {
            assert_eq!(DeviceType::parse(device_type.name()), Some(device_type));
            assert_eq!(device_type.c_name().to_str(), Ok(device_type.name()));
        }
        assert_eq!(DeviceType::parse("gpu"), Some(DeviceType::Gpu));
        assert_eq!(DeviceType::parse("GPU:0"), None);
        assert_eq!(DeviceType::Gpu.device(1), "GPU:1");
    }
}
