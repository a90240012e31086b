//! How much memory a device has: the adapter's report, or else a rule.
//!
//! - Hardware: the driver's report (Vulkan: the largest device-local heap, and VK_EXT_memory_budget
//!   for the free memory; Metal: `recommendedMaxWorkingSetSize`; DX12: the local segment's budget).
//! - Software adapters use the computer's own memory: at most half of it, and at most the memory
//!   that the system has available.
//! - No report: half of the computer's memory for integrated GPUs, else the size of the largest
//!   buffer.

use crate::sys::memory_budget::{self, Reported, SystemMemory};

const VARIABLE: &str = "TF_WGPU_MAX_MEMORY";

/// A device's memory in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryBudget {
    /// All memory that this process may use.
    pub total: u64,
    /// The part of it that is free.
    pub free: u64,
    /// Whether the adapter reported it. Otherwise a rule was applied.
    pub reported: bool,
}

/// The budget of a device that uses `in_use` bytes, and is one of `sharers` of its adapter.
pub(super) fn of(
    adapter: &wgpu::Adapter,
    info: &wgpu::AdapterInfo,
    max_buffer: u64,
    in_use: u64,
    sharers: u32,
) -> MemoryBudget {
    let system = memory_budget::system_memory();
    let budget =
        rule(info.device_type, memory_budget::reported(adapter), system, max_buffer, in_use);
    let share = budget.total / u64::from(sharers.max(1));
    let most = most(&|name| std::env::var(name).ok()).min(share);
    MemoryBudget {
        total: budget.total.min(most),
        free: budget.free.min(most.saturating_sub(in_use)),
        ..budget
    }
}

/// The bytes that `TF_WGPU_MAX_MEMORY`, as `lookup` gives it, lets a device have. An invalid value
/// limits nothing.
fn most(lookup: &dyn Fn(&str) -> Option<String>) -> u64 {
    lookup(VARIABLE).and_then(|text| bytes(&text)).unwrap_or(u64::MAX)
}

/// A line about `TF_WGPU_MAX_MEMORY`, as `lookup` gives it, if its value is invalid.
pub fn problem(lookup: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let text = lookup(VARIABLE).filter(|text| !text.trim().is_empty() && bytes(text).is_none())?;
    Some(format!(
        "{VARIABLE}={text}: not a number of bytes, such as 4000000000, 512M or 4G; memory is not \
         limited"
    ))
}

/// Parses a number of bytes. K, M or G behind it stand for 1024, its square and its cube.
pub(super) fn bytes(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_uppercase();
    let text = text.strip_suffix("IB").or(text.strip_suffix('B')).unwrap_or(&text);
    let shift = [('K', 10), ('M', 20), ('G', 30)];
    let found = shift.iter().find_map(|(unit, by)| Some((text.strip_suffix(*unit)?, *by)));
    let (number, shift) = found.unwrap_or((text, 0));
    number.trim().parse::<u64>().ok()?.checked_shl(shift)
}

fn rule(
    kind: wgpu::DeviceType,
    reported: Option<Reported>,
    system: Option<SystemMemory>,
    max_buffer: u64,
    in_use: u64,
) -> MemoryBudget {
    let half = system.map(|s| s.total / 2);
    match (kind, reported) {
        (wgpu::DeviceType::Cpu, _) => {
            // A software adapter's heap size is arbitrary (lavapipe says 2 GiB in some versions,
            // all memory in others).
            let total = half.or(reported.map(|r| r.total)).unwrap_or(max_buffer);
            let available = system.map_or(u64::MAX, |s| s.available);
            MemoryBudget {
                total,
                free: total.saturating_sub(in_use).min(available),
                reported: false,
            }
        }
        (_, Some(r)) => {
            let free = r.free.unwrap_or_else(|| r.total.saturating_sub(in_use));
            MemoryBudget { total: r.total, free: free.min(r.total), reported: true }
        }
        (_, None) => {
            let shared = kind == wgpu::DeviceType::IntegratedGpu;
            let total = half.filter(|_| shared).unwrap_or(max_buffer);
            MemoryBudget { total, free: total.saturating_sub(in_use), reported: false }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wgpu::DeviceType::{Cpu, DiscreteGpu, IntegratedGpu};

    const SYSTEM: Option<SystemMemory> = Some(SystemMemory { total: 16 << 30, available: 6 << 30 });

    #[test]
    fn a_device_may_be_told_to_have_less() {
        assert_eq!(most(&|_| Some(" 1048576 ".into())), 1 << 20);
        assert_eq!(most(&|_| Some("512m".into())), 512 << 20);
        assert_eq!(
            [bytes("4G"), bytes("3 GiB"), bytes("7KB")],
            [4 << 30, 3 << 30, 7 << 10].map(Some)
        );
        assert_eq!([bytes("G"), bytes("-1"), bytes("1T")], [None; 3]);
        assert_eq!([most(&|_| None), most(&|_| Some("much".into()))], [u64::MAX; 2]);
        assert!(problem(&|_| Some("much".into())).is_some_and(|line| line.contains("=much: not")));
        assert_eq!([problem(&|_| None), problem(&|_| Some(" ".into()))], [None, None]);
    }

    #[test]
    fn hardware_says_it_itself() {
        let reported = Some(Reported { total: 8 << 30, free: Some(7 << 30) });
        let budget = rule(DiscreteGpu, reported, SYSTEM, 2 << 30, 1 << 20);
        assert_eq!(budget, MemoryBudget { total: 8 << 30, free: 7 << 30, reported: true });
        let silent = Some(Reported { total: 8 << 30, free: None });
        assert_eq!(rule(DiscreteGpu, silent, SYSTEM, 2 << 30, 1 << 30).free, 7 << 30);
    }

    #[test]
    fn software_takes_half_of_the_computer_at_most() {
        let reported = Some(Reported { total: 15 << 30, free: Some(15 << 30) });
        let budget = rule(Cpu, reported, SYSTEM, 2 << 30, 0);
        assert_eq!(budget, MemoryBudget { total: 8 << 30, free: 6 << 30, reported: false });
        assert_eq!(rule(Cpu, reported, SYSTEM, 2 << 30, 3 << 30).free, 5 << 30);
        assert_eq!(rule(Cpu, reported, None, 2 << 30, 0).total, 15 << 30);
        assert_eq!(rule(Cpu, None, None, 2 << 30, 0).total, 2 << 30);
    }

    #[test]
    fn without_a_report_a_rule_applies() {
        assert_eq!(rule(IntegratedGpu, None, SYSTEM, 2 << 30, 0).total, 8 << 30);
        assert_eq!(rule(DiscreteGpu, None, SYSTEM, 2 << 30, 1 << 30).free, 1 << 30);
        assert_eq!(rule(IntegratedGpu, None, None, 2 << 30, 3 << 30).free, 0);
    }
}
