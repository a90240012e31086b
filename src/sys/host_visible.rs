//! Buffers that the host reads and writes where they are: memory that the processor and the GPU
//! share. wgpu lets one of the two use a buffer at a time. On Vulkan and Metal, wgpu-hal keeps the
//! memory of a mappable buffer mapped all its life.

use std::ops::Range;
use std::ptr::NonNull;

use wgpu::hal;

/// Whether the host sees `buffer`, which has `MAP_READ`, and what the GPU writes to it, without
/// further calls.
pub(crate) fn is_visible(device: &wgpu::Device, buffer: &wgpu::Buffer) -> bool {
    with_address(device, buffer, |_| ()).is_some()
}

/// Calls `f` with the bytes in `range` of a visible buffer, which the GPU must not write meanwhile.
/// wgpu's lock of the device's buffers is held during the call: `f` must not use wgpu. None if wgpu
/// has destroyed the buffer, as it does when the device is lost.
pub(crate) fn read<T>(
    device: &wgpu::Device,
    buffer: &wgpu::Buffer,
    range: Range<u64>,
    f: impl FnOnce(&[u8]) -> T,
) -> Option<T> {
    assert!(range.start <= range.end && range.end <= buffer.size(), "{range:?} is in the buffer");
    with_address(device, buffer, |start| {
        // SAFETY: the mapping covers the buffer, and the range lies within it. The buffer cannot be
        // destroyed before `f` returns.
        let bytes = unsafe {
            let first = start.as_ptr().add(range.start as usize);
            std::slice::from_raw_parts(first, (range.end - range.start) as usize)
        };
        f(bytes)
    })
}

/// Writes `bytes` at `offset` of a visible buffer. The GPU must not use that part of it until a
/// later submission. False if wgpu has destroyed the buffer.
pub(crate) fn write(
    device: &wgpu::Device,
    buffer: &wgpu::Buffer,
    offset: u64,
    bytes: &[u8],
) -> bool {
    let end = offset.checked_add(bytes.len() as u64);
    assert!(end.is_some_and(|end| end <= buffer.size()), "the bytes fit into the buffer");
    with_address(device, buffer, |start| {
        // SAFETY: as in `read`; `bytes` is memory of the host, which no mapping overlaps.
        unsafe {
            let first = start.as_ptr().add(offset as usize);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), first, bytes.len());
        }
    })
    .is_some()
}

fn with_address<T>(
    device: &wgpu::Device,
    buffer: &wgpu::Buffer,
    f: impl FnOnce(NonNull<u8>) -> T,
) -> Option<T> {
    #[cfg(any(target_os = "linux", windows))]
    return of::<hal::api::Vulkan, T>(device, buffer, f);
    #[cfg(target_vendor = "apple")]
    return of::<hal::api::Metal, T>(device, buffer, f);
    #[cfg(not(any(target_os = "linux", windows, target_vendor = "apple")))]
    None
}

/// Calls `f` with the address of a buffer of the backend `A`. None if the buffer is another
/// backend's or destroyed, or if the processor does not see the GPU's writes without further calls.
fn of<A: hal::Api, T>(
    device: &wgpu::Device,
    buffer: &wgpu::Buffer,
    f: impl FnOnce(NonNull<u8>) -> T,
) -> Option<T> {
    use hal::Device;

    // SAFETY: neither the device nor the buffer is destroyed here.
    let (device, raw) = unsafe { (device.as_hal::<A>()?, buffer.as_hal::<A>()?) };
    // SAFETY: the buffer was made to be mapped. On Vulkan and Metal its memory is mapped all its
    // life: this call finds the address, and there is nothing to unmap.
    let mapping = unsafe { device.map_buffer(&raw, 0..buffer.size()) }.ok()?;
    mapping.is_coherent.then(|| f(mapping.ptr))
}
