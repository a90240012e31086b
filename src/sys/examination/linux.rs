//! Linux with glibc: the library is also a program. The system's dynamic loader runs any library
//! that has an entry point, and this one's is [`entry`]. Neither Python nor any other file is
//! needed, so this works in programs that freeze Python, and in programs without Python.

use std::ffi::c_void;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};

use super::{NAME, query, run};
use crate::sys::{loaded, process, vulkan_devices};

/// The command of the process with these arguments. `list` prints a line for each of Vulkan's
/// devices, see [`vulkan_devices::Identity`]. `ask` queries the features of all devices, except the
/// devices whose positions in that list follow. `nothing` only ends.
pub(super) fn command(arguments: &[&str]) -> Option<Command> {
    let (loader, library) = program()?;
    let mut command = Command::new(loader);
    command.arg(library).arg(NAME).args(arguments);
    Some(command)
}

/// Whether the exit status alone says that a process finished: here its last line says so.
pub(super) const fn is_well(_: ExitStatus) -> bool {
    false
}

/// What ended a process before its last line: a signal, or a driver's call of `exit`. A kill is no
/// crash.
pub(super) fn crash(status: ExitStatus) -> Option<String> {
    match status.signal() {
        Some(libc::SIGKILL) => None,
        Some(signal) => Some(name_of(signal)),
        None => status.code().map(|code| format!("exit status {code}")),
    }
}

fn name_of(signal: i32) -> String {
    let name = match signal {
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGBUS => "SIGBUS",
        libc::SIGABRT => "SIGABRT",
        libc::SIGILL => "SIGILL",
        libc::SIGFPE => "SIGFPE",
        _ => return format!("signal {signal}"),
    };
    name.to_owned()
}

/// The dynamic loader and this library, if this is the library and not a test's executable.
fn program() -> Option<(PathBuf, PathBuf)> {
    // SAFETY: it takes a number and reads what the kernel gave this process: the place of the
    // dynamic loader, or 0.
    let base = unsafe { libc::getauxval(libc::AT_BASE) };
    if base == 0 || process::has_raised_rights() {
        return None;
    }
    let (_, loader) = loaded::object(base as *const c_void)?;
    let (_, library) = loaded::object(run as *const c_void)?;
    let name = library.file_name()?.to_string_lossy();
    let is_library = name.starts_with("libtensorflow_wgpu") && loader.is_absolute();
    (is_library && library.is_absolute()).then_some((loader, library))
}

// At the start of a process the stack is aligned as it is before a call pushes its return address.
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".globl tensorflow_wgpu_examine",
    "tensorflow_wgpu_examine:",
    "xor ebp, ebp",
    "and rsp, -16",
    "call {entry}",
    "ud2",
    entry = sym entry,
);
#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(
    ".globl tensorflow_wgpu_examine",
    "tensorflow_wgpu_examine:",
    "mov x29, xzr",
    "mov x30, xzr",
    "bl {entry}",
    "brk #0",
    entry = sym entry,
);

/// The main function of the process: does what the arguments ask, and ends.
extern "C" fn entry() -> ! {
    // A crash is expected, and its core dump is not needed. The process ends with its parent.
    let limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: these calls take numbers, and a struct that lives for the call.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const limit);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
    }
    // Rust's own list of arguments was never filled.
    let arguments = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let arguments: Vec<_> = arguments.split(|b| *b == 0).map(String::from_utf8_lossy).collect();
    let mut arguments = arguments.iter().map(|a| &**a).skip_while(|a| *a != NAME).skip(1);
    let mut said = String::new();
    match arguments.next() {
        Some("list") => {
            said.extend(vulkan_devices::list().iter().map(|device| format!("{device}\n")));
        }
        Some("ask") => {
            let hidden: Vec<usize> = arguments.filter_map(|place| place.parse().ok()).collect();
            if !hidden.is_empty() {
                let all = vulkan_devices::list();
                let hidden = hidden.iter().filter_map(|place| all.get(*place).cloned());
                vulkan_devices::hide(hidden.collect());
            }
            let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
            descriptor.backends = wgpu::Backends::VULKAN;
            query(descriptor);
        }
        Some("nothing") => {}
        // Without /proc the arguments are unknown.
        _ => process::end_at_once(""),
    }
    said.push_str(NAME);
    let written = std::io::stdout().write_all(said.as_bytes());
    let written = written.and_then(|()| std::io::stdout().flush());
    // SAFETY: it ends the process, before any destructor of a driver.
    unsafe { libc::_exit(i32::from(written.is_err())) }
}
