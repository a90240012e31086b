//! Copies within a device on TensorFlow 2.17, which fail there for every pluggable device.
//!
//! TensorFlow 2.17 uses its compute stream for such copies as well. It then makes that stream wait
//! for itself, which the stream refuses: `stream cannot wait for itself`. A loop with a condition
//! makes such a copy in its last iteration. TensorFlow takes the first function that is registered
//! for a pair of device types. Ours is registered before TensorFlow's and leaves out the wait.

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;

use crate::error::Result;
use crate::ffi::cxx::{ReturnedStatus, ShortString, is_release};
use crate::ffi::device_type;
use crate::ffi::status::Status;
use crate::ffi::symbols;

/// The release series that needs this function.
const SERIES: &str = "2.17.";

/// `CopyTensor::Register(DeviceType sender, DeviceType receiver, CopyFunction, bool
/// is_pluggable_device)`.
const REGISTER: &CStr = c"_ZN10tensorflow10CopyTensor8RegisterEN3tsl10DeviceTypeES2_PFvPNS_13DeviceContextES4_PNS_6DeviceES6_NS1_19AllocatorAttributesES7_PKNS_6TensorEPS8_iSt8functionIFvRKN4absl12lts_202308026StatusEEEEb";
/// `PluggableDeviceUtil::CopyPluggableDeviceTensorToSameDevice`: enqueues the copy on the compute
/// stream and returns.
const SAME_DEVICE: &CStr = c"_ZN10tensorflow19PluggableDeviceUtil37CopyPluggableDeviceTensorToSameDeviceEPNS_6DeviceEPKNS_13DeviceContextEPKNS_6TensorEPS6_St8functionIFvRKN4absl12lts_202308026StatusEEE";
/// `PluggableDeviceUtil::DeviceToDeviceCopy`: TensorFlow's own copy function.
const BETWEEN_DEVICES: &CStr = c"_ZN10tensorflow19PluggableDeviceUtil18DeviceToDeviceCopyEPNS_13DeviceContextES2_PNS_6DeviceES4_N3tsl19AllocatorAttributesES6_PKNS_6TensorEPS7_iSt8functionIFvRKN4absl12lts_202308026StatusEEE";

/// A `DeviceContext*`, `Device*` or `Tensor*`, or the address of a `std::function`, which C++
/// passes by address.
type Object = *mut c_void;

/// `CopyTensor::CopyFunction`. An `AllocatorAttributes` is two words of 32 bits, passed in one
/// register.
type CopyFunction =
    unsafe extern "C" fn(Object, Object, Object, Object, u64, u64, Object, Object, c_int, Object);
type Register =
    unsafe extern "C" fn(*mut ShortString, *mut ShortString, CopyFunction, bool) -> ReturnedStatus;
type SameDevice = unsafe extern "C" fn(Object, Object, Object, Object, Object);

struct Functions {
    same_device: SameDevice,
    between_devices: CopyFunction,
}

static FUNCTIONS: OnceLock<Functions> = OnceLock::new();

/// Registers our function if the running TensorFlow needs it. Must be called before TensorFlow
/// registers its own, that is, within `SE_InitPlugin`. If a symbol is missing, nothing is
/// registered.
pub(crate) fn register() {
    let version = symbols::tensorflow_version().unwrap_or_default();
    if !is_release(version, SERIES)
        || cfg!(not(all(target_os = "linux", target_pointer_width = "64")))
    {
        return;
    }
    if let Err(e) = register_now() {
        log::warn!(
            "TensorFlow {version} cannot copy within a WGPU device, and there is no way around \
             that: {e}"
        );
    }
}

fn register_now() -> Result<()> {
    let find =
        |name: &CStr| symbols::find(name).ok_or_else(|| symbols::missing(&name.to_string_lossy()));
    // SAFETY: each symbol is the C++ function of this mangled name, which encodes its parameters.
    let (register, functions) = unsafe {
        let functions = Functions {
            same_device: std::mem::transmute::<*const c_void, SameDevice>(find(SAME_DEVICE)?),
            between_devices: std::mem::transmute::<*const c_void, CopyFunction>(find(
                BETWEEN_DEVICES,
            )?),
        };
        (std::mem::transmute::<*const c_void, Register>(find(REGISTER)?), functions)
    };
    if FUNCTIONS.set(functions).is_err() {
        return Ok(());
    }
    let (mut sender, mut receiver) = (ShortString::empty(), ShortString::empty());
    let name = device_type::get().name().as_bytes();
    sender.set(name);
    receiver.set(name);
    // SAFETY: a DeviceType is a string, passed by address; both may be moved from, which leaves a
    // short string as it is or empty. The function may be called at any time, for the library is
    // never unloaded.
    unsafe { register(&raw mut sender, &raw mut receiver, copy, true) }.take(&Status::new()?)
}

/// Copies a tensor between our devices. The function called at the end calls `done` after the copy.
unsafe extern "C" fn copy(
    sender_context: Object,
    receiver_context: Object,
    sender: Object,
    receiver: Object,
    sender_memory: u64,
    receiver_memory: u64,
    input: Object,
    output: Object,
    stream: c_int,
    done: Object,
) {
    // `FUNCTIONS` is set before this function is registered.
    let Some(functions) = FUNCTIONS.get() else { std::process::abort() };
    // SAFETY: TensorFlow's arguments are passed on unchanged. Within a device, the compute stream
    // orders the copy after the work that makes the input, and before all reads of the output.
    unsafe {
        if sender == receiver {
            (functions.same_device)(sender, sender_context, input, output, done);
        } else {
            (functions.between_devices)(
                sender_context,
                receiver_context,
                sender,
                receiver,
                sender_memory,
                receiver_memory,
                input,
                output,
                stream,
                done,
            );
        }
    }
}
