//! Records a device's activity over time, while a session asks for it: dispatches and copies by the
//! GPU's clock, the host's work for them, and memory.
//!
//! [`Device::trace`] begins a session and [`Device::end_trace`] returns its events. Without a
//! session the cost is one load of a flag for each op. The recorder's [`super::probe`] writes
//! timestamps around the recorded work; [`clock`] converts them to the host's clock.

mod clock;
mod span;

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rustc_hash::FxHashSet;

pub(super) use span::current_op;
pub(crate) use span::{HostSpan, OpSpan};
pub use span::{Origin, Thread};

use super::{Device, Timestamps};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::tensor::Dims;
use clock::{Clock, Moment};

/// The number of events of one kind that a session keeps; later ones are only counted. TensorFlow
/// takes 1.6 kB for each when it writes them.
const MAX_EVENTS: usize = 1 << 19;

/// When the host gave a batch to the driver, by [`Tracer::now`]; 0 before that.
pub(crate) type Submitted = Arc<AtomicI64>;

/// A description of a pipeline's shader.
#[derive(Debug, PartialEq, Eq)]
pub struct About {
    /// Its label.
    pub label: String,
    /// Whether it only copies memory.
    pub is_copy: bool,
    /// Invocations of a workgroup in each dimension.
    pub workgroup: [u32; 3],
}

/// A kind of work of the GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// A dispatch.
    Dispatch {
        /// Its shader.
        shader: Arc<About>,
        /// Number of workgroups in each dimension.
        grid: [u32; 3],
        /// Operations on floats by the kernel's description, 0 if it states none. See
        /// [`crate::device::Device::enqueue_counted`].
        flops: u64,
    },
    /// A copy from the host.
    Upload,
    /// A copy to the host.
    Download,
}

/// Work that the GPU did. Times are nanoseconds since the session began.
#[derive(Debug, Clone)]
pub struct DeviceEvent {
    /// The kind of work.
    pub work: Work,
    /// The op that asked for it, if one did.
    pub origin: Option<Arc<Origin>>,
    /// The same number for an op's [`HostEvent`] and the GPU's work for it; 0 without an op.
    pub correlation: u64,
    /// Bytes that it read and wrote by its description.
    pub bytes: u64,
    /// When it began.
    pub begin: i64,
    /// When it ended.
    pub end: i64,
    /// Whether the times are its own, by the GPU's clock. Otherwise they are those of the
    /// submission.
    pub is_timed: bool,
    /// The submission that it belongs to.
    pub submission: u64,
}

/// A kind of work of a host thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostWork {
    /// Ran an op's kernel, which enqueues work.
    Op(Arc<Origin>),
    /// Gave a batch to the driver.
    Submit,
    /// Waited until the GPU was done with a submission.
    WaitForGpu,
    /// Waited, as a caller, until the device had finished the enqueued work.
    WaitForDevice,
    /// Compiled the pipeline of a shader.
    Compile(String),
    /// Copied this number of bytes into memory that the GPU reads.
    Stage(u64),
    /// Passed on this number of bytes that the GPU wrote.
    ReadBack(u64),
}

/// Work that the host did. Times are nanoseconds since the session began.
#[derive(Debug, Clone)]
pub struct HostEvent {
    /// The kind of work.
    pub work: HostWork,
    /// The thread that did it.
    pub thread: Arc<Thread>,
    /// See [`DeviceEvent::correlation`].
    pub correlation: u64,
    /// When it began.
    pub begin: i64,
    /// When it ended.
    pub end: i64,
}

/// The device's memory after it changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryEvent {
    /// Nanoseconds since the session began.
    pub at: i64,
    /// Bytes in buffers.
    pub in_use: u64,
}

/// A tensor that an op made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LargeTensor {
    /// The op.
    pub origin: Arc<Origin>,
    /// Its element type.
    pub dtype: DType,
    /// Its shape.
    pub dims: Dims,
    /// Its bytes.
    pub bytes: u64,
}

/// The events of a session.
#[derive(Debug)]
pub struct Trace {
    /// Unix time in nanoseconds when it began.
    pub began: u64,
    /// Its duration in nanoseconds.
    pub duration: i64,
    /// The GPU's work, in the order of recording.
    pub device: Vec<DeviceEvent>,
    /// The host's work, in the order of its ends.
    pub host: Vec<HostEvent>,
    /// Changes of memory.
    pub memory: Vec<MemoryEvent>,
    /// The largest tensors that ops made, the largest first.
    pub tensors: Vec<LargeTensor>,
    /// The number of events that were too many to keep.
    pub dropped: u64,
    /// How the GPU was timed.
    pub timestamps: Timestamps,
    /// The error in nanoseconds of the GPU's times on the host's clock, the same for all events of
    /// a window; None if the GPU was not timed.
    pub clock_error: Option<i64>,
}

/// Collects the events of a device's session.
#[derive(Debug)]
pub(crate) struct Tracer {
    active: AtomicBool,
    correlations: AtomicU64,
    session: Mutex<Option<Session>>,
}

#[derive(Debug)]
struct Session {
    start: Instant,
    began: u64,
    clock: Clock,
    device: Vec<(DeviceEvent, [Moment; 2])>,
    host: Vec<HostEvent>,
    memory: Vec<MemoryEvent>,
    tensors: FxHashSet<Made>,
    dropped: u64,
}

/// A tensor, identified by the address of its op's origin. The set keeps the origin alive, so that
/// the address is not used again.
#[derive(Debug)]
struct Made(LargeTensor);

impl PartialEq for Made {
    fn eq(&self, other: &Self) -> bool {
        let (a, b) = (&self.0, &other.0);
        Arc::ptr_eq(&a.origin, &b.origin) && (a.dtype, &a.dims) == (b.dtype, &b.dims)
    }
}

impl Eq for Made {}

impl Hash for Made {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (Arc::as_ptr(&self.0.origin), &self.0.dims[..]).hash(state);
    }
}

/// The number of large tensors that a trace lists.
const MAX_TENSORS: usize = 32;

/// Appends an event, or counts it if there are too many.
fn keep<T>(events: &mut Vec<T>, dropped: &mut u64, event: T) {
    if events.len() < MAX_EVENTS {
        events.push(event);
    } else {
        *dropped += 1;
    }
}

impl Default for Tracer {
    fn default() -> Self {
        Self {
            active: AtomicBool::new(false),
            correlations: AtomicU64::new(1),
            session: Mutex::default(),
        }
    }
}

impl Tracer {
    /// Whether a session is open.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    /// Nanoseconds since the session began; 0 without one.
    pub fn now(&self) -> i64 {
        self.session.lock().as_ref().map_or(0, |s| nanoseconds(s.start, Instant::now()))
    }

    /// A number that no other op of this process has.
    fn correlation(&self) -> u64 {
        self.correlations.fetch_add(1, Ordering::Relaxed)
    }

    fn begin(&self) -> Result<()> {
        let mut session = self.session.lock();
        if session.is_some() {
            return Err(Error::FailedPrecondition(
                "the device is traced already: one profiler at a time".into(),
            ));
        }
        let began = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
        *session = Some(Session {
            start: Instant::now(),
            began,
            clock: Clock::default(),
            device: Vec::new(),
            host: Vec::new(),
            memory: Vec::new(),
            tensors: FxHashSet::default(),
            dropped: 0,
        });
        self.active.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn end(&self, timestamps: Timestamps) -> Option<Trace> {
        self.active.store(false, Ordering::Relaxed);
        let session = self.session.lock().take()?;
        let clock = session.clock;
        let place = |(mut event, [begin, end]): (DeviceEvent, [Moment; 2])| {
            event.begin = clock.place(begin);
            event.end = clock.place(end).max(event.begin);
            event
        };
        Some(Trace {
            began: session.began,
            duration: nanoseconds(session.start, Instant::now()),
            clock_error: clock.error(),
            device: session.device.into_iter().map(place).collect(),
            host: session.host,
            memory: session.memory,
            tensors: largest(session.tensors),
            dropped: session.dropped,
            timestamps,
        })
    }

    /// Adds a batch's work, which the GPU has just ended. `times` are the results of its queries in
    /// nanoseconds of the GPU's clock, empty if it has none; each event comes with the queries
    /// before and behind it.
    pub(super) fn batch(
        &self,
        submitted: i64,
        times: &[i64],
        events: impl Iterator<Item = (DeviceEvent, Option<[u32; 2]>)>,
    ) {
        let mut session = self.session.lock();
        let Some(session) = session.as_mut() else { return };
        let done = nanoseconds(session.start, Instant::now());
        let bounds = times.iter().min().zip(times.iter().max());
        let window = bounds.map(|(a, b)| session.clock.observe([*a, *b], submitted, done));
        for (mut event, queries) in events {
            let gpu = queries.zip(window).and_then(|([a, b], window)| {
                let at = |query: u32| times.get(query as usize).map(|t| Moment::Gpu(*t, window));
                Some([at(a)?, at(b)?])
            });
            event.is_timed = gpu.is_some();
            let moments = gpu.unwrap_or([Moment::Host(submitted), Moment::Host(done)]);
            keep(&mut session.device, &mut session.dropped, (event, moments));
        }
    }

    /// Adds work of the host that lasted from `begin` until now.
    fn host(&self, work: HostWork, begin: Instant, correlation: u64) {
        let thread = Thread::current();
        let mut session = self.session.lock();
        let Some(session) = session.as_mut() else { return };
        let (begin, end) =
            (nanoseconds(session.start, begin), nanoseconds(session.start, Instant::now()));
        let event = HostEvent { work, thread, correlation, begin, end };
        keep(&mut session.host, &mut session.dropped, event);
    }

    /// Adds a change of the device's memory.
    pub fn memory(&self, in_use: u64) {
        if !self.is_active() {
            return;
        }
        let mut session = self.session.lock();
        let Some(session) = session.as_mut() else { return };
        let at = nanoseconds(session.start, Instant::now());
        keep(&mut session.memory, &mut session.dropped, MemoryEvent { at, in_use });
    }

    /// Adds a tensor that was made by the op whose kernel this thread runs.
    pub fn tensor(&self, dtype: DType, dims: &[usize]) {
        if !self.is_active() {
            return;
        }
        let Some((origin, _)) = span::current_op() else { return };
        let bytes = dims.iter().product::<usize>() as u64 * dtype.size() as u64;
        let made = Made(LargeTensor { origin, dtype, dims: Dims::from_slice(dims), bytes });
        if let Some(session) = self.session.lock().as_mut()
            && session.tensors.len() < MAX_EVENTS
        {
            session.tensors.insert(made);
        }
    }

    /// Begins work of the host that lasts until the value is dropped, if there is a session.
    #[inline]
    pub fn span(self: &Arc<Self>, work: impl FnOnce() -> HostWork) -> Option<HostSpan> {
        self.is_active().then(|| HostSpan::begin(self, work()))
    }

    /// Like [`Self::span`], for an op's kernel: work that this thread enqueues meanwhile is
    /// attributed to the op.
    #[inline]
    pub fn op(self: &Arc<Self>, origin: &Arc<Origin>) -> Option<OpSpan> {
        self.is_active().then(|| OpSpan::begin(self, origin.clone()))
    }
}

/// The largest tensors.
fn largest(tensors: FxHashSet<Made>) -> Vec<LargeTensor> {
    let mut tensors: Vec<_> = tensors.into_iter().map(|made| made.0).collect();
    tensors.sort_unstable_by(|a, b| (b.bytes, &a.origin.node).cmp(&(a.bytes, &b.origin.node)));
    tensors.truncate(MAX_TENSORS);
    tensors
}

/// The nanoseconds from one moment to another, which may be earlier.
fn nanoseconds(from: Instant, to: Instant) -> i64 {
    match to.checked_duration_since(from) {
        Some(later) => later.as_nanos() as i64,
        None => -(from.duration_since(to).as_nanos() as i64),
    }
}

impl Device {
    /// Begins a session: from now on the device's work is kept with its times, until
    /// [`Device::end_trace`]. Fails if there is a session already.
    pub fn trace(&self) -> Result<()> {
        self.synchronize()?;
        self.tracer.begin()?;
        let probed = self.recorder.lock().begin_probe(&self.tracer, self.capabilities().timestamps);
        // Two submissions of their own relate the clocks before anything else happens.
        let calibrated = probed.and_then(|()| {
            (0..2).try_for_each(|_| {
                self.recorder.lock().calibrate();
                self.synchronize()
            })
        });
        if calibrated.is_err() {
            self.recorder.lock().end_probe();
            self.tracer.end(Timestamps::None);
        }
        calibrated
    }

    /// Whether there is a session.
    pub fn is_traced(&self) -> bool {
        self.tracer.is_active()
    }

    /// Waits for the enqueued work and ends the session. None without a session.
    pub fn end_trace(&self) -> Result<Option<Trace>> {
        if !self.tracer.is_active() {
            return Ok(None);
        }
        self.recorder.lock().calibrate();
        // A lost device has a trace too.
        let waited = self.synchronize();
        let timestamps = self.recorder.lock().end_probe();
        let trace = self.tracer.end(timestamps);
        waited.map(|()| trace)
    }

    /// Notes a tensor that was made by the op whose kernel this thread runs, while there is a
    /// session.
    #[inline]
    pub(crate) fn note_tensor(&self, dtype: DType, dims: &[usize]) {
        self.tracer.tensor(dtype, dims);
    }

    /// Begins the kernel of an op: work that this thread enqueues until the value is dropped is
    /// attributed to the op. None without a session.
    #[inline]
    pub(crate) fn op_span(&self, origin: &Arc<Origin>) -> Option<OpSpan> {
        self.tracer.op(origin)
    }
}
