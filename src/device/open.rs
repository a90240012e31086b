//! Opens devices: requests them from the adapter, and watches the errors that wgpu reports about
//! them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::cache::DiskCache;
use super::compiler::Compiler;
use super::completion::Completion;
use super::dump::ShaderDump;
use super::failures::Failures;
use super::gpu::Gpu;
use super::ledger::Ledger;
use super::matrix_units::Deterministic;
use super::memory::Memory;
use super::paging::{self, Link, Paging};
use super::pending::PendingDispatches;
use super::pipelines::Pipelines;
use super::recorder::Recorder;
use super::refused::RefusedForms;
use super::staging::Staging;
use super::submitter::Submitter;
use super::trace::Tracer;
use super::tuning::Tuner;
use super::unstaged::{self, UnstagedReads};
use super::{
    Capabilities, Device, Matrices, MatrixUnits, Policy, Profile, budget, checked, float16,
    process, tuning,
};
use crate::dump;
use crate::error::{Error, Result};
use crate::sys::guard::caught_as;
use crate::sys::trusted_shader;

/// The number of devices that this process has opened.
static OPENED: AtomicU32 = AtomicU32::new(0);

/// The settings of a device beside its profile.
#[derive(Debug, Clone, Copy)]
struct Settings {
    /// Whether it times programs to choose among them.
    tunes: bool,
    /// The rule that decides about its cooperative matrices.
    matrices: Policy,
    /// The rule that decides about its conversions to float16.
    float16: Policy,
    /// The number of devices that share the adapter's memory.
    sharers: u32,
    /// The most memory that it takes, if it pages.
    paging: Option<Paging>,
}

impl Settings {
    /// The settings from the environment. Emulated matrices are for tests, which need them used.
    fn of(adapter: &wgpu::Adapter, profile: &Profile) -> Self {
        let is_software = adapter.get_info().device_type == wgpu::DeviceType::Cpu;
        let matrices = if profile.capabilities.matrices.are_real() {
            Policy::of(&|name| std::env::var(name).ok(), is_software)
        } else if profile.capabilities.matrices == Matrices::NONE {
            Policy::Off
        } else {
            Policy::Forced
        };
        let lookup = |name: &str| std::env::var(name).ok();
        let float16 = Policy::of_variable(float16::VARIABLE, &lookup, is_software);
        Self { tunes: false, matrices, float16, sharers: 1, paging: None }
    }
}

/// Requests a device with `features`, and with those of cooperative matrices if they are wanted.
fn request(
    adapter: &wgpu::Adapter,
    features: wgpu::Features,
    limits: &wgpu::Limits,
    matrices: &Matrices,
) -> Result<(wgpu::Device, wgpu::Queue)> {
    let _opening = process::opening();
    let cooperative = matrices.are_real();
    let mut wanted = if cooperative { Matrices::FEATURES } else { wgpu::Features::empty() };
    wanted.set(wgpu::Features::SHADER_F16, cooperative && matrices.f16.is_some());
    let failed =
        |why: &str| Error::Unavailable(format!("cannot open {}: {why}", adapter.get_info().name));
    let request = || {
        let requested = pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor {
            label: Some("tensorflow-wgpu"),
            required_features: features | wanted,
            required_limits: limits.clone(),
            experimental_features: if cooperative {
                crate::sys::experimental::cooperative_matrices()
            } else {
                wgpu::ExperimentalFeatures::disabled()
            },
            ..Default::default()
        }));
        requested.map_err(|e| failed(&e.to_string()))
    };
    // wgpu uses the objects that it has just made: if a driver has no memory for them, wgpu panics.
    caught_as(request, failed)
}

/// Makes the device lost when wgpu says that it is, and when wgpu reports an error that belongs to
/// no call: it is unknown then which work did not run.
fn watch(raw: &wgpu::Device, failures: &Arc<Failures>) {
    let reported = Arc::downgrade(failures);
    raw.on_uncaptured_error(Arc::new(move |e: wgpu::Error| {
        if let Some(failures) = reported.upgrade() {
            lose(&failures, checked::explain("work for the GPU", &e));
        }
    }));
    let lost = Arc::downgrade(failures);
    raw.set_device_lost_callback(move |reason, message| {
        // After a device is dropped there are no failures to add to.
        match (lost.upgrade(), reason) {
            (Some(failures), wgpu::DeviceLostReason::Unknown) => {
                lose(
                    &failures,
                    Error::Unavailable(format!(
                        "the GPU was lost ({})",
                        message.trim_end_matches('.')
                    )),
                );
            }
            (Some(failures), wgpu::DeviceLostReason::Destroyed) => {
                failures.lose(Error::Unavailable("the GPU was lost (it was destroyed)".into()));
            }
            (None, _) => {}
        }
    });
}

/// Marks the device as lost, and logs it once.
pub(super) fn lose(failures: &Failures, error: Error) {
    if failures.lose(error)
        && let Some(e) = failures.lost()
    {
        log::error!("{e}");
    }
}

impl Device {
    /// Opens a device on `adapter`.
    pub fn open(adapter: &wgpu::Adapter) -> Result<Arc<Self>> {
        Self::open_cached(adapter, None)
    }

    /// Opens a device on `adapter` that keeps compiled pipelines in a directory, where the backend
    /// has a way to.
    pub fn open_cached(adapter: &wgpu::Adapter, directory: Option<&Path>) -> Result<Arc<Self>> {
        Self::open_with(adapter, Profile::of(adapter), directory)
    }

    /// Opens a device on `adapter` that behaves as if the adapter had the properties of `profile`.
    /// The adapter must be able to.
    pub fn open_with(
        adapter: &wgpu::Adapter,
        profile: Profile,
        directory: Option<&Path>,
    ) -> Result<Arc<Self>> {
        Self::open_for(adapter, profile, directory, 1, || false)
    }

    /// Like [`Device::open_with`], for one of `sharers` devices of the adapter, each of which gets
    /// its share of the memory, and for a program that may ask for deterministic ops: while
    /// `deterministic` returns true, no kernels are timed (`TF_WGPU_AUTOTUNE`, matrix units).
    pub fn open_for(
        adapter: &wgpu::Adapter,
        profile: Profile,
        directory: Option<&Path>,
        sharers: u32,
        deterministic: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<Arc<Self>> {
        let wanted = tuning::is_wanted(&|name| std::env::var(name).ok(), profile.is_software());
        let host = paging::wanted(&|name| std::env::var(name).ok());
        let paging = host.map(|host| Paging { device: u64::MAX, host });
        let settings =
            Settings { tunes: wanted, sharers, paging, ..Settings::of(adapter, &profile) };
        Self::open_as(adapter, profile, directory, settings, Arc::new(deterministic))
    }

    /// Like [`Device::open_for`], for a device that tunes whatever the adapter and the environment
    /// are, except while `deterministic` returns true: for tests on any adapter.
    pub fn open_tuning(
        adapter: &wgpu::Adapter,
        profile: Profile,
        directory: Option<&Path>,
        deterministic: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<Arc<Self>> {
        let settings = Settings { tunes: true, ..Settings::of(adapter, &profile) };
        Self::open_as(adapter, profile, directory, settings, Arc::new(deterministic))
    }

    /// Opens a device that pages with these limits, if the adapter can: for tests.
    pub fn open_paging(adapter: &wgpu::Adapter, limits: Paging) -> Result<Arc<Self>> {
        let profile = Profile::of(adapter);
        let settings = Settings { paging: Some(limits), ..Settings::of(adapter, &profile) };
        Self::open_as(adapter, profile, None, settings, Arc::new(|| false))
    }

    /// Opens a device whose matrix units are decided by a probe, emulated ones too: for tests.
    pub fn open_probing(adapter: &wgpu::Adapter, profile: Profile) -> Result<Arc<Self>> {
        let settings = Settings { matrices: Policy::Probed, ..Settings::of(adapter, &profile) };
        Self::open_as(adapter, profile, None, settings, Arc::new(|| false))
    }

    /// Opens a device whose conversions to float16 are the adapter's if a probe finds them right,
    /// on a software adapter too: for tests.
    pub fn open_converting(adapter: &wgpu::Adapter) -> Result<Arc<Self>> {
        let profile = Profile::of(adapter);
        let settings = Settings { float16: Policy::Probed, ..Settings::of(adapter, &profile) };
        Self::open_as(adapter, profile, None, settings, Arc::new(|| false))
    }

    /// Opens another device of the same adapter with the same behaviour. Programs are tried on it
    /// before they are used, so that a driver that fails in one harms no tensors. It keeps nothing
    /// in files.
    pub fn beside(&self) -> Result<Arc<Self>> {
        let matrices = if self.profile.capabilities.matrices == Matrices::NONE {
            Policy::Off
        } else {
            Policy::Forced
        };
        let settings = Settings {
            tunes: false,
            matrices,
            float16: if self.profile.capabilities.float16 { Policy::Forced } else { Policy::Off },
            sharers: self.sharers,
            paging: None,
        };
        Self::open_as(&self.adapter, self.profile, None, settings, Arc::new(|| false))
    }

    fn open_as(
        adapter: &wgpu::Adapter,
        mut profile: Profile,
        directory: Option<&Path>,
        settings: Settings,
        deterministic: Deterministic,
    ) -> Result<Arc<Self>> {
        process::check()?;
        process::watch_forks();
        let info = adapter.get_info();
        if settings.matrices == Policy::Off {
            profile.capabilities.matrices = Matrices::NONE;
        }
        let asked = deterministic.clone();
        let tuner = settings.tunes.then(|| Tuner::open(&info, directory, move || asked()));
        let kept = directory;
        let directory = directory.filter(|_| adapter.features().contains(DiskCache::FEATURE));
        let cache_feature =
            if directory.is_some() { DiskCache::FEATURE } else { wgpu::Features::empty() };
        // Only on Vulkan is a storage buffer that wgpu takes for read-only the same as any other.
        profile.own_barriers &= info.backend == wgpu::Backend::Vulkan
            && adapter.features().contains(wgpu::Features::PASSTHROUGH_SHADERS);
        let own =
            Capabilities::from_parts(&adapter.get_info(), adapter.features(), &adapter.limits());
        let offered = profile.capabilities.common(own);
        let mut features = offered.features() | cache_feature;
        features.set(wgpu::Features::PASSTHROUGH_SHADERS, profile.own_barriers);
        let mut paging = settings.paging;
        if let Some(most) = &mut paging {
            if adapter.features().contains(Paging::FEATURE) {
                features.insert(Paging::FEATURE);
            } else {
                log::warn!("{}: tensors stay in device memory, since it cannot page", info.name);
                most.host = 0;
            }
        }
        profile.unstaged &= settings.paging.is_none() && unstaged::shares_memory(adapter);
        if profile.unstaged {
            features.insert(unstaged::FEATURE);
        }
        let mut converts = offered.float16 && settings.float16 != Policy::Off;
        features.set(wgpu::Features::SHADER_F16, converts);
        let limits = offered.limits(adapter.limits());
        let matrices = profile.capabilities.matrices;
        let mut opened = request(adapter, features, &limits, &matrices);
        if let Err(e) = &opened
            && (matrices.are_real() || converts)
        {
            log::warn!(
                "{}: no cooperative matrices and no 16-bit floats, since the device does not open \
                 with them: {e}",
                info.name
            );
            profile.capabilities.matrices = Matrices::NONE;
            converts = false;
            features.remove(wgpu::Features::SHADER_F16);
            opened = request(adapter, features, &limits, &Matrices::NONE);
        }
        let (raw, queue) = opened?;
        profile.capabilities.float16 =
            converts && float16::is_used(settings.float16, &raw, &queue, &info.name);
        let matrix_units = MatrixUnits::open(
            settings.matrices,
            &profile.capabilities.matrices,
            &info,
            kept,
            deterministic,
        );
        let capabilities = profile.capabilities;
        let failures = Arc::new(Failures::default());
        watch(&raw, &failures);
        let tracer = Arc::new(Tracer::default());
        let gpu = Arc::new(Gpu::new(raw.clone(), queue, failures.clone(), tracer.clone()));
        let completion = Completion::start(gpu.clone(), failures.clone());
        let submitter = Submitter::start(gpu.clone(), completion.clone(), failures.clone());
        let memory = budget::of(adapter, &info, capabilities.max_buffer, 0, settings.sharers);
        // Other processes keep what they have.
        let paging = paging.map(|most| {
            Link::new(Paging { device: most.device.min(memory.total).min(memory.free), ..most })
        });
        let total = paging.as_ref().map_or(memory.total, |link| link.limits.budget(0).total);
        let recorder = Recorder::new(
            gpu.clone(),
            profile.own_barriers,
            completion.clone(),
            submitter.clone(),
            paging.clone(),
        )?;
        let failed = failures.clone();
        let failed = move |e| {
            // As in `settled`, for calls that have returned.
            if matches!(e, Error::Unavailable(_)) {
                return lose(&failed, e);
            }
            log::error!("{e}");
            failed.raise(e);
        };
        let cache = directory.map(|directory| DiskCache::open(&raw, &info, directory));
        let guarded = trusted_shader::are_buffers_guarded(adapter);
        let dump = dump::Folder::of_process()
            .map(|folder| ShaderDump::begin(folder, &info, &profile, guarded));
        let running = Arc::downgrade(&completion);
        let is_first_run = move || running.upgrade().is_some_and(|c| c.is_first_run());
        let tracing = tracer.clone();
        let refused = RefusedForms::open(&info, kept);
        let compiler = Compiler::new(raw.clone(), &profile, guarded, cache, refused, dump, tracing);
        let pipelines = Pipelines::new(compiler, is_first_run);
        let device = Arc::new(Self {
            number: OPENED.fetch_add(1, Ordering::Relaxed),
            adapter: adapter.clone(),
            sharers: settings.sharers,
            info,
            profile,
            memory: Memory::new(
                raw.clone(),
                capabilities.max_buffer,
                total,
                paging.clone(),
                profile.unstaged,
            )?,
            paging,
            pipelines,
            recorder: PendingDispatches::new(recorder, failed),
            completion,
            submitter,
            failures,
            staging: Staging::default(),
            unstaged_reads: UnstagedReads::default(),
            matrix_units: Arc::new(matrix_units),
            tuner: tuner.map(Arc::new),
            tracer,
            ledger: Ledger::default(),
            max_groups: raw.limits().max_compute_workgroups_per_dimension,
            gpu,
        });
        // The driver and its objects for the device are older than this registration, so they are
        // destroyed after it runs.
        process::watch_exit();
        Ok(device)
    }
}
