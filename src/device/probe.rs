//! Timestamps around the work that the recorder records.
//!
//! If the adapter can write timestamps between dispatches, one follows each dispatch, and a
//! dispatch begins where the one before it in its pass ended: the GPU runs on as it does without a
//! session. Otherwise each dispatch has a pass of its own. If there are no timestamps at all, the
//! submission's bounds are used.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::capabilities::Timestamps;
use super::checked::checked;
use super::completion::AfterWork;
use super::gpu::{Gpu, ReadFrom, Readback};
use super::trace::{About, DeviceEvent, Origin, Submitted, Tracer, Work, current_op};
use crate::error::Result;

/// The number of queries in a set: more than a batch's dispatches need. Many uploads in one batch
/// may need more; the batch ends then.
const QUERIES: u32 = 512;
/// The largest number of queries for one recorded command: two for a pass of its own, and a stamp
/// behind it.
const NEEDED: u32 = 3;

/// The op that asked for a dispatch, noted when it was enqueued.
#[derive(Debug)]
pub(crate) struct Asked {
    origin: Option<(Arc<Origin>, u64)>,
    flops: u64,
}

impl Asked {
    /// Asked for by the op whose kernel this thread runs.
    pub fn now(flops: u64) -> Self {
        Self { origin: current_op(), flops }
    }
}

/// A set of queries with the buffer that their results go through.
#[derive(Debug)]
struct Queries {
    set: wgpu::QuerySet,
    resolved: wgpu::Buffer,
}

/// Recorded work, with the queries around it.
#[derive(Debug)]
struct Recorded {
    event: DeviceEvent,
    queries: Option<[u32; 2]>,
}

/// The recorder's side of a session.
#[derive(Debug)]
pub(crate) struct Probe {
    tracer: Arc<Tracer>,
    timestamps: Timestamps,
    /// Nanoseconds of a tick.
    period: f64,
    idle: Arc<Mutex<Vec<Queries>>>,
    /// The queries of the open batch.
    queries: Option<Queries>,
    used: u32,
    recorded: Vec<Recorded>,
    submitted: Submitted,
    /// The query behind the last dispatch of the open pass.
    last: Option<u32>,
    /// Whether the batch only reads the GPU's time.
    calibrates: bool,
}

impl Probe {
    pub fn new(tracer: &Arc<Tracer>, timestamps: Timestamps, gpu: &Gpu) -> Result<Self> {
        let mut probe = Self {
            tracer: tracer.clone(),
            timestamps,
            period: f64::from(gpu.queue.get_timestamp_period()),
            idle: Arc::default(),
            queries: None,
            used: 0,
            recorded: Vec::new(),
            submitted: Arc::default(),
            last: None,
            calibrates: false,
        };
        if timestamps > Timestamps::None {
            // An error is returned here: later sets are like this one.
            probe.queries = Some(Queries::new(gpu)?);
        }
        Ok(probe)
    }

    /// How the GPU is timed.
    pub const fn timestamps(&self) -> Timestamps {
        self.timestamps
    }

    /// Whether dispatches have passes of their own.
    pub fn has_own_passes(&self) -> bool {
        matches!(self.timestamps, Timestamps::Passes | Timestamps::Encoders)
    }

    /// Whether the batch has queries left for another command.
    pub const fn has_room(&self) -> bool {
        self.used + NEEDED <= QUERIES
    }

    /// The next query of the open batch; None if the driver has no memory for a set.
    fn query(&mut self, gpu: &Gpu) -> Option<(&wgpu::QuerySet, u32)> {
        if self.queries.is_none() {
            let kept = self.idle.lock().pop();
            self.queries = kept.or_else(|| Queries::new(gpu).ok());
        }
        let queries = self.queries.as_ref()?;
        self.used += 1;
        Some((&queries.set, self.used - 1))
    }

    /// The timestamps of a pass that holds one dispatch.
    pub fn pass_queries(&mut self, gpu: &Gpu) -> Option<(wgpu::QuerySet, [u32; 2])> {
        let (set, first) = self.query(gpu)?;
        let set = set.clone();
        let (_, second) = self.query(gpu)?;
        Some((set, [first, second]))
    }

    /// The query at the beginning of the next dispatch of the open pass. It is written if the
    /// dispatch is the first.
    pub fn before(&mut self, gpu: &Gpu, pass: &mut wgpu::ComputePass<'_>) -> Option<u32> {
        if self.timestamps < Timestamps::Dispatches {
            return None;
        }
        if self.last.is_none() {
            self.last = self.write(gpu, pass);
        }
        self.last
    }

    /// The query at the end of a dispatch.
    pub fn after(&mut self, gpu: &Gpu, pass: &mut wgpu::ComputePass<'_>) -> Option<u32> {
        self.last = self.write(gpu, pass);
        self.last
    }

    fn write(&mut self, gpu: &Gpu, pass: &mut wgpu::ComputePass<'_>) -> Option<u32> {
        let (set, query) = self.query(gpu)?;
        pass.write_timestamp(set, query);
        Some(query)
    }

    /// A query written between the commands of an encoder, if that is possible.
    pub fn stamp(&mut self, gpu: &Gpu, encoder: &mut wgpu::CommandEncoder) -> Option<u32> {
        if self.timestamps < Timestamps::Encoders {
            return None;
        }
        let (set, query) = self.query(gpu)?;
        encoder.write_timestamp(set, query);
        Some(query)
    }

    /// Notes that the open pass has ended.
    pub const fn end_pass(&mut self) {
        self.last = None;
    }

    /// Notes a dispatch.
    pub fn dispatch(
        &mut self,
        shader: &Arc<About>,
        grid: [u32; 3],
        bytes: u64,
        asked: Option<&Asked>,
        queries: Option<[u32; 2]>,
    ) {
        let flops = asked.map_or(0, |asked| asked.flops);
        let origin = asked.and_then(|asked| asked.origin.clone());
        let work = Work::Dispatch { shader: shader.clone(), grid, flops };
        self.note(work, origin, bytes, queries);
    }

    /// Notes a copy.
    pub fn copy(&mut self, work: Work, bytes: u64, queries: Option<[u32; 2]>) {
        self.note(work, current_op(), bytes, queries);
    }

    fn note(
        &mut self,
        work: Work,
        origin: Option<(Arc<Origin>, u64)>,
        bytes: u64,
        queries: Option<[u32; 2]>,
    ) {
        let (origin, correlation) = origin.map_or((None, 0), |(o, number)| (Some(o), number));
        let is_timed = queries.is_some();
        let (begin, end, submission) = (0, 0, 0);
        let event =
            DeviceEvent { work, origin, correlation, bytes, begin, end, is_timed, submission };
        self.recorded.push(Recorded { event, queries });
    }

    /// Makes the next batch report the GPU's time.
    pub const fn calibrate(&mut self) {
        self.calibrates = true;
    }

    /// Ends the batch of number `serial`. Returns the work that must follow its GPU work, and the
    /// place where the submitter notes the time.
    pub fn end_batch(
        &mut self,
        gpu: &Gpu,
        encoder: &mut wgpu::CommandEncoder,
        serial: u64,
    ) -> Option<(AfterWork<Readback>, Submitted)> {
        if self.recorded.is_empty() && !std::mem::take(&mut self.calibrates) {
            return None;
        }
        let mut recorded = std::mem::take(&mut self.recorded);
        for each in &mut recorded {
            each.event.submission = serial;
        }
        let submitted = std::mem::take(&mut self.submitted);
        let used = std::mem::take(&mut self.used);
        let finish = Finish {
            tracer: self.tracer.clone(),
            recorded,
            submitted: submitted.clone(),
            period: self.period,
        };
        let queries = if used == 0 { None } else { self.queries.take() };
        let bytes = u64::from(used) * wgpu::QUERY_SIZE as u64;
        let resolved = queries.and_then(|queries| {
            // If there is no memory for it, the batch is not timed.
            let buffer = gpu.readback_buffer(bytes).ok()?;
            encoder.resolve_query_set(&queries.set, 0..used, &queries.resolved, 0);
            encoder.copy_buffer_to_buffer(&queries.resolved, 0, &buffer, 0, bytes);
            Some((queries, buffer))
        });
        let after = match resolved {
            Some((queries, buffer)) => {
                let idle = self.idle.clone();
                let sink = Box::new(move |ticks: Result<&[u8]>| {
                    idle.lock().push(queries);
                    finish.run(ticks.unwrap_or_default());
                });
                AfterWork::Readback(Readback {
                    from: ReadFrom::Staging(buffer),
                    range: 0..bytes as usize,
                    sink,
                })
            }
            None => AfterWork::Callback(Box::new(move || finish.run(&[]))),
        };
        Some((after, submitted))
    }
}

impl Queries {
    fn new(gpu: &Gpu) -> Result<Self> {
        checked(&gpu.device, "cannot time the GPU", || Self {
            set: gpu.device.create_query_set(&wgpu::QuerySetDescriptor {
                label: Some("trace"),
                ty: wgpu::QueryType::Timestamp,
                count: QUERIES,
            }),
            resolved: gpu.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("trace"),
                size: u64::from(QUERIES) * u64::from(wgpu::QUERY_SIZE),
                usage: wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC,
                mapped_at_creation: false,
            }),
        })
    }
}

/// The work to do when a batch is done.
struct Finish {
    tracer: Arc<Tracer>,
    recorded: Vec<Recorded>,
    submitted: Submitted,
    period: f64,
}

impl Finish {
    /// Adds the batch's events. `ticks` are the results of its queries, empty if it has none.
    fn run(self, ticks: &[u8]) {
        let submitted = self.submitted.load(Ordering::Relaxed);
        let times: Vec<i64> = ticks
            .chunks_exact(wgpu::QUERY_SIZE as usize)
            .map(|ticks| {
                let ticks: u64 = bytemuck::pod_read_unaligned(ticks);
                (ticks as f64 * self.period) as i64
            })
            .collect();
        let recorded = self.recorded.into_iter().map(|each| (each.event, each.queries));
        self.tracer.batch(submitted, &times, recorded);
    }
}
