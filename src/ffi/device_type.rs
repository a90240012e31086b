//! The devices' type in this process: `WGPU`, or `GPU` if `TF_WGPU_DEVICE_TYPE` asks for it and
//! neither TensorFlow nor another plug-in has kernels for that type.
//!
//! A TensorFlow with CUDA has such kernels, and so may another plug-in. On our devices they would
//! take our addresses for addresses in their own memory.

use std::sync::OnceLock;

use prost::Message;

use crate::device_type::DeviceType;
use crate::error::{Error, Result};
use crate::ffi::abi::kernel::{KernelApi, TF_Buffer};
use crate::ffi::status::Status;
use crate::ffi::{environment, symbols};

/// The environment variable.
const VARIABLE: &str = "TF_WGPU_DEVICE_TYPE";
/// An op for which every plug-in that serves a GPU has kernels.
const WITNESS: &std::ffi::CStr = c"MatMul";

/// A KernelList. Only its device types are read.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct Kernels {
    #[prost(message, repeated, tag = "1")]
    kernel: Vec<KernelOf>,
}

/// A KernelDef.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct KernelOf {
    #[prost(string, tag = "2")]
    device_type: String,
}

/// The devices' type. It is decided when TensorFlow loads the plug-in, before its own kernels are
/// registered, and does not change. Without TensorFlow it is the type that the variable asks for.
pub(crate) fn get() -> DeviceType {
    static DECIDED: OnceLock<DeviceType> = OnceLock::new();
    if let Some(decided) = DECIDED.get() {
        return *decided;
    }
    let value = environment::lookup(VARIABLE).unwrap_or_default();
    if symbols::tensorflow_version().is_none() {
        return parse(&value).unwrap_or_default();
    }
    *DECIDED.get_or_init(|| {
        decide(&value, served_types).unwrap_or_else(|why| {
            log::warn!("{VARIABLE}={value}: {why}; the devices stay WGPU");
            DeviceType::Wgpu
        })
    })
}

/// The type that `value` asks for. An error says why it cannot be used: other kernels of that type
/// are registered before ours.
fn decide(value: &str, served: impl Fn() -> Result<Vec<String>>) -> Result<DeviceType> {
    let wanted = parse(value)?;
    if wanted == DeviceType::Gpu && served()?.iter().any(|t| t == wanted.name()) {
        return Err(Error::FailedPrecondition(
            "TensorFlow is built with CUDA, or another plug-in has the type GPU, and kernels of \
             both would mix; use tensorflow-cpu in place of tensorflow"
                .into(),
        ));
    }
    Ok(wanted)
}

fn parse(value: &str) -> Result<DeviceType> {
    match value.trim() {
        "" => Ok(DeviceType::default()),
        name => DeviceType::parse(name)
            .ok_or_else(|| Error::InvalidArgument("neither WGPU nor GPU".into())),
    }
}

/// The device types for which [`WITNESS`] has kernels now.
fn served_types() -> Result<Vec<String>> {
    let api = KernelApi::get()?;
    let (Some(kernels), Some(delete)) = (api.TF_GetRegisteredKernelsForOp, api.TF_DeleteBuffer)
    else {
        return Err(Error::Unimplemented(
            "this TensorFlow does not tell which kernels it has".into(),
        ));
    };
    let status = Status::new()?;
    // SAFETY: the name ends with NUL and the status is ours; the buffer is null or owned by us,
    // its data has `length` bytes, and it is deleted once, after reading.
    let list = unsafe {
        let buffer: *mut TF_Buffer = kernels(WITNESS.as_ptr(), status.as_ptr());
        status.take()?;
        let Some(contents) = buffer.as_ref() else { return Ok(Vec::new()) };
        let list = if contents.data.is_null() {
            Ok(Kernels::default())
        } else {
            Kernels::decode(std::slice::from_raw_parts(contents.data.cast(), contents.length))
        };
        delete(buffer);
        list.map_err(|e| Error::Internal(format!("TensorFlow's list of kernels: {e}")))?
    };
    Ok(list.kernel.into_iter().map(|k| k.device_type).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(types: &[&str]) -> impl Fn() -> Result<Vec<String>> {
        let types = types.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>();
        move || Ok(types.clone())
    }

    #[test]
    fn gpu_is_taken_where_nobody_serves_it() {
        assert_eq!(decide("GPU", served(&["CPU", "XLA_CPU_JIT"])).unwrap(), DeviceType::Gpu);
        assert_eq!(decide(" gpu ", served(&["CPU"])).unwrap(), DeviceType::Gpu);
        let refused = decide("GPU", served(&["CPU", "GPU"])).unwrap_err().to_string();
        assert!(refused.contains("CUDA"), "{refused}");
        let unknown = decide("GPU", || Err(Error::Unimplemented("no list".into()))).unwrap_err();
        assert!(unknown.to_string().contains("no list"), "{unknown}");
    }

    #[test]
    fn wgpu_needs_no_look_at_kernels() {
        for value in ["", " ", "WGPU", "wgpu"] {
            let found = decide(value, || panic!("nobody asks")).unwrap();
            assert_eq!(found, DeviceType::Wgpu, "{value:?}");
        }
        let other = decide("TPU", served(&[])).unwrap_err().to_string();
        assert!(other.contains("neither WGPU nor GPU"), "{other}");
    }

    #[test]
    fn device_types_are_read_from_a_kernel_list() {
        // KernelList { kernel { op: "MatMul" device_type: "GPU" priority: 1 } }
        let bytes = b"\x0a\x0f\x0a\x06MatMul\x12\x03GPU\x30\x01";
        let list = Kernels::decode(&bytes[..]).unwrap();
        assert_eq!(list.kernel, [KernelOf { device_type: "GPU".into() }]);
    }
}
