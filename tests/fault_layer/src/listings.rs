//! What the driver's compiler says of each pipeline: its statistics and its listings.
//!
//! If the variable [`SWITCH`] is `statistics` or `listings`, devices are opened with
//! `VK_KHR_pipeline_executable_properties`, and each pipeline is compiled with the flags that keep
//! the answers. When wgpu gives the pipeline its label, they are printed on standard error, the
//! listings of machine code ([`MACHINE_CODE`]) only for `listings`:
//!
//! ```text
//! @@ pipeline LABEL
//! @@ statistic NAME: VALUE
//! @@ listing NAME
//! the compiler's text, on lines of its own
//! @@ listed
//! ```

use std::ffi::{CStr, c_char, c_void};
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::OnceLock;

use crate::chain;
use crate::vulkan::{Function, Object, VK_SUCCESS, VkResult};

/// The variable.
const SWITCH: &str = "FAULT_LAYER_LISTINGS";
/// What the names of drivers' listings of machine code contain.
const MACHINE_CODE: &str = "ssembly";
const EXTENSION: &CStr = c"VK_KHR_pipeline_executable_properties";
/// `VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR`.
const CAPTURE_STATISTICS: u32 = 0x40;
/// `VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR`.
const CAPTURE_REPRESENTATIONS: u32 = 0x80;
const PIPELINE: i32 = 19;

const FEATURES: i32 = 1_000_269_000;
const PIPELINE_INFO: i32 = 1_000_269_001;
const PROPERTIES: i32 = 1_000_269_002;
const EXECUTABLE_INFO: i32 = 1_000_269_003;
const STATISTIC: i32 = 1_000_269_004;
const REPRESENTATION: i32 = 1_000_269_005;
/// The formats of a statistic.
const SIGNED: i32 = 1;
const FLOAT: i32 = 3;

/// `VkDeviceCreateInfo`.
#[repr(C)]
#[derive(Clone, Copy)]
struct DeviceInfo {
    s_type: i32,
    next: *const c_void,
    flags: u32,
    queue_count: u32,
    queues: *const c_void,
    layer_count: u32,
    layers: *const c_void,
    extension_count: u32,
    extensions: *const *const c_char,
    features: *const c_void,
}

/// `VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR`.
#[repr(C)]
struct Features {
    s_type: i32,
    next: *const c_void,
    info: u32,
}

/// `VkDebugUtilsObjectNameInfoEXT`.
#[repr(C)]
struct Name {
    s_type: i32,
    next: *const c_void,
    kind: i32,
    object: u64,
    name: *const c_char,
}

/// `VkPipelineInfoKHR` and, with an index, `VkPipelineExecutableInfoKHR`.
#[repr(C)]
struct Executable {
    s_type: i32,
    next: *const c_void,
    pipeline: u64,
    index: u32,
}

/// `VkPipelineExecutablePropertiesKHR`.
#[repr(C)]
#[derive(Clone)]
struct Properties {
    s_type: i32,
    next: *mut c_void,
    stages: u32,
    name: [u8; 256],
    description: [u8; 256],
    subgroup: u32,
}

/// `VkPipelineExecutableStatisticKHR`.
#[repr(C)]
#[derive(Clone)]
struct Statistic {
    s_type: i32,
    next: *mut c_void,
    name: [u8; 256],
    description: [u8; 256],
    format: i32,
    value: u64,
}

/// `VkPipelineExecutableInternalRepresentationKHR`.
#[repr(C)]
#[derive(Clone)]
struct Representation {
    s_type: i32,
    next: *mut c_void,
    name: [u8; 256],
    description: [u8; 256],
    is_text: u32,
    size: usize,
    data: *mut u8,
}

unsafe extern "C" {
    /// The C library's function; all streams, for null.
    fn fflush(stream: *mut c_void) -> i32;
}

type SetName = unsafe extern "system" fn(Object, *const Name) -> VkResult;
type List<T> = unsafe extern "system" fn(Object, *const Executable, *mut u32, *mut T) -> VkResult;

/// The flags of a pipeline that keep what the variable asks for; 0 if it asks for nothing.
fn capture() -> u32 {
    static OF_PROCESS: OnceLock<u32> = OnceLock::new();
    *OF_PROCESS.get_or_init(|| match std::env::var(SWITCH).as_deref() {
        Ok("statistics") => CAPTURE_STATISTICS,
        Ok("listings") => CAPTURE_STATISTICS | CAPTURE_REPRESENTATIONS,
        _ => 0,
    })
}

/// Whether the variable asks for anything.
pub fn are_on() -> bool {
    capture() != 0
}

/// Creates a device by `create`, with the feature that [`capture`] needs.
///
/// # Safety
/// `info` must be a `VkDeviceCreateInfo`.
pub unsafe fn open(
    info: *const c_void,
    create: impl FnOnce(*const c_void) -> VkResult,
) -> VkResult {
    if !are_on() {
        return create(info);
    }
    // SAFETY: the caller's contract; the copies live for the call.
    unsafe {
        let info = *info.cast::<DeviceInfo>();
        let features = Features { s_type: FEATURES, next: info.next, info: 1 };
        let mut extensions = Vec::new();
        if info.extension_count > 0 {
            let given = std::slice::from_raw_parts(info.extensions, info.extension_count as usize);
            extensions.extend_from_slice(given);
        }
        extensions.push(EXTENSION.as_ptr());
        let info = DeviceInfo {
            next: (&raw const features).cast(),
            extension_count: extensions.len() as u32,
            extensions: extensions.as_ptr(),
            ..info
        };
        create((&raw const info).cast())
    }
}

/// A pipeline's flags, with those that keep the compiler's answers.
pub fn flags(flags: u32) -> u32 {
    flags | capture()
}

/// The wrapper of a function, if it has one here.
pub fn wrapper(name: &CStr) -> Option<Function> {
    // SAFETY: a function of any type may be kept as another one until it is called.
    (are_on() && name == c"vkSetDebugUtilsObjectNameEXT")
        .then(|| unsafe { std::mem::transmute::<SetName, Function>(set_name) })
}

unsafe extern "system" fn set_name(device: Object, info: *const Name) -> VkResult {
    // SAFETY: Vulkan's contract.
    unsafe {
        let Name { kind, object, name, .. } = *info;
        if kind == PIPELINE && !name.is_null() {
            let text = of(device, object, &CStr::from_ptr(name).to_string_lossy());
            // What the driver has printed comes before it. One write, so that it does not mix with
            // texts of other threads.
            fflush(std::ptr::null_mut());
            let _ = std::io::stderr().lock().write_all(text.as_bytes());
        }
        match chain::function(device, c"vkSetDebugUtilsObjectNameEXT") {
            Some(next) => std::mem::transmute::<Function, SetName>(next)(device, info),
            None => VK_SUCCESS,
        }
    }
}

/// All that the function `name` lists of a pipeline or of one of its executables. `empty` is an
/// element before the function fills it.
///
/// # Safety
/// `T` must be the struct that the function fills.
unsafe fn list<T: Clone>(device: Object, name: &CStr, of: &Executable, empty: &T) -> Vec<T> {
    // SAFETY: the caller's contract.
    unsafe {
        let Some(function) = chain::function(device, name) else { return Vec::new() };
        let list = std::mem::transmute::<Function, List<T>>(function);
        let mut count = 0;
        list(device, of, &raw mut count, std::ptr::null_mut());
        let mut all = vec![empty.clone(); count as usize];
        list(device, of, &raw mut count, all.as_mut_ptr());
        all.truncate(count as usize);
        all
    }
}

/// The text in an array that ends with NUL.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// A name or description before the driver fills it.
const NO_TEXT: [u8; 256] = [0; 256];

/// Everything that the driver says of a pipeline.
///
/// # Safety
/// `pipeline` must be a pipeline of `device` that was compiled with [`flags`].
unsafe fn of(device: Object, pipeline: u64, label: &str) -> String {
    let mut out = format!("@@ pipeline {}\n", label.replace('\n', " "));
    let next = std::ptr::null_mut();
    let whole = Executable { s_type: PIPELINE_INFO, next, pipeline, index: 0 };
    let empty = Properties {
        s_type: PROPERTIES,
        next,
        stages: 0,
        name: NO_TEXT,
        description: NO_TEXT,
        subgroup: 0,
    };
    // SAFETY: the structs are Vulkan's; the pipeline keeps what it is asked for.
    unsafe {
        let executables = list(device, c"vkGetPipelineExecutablePropertiesKHR", &whole, &empty);
        for (index, executable) in (0..).zip(&executables) {
            let of = Executable { s_type: EXECUTABLE_INFO, index, ..whole };
            let _ = writeln!(out, "@@ statistic Subgroup: {}", executable.subgroup);
            write_statistics(&mut out, device, &of);
            // Without the flag some drivers crash when they are asked.
            if capture() & CAPTURE_REPRESENTATIONS != 0 {
                write_listings(&mut out, device, &of);
            }
        }
    }
    out + "@@ listed\n"
}

/// # Safety
/// The pipeline of `executable` must have been compiled with `CAPTURE_STATISTICS`.
unsafe fn write_statistics(out: &mut String, device: Object, executable: &Executable) {
    let empty = Statistic {
        s_type: STATISTIC,
        next: std::ptr::null_mut(),
        name: NO_TEXT,
        description: NO_TEXT,
        format: 0,
        value: 0,
    };
    let function = c"vkGetPipelineExecutableStatisticsKHR";
    // SAFETY: the struct is Vulkan's.
    for s in unsafe { list(device, function, executable, &empty) } {
        let value = match s.format {
            FLOAT => f64::from_bits(s.value).to_string(),
            SIGNED => s.value.cast_signed().to_string(),
            _ => s.value.to_string(),
        };
        let _ = writeln!(out, "@@ statistic {}: {value}", text(&s.name));
    }
}

/// # Safety
/// The pipeline of `executable` must have been compiled with `CAPTURE_REPRESENTATIONS`.
unsafe fn write_listings(out: &mut String, device: Object, executable: &Executable) {
    let function = c"vkGetPipelineExecutableInternalRepresentationsKHR";
    let empty = Representation {
        s_type: REPRESENTATION,
        next: std::ptr::null_mut(),
        name: NO_TEXT,
        description: NO_TEXT,
        is_text: 0,
        size: 0,
        data: std::ptr::null_mut(),
    };
    // SAFETY: the struct is Vulkan's; data have the sizes for which the driver asks first.
    unsafe {
        let mut all = list(device, function, executable, &empty);
        let mut room: Vec<Vec<u8>> = all.iter().map(|r| vec![0; r.size]).collect();
        for (representation, room) in all.iter_mut().zip(&mut room) {
            representation.data = room.as_mut_ptr();
        }
        if let Some(fill) = chain::function(device, function) {
            let fill = std::mem::transmute::<Function, List<Representation>>(fill);
            let mut count = all.len() as u32;
            fill(device, executable, &raw mut count, all.as_mut_ptr());
        }
        for (representation, room) in all.iter().zip(&room) {
            let name = text(&representation.name);
            if representation.is_text != 0 && name.contains(MACHINE_CODE) {
                let _ = writeln!(out, "@@ listing {name}\n{}", text(room).trim_end());
            }
        }
    }
}
