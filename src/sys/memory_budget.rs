//! Memory sizes that only the native APIs report: the adapter's, below wgpu, and the computer's.

/// A driver's report about the memory of its adapter, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reported {
    pub total: u64,
    /// The bytes that this process may still use, if the driver reports them.
    pub free: Option<u64>,
}

/// The computer's memory in bytes, or that of the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SystemMemory {
    pub total: u64,
    pub available: u64,
}

/// The driver's report, if the backend can be asked for it.
pub(crate) fn reported(adapter: &wgpu::Adapter) -> Option<Reported> {
    #[cfg(any(target_os = "linux", windows))]
    if let Some(reported) = vulkan(adapter) {
        return Some(reported);
    }
    native(adapter)
}

/// The largest device-local heap; smaller ones are windows into it for the host.
#[cfg(any(target_os = "linux", windows))]
fn vulkan(adapter: &wgpu::Adapter) -> Option<Reported> {
    use ash::vk;

    use super::vulkan_adapter::{Queried, query};

    query(adapter, |Queried { instance, device, supports }| {
        let has_budget = supports(ash::ext::memory_budget::NAME);
        let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
        let mut properties = vk::PhysicalDeviceMemoryProperties2::default();
        if has_budget {
            properties = properties.push_next(&mut budget);
        }
        // SAFETY: instance and device are at least 1.1, where the function is core; the chain holds
        // only structs that the device supports.
        unsafe { instance.get_physical_device_memory_properties2(device, &mut properties) };
        let memory = properties.memory_properties;
        let heaps = &memory.memory_heaps[..memory.memory_heap_count as usize];
        let (index, heap) = heaps
            .iter()
            .enumerate()
            .filter(|(_, heap)| heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL))
            .max_by_key(|(_, heap)| heap.size)?;
        let free =
            has_budget.then(|| budget.heap_budget[index].saturating_sub(budget.heap_usage[index]));
        Some(Reported { total: heap.size, free })
    })
}

#[cfg(target_vendor = "apple")]
fn native(adapter: &wgpu::Adapter) -> Option<Reported> {
    use objc2_metal::MTLDevice;

    // SAFETY: the adapter is only queried, and outlives the call.
    let hal = unsafe { adapter.as_hal::<wgpu::hal::api::Metal>() }?;
    let device = hal.raw_device();
    let total = device.recommendedMaxWorkingSetSize();
    Some(Reported { total, free: Some(total.saturating_sub(device.currentAllocatedSize() as u64)) })
}

#[cfg(windows)]
fn native(adapter: &wgpu::Adapter) -> Option<Reported> {
    use windows::Win32::Graphics::Dxgi::{
        DXGI_MEMORY_SEGMENT_GROUP_LOCAL, DXGI_QUERY_VIDEO_MEMORY_INFO,
    };

    // SAFETY: the adapter is only queried, and outlives the call.
    let hal = unsafe { adapter.as_hal::<wgpu::hal::api::Dx12>() }?;
    let mut info = DXGI_QUERY_VIDEO_MEMORY_INFO::default();
    // SAFETY: node 0 exists on every adapter; `info` is written by the call.
    unsafe { hal.as_raw().QueryVideoMemoryInfo(0, DXGI_MEMORY_SEGMENT_GROUP_LOCAL, &mut info) }
        .ok()?;
    Some(Reported { total: info.Budget, free: Some(info.Budget.saturating_sub(info.CurrentUsage)) })
}

#[cfg(not(any(target_vendor = "apple", windows)))]
const fn native(_: &wgpu::Adapter) -> Option<Reported> {
    None
}

/// The computer's memory, or the container's inside a container.
#[cfg(target_os = "linux")]
pub(crate) fn system_memory() -> Option<SystemMemory> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let mut memory = meminfo(&read("/proc/meminfo")?)?;
    let own = read("/proc/self/cgroup")
        .and_then(|c| Some(c.lines().find_map(|l| l.strip_prefix("0::"))?.to_owned()));
    for group in own.iter().map(String::as_str).chain([""]) {
        let directory = format!("/sys/fs/cgroup{}", group.trim_end_matches('/'));
        let number = |file: &str| read(&format!("{directory}/{file}"))?.trim().parse::<u64>().ok();
        if let Some(limit) = number("memory.max") {
            memory.total = memory.total.min(limit);
            let used = number("memory.current").unwrap_or(0);
            memory.available = memory.available.min(limit.saturating_sub(used));
        }
    }
    if let Some(limit) =
        read("/sys/fs/cgroup/memory/memory.limit_in_bytes").and_then(|l| l.trim().parse().ok())
    {
        memory.total = memory.total.min(limit);
        memory.available = memory.available.min(memory.total);
    }
    Some(memory)
}

/// `MemTotal` and `MemAvailable` of /proc/meminfo, which counts in KiB.
#[cfg(target_os = "linux")]
fn meminfo(text: &str) -> Option<SystemMemory> {
    let field = |name: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
    };
    let total = field("MemTotal")?;
    Some(SystemMemory { total, available: field("MemAvailable").unwrap_or(total) })
}

/// The computer's memory. macOS compresses and swaps, so all of it counts as available.
#[cfg(target_vendor = "apple")]
pub(crate) fn system_memory() -> Option<SystemMemory> {
    let mut total = 0u64;
    let mut size = size_of::<u64>();
    // SAFETY: hw.memsize is a 64-bit integer, and `size` says that there is room for it.
    let failed = unsafe {
        libc::sysctlbyname(
            c"hw.memsize".as_ptr(),
            (&raw mut total).cast(),
            &raw mut size,
            std::ptr::null_mut(),
            0,
        )
    };
    (failed == 0).then_some(SystemMemory { total, available: total })
}

/// The computer's memory.
#[cfg(windows)]
pub(crate) fn system_memory() -> Option<SystemMemory> {
    use windows_sys::Win32::System::SystemInformation::{GlobalMemoryStatusEx, MEMORYSTATUSEX};

    let mut status =
        MEMORYSTATUSEX { dwLength: size_of::<MEMORYSTATUSEX>() as u32, ..Default::default() };
    // SAFETY: dwLength says how large the struct is.
    let ok = unsafe { GlobalMemoryStatusEx(&raw mut status) } != 0;
    ok.then_some(SystemMemory { total: status.ullTotalPhys, available: status.ullAvailPhys })
}

#[cfg(not(any(target_os = "linux", target_vendor = "apple", windows)))]
pub(crate) const fn system_memory() -> Option<SystemMemory> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn meminfo_counts_in_kib() {
        let text = "MemTotal:       16384 kB\nMemFree:         100 kB\nMemAvailable:    8192 kB\n";
        assert_eq!(meminfo(text), Some(SystemMemory { total: 16 << 20, available: 8 << 20 }));
        assert_eq!(
            meminfo("MemTotal: 4 kB\n"),
            Some(SystemMemory { total: 4096, available: 4096 })
        );
        assert_eq!(meminfo("nonsense"), None);
    }

    #[test]
    fn this_machine_has_memory() {
        let memory = system_memory().unwrap();
        assert!(memory.available > 0 && memory.available <= memory.total, "{memory:?}");
    }
}
