//! Copies between host and device and within the device, fills, and timers. Byte offsets and
//! lengths are arbitrary.

use std::sync::Arc;

use super::belt::Belt;
use super::capture;
use super::checked::checked;
use super::declaration::declare_program;
use super::gpu::Sink;
use super::process;
use super::program::{Binding, Grid};
use super::trace::HostWork;
use super::{Device, Timestamps};
use crate::error::{Error, Result};
use crate::shader::{Raw, WORKGROUP};
use parking_lot::Mutex;

/// The bytes of the largest part of a copy between host and device: data on its way takes host
/// memory a second time.
const PART: u64 = 64 << 20;

/// Offsets and lengths of the parts of a copy.
fn parts(bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..bytes.div_ceil(PART)).map(move |k| (k * PART, PART.min(bytes - k * PART)))
}

impl Device {
    /// Copies `bytes` to device memory at `address`. The bytes are read before this returns; the
    /// copy is ordered like every other enqueued work.
    pub fn upload(&self, address: u64, bytes: &[u8]) -> Result<()> {
        capture::refuse("it copies from the host");
        process::check()?;
        // Pending errors are for calls whose status is checked. So only the loss of the device is
        // reported here.
        if let Some(e) = self.failures.lost() {
            return Err(e);
        }
        if bytes.is_empty() {
            return Ok(());
        }
        let block = self.memory.resolve(address, bytes.len() as u64)?;
        let offset = address - block.address;
        self.refresh(address, bytes.len() as u64);
        self.note_uploaded(address, bytes.len() as u64);
        if self.upload_unstaged(&block, offset, bytes) {
            return Ok(());
        }
        self.await_reads(|| std::iter::once(address..address + bytes.len() as u64))?;
        if offset.is_multiple_of(4) && bytes.len().is_multiple_of(4) {
            for (at, len) in parts(bytes.len() as u64) {
                let part = &bytes[at as usize..(at + len) as usize];
                self.submitter.throttle();
                self.await_room();
                if part.len() <= Belt::LIMIT {
                    self.settled(self.recorder.lock().upload(&block, offset + at, part))?;
                } else {
                    let stage = || self.staging.stage(&self.gpu.device, part);
                    let _span = self.tracer.span(|| HostWork::Stage(len));
                    let staging =
                        stage().or_else(|e| if self.reclaim() { stage() } else { Err(e) });
                    let staging = self.settled(staging)?;
                    self.settled(self.recorder.lock().upload_from(
                        &block,
                        offset + at,
                        &staging,
                        len,
                        &self.staging,
                    ))?;
                }
            }
            return Ok(());
        }
        // wgpu copies whole words only: go through scratch memory and the copy kernel.
        let padded = [bytes, &[0; 3][..bytes.len().next_multiple_of(4) - bytes.len()]].concat();
        let scratch = self.allocate(padded.len() as u64)?;
        // A new block may have waited until nothing uses the destination any more.
        let copied = if self.upload_unstaged(&block, offset, bytes) {
            Ok(())
        } else {
            self.upload(scratch, &padded)
                .and_then(|()| self.copy(address, scratch, bytes.len() as u64))
        };
        self.deallocate(scratch)?;
        copied
    }

    /// Copies `len` bytes at `address` to the host, in one part or more. `sink` receives each part
    /// and its offset on the completion thread, or the error. It must not use this or another
    /// device. If this call returns an error, `sink` was not called and never will be.
    pub fn download_with(
        &self,
        address: u64,
        len: u64,
        mut sink: impl FnMut(u64, Result<&[u8]>) + Send + 'static,
    ) -> Result<()> {
        if len > 0
            && self.profile.unstaged
            && self.failures.lost().is_none()
            && let Ok(block) = self.memory.resolve(address, len)
            && block.is_host_visible()
        {
            capture::refuse("it copies to the host");
            let failures = self.failures.clone();
            let sink: Sink =
                Box::new(move |part| sink(0, part.map_err(|e| failures.lost().unwrap_or(e))));
            return self.download_unstaged(&block, address - block.address, len, sink);
        }
        self.download_staged(address, len, sink)
    }

    /// Like [`Device::download_with`], through staging buffers always. The sink may use devices.
    pub fn download_staged(
        &self,
        address: u64,
        len: u64,
        sink: impl FnMut(u64, Result<&[u8]>) + Send + 'static,
    ) -> Result<()> {
        capture::refuse("it copies to the host");
        if let Some(e) = self.failures.lost() {
            return Err(e);
        }
        let sink = Arc::new(Mutex::new(sink));
        if len == 0 {
            self.host_callback(move || sink.lock()(0, Ok(&[])));
            return Ok(());
        }
        let block = self.memory.resolve(address, len)?;
        for (at, len) in parts(len) {
            self.submitter.throttle();
            self.await_room();
            let read = || {
                let sink = || -> Sink {
                    let (sink, failures) = (sink.clone(), self.failures.clone());
                    Box::new(move |part| {
                        sink.lock()(at, part.map_err(|e| failures.lost().unwrap_or(e)))
                    })
                };
                let from = address + at;
                let mut recorder = self.recorder.lock_to_read(&(from..from + len))?;
                recorder.readback(&block, from - block.address, len, sink)?;
                recorder.hand_over();
                Ok(())
            };
            let recorded = match read() {
                Err(Error::ResourceExhausted(_)) if self.reclaim() => read(),
                recorded => recorded,
            };
            match self.settled(recorded) {
                Ok(()) => self.submitter.submit(),
                Err(e) if at == 0 => return Err(e),
                // Report it after the parts that are on their way.
                Err(e) => {
                    let sink = sink.clone();
                    self.host_callback(move || sink.lock()(at, Err(e)));
                }
            }
        }
        Ok(())
    }

    /// Copies device memory at `address` into `bytes` and waits for it.
    pub fn download(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        self.check()?;
        self.completion.may_wait()?;
        for (at, len) in parts(bytes.len() as u64) {
            let (sender, receiver) = crossbeam_channel::bounded(1);
            self.download_with(address + at, len, move |_, part| {
                let _ = sender.send(part.map(<[u8]>::to_vec));
            })?;
            let received = receiver
                .recv()
                .map_err(|e| Error::Internal(format!("the completion thread is gone: {e}")))?;
            bytes[at as usize..(at + len) as usize].copy_from_slice(&received?);
        }
        self.check()
    }

    /// Copies `bytes` bytes within the device. The ranges must not overlap.
    pub fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<()> {
        self.recorder.lock().statistics.copies += 1;
        self.refresh(to, bytes);
        self.windows(bytes, |at, count| {
            let fits =
                |unit: u64| [from + at, to + at, count].iter().all(|n| n.is_multiple_of(unit));
            let binding = |address, unit| Binding { address: address + at, bytes: count, unit };
            if let Some(unit) = [16, 4].into_iter().find(|unit| fits(u64::from(*unit))) {
                let units = (count / u64::from(unit)) as usize;
                let (src, dst) = (binding(from, unit), binding(to, unit));
                let (of, grid) = (CopyUnits::of(unit), Grid::linear(units, WORKGROUP));
                return self.enqueue(&CopyUnits { src, dst, count: units }.program(&of, grid));
            }
            let call =
                CopyBytes { src: binding(from, 1), dst: binding(to, 1), count: count as u32 };
            self.enqueue(&call.program(&CopyBytes::of(), word_grid(count)))
        })
    }

    /// Fills `bytes` bytes at `address` with repetitions of the 4-byte `pattern`, which starts at
    /// `address`.
    pub fn fill(&self, address: u64, bytes: u64, pattern: u32) -> Result<()> {
        let pattern = pattern.rotate_left((address % 4) as u32 * 8);
        self.refresh(address, bytes);
        self.windows(bytes, |at, count| {
            let dst = |unit| Binding { address: address + at, bytes: count, unit };
            if (address + at).is_multiple_of(16) && count.is_multiple_of(16) {
                let vectors = (count / 16) as usize;
                let call = FillVectors { dst: dst(16), count: vectors, pattern };
                let grid = Grid::linear(vectors, WORKGROUP);
                return self.enqueue(&call.program(&FillVectors::of(), grid));
            }
            let call = FillBytes { dst: dst(1), count: count as u32, pattern };
            self.enqueue(&call.program(&FillBytes::of(), word_grid(count)))
        })
    }

    /// Calls `f` with offset and length of windows that fit a binding.
    fn windows(&self, bytes: u64, mut f: impl FnMut(u64, u64) -> Result<()>) -> Result<()> {
        // Half of the largest binding leaves room for offsets rounded down; both stay below 2^32
        // bytes.
        let window = (self.profile.capabilities.max_binding / 2).min(1 << 30) & !255;
        let mut at = 0;
        while at < bytes {
            let count = window.min(bytes - at);
            f(at, count)?;
            at += count;
        }
        Ok(())
    }

    /// A timer for work on this device.
    pub fn timer(&self) -> Timer {
        let device = &self.gpu.device;
        let make = || {
            checked(device, "a timer", || {
                device.create_query_set(&wgpu::QuerySetDescriptor {
                    label: Some("timer"),
                    ty: wgpu::QueryType::Timestamp,
                    count: 2,
                })
            })
        };
        // Without queries the host's clock is used.
        let queries = if self.profile.capabilities.timestamps >= Timestamps::Encoders {
            make().ok()
        } else {
            None
        };
        Timer { queries, elapsed: Arc::default(), started: Mutex::default() }
    }
}

declare_program! {
    /// Copies bytes.
    struct CopyBytes = "copy"();
    bindings { src: Raw("u32", 1), dst: Raw("u32", 1) }
    params { count: u32 }
    shader "copy" => .copying().body(include_str!("../../shaders/copy.wgsl"))
}

/// The type of units of 4 or 16 bytes.
const fn storage(unit: u32) -> &'static str {
    if unit == 16 { "vec4<u32>" } else { "u32" }
}

declare_program! {
    /// Copies units of 4 or 16 bytes.
    struct CopyUnits = "copy units"(unit: u32);
    bindings { src: Raw(storage(unit), unit), dst: Raw(storage(unit), unit) }
    params { count: usize }
    shader format!("copy {}", storage(unit)) =>
        .copying()
        .body(include_str!("../../shaders/copy_units.wgsl"))
}

declare_program! {
    /// Fills bytes.
    struct FillBytes = "fill"();
    bindings { dst: Raw("u32", 1) }
    params { count: u32, pattern: u32 }
    shader "fill" => .body(include_str!("../../shaders/fill.wgsl"))
}

declare_program! {
    /// Fills units of 16 bytes.
    struct FillVectors = "fill vectors"();
    bindings { dst: Raw("vec4<u32>", 16) }
    params { count: usize, pattern: u32 }
    shader "fill vectors" => .body(include_str!("../../shaders/fill_vectors.wgsl"))
}

fn word_grid(bytes: u64) -> Grid {
    // One more word than the length needs, for ranges that straddle words at both ends.
    Grid::linear(bytes.div_ceil(4) as usize + 1, WORKGROUP)
}

/// Measures the time between two points of a device's queue: by GPU timestamps where the adapter
/// has them, else by the host's clock at the points' completion.
#[derive(Debug)]
pub struct Timer {
    queries: Option<wgpu::QuerySet>,
    elapsed: Arc<Mutex<Option<u64>>>,
    started: Mutex<Arc<Mutex<Option<std::time::Instant>>>>,
}

impl Timer {
    /// Marks the start.
    pub fn start(&self, device: &Device) {
        *self.elapsed.lock() = None;
        match &self.queries {
            Some(q) => device.recorder.lock().timestamp(q, 0),
            None => {
                let slot = Arc::new(Mutex::new(None));
                *self.started.lock() = slot.clone();
                device.host_callback(move || *slot.lock() = Some(std::time::Instant::now()));
            }
        }
    }

    /// Marks the end.
    pub fn stop(&self, device: &Device) {
        let elapsed = self.elapsed.clone();
        self.stop_with(device, move |nanoseconds| *elapsed.lock() = nanoseconds);
    }

    /// Marks the end; `sink` receives the nanoseconds since the start on the completion thread, or
    /// None if there was no measurement.
    pub fn stop_with(&self, device: &Device, sink: impl FnOnce(Option<u64>) + Send + 'static) {
        match &self.queries {
            Some(q) => {
                let period = f64::from(device.gpu.queue.get_timestamp_period());
                let mut recorder = device.recorder.lock();
                recorder.timestamp(q, 1);
                recorder.resolve_timestamps(
                    q,
                    Box::new(move |bytes| {
                        let ticks = bytes.ok().and_then(|bytes| {
                            let at: [u64; 2] = bytemuck::pod_read_unaligned(bytes);
                            at[1].checked_sub(at[0])
                        });
                        sink(ticks.map(|ticks| (ticks as f64 * period) as u64));
                    }),
                );
            }
            None => {
                let started = self.started.lock().clone();
                device.host_callback(move || {
                    sink(started.lock().map(|s: std::time::Instant| s.elapsed().as_nanos() as u64));
                });
            }
        }
    }

    /// Nanoseconds between start and stop; waits for the device. 0 when the timer was not stopped.
    pub fn nanoseconds(&self, device: &Device) -> Result<u64> {
        device.synchronize()?;
        Ok(self.elapsed.lock().unwrap_or_default())
    }
}
