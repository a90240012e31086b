//! The adapters, asked by a process of their own what they can do.
//!
//! Some drivers crash when they are loaded or asked, and such a crash must not end the program that
//! imports TensorFlow. So the library can be run as a program: the system's dynamic loader takes
//! any library that has an entry point, and this one's is [`entry`]. No Python is needed, nor any
//! other file, so that this works in programs that freeze Python, and in those without it. A new
//! process is no fork: it has none of this one's threads, locks and memory.
//!
//! Linux with glibc only, where build.rs sets `has_examination`. Elsewhere, and where no process
//! may be started, nothing is known before the adapters are asked.

use std::ffi::c_void;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::sys::{instance, loaded, process, vulkan_devices};

/// What a process said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It came to its end and printed these lines.
    Well(Vec<String>),
    /// A signal ended it, by its name.
    Crashed(String),
    /// It could not be started, or did not end in time, or nobody knows.
    Unknown(String),
}

/// How long the process may take. A driver that hangs is no verdict: it would hang this process,
/// too, and a busy machine is slow.
const PATIENCE: Duration = Duration::from_secs(30);
/// What stands before the arguments, and the last line that the process prints.
const NAME: &str = "tensorflow-wgpu-examination";

/// Whether there can be such a process.
pub(crate) fn is_possible() -> bool {
    program().is_some()
}

/// Starts a process with these arguments and further variables. `list` prints a line for each of
/// Vulkan's devices, see [`vulkan_devices::Identity`]. `ask` asks all devices for their features,
/// except the devices whose places in that list follow. `nothing` only ends.
pub(crate) fn run(arguments: &[&str], variables: &[(String, String)]) -> Ended {
    let Some((loader, library)) = program() else {
        return Ended::Unknown("the library cannot be run as a program here".into());
    };
    let mut command = Command::new(loader);
    command.arg(library).arg(NAME).args(arguments);
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let (said, status) = match command.spawn().and_then(finished) {
        Ok(ended) => ended,
        Err(e) => return Ended::Unknown(e.to_string()),
    };
    let mut lines: Vec<String> = said.lines().map(str::to_owned).collect();
    if lines.pop().is_some_and(|last| last == NAME) {
        return Ended::Well(lines);
    }
    match status.signal() {
        Some(libc::SIGKILL) | None => Ended::Unknown(status.to_string()),
        Some(signal) => Ended::Crashed(name_of(signal)),
    }
}

/// Waits for the process, and ends it where it takes too long.
fn finished(mut child: Child) -> std::io::Result<(String, ExitStatus)> {
    let start = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if start.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(None) => {
                child.kill()?;
                break child.wait()?;
            }
            Err(e) => return Err(e),
        }
    };
    let mut said = String::new();
    // The little that it prints fits into the pipe.
    child.stdout.take().map_or(Ok(0), |mut pipe| pipe.read_to_string(&mut said))?;
    Ok((said, status))
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

// The stack of a new process is aligned as a call's is before it pushes an address.
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

/// The process: what it was asked for, and its end.
extern "C" fn entry() -> ! {
    // A crash is expected, and nobody wants its core. The process goes with its parent.
    let limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: these calls take numbers, and a struct that lives for the call.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const limit);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
    }
    // Nobody has told Rust's own list of them.
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
            for adapter in instance::adapters(descriptor) {
                let _ = (adapter.get_info(), adapter.features(), adapter.limits());
            }
        }
        Some("nothing") => {}
        // Without /proc nobody knows.
        _ => process::end_at_once(""),
    }
    said.push_str(NAME);
    let written = std::io::stdout().write_all(said.as_bytes());
    let written = written.and_then(|()| std::io::stdout().flush());
    // SAFETY: it ends the process, before any destructor of a driver.
    unsafe { libc::_exit(i32::from(written.is_err())) }
}
