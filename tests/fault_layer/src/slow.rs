//! A GPU that is slower than the driver, with a watchdog that ends long submissions.
//!
//! A submission is passed on without its signals. When the driver is done, the layer sleeps for the
//! rest of the time that the slow GPU would have taken, and only then passes the signals on, so
//! fences and semaphores come late. A submission that would have taken longer than [`WATCHDOG`]
//! loses the device, like the watchdogs of operating systems.
//!
//! The time of the slow GPU comes from the processor time of Mesa's threads that execute shaders,
//! divided by their number. The wall clock would also count other programs of the machine, and the
//! compilation of a shader, which Mesa does in the thread that submits.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::chain;
use crate::faults::{self, strike};
use crate::functions::Id;
use crate::vulkan::{Function, Object, VK_ERROR_DEVICE_LOST, VK_SUCCESS, VkResult};

/// Windows ends a submission after this time.
const WATCHDOG: Duration = Duration::from_secs(2);
const TIMELINE_SEMAPHORE_SUBMIT_INFO: i32 = 1_000_207_003;

/// How many times slower the GPU is than the driver; 0 if no slow GPU is simulated.
static FACTOR: AtomicU32 = AtomicU32::new(0);
/// Milliseconds of the longest submission so far.
static LONGEST: AtomicU64 = AtomicU64::new(0);
/// Microseconds of all submissions so far.
static TOTAL: AtomicU64 = AtomicU64::new(0);

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

type EnumerateDevices = unsafe extern "system" fn(Object, *mut u32, *mut Object) -> VkResult;
type QueueSubmit = unsafe extern "system" fn(Object, u32, *const Submit, u64) -> VkResult;
type WaitIdle = unsafe extern "system" fn(Object) -> VkResult;

/// The threads of this process that execute shaders.
static WORKERS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// The threads of this process.
fn threads() -> BTreeSet<u32> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("a system with /proc");
    let number = |task: std::fs::DirEntry| task.file_name().to_str()?.parse().ok();
    tasks.filter_map(|task| number(task.ok()?)).collect()
}

/// Runs `f`, in which Mesa starts its threads: for each device that a program opens, and for each
/// instance. A thread that another part of the program starts meanwhile is counted, too.
pub fn starts_workers<T>(f: impl FnOnce() -> T) -> T {
    let before = threads();
    let result = f();
    let mut workers = WORKERS.lock().unwrap_or_else(PoisonError::into_inner);
    workers.extend(threads().difference(&before));
    result
}

/// The busy time of each worker so far.
fn busy() -> BTreeMap<u32, Duration> {
    let workers = WORKERS.lock().unwrap_or_else(PoisonError::into_inner);
    // The first word of the file is the nanoseconds that the thread ran. A thread that has ended
    // has no file.
    let time = |thread: &u32| {
        let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?;
        Some((*thread, Duration::from_nanos(text.split(' ').next()?.parse().ok()?)))
    };
    workers.iter().filter_map(time).collect()
}

/// The time of the GPU between two states of the workers: the mean over the workers that ran.
fn between(before: &BTreeMap<u32, Duration>, after: &BTreeMap<u32, Duration>) -> Duration {
    let times = after
        .iter()
        .map(|(thread, time)| time.saturating_sub(before.get(thread).copied().unwrap_or_default()));
    let worked: Vec<Duration> = times.filter(|time| !time.is_zero()).collect();
    worked.iter().sum::<Duration>() / worked.len().max(1) as u32
}

/// Makes the GPU `factor` times slower than the driver from now on.
pub fn slow(factor: u32) {
    FACTOR.store(factor, Ordering::SeqCst);
}

/// Milliseconds of the longest submission so far.
pub fn longest() -> u64 {
    LONGEST.load(Ordering::SeqCst)
}

/// Milliseconds of all submissions so far.
pub fn total() -> u64 {
    TOTAL.load(Ordering::SeqCst) / 1000
}

/// The wrapper of a function, if it has one here.
pub fn wrapper(name: &CStr) -> Option<Function> {
    // SAFETY: a function of any type may be kept as another one until it is called.
    unsafe {
        match name.to_bytes() {
            b"vkEnumeratePhysicalDevices" => {
                Some(std::mem::transmute::<EnumerateDevices, Function>(enumerate_devices))
            }
            b"vkQueueSubmit" => Some(std::mem::transmute::<QueueSubmit, Function>(submit)),
            _ => None,
        }
    }
}

unsafe extern "system" fn enumerate_devices(
    instance: Object,
    count: *mut u32,
    devices: *mut Object,
) -> VkResult {
    if let Some(result) = strike(Id::vkEnumeratePhysicalDevices) {
        return result;
    }
    // SAFETY: the caller's arguments follow Vulkan's contract.
    starts_workers(|| unsafe {
        let next = chain::next(instance, Id::vkEnumeratePhysicalDevices);
        std::mem::transmute::<Function, EnumerateDevices>(next)(instance, count, devices)
    })
}

/// A slice of one of Vulkan's arrays, which may be null if it is empty.
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
    // SAFETY: the caller's arguments follow Vulkan's contract. The copies have other semaphores and
    // fences, and live for the calls.
    unsafe {
        let next =
            std::mem::transmute::<Function, QueueSubmit>(chain::next(queue, Id::vkQueueSubmit));
        let wait =
            std::mem::transmute::<Function, WaitIdle>(chain::next(queue, Id::vkQueueWaitIdle));
        let all = slice(submits, count);
        let factor = FACTOR.load(Ordering::SeqCst);
        if factor == 0 || all.is_empty() {
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
        let (start, before_work) = (Instant::now(), busy());
        let result = next(queue, count, work.as_ptr(), 0);
        if result != VK_SUCCESS {
            return result;
        }
        let result = wait(queue);
        if result != VK_SUCCESS {
            return result;
        }
        let slowed = between(&before_work, &busy()) * factor;
        TOTAL.fetch_add(slowed.as_micros() as u64, Ordering::SeqCst);
        LONGEST.fetch_max(slowed.as_millis() as u64, Ordering::SeqCst);
        if slowed > WATCHDOG {
            faults::lose();
            return VK_ERROR_DEVICE_LOST;
        }
        std::thread::sleep(slowed.saturating_sub(start.elapsed()));
        next(queue, count, end.as_ptr(), fence)
    }
}
