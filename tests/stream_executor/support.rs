//! The built library behind its C tables, as TensorFlow holds it, with a TF_Status library in place
//! of TensorFlow.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::null_mut;
use std::sync::OnceLock;

use crate::TF_Status;
use crate::abi::*;

/// TensorFlow's error codes as far as the tests expect them.
pub const INVALID_ARGUMENT: c_int = 3;
pub const FAILED_PRECONDITION: c_int = 9;
pub const INTERNAL: c_int = 13;

#[cfg(not(target_vendor = "apple"))]
const FRAMEWORK: &str = "libtensorflow_framework.so.2";
#[cfg(target_vendor = "apple")]
const FRAMEWORK: &str = "libtensorflow_framework.2.dylib";

/// Functions of the TF_Status library.
struct StatusApi {
    new: unsafe extern "C" fn() -> *mut TF_Status,
    delete: unsafe extern "C" fn(*mut TF_Status),
    code: unsafe extern "C" fn(*const TF_Status) -> c_int,
    message: unsafe extern "C" fn(*const TF_Status) -> *const c_char,
    set: unsafe extern "C" fn(*mut TF_Status, c_int, *const c_char),
}

type Init = unsafe extern "C" fn(*mut SE_PlatformRegistrationParams, *mut TF_Status);

/// The tables that TensorFlow gets from the plug-in.
pub struct Plugin {
    pub init: Init,
    pub platform: SP_Platform,
    pub platform_fns: SP_PlatformFns,
    pub se: SP_StreamExecutor,
    pub device_fns: SP_DeviceFns,
    pub timer_fns: SP_TimerFns,
    pub devices: Vec<SP_Device>,
    pub library: libloading::Library,
    pub framework: libloading::Library,
    status: StatusApi,
}
// SAFETY: TensorFlow calls all of it from any thread; that is what is tested.
unsafe impl Send for Plugin {}
// SAFETY: as above.
unsafe impl Sync for Plugin {}

/// The plugin of this process.
pub fn plugin() -> &'static Plugin {
    static PLUGIN: OnceLock<Plugin> = OnceLock::new();
    PLUGIN.get_or_init(load)
}

/// Builds the TF_Status library.
fn framework() -> PathBuf {
    let directory =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("framework-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stream_executor/fake_tensorflow.c");
    let library = directory.join(FRAMEWORK);
    let name = if cfg!(target_vendor = "apple") { "-Wl,-install_name," } else { "-Wl,-soname," };
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-w", &format!("{name}{FRAMEWORK}"), "-o"])
        .args([&library, &source])
        .status()
        .expect("cc, which Rust needs to link anyway");
    assert!(built.success(), "cc builds {}", source.display());
    library
}

fn load() -> Plugin {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let file =
        format!("{}tensorflow_wgpu{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    // SAFETY: both libraries are ours, stay loaded, and export these functions with these types.
    let (library, framework, status, init): (_, _, StatusApi, Init) = unsafe {
        let framework_path = framework();
        let framework = libloading::Library::new(&framework_path).unwrap();
        std::fs::remove_dir_all(framework_path.parent().unwrap()).unwrap();
        let library = libloading::Library::new(deps.join(file)).unwrap();
        let status = StatusApi {
            new: *framework.get(b"TF_NewStatus\0").unwrap(),
            delete: *framework.get(b"TF_DeleteStatus\0").unwrap(),
            code: *framework.get(b"TF_GetCode\0").unwrap(),
            message: *framework.get(b"TF_Message\0").unwrap(),
            set: *framework.get(b"TF_SetStatus\0").unwrap(),
        };
        let init = *library.get(b"SE_InitPlugin\0").unwrap();
        (library, framework, status, init)
    };
    // SAFETY: all-zero is a valid value of these C structs: null pointers and null functions.
    let mut p: Plugin = unsafe {
        Plugin {
            init,
            platform: std::mem::zeroed(),
            platform_fns: std::mem::zeroed(),
            se: std::mem::zeroed(),
            device_fns: std::mem::zeroed(),
            timer_fns: std::mem::zeroed(),
            devices: Vec::new(),
            library,
            framework,
            status,
        }
    };
    p.platform.struct_size = SP_Platform::STRUCT_SIZE;
    p.platform_fns.struct_size = SP_PlatformFns::STRUCT_SIZE;
    p.se.struct_size = SP_StreamExecutor::STRUCT_SIZE;
    p.device_fns.struct_size = SP_DeviceFns::STRUCT_SIZE;
    p.timer_fns.struct_size = SP_TimerFns::STRUCT_SIZE;
    let (platform, platform_fns) = (&raw mut p.platform, &raw mut p.platform_fns);
    let mut params = registration(platform, platform_fns);
    // SAFETY: the parameters are filled as TensorFlow fills them.
    p.ok(|status| unsafe { init(&raw mut params, status) });
    assert_eq!(
        (params.major_version, params.minor_version, params.patch_version),
        (SE_MAJOR, SE_MINOR, SE_PATCH)
    );
    assert!(params.destroy_platform.is_some() && params.destroy_platform_fns.is_some());
    let mut executor = SE_CreateStreamExecutorParams {
        struct_size: SE_CreateStreamExecutorParams::STRUCT_SIZE,
        ext: null_mut(),
        stream_executor: &raw mut p.se,
    };
    let mut functions = SE_CreateDeviceFnsParams {
        struct_size: SE_CreateDeviceFnsParams::STRUCT_SIZE,
        ext: null_mut(),
        device_fns: &raw mut p.device_fns,
    };
    let timer_fns = &raw mut p.timer_fns;
    let fns = p.platform_fns;
    let mut count = -1;
    // SAFETY: the C contract of each function, with structs of ours.
    unsafe {
        p.ok(|s| fns.create_stream_executor.unwrap()(platform, &raw mut executor, s));
        p.ok(|s| fns.create_device_fns.unwrap()(platform, &raw mut functions, s));
        p.ok(|s| fns.create_timer_fns.unwrap()(platform, timer_fns, s));
        p.ok(|s| fns.get_device_count.unwrap()(platform, &raw mut count, s));
    }
    assert!(
        count > 0,
        "no device: a Vulkan driver is needed; on Debian install mesa-vulkan-drivers"
    );
    p.devices = (0..count)
        .map(|ordinal| p.create_device(ordinal, SP_Device::STRUCT_SIZE).unwrap())
        .collect();
    p
}

/// Parameters as TensorFlow passes them to SE_InitPlugin.
pub const fn registration(
    platform: *mut SP_Platform,
    fns: *mut SP_PlatformFns,
) -> SE_PlatformRegistrationParams {
    SE_PlatformRegistrationParams {
        struct_size: SE_PlatformRegistrationParams::STRUCT_SIZE,
        ext: null_mut(),
        major_version: SE_MAJOR,
        minor_version: SE_MINOR,
        patch_version: SE_PATCH,
        platform,
        platform_fns: fns,
        destroy_platform: None,
        destroy_platform_fns: None,
    }
}

impl Plugin {
    /// Code and message that `call` leaves in a status.
    pub fn status(&self, call: impl FnOnce(*mut TF_Status)) -> (c_int, String) {
        // SAFETY: a status of the library, deleted once, its message copied before.
        unsafe {
            let status = (self.status.new)();
            call(status);
            let code = (self.status.code)(status);
            let message =
                CStr::from_ptr((self.status.message)(status)).to_string_lossy().into_owned();
            (self.status.delete)(status);
            assert!(!message.contains("panicked"), "{message}");
            (code, message)
        }
    }

    /// Calls a function that must succeed.
    #[track_caller]
    pub fn ok(&self, call: impl FnOnce(*mut TF_Status)) {
        assert_eq!(self.status(call), (0, String::new()));
    }

    /// Sets a status, as a host callback does.
    ///
    /// # Safety
    /// `status` must be valid.
    pub unsafe fn set(&self, status: *mut TF_Status, code: c_int, message: &CStr) {
        // SAFETY: the caller's contract.
        unsafe { (self.status.set)(status, code, message.as_ptr()) };
    }

    /// create_device with a struct that claims `struct_size` bytes.
    pub fn create_device(
        &self,
        ordinal: i32,
        struct_size: usize,
    ) -> Result<SP_Device, (c_int, String)> {
        // SAFETY: all-zero is a valid SP_Device.
        let mut device: SP_Device = unsafe { std::mem::zeroed() };
        device.struct_size = struct_size;
        let mut params = SE_CreateDeviceParams {
            struct_size: SE_CreateDeviceParams::STRUCT_SIZE,
            ext: null_mut(),
            ordinal,
            device: &raw mut device,
        };
        // SAFETY: parameters as TensorFlow passes them.
        let result = self.status(|s| unsafe {
            self.platform_fns.create_device.unwrap()(&raw const self.platform, &raw mut params, s);
        });
        if result.0 == 0 { Ok(device) } else { Err(result) }
    }
}

/// A range of device memory for the C API.
pub fn range(address: u64, size: u64) -> SP_DeviceMemoryBase {
    SP_DeviceMemoryBase {
        struct_size: SP_DeviceMemoryBase::STRUCT_SIZE,
        ext: null_mut(),
        opaque: address as *mut c_void,
        size,
        payload: 0,
    }
}

/// A device with convenient calls; each goes through the C table and must succeed.
#[derive(Clone, Copy)]
pub struct Device {
    pub plugin: &'static Plugin,
    pub raw: *const SP_Device,
}
// SAFETY: TensorFlow calls from any thread; that is what is tested.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

/// A stream that is destroyed at the end.
pub struct Stream {
    device: Device,
    pub raw: SP_Stream,
}
// SAFETY: as for Device.
unsafe impl Send for Stream {}
// SAFETY: as for Device.
unsafe impl Sync for Stream {}

/// An event that is destroyed at the end.
pub struct Event {
    device: Device,
    pub raw: SP_Event,
}
// SAFETY: as for Device.
unsafe impl Send for Event {}
// SAFETY: as for Device.
unsafe impl Sync for Event {}

/// Device memory that is freed at the end.
pub struct Memory {
    device: Device,
    pub address: u64,
    pub size: u64,
}

// SAFETY of every call below: the C contract of the function of that name; handles are alive, host
// memory outlives the call, or the caller waits for it.
impl Device {
    pub fn nth(i: usize) -> Self {
        let plugin = plugin();
        Self { plugin, raw: &raw const plugin.devices[i] }
    }

    pub fn se(&self) -> &'static SP_StreamExecutor {
        &self.plugin.se
    }

    /// None when the device refuses.
    pub fn allocate(self, size: u64) -> Option<Memory> {
        let mut memory = range(u64::MAX, 0);
        // SAFETY: see above.
        unsafe { self.se().allocate.unwrap()(self.raw, size, 0, &raw mut memory) };
        assert_eq!(memory.struct_size, SP_DeviceMemoryBase::STRUCT_SIZE);
        let address = memory.opaque as u64;
        assert_eq!(memory.size, if address == 0 { 0 } else { size });
        (address != 0).then_some(Memory { device: self, address, size })
    }

    pub fn stream(self) -> Stream {
        let mut raw = null_mut();
        // SAFETY: see above.
        self.plugin.ok(|s| unsafe { self.se().create_stream.unwrap()(self.raw, &raw mut raw, s) });
        assert!(!raw.is_null());
        Stream { device: self, raw }
    }

    pub fn event(self) -> Event {
        let mut raw = null_mut();
        // SAFETY: see above.
        self.plugin.ok(|s| unsafe { self.se().create_event.unwrap()(self.raw, &raw mut raw, s) });
        assert!(!raw.is_null());
        Event { device: self, raw }
    }

    #[track_caller]
    pub fn write(&self, to: u64, bytes: &[u8]) {
        let n = bytes.len() as u64;
        let mut to = range(to, n);
        let from = bytes.as_ptr().cast();
        // SAFETY: see above.
        self.plugin.ok(|s| unsafe {
            self.se().sync_memcpy_htod.unwrap()(self.raw, &raw mut to, from, n, s)
        });
    }

    #[track_caller]
    pub fn read(&self, from: u64, n: usize) -> Vec<u8> {
        let mut bytes = vec![0xcd; n];
        let from = range(from, n as u64);
        let to = bytes.as_mut_ptr().cast();
        // SAFETY: see above.
        self.plugin.ok(|s| unsafe {
            self.se().sync_memcpy_dtoh.unwrap()(self.raw, to, &raw const from, n as u64, s)
        });
        bytes
    }

    #[track_caller]
    pub fn copy(&self, to: u64, from: u64, n: u64) {
        let (mut to, from) = (range(to, n), range(from, n));
        // SAFETY: see above.
        self.plugin.ok(|s| unsafe {
            self.se().sync_memcpy_dtod.unwrap()(self.raw, &raw mut to, &raw const from, n, s)
        });
    }

    #[track_caller]
    pub fn synchronize(&self) {
        // SAFETY: see above.
        self.plugin.ok(|s| unsafe { self.se().synchronize_all_activity.unwrap()(self.raw, s) });
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let mut memory = range(self.address, self.size);
        // SAFETY: allocated by `allocate`, freed once.
        unsafe { self.device.se().deallocate.unwrap()(self.device.raw, &raw mut memory) };
        assert!(memory.opaque.is_null());
    }
}

impl Stream {
    #[track_caller]
    pub fn write(&self, to: u64, bytes: &[u8]) {
        let (d, n) = (&self.device, bytes.len() as u64);
        let mut to = range(to, n);
        let from = bytes.as_ptr().cast();
        // SAFETY: see Device.
        d.plugin.ok(|s| unsafe {
            d.se().memcpy_htod.unwrap()(d.raw, self.raw, &raw mut to, from, n, s)
        });
    }

    /// The destination must live until an event behind the copy is done.
    #[track_caller]
    pub fn read_into(&self, bytes: &mut [u8], from: u64) {
        let (d, n) = (&self.device, bytes.len() as u64);
        let from = range(from, n);
        let to = bytes.as_mut_ptr().cast();
        // SAFETY: see Device.
        d.plugin.ok(|s| unsafe {
            d.se().memcpy_dtoh.unwrap()(d.raw, self.raw, to, &raw const from, n, s)
        });
    }

    #[track_caller]
    pub fn copy(&self, to: u64, from: u64, n: u64) {
        let d = &self.device;
        let (mut to, from) = (range(to, n), range(from, n));
        // SAFETY: see Device.
        d.plugin.ok(|s| unsafe {
            d.se().memcpy_dtod.unwrap()(d.raw, self.raw, &raw mut to, &raw const from, n, s)
        });
    }

    #[track_caller]
    pub fn memset(&self, to: u64, pattern: u8, n: u64) {
        let d = &self.device;
        let mut to = range(to, n);
        // SAFETY: see Device.
        d.plugin
            .ok(|s| unsafe { d.se().memset.unwrap()(d.raw, self.raw, &raw mut to, pattern, n, s) });
    }

    #[track_caller]
    pub fn memset32(&self, to: u64, pattern: u32, n: u64) {
        let d = &self.device;
        let mut to = range(to, n);
        // SAFETY: see Device.
        d.plugin.ok(|s| unsafe {
            d.se().memset32.unwrap()(d.raw, self.raw, &raw mut to, pattern, n, s)
        });
    }

    #[track_caller]
    pub fn mem_zero(&self, to: u64, n: u64) {
        let d = &self.device;
        let mut to = range(to, n);
        // SAFETY: see Device.
        d.plugin.ok(|s| unsafe { d.se().mem_zero.unwrap()(d.raw, self.raw, &raw mut to, n, s) });
    }

    #[track_caller]
    pub fn record(&self, event: &Event) {
        let d = &self.device;
        // SAFETY: see Device.
        d.plugin.ok(|s| unsafe { d.se().record_event.unwrap()(d.raw, self.raw, event.raw, s) });
    }

    #[track_caller]
    pub fn wait_for(&self, event: &Event) {
        let d = &self.device;
        // SAFETY: see Device.
        d.plugin.ok(|s| unsafe { d.se().wait_for_event.unwrap()(d.raw, self.raw, event.raw, s) });
    }

    #[track_caller]
    pub fn depend_on(&self, other: &Self) {
        let d = &self.device;
        // SAFETY: see Device.
        d.plugin.ok(|s| unsafe {
            d.se().create_stream_dependency.unwrap()(d.raw, self.raw, other.raw, s)
        });
    }

    #[track_caller]
    pub fn block(&self) {
        let d = &self.device;
        // SAFETY: see Device.
        d.plugin.ok(|s| unsafe { d.se().block_host_until_done.unwrap()(d.raw, self.raw, s) });
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: created by `Device::stream`, destroyed once.
        unsafe { self.device.se().destroy_stream.unwrap()(self.device.raw, self.raw) };
    }
}

impl Event {
    /// Whether it is complete. Anything but pending and complete would end TensorFlow's process.
    #[track_caller]
    pub fn is_complete(&self) -> bool {
        // SAFETY: see Device.
        match unsafe { self.device.se().get_event_status.unwrap()(self.device.raw, self.raw) } {
            SE_EVENT_PENDING => false,
            SE_EVENT_COMPLETE => true,
            other => panic!("event status {other}"),
        }
    }

    #[track_caller]
    pub fn block(&self) {
        let d = &self.device;
        // SAFETY: see Device.
        d.plugin.ok(|s| unsafe { d.se().block_host_for_event.unwrap()(d.raw, self.raw, s) });
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: created by `Device::event`, destroyed once.
        unsafe { self.device.se().destroy_event.unwrap()(self.device.raw, self.raw) };
    }
}
