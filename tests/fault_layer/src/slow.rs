//! A GPU that is slower than the driver is, with a watchdog that ends long submissions.
//!
//! A submission is passed on without what it signals. When the driver is done, the layer sleeps
//! for the rest of the time that the slow GPU would have taken, and only then passes on the
//! signals: so fences and semaphores come late. A submission that would have taken longer than
//! [`WATCHDOG`] loses the device, as the systems' watchdogs do. Software drivers compile a pipeline
//! when it first runs, which no GPU does, so submissions with such a pipeline take their own time.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::chain;
use crate::faults::{self, strike};
use crate::functions::Id;
use crate::vulkan::{Function, Object, VK_ERROR_DEVICE_LOST, VK_SUCCESS, VkResult};

/// Windows ends a submission after this time.
const WATCHDOG: Duration = Duration::from_secs(2);
const TIMELINE_SEMAPHORE_SUBMIT_INFO: i32 = 1_000_207_003;

/// How many times slower the GPU is than the driver.
static FACTOR: AtomicU32 = AtomicU32::new(1);
/// Milliseconds of the longest submission so far.
static LONGEST: AtomicU64 = AtomicU64::new(0);

/// `VkSubmitInfo`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Submit {
    s_type: i32,
    next: *const Timeline,
    wait_count: u32,
    waits: *const u64,
    stages: *const u32,
    command_count: u32,
    commands: *const Object,
    signal_count: u32,
    signals: *const u64,
}

/// `VkTimelineSemaphoreSubmitInfo`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Timeline {
    s_type: i32,
    next: *const c_void,
    wait_count: u32,
    wait_values: *const u64,
    signal_count: u32,
    signal_values: *const u64,
}

type QueueSubmit = unsafe extern "system" fn(Object, u32, *const Submit, u64) -> VkResult;
type WaitIdle = unsafe extern "system" fn(Object) -> VkResult;
type BindPipeline = unsafe extern "system" fn(Object, u32, u64);

#[derive(Default)]
struct Pipelines {
    /// What each command buffer binds, until it is submitted.
    bound: BTreeMap<usize, BTreeSet<u64>>,
    /// Pipelines that have run.
    seen: BTreeSet<u64>,
}

static PIPELINES: Mutex<Pipelines> =
    Mutex::new(Pipelines { bound: BTreeMap::new(), seen: BTreeSet::new() });

fn pipelines() -> MutexGuard<'static, Pipelines> {
    PIPELINES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has the GPU be `factor` times slower than the driver from now on.
pub fn slow(factor: u32) {
    FACTOR.store(factor.max(1), Ordering::SeqCst);
}

/// Milliseconds of the longest submission so far.
pub fn longest() -> u64 {
    LONGEST.load(Ordering::SeqCst)
}

/// The wrapper of a function, if it has one here.
pub fn wrapper(name: &CStr) -> Option<Function> {
    // SAFETY: a function of any type may be kept as another one until it is called.
    unsafe {
        match name.to_bytes() {
            b"vkQueueSubmit" => Some(std::mem::transmute::<QueueSubmit, Function>(submit)),
            b"vkCmdBindPipeline" => {
                Some(std::mem::transmute::<BindPipeline, Function>(bind_pipeline))
            }
            _ => None,
        }
    }
}

unsafe extern "system" fn bind_pipeline(commands: Object, point: u32, pipeline: u64) {
    pipelines().bound.entry(commands as usize).or_default().insert(pipeline);
    // SAFETY: as Vulkan has it.
    unsafe {
        let next = chain::below(commands, c"vkCmdBindPipeline");
        std::mem::transmute::<Function, BindPipeline>(next)(commands, point, pipeline);
    }
}

/// Whether one of these command buffers runs a pipeline for the first time.
fn is_first_run(commands: &[Object]) -> bool {
    let mut state = pipelines();
    let Pipelines { bound, seen } = &mut *state;
    let all = commands.iter().filter_map(|commands| bound.remove(&(*commands as usize)));
    all.flatten().filter(|pipeline| seen.insert(*pipeline)).count() > 0
}

/// A slice of an array of Vulkan's, which may be null if it is empty.
///
/// # Safety
/// `data` must have `count` elements that live as long as the slice.
unsafe fn slice<'a, T>(data: *const T, count: u32) -> &'a [T] {
    if count == 0 {
        return &[];
    }
    // SAFETY: the caller's contract.
    unsafe { std::slice::from_raw_parts(data, count as usize) }
}

unsafe extern "system" fn submit(
    queue: Object,
    count: u32,
    submits: *const Submit,
    fence: u64,
) -> VkResult {
    if let Some(result) = strike(Id::vkQueueSubmit) {
        return result;
    }
    // SAFETY: the caller's arguments, as Vulkan has them. The copies differ in what is waited for
    // and signalled, and live for the calls.
    unsafe {
        let next =
            std::mem::transmute::<Function, QueueSubmit>(chain::next(queue, Id::vkQueueSubmit));
        let wait =
            std::mem::transmute::<Function, WaitIdle>(chain::next(queue, Id::vkQueueWaitIdle));
        let all = slice(submits, count);
        let commands: Vec<Object> =
            all.iter().flat_map(|s| slice(s.commands, s.command_count)).copied().collect();
        let first = is_first_run(&commands);
        let factor = FACTOR.load(Ordering::SeqCst);
        if factor == 1 || all.is_empty() {
            return next(queue, count, submits, fence);
        }
        let timelines = |signals: bool| -> Vec<Option<Timeline>> {
            let of = |s: &Submit| {
                let timeline = s.next.as_ref()?;
                assert!(
                    timeline.s_type == TIMELINE_SEMAPHORE_SUBMIT_INFO && timeline.next.is_null(),
                    "a chain that this layer knows"
                );
                Some(match signals {
                    true => Timeline { wait_count: 0, ..*timeline },
                    false => Timeline { signal_count: 0, ..*timeline },
                })
            };
            all.iter().map(of).collect()
        };
        let chained = |timeline: &Option<Timeline>| {
            timeline.as_ref().map_or(std::ptr::null(), std::ptr::from_ref)
        };
        let (before, behind) = (timelines(false), timelines(true));
        let work: Vec<Submit> = all
            .iter()
            .zip(&before)
            .map(|(s, timeline)| Submit { next: chained(timeline), signal_count: 0, ..*s })
            .collect();
        let end: Vec<Submit> = all
            .iter()
            .zip(&behind)
            .map(|(s, timeline)| Submit {
                next: chained(timeline),
                wait_count: 0,
                command_count: 0,
                ..*s
            })
            .collect();
        let start = Instant::now();
        let result = next(queue, count, work.as_ptr(), 0);
        if result != VK_SUCCESS {
            return result;
        }
        let result = wait(queue);
        if result != VK_SUCCESS {
            return result;
        }
        let took = start.elapsed();
        let slowed = took * if first { 1 } else { factor };
        if !first {
            LONGEST.fetch_max(slowed.as_millis() as u64, Ordering::SeqCst);
            if slowed > WATCHDOG {
                faults::lose();
                return VK_ERROR_DEVICE_LOST;
            }
        }
        std::thread::sleep(slowed - took);
        next(queue, count, end.as_ptr(), fence)
    }
}
