//! The process-wide state of the plug-in: the devices that TensorFlow sees, or the reason why there
//! are none.
//!
//! It is made once, in `SE_InitPlugin`, and leaked on purpose: TensorFlow never destroys a device.
//! Adapters are enumerated at that time, for kernels must be registered while TensorFlow is
//! imported. Devices are opened when TensorFlow first asks for their number, so that a process that
//! only imports it pays nothing more.

use std::ffi::CString;
use std::path::Path;
use std::sync::{Arc, Once, OnceLock};
use std::time::Instant;

use crate::checkup;
use crate::device::{Capabilities, Device, Profile, Selection, adapters, cache};
use crate::error::{Error, Result};
use crate::ffi::handle::{Handle, Held};
use crate::ffi::{determinism, device_type, environment, second_copy, symbols, variables};
use crate::report;
use crate::sys::guard::caught;

/// The log filter unless `TF_WGPU_LOG` sets another: our warnings, and only errors of the libraries
/// below. The Vulkan loader's own messages are off: they take several lines to say what our one
/// line says.
const LOG_FILTER: &str =
    "warn,wgpu_hal=error,wgpu_hal::vulkan::instance=off,wgpu_core=error,wgpu=error,naga=error";

/// A device as TensorFlow sees it.
#[derive(Debug)]
pub(crate) struct PluginDevice {
    pub device: Arc<Device>,
    pub hardware_name: CString,
    pub vendor: CString,
    pub pci_bus_id: Option<CString>,
    /// −1 when unknown.
    pub numa_node: i32,
}

impl Held for PluginDevice {
    const NAME: &'static str = "device";
}

/// The plug-in's state.
#[derive(Debug, Default)]
pub(crate) struct Plugin {
    /// Each device's adapter, and the number of devices that share it.
    adapters: Vec<(wgpu::Adapter, u32)>,
    opened: OnceLock<Vec<Handle<PluginDevice>>>,
    /// Whether the devices are software adapters that the user did not ask for.
    is_last_resort: bool,
    /// The reason why there is no device.
    problem: Option<String>,
    /// Whether the user switched the devices off.
    is_switched_off: bool,
}

/// The state, made at the first call.
pub(crate) fn get() -> &'static Plugin {
    static PLUGIN: OnceLock<Plugin> = OnceLock::new();
    PLUGIN.get_or_init(|| {
        let plugin = caught("plugin initialization", || Ok(Plugin::new()))
            .unwrap_or_else(|e| Plugin { problem: Some(e.to_string()), ..Plugin::default() });
        if let Some(problem) = &plugin.problem {
            let level = if plugin.is_switched_off { log::Level::Info } else { log::Level::Warn };
            log::log!(level, "no WGPU device: {}", one_line(problem));
        }
        plugin
    })
}

/// The capabilities that all devices share, which decide the kernels to register. None without a
/// device.
pub(crate) fn common_capabilities() -> Option<Capabilities> {
    get().adapters.iter().map(|(a, _)| Profile::of(a).capabilities).reduce(Capabilities::common)
}

impl Plugin {
    fn new() -> Self {
        if let Err(e) = second_copy::check().and_then(|()| supported()) {
            return Self { problem: Some(e.to_string()), ..Self::default() };
        }
        // After the check: a second copy of the library must not log anything.
        let variables = environment::all();
        for line in report::problems(&variables) {
            log::warn!("{line}");
        }
        let start = Instant::now();
        let selection = Selection::enumerate(&environment::lookup);
        log::debug!("adapters enumerated in {:.0?}", start.elapsed());
        for report in &selection.found {
            let why =
                report.rejected.as_deref().map(|r| format!(", not used: {r}")).unwrap_or_default();
            log::info!("adapter {} ({}){why}", report.info.name, report.info.backend);
        }
        for warning in &selection.warnings {
            log::warn!("{warning}");
        }
        let sharers: Vec<u32> =
            (0..selection.adapters.len()).map(|device| selection.sharers(device)).collect();
        let Selection { adapters, is_last_resort, problem, is_switched_off, .. } = selection;
        let adapters = adapters.into_iter().zip(sharers).collect();
        Self { adapters, is_last_resort, problem, is_switched_off, ..Self::default() }
    }

    /// Warns, at a device's first use, that it is not a GPU, unless the user asked for a software
    /// adapter. A process that only imports TensorFlow, or counts devices, gets no warning.
    pub fn mention_software(&self, device: &PluginDevice) {
        static SAID: Once = Once::new();
        if self.is_last_resort {
            SAID.call_once(|| {
                log::warn!(
                    "no usable GPU was found: {} is {}, a software adapter, and TensorFlow's own \
                     CPU device is faster. TF_WGPU_VISIBLE_DEVICES=-1 switches WGPU off; \
                     TF_WGPU_VISIBLE_DEVICES=0 uses it and prints no such line",
                    device_type::get().device(0),
                    device.device.info().name
                );
            });
        }
    }

    /// The devices that are open already.
    pub fn opened(&self) -> &[Handle<PluginDevice>] {
        self.opened.get().map_or(&[], Vec::as_slice)
    }

    /// The devices, which the first call opens. An adapter that does not open is left out.
    pub fn devices(&self) -> &[Handle<PluginDevice>] {
        self.opened.get_or_init(|| {
            let caches = cache::directory(&environment::lookup);
            self.adapters
                .iter()
                .filter_map(|(adapter, sharers)| {
                    let opened = caught("opening a device", || {
                        PluginDevice::open(adapter, *sharers, caches.as_deref())
                    });
                    opened
                        .inspect_err(|e| {
                            log::warn!("a WGPU device is left out: {}", one_line(&e.to_string()))
                        })
                        .map(Handle::new)
                        .ok()
                })
                .collect()
        })
    }
}

impl PluginDevice {
    fn open(adapter: &wgpu::Adapter, sharers: u32, caches: Option<&Path>) -> Result<Self> {
        let own = Profile::of(adapter);
        let profile = checkup::checked(adapter, own, caches, &environment::lookup)?;
        let device = Device::open_for(adapter, profile, caches, sharers, determinism::is_required)?;
        let info = device.info();
        let pci = info.device_pci_bus_id.as_str();
        let this = Self {
            hardware_name: c_string(&info.name),
            vendor: c_string(&adapters::vendor_name(info.vendor)),
            pci_bus_id: (!pci.is_empty()).then(|| c_string(pci)),
            numa_node: numa_node(pci).unwrap_or(-1),
            device,
        };
        log::info!("WGPU device: {} ({})", this.device.info().name, this.device.info().backend);
        Ok(this)
    }
}

/// Whether the running TensorFlow has the functions that the plug-in needs. What differs between
/// versions is the way in which kernels reach variables.
fn supported() -> Result<()> {
    let version = symbols::tensorflow_version()
        .ok_or_else(|| Error::NotFound("TensorFlow is not loaded in this process".into()))?;
    let variables = variables::availability().map_err(Error::Unimplemented)?;
    log::info!("TensorFlow {version}, variables by {variables}");
    Ok(())
}

/// Starts logging to stderr under the env_logger filter `TF_WGPU_LOG`. Parts of it that make no
/// sense are ignored, with a line that says so.
pub(crate) fn init_logging() {
    let mut builder = env_logger::Builder::new();
    builder.parse_filters(LOG_FILTER);
    if let Some(filter) = environment::lookup("TF_WGPU_LOG") {
        builder.parse_filters(&filter);
    }
    builder.format(|f, record| {
        use std::io::Write;
        writeln!(
            f,
            "tensorflow-wgpu: {}: {}",
            record.level().as_str().to_lowercase(),
            record.args()
        )
    });
    // A second call finds the logger installed and fails, which is fine.
    let _ = builder.try_init();
}

fn one_line(message: &str) -> String {
    message.lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

fn c_string(s: &str) -> CString {
    CString::new(s.replace('\0', " ")).expect("NULs are replaced")
}

/// The NUMA node of a PCI device as Linux reports it; unknown on other systems.
fn numa_node(pci_bus_id: &str) -> Option<i32> {
    if pci_bus_id.is_empty() || !cfg!(target_os = "linux") {
        return None;
    }
    std::fs::read_to_string(format!("/sys/bus/pci/devices/{pci_bus_id}/numa_node"))
        .ok()?
        .trim()
        .parse()
        .ok()
}
