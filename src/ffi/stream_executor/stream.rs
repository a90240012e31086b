//! Streams and events.
//!
//! All streams of a device share its one in-order queue, so their work is always ordered. An event
//! holds the queue's serial at the time when the event was recorded. wgpu has no GPU-side wait
//! between devices: there the host waits, before the next work of the dependent stream.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::opened;
use crate::device::{Device, Serial, process};
use crate::error::{Error, Result};
use crate::ffi::abi::stream_executor::{
    SE_EVENT_COMPLETE, SE_EVENT_PENDING, SE_EventStatus, SE_StatusCallbackFn, SP_Device, SP_Event,
    SP_Stream, TF_Bool,
};
use crate::ffi::guard::{guard_or, guard_status};
use crate::ffi::handle::{Handle, Held};
use crate::ffi::plugin::PluginDevice;
use crate::ffi::status::{Status, TF_Status};
use crate::sys::guard::caught;

/// The object behind an SP_Stream.
struct Stream {
    device: &'static PluginDevice,
    /// The number of copies from the host on the stream, or `NOT_ONLY_UPLOADS` after any other
    /// work.
    uploads: AtomicU64,
    /// The work of other devices that must come before the stream's next work.
    awaited: Mutex<Awaited>,
}

/// Devices, each with the serial to wait for.
type Awaited = Vec<(&'static PluginDevice, Serial)>;

const NOT_ONLY_UPLOADS: u64 = u64::MAX;

impl Held for Stream {
    const NAME: &'static str = "stream";
}

impl Stream {
    /// Records that the stream carries work other than a copy from the host.
    fn busy(&self) {
        if self.uploads.load(Ordering::Relaxed) != NOT_ONLY_UPLOADS {
            self.uploads.store(NOT_ONLY_UPLOADS, Ordering::Relaxed);
        }
    }

    /// Orders the stream's next work after the work of other devices.
    fn order_after(&self, others: impl IntoIterator<Item = (&'static PluginDevice, Serial)>) {
        let mut awaited = self.awaited.lock();
        awaited.retain(|(other, serial)| !other.device.is_done(*serial));
        awaited.extend(others.into_iter().filter(|(other, serial)| {
            !Arc::ptr_eq(&self.device.device, &other.device) && !other.device.is_done(*serial)
        }));
    }

    /// Waits for the other devices' work that must come first. Other threads may use the stream
    /// meanwhile, and wait too.
    fn catch_up(&self) -> Result<()> {
        let awaited = self.awaited.lock().clone();
        awaited.iter().try_for_each(|(other, serial)| other.device.wait(*serial))?;
        if !awaited.is_empty() {
            self.order_after([]);
        }
        Ok(())
    }
}

/// The object behind an SP_Event.
struct Event {
    /// The event's device. The serials are those of its queue.
    device: &'static PluginDevice,
    /// The serial that is done when the recorded work is.
    serial: AtomicU64,
    /// The serial that is done when the work is done as far as the host can see. It is 0 after
    /// copies from the host: their bytes are staged at once, so TensorFlow need not poll until the
    /// GPU has run them.
    observable: AtomicU64,
    /// The work of other devices that the stream still had to wait for when the event was recorded.
    /// A poll ignores it: the queue of the receiving device already orders a copy after it.
    awaited: Mutex<Awaited>,
}

/// Stands for a serial that could not be recorded. TensorFlow ignores the failure, and would take
/// the event's last use for this one if that is done. So the serial is recorded later than it
/// should be, when it is first asked for.
const UNRECORDED: Serial = Serial::MAX;

impl Event {
    /// The serial in `place`. If recording it failed before, it is recorded now.
    fn settle(&self, place: &AtomicU64) -> Serial {
        let serial = place.load(Ordering::Acquire);
        if serial != UNRECORDED {
            return serial;
        }
        let now = self.device.device.serial();
        // If another thread was faster, its serial serves as well.
        place
            .compare_exchange(UNRECORDED, now, Ordering::AcqRel, Ordering::Acquire)
            .map_or_else(|found| found, |_| now)
    }
}

impl Held for Event {
    const NAME: &'static str = "event";
}

/// The stream behind `stream`, if this process may use its device.
///
/// # Safety
/// `stream` must be null or come from create_stream, and live through the borrow.
unsafe fn stream_ref<'a>(stream: SP_Stream) -> Result<&'a Stream> {
    process::check_forked()?;
    // SAFETY: the caller's contract.
    unsafe { Handle::borrow(stream.cast()) }
}

/// The event behind `event`, if this process may use its device.
///
/// # Safety
/// `event` must be null or come from create_event, and live through the borrow.
unsafe fn event_ref<'a>(event: SP_Event) -> Result<&'a Event> {
    process::check_forked()?;
    // SAFETY: the caller's contract.
    unsafe { Handle::borrow(event.cast()) }
}

/// The device that runs `stream`, for work that is about to be enqueued there.
///
/// # Safety
/// `stream` must be null or come from create_stream, and be alive.
pub(crate) unsafe fn device_of(stream: SP_Stream) -> Result<&'static Arc<Device>> {
    // SAFETY: the caller's contract.
    let device = unsafe { sender_of(stream) }?;
    // SAFETY: as above.
    unsafe { stream_ref(stream) }?.catch_up()?;
    Ok(device)
}

/// Like [`device_of`], for a copy to the memory of another device. The receiver's own queue orders
/// the copy after all work that is there, so the stream does not wait and keeps its list of awaited
/// work. TensorFlow makes each copy between devices wait for the receiver, which would hold up the
/// sender until the receiver is idle.
///
/// # Safety
/// As for [`device_of`].
pub(super) unsafe fn sender_of(stream: SP_Stream) -> Result<&'static Arc<Device>> {
    // SAFETY: the caller's contract.
    let stream = unsafe { stream_ref(stream) }?;
    stream.busy();
    Ok(&stream.device.device)
}

/// Like [`device_of`], for a copy from the host.
///
/// # Safety
/// As for [`device_of`].
pub(super) unsafe fn upload_device_of(stream: SP_Stream) -> Result<&'static Arc<Device>> {
    // SAFETY: the caller's contract.
    let stream = unsafe { stream_ref(stream) }?;
    let uploads = stream.uploads.load(Ordering::Relaxed);
    if uploads != NOT_ONLY_UPLOADS {
        // If a concurrent `busy` was faster, this fails, as it should.
        let _ = stream.uploads.compare_exchange(
            uploads,
            uploads + 1,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }
    stream.catch_up()?;
    Ok(&stream.device.device)
}

pub(super) unsafe extern "C" fn create_stream(
    device: *const SP_Device,
    stream: *mut SP_Stream,
    status: *mut TF_Status,
) {
    guard_status(status, "create_stream", || {
        // SAFETY: TensorFlow passes its SP_Device and a place for the stream.
        unsafe {
            let new = Stream {
                device: opened(device)?,
                uploads: AtomicU64::new(0),
                awaited: Mutex::default(),
            };
            stream.write(Handle::give(new).cast());
        }
        Ok(())
    });
}

pub(super) unsafe extern "C" fn destroy_stream(_: *const SP_Device, stream: SP_Stream) {
    // SAFETY: create_stream gave it, and TensorFlow destroys a stream once.
    guard_or((), "destroy_stream", || unsafe { Handle::<Stream>::destroy(stream.cast()) });
}

pub(super) unsafe extern "C" fn create_stream_dependency(
    _: *const SP_Device,
    dependent: SP_Stream,
    other: SP_Stream,
    status: *mut TF_Status,
) {
    guard_status(status, "create_stream_dependency", || {
        // SAFETY: both streams are alive.
        let (dependent, other) = unsafe { (stream_ref(dependent)?, stream_ref(other)?) };
        let serial = other.device.device.serial();
        let awaited = other.awaited.lock().clone();
        dependent.order_after(awaited.into_iter().chain([(other.device, serial)]));
        Ok(())
    });
}

pub(super) unsafe extern "C" fn get_stream_status(
    _: *const SP_Device,
    stream: SP_Stream,
    status: *mut TF_Status,
) {
    // SAFETY: the stream is alive.
    guard_status(status, "get_stream_status", || {
        unsafe { stream_ref(stream) }?.device.device.check()
    });
}

pub(super) unsafe extern "C" fn create_event(
    device: *const SP_Device,
    event: *mut SP_Event,
    status: *mut TF_Status,
) {
    guard_status(status, "create_event", || {
        // SAFETY: TensorFlow passes its SP_Device and a place for the event. An event that was
        // never recorded is complete.
        unsafe {
            let new = Event {
                device: opened(device)?,
                serial: AtomicU64::new(0),
                observable: AtomicU64::new(0),
                awaited: Mutex::default(),
            };
            event.write(Handle::give(new).cast());
        }
        Ok(())
    });
}

pub(super) unsafe extern "C" fn destroy_event(_: *const SP_Device, event: SP_Event) {
    // SAFETY: create_event gave it, and TensorFlow destroys an event once.
    guard_or((), "destroy_event", || unsafe { Handle::<Event>::destroy(event.cast()) });
}

/// TensorFlow polls this while it holds a lock, and ends the process on any answer but pending and
/// complete. A lost device completes all its work, in order, and the error reaches the user through
/// the next op or copy. The answer "complete" must be true, for TensorFlow then frees the
/// destination of a copy. So an error is answered with pending, and the device is declared lost,
/// which completes the work under way.
pub(super) unsafe extern "C" fn get_event_status(
    _: *const SP_Device,
    event: SP_Event,
) -> SE_EventStatus {
    // SAFETY: the event is alive. There is nothing behind a null one.
    let Ok(event) = (unsafe { event_ref(event) }) else { return SE_EVENT_COMPLETE };
    let device = &event.device.device;
    guard_or(SE_EVENT_PENDING, "get_event_status", || {
        let done = caught("a poll", || Ok(device.is_done(event.settle(&event.observable))));
        let done = done.inspect_err(|e| device.lose(e.clone()))?;
        Ok(if done { SE_EVENT_COMPLETE } else { SE_EVENT_PENDING })
    })
}

pub(super) unsafe extern "C" fn record_event(
    _: *const SP_Device,
    stream: SP_Stream,
    event: SP_Event,
    status: *mut TF_Status,
) {
    guard_status(status, "record_event", || {
        // SAFETY: both are alive.
        let (stream, event) = unsafe { (stream_ref(stream)?, event_ref(event)?) };
        event.serial.store(UNRECORDED, Ordering::Release);
        event.observable.store(UNRECORDED, Ordering::Release);
        if !Arc::ptr_eq(&stream.device.device, &event.device.device) {
            return Err(Error::InvalidArgument(
                "an event can be recorded on a stream of its own device only".into(),
            ));
        }
        let awaited = stream.awaited.lock().clone();
        *event.awaited.lock() = awaited;
        let serial = stream.device.device.serial();
        event.serial.store(serial, Ordering::Release);
        let only_uploads = !matches!(stream.uploads.load(Ordering::Relaxed), 0 | NOT_ONLY_UPLOADS);
        event.observable.store(if only_uploads { 0 } else { serial }, Ordering::Release);
        Ok(())
    });
}

pub(super) unsafe extern "C" fn wait_for_event(
    _: *const SP_Device,
    stream: SP_Stream,
    event: SP_Event,
    status: *mut TF_Status,
) {
    guard_status(status, "wait_for_event", || {
        // SAFETY: both are alive.
        let (stream, event) = unsafe { (stream_ref(stream)?, event_ref(event)?) };
        let serial = event.settle(&event.serial);
        let awaited = event.awaited.lock().clone();
        stream.order_after(awaited.into_iter().chain([(event.device, serial)]));
        Ok(())
    });
}

pub(super) unsafe extern "C" fn block_host_for_event(
    _: *const SP_Device,
    event: SP_Event,
    status: *mut TF_Status,
) {
    guard_status(status, "block_host_for_event", || {
        // SAFETY: the event is alive.
        let event = unsafe { event_ref(event) }?;
        event.device.device.wait(event.settle(&event.serial))?;
        let awaited = event.awaited.lock().clone();
        awaited.iter().try_for_each(|(other, serial)| other.device.wait(*serial))
    });
}

pub(super) unsafe extern "C" fn block_host_until_done(
    _: *const SP_Device,
    stream: SP_Stream,
    status: *mut TF_Status,
) {
    // SAFETY: the stream is alive.
    guard_status(status, "block_host_until_done", || {
        let stream = unsafe { stream_ref(stream) }?;
        stream.catch_up()?;
        stream.device.device.synchronize()
    });
}

pub(super) unsafe extern "C" fn synchronize_all_activity(
    device: *const SP_Device,
    status: *mut TF_Status,
) {
    // SAFETY: TensorFlow passes its SP_Device.
    guard_status(status, "synchronize_all_activity", || {
        unsafe { opened(device) }?.device.synchronize()
    });
}

/// The argument of a host callback, passed to the completion thread.
struct Argument(*mut c_void);
// SAFETY: TensorFlow hands the argument over to the thread that runs the callback, whichever it is.
unsafe impl Send for Argument {}

impl Argument {
    /// A method, so that a closure captures the wrapper and not the bare pointer.
    const fn get(&self) -> *mut c_void {
        self.0
    }
}

pub(super) unsafe extern "C" fn host_callback(
    _: *const SP_Device,
    stream: SP_Stream,
    callback: SE_StatusCallbackFn,
    argument: *mut c_void,
) -> TF_Bool {
    guard_or(0, "host_callback", || {
        let callback =
            callback.ok_or_else(|| Error::Internal("TensorFlow passed a null callback".into()))?;
        // SAFETY: the stream is alive.
        let device = unsafe { device_of(stream) }?;
        let argument = Argument(argument);
        device.host_callback(move || {
            // The callback sets the status. A failure becomes the device's pending error, as on
            // TensorFlow's own GPUs.
            let result = caught("host callback", || {
                let status = Status::new()?;
                // SAFETY: TensorFlow gave callback and argument for one call on any thread.
                unsafe { callback(argument.get(), status.as_ptr()) };
                status.result()
            });
            if let Err(e) = result {
                device.raise(e.context("host callback"));
            }
        });
        Ok(1)
    })
}
