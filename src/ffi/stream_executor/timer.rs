//! Timers: GPU timestamps where the adapter has them.

use super::fill;
use super::opened;
use super::stream::device_of;
use crate::device::Timer;
use crate::error::Result;
use crate::ffi::abi::stream_executor::{SP_Device, SP_Platform, SP_Stream, SP_Timer, SP_TimerFns};
use crate::ffi::guard::{guard_or, guard_status};
use crate::ffi::handle::{Handle, Held};
use crate::ffi::plugin::PluginDevice;
use crate::ffi::status::TF_Status;

/// The object behind an SP_Timer.
struct DeviceTimer {
    device: &'static PluginDevice,
    timer: Timer,
}

impl Held for DeviceTimer {
    const NAME: &'static str = "timer";
}

/// The timer behind `timer`.
///
/// # Safety
/// `timer` must be null or come from create_timer, and live through the borrow.
unsafe fn timer_ref<'a>(timer: SP_Timer) -> Result<&'a DeviceTimer> {
    // SAFETY: the caller's contract.
    unsafe { Handle::borrow(timer.cast()) }
}

pub(super) unsafe extern "C" fn create_timer_fns(
    _: *const SP_Platform,
    fns: *mut SP_TimerFns,
    status: *mut TF_Status,
) {
    guard_status(status, "create_timer_fns", || {
        let table = SP_TimerFns {
            struct_size: SP_TimerFns::STRUCT_SIZE,
            ext: std::ptr::null_mut(),
            nanoseconds: Some(nanoseconds),
        };
        // SAFETY: TensorFlow's table, with struct_size set.
        unsafe { fill(fns, "SP_TimerFns", SP_TimerFns::STRUCT_SIZE, table) }
    });
}

/// Nothing to destroy: the table is a constant.
pub(super) unsafe extern "C" fn destroy_timer_fns(_: *const SP_Platform, _: *mut SP_TimerFns) {}

pub(super) unsafe extern "C" fn create_timer(
    device: *const SP_Device,
    timer: *mut SP_Timer,
    status: *mut TF_Status,
) {
    guard_status(status, "create_timer", || {
        // SAFETY: TensorFlow passes its SP_Device and a place for the timer.
        unsafe {
            let device = opened(device)?;
            let new = DeviceTimer { device, timer: device.device.timer() };
            timer.write(Handle::give(new).cast());
        }
        Ok(())
    });
}

pub(super) unsafe extern "C" fn destroy_timer(_: *const SP_Device, timer: SP_Timer) {
    // SAFETY: create_timer gave it, and TensorFlow destroys a timer once.
    guard_or((), "destroy_timer", || unsafe { Handle::<DeviceTimer>::destroy(timer.cast()) });
}

pub(super) unsafe extern "C" fn start_timer(
    _: *const SP_Device,
    stream: SP_Stream,
    timer: SP_Timer,
    status: *mut TF_Status,
) {
    guard_status(status, "start_timer", || {
        // SAFETY: both are alive.
        let (device, timer) = unsafe { (device_of(stream)?, timer_ref(timer)?) };
        timer.timer.start(device);
        Ok(())
    });
}

pub(super) unsafe extern "C" fn stop_timer(
    _: *const SP_Device,
    stream: SP_Stream,
    timer: SP_Timer,
    status: *mut TF_Status,
) {
    guard_status(status, "stop_timer", || {
        // SAFETY: both are alive.
        let (device, timer) = unsafe { (device_of(stream)?, timer_ref(timer)?) };
        timer.timer.stop(device);
        Ok(())
    });
}

/// Waits for the measured work.
unsafe extern "C" fn nanoseconds(timer: SP_Timer) -> u64 {
    guard_or(0, "nanoseconds", || {
        // SAFETY: the timer is alive.
        let timer = unsafe { timer_ref(timer) }?;
        timer.timer.nanoseconds(&timer.device.device)
    })
}
