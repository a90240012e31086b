//! Windows: a process that loads the library and calls [`tensorflow_wgpu_examine`]. If this process
//! is Python's own program, the same program is started; otherwise `rundll32`, which every Windows
//! has, so that programs that freeze Python work, too.

use std::ffi::c_void;
use std::os::windows::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use windows_sys::Win32::System::Diagnostics::Debug::{
    EXCEPTION_POINTERS, SEM_FAILCRITICALERRORS, SEM_NOGPFAULTERRORBOX, SEM_NOOPENFILEERRORBOX,
    SetErrorMode, SetUnhandledExceptionFilter,
};
use windows_sys::Win32::System::Threading::{
    CREATE_NO_WINDOW, GetCurrentProcess, TerminateProcess,
};

use super::{query, run};
use crate::sys::loaded;

/// The variable with the process's arguments: `rundll32` does not pass text in every language.
const ARGUMENTS: &str = "TENSORFLOW_WGPU_EXAMINATION";
const PYTHON: &str = "import ctypes, sys; \
                      ctypes.WinDLL(sys.argv[1]).tensorflow_wgpu_examine(None, None, None, 0)";
/// The exit code of a process that finished. `rundll32` has no output that could be read, and exits
/// with 0 if it does not find the function.
const FINISHED: u32 = 77;

/// The command of the process with these arguments. `ask` queries the features of all adapters of
/// the APIs that follow, `vulkan` and `dx12`. `nothing` only ends.
pub(super) fn command(arguments: &[&str]) -> Option<Command> {
    let (_, library) = loaded::object(run as *const c_void)?;
    let is_library = library.extension().is_some_and(|e| e.eq_ignore_ascii_case("dll"));
    if !is_library || !library.is_absolute() {
        return None;
    }
    let mut command = if let Some(python) = python() {
        let mut command = Command::new(python);
        command.args(["-I", "-S", "-c", PYTHON]).arg(library);
        command
    } else {
        let system = PathBuf::from(std::env::var_os("SystemRoot")?).join("System32");
        let mut command = Command::new(system.join("rundll32.exe"));
        command.raw_arg(format!("\"{}\",tensorflow_wgpu_examine", library.to_str()?));
        command
    };
    command.env(ARGUMENTS, arguments.join(" ")).creation_flags(CREATE_NO_WINDOW);
    Some(command)
}

/// This process's program, if it is Python's own.
fn python() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let name = Path::file_stem(&program)?.to_str()?.to_ascii_lowercase();
    let version = name.strip_prefix("python")?.trim_start_matches('w');
    version.chars().all(|c| c.is_ascii_digit() || c == '.').then_some(program)
}

/// Whether the exit code says that a process finished.
pub(super) fn is_well(status: ExitStatus) -> bool {
    status.code() == Some(FINISHED.cast_signed())
}

/// The exit code of a process that did not finish: that of a crash, such as 0xc0000005 for an
/// access violation, or the one with which a driver ended it.
pub(super) fn crash(status: ExitStatus) -> Option<String> {
    status.code().map(|code| format!("exit code {:#x}", code.cast_unsigned()))
}

/// The main function of the process: does what the arguments ask, and ends. `rundll32` calls
/// functions with these parameters.
#[unsafe(no_mangle)]
pub extern "system" fn tensorflow_wgpu_examine(_: *mut c_void, _: *mut c_void, _: *mut i8, _: i32) {
    // A crash is expected, and must not open a dialog.
    // SAFETY: it takes a number, and a function that stays.
    unsafe {
        SetErrorMode(SEM_FAILCRITICALERRORS | SEM_NOGPFAULTERRORBOX | SEM_NOOPENFILEERRORBOX);
        SetUnhandledExceptionFilter(Some(crashed));
    }
    // A separate thread is used, because Python's ctypes would turn a crash in this one into an
    // exception.
    let arguments = std::env::var(ARGUMENTS).unwrap_or_default();
    let examined = std::thread::spawn(move || examine(&arguments)).join();
    // SAFETY: it ends this process, before any destructor of a driver.
    unsafe {
        TerminateProcess(GetCurrentProcess(), if examined.is_ok() { FINISHED } else { 1 });
    }
}

/// Ends the process with the code of a crash, before the system starts a debugger or a report of
/// errors, which takes seconds and may wait for the user.
unsafe extern "system" fn crashed(exception: *const EXCEPTION_POINTERS) -> i32 {
    // SAFETY: the system passes the exception that it handles.
    unsafe {
        let code = (*(*exception).ExceptionRecord).ExceptionCode;
        TerminateProcess(GetCurrentProcess(), code.cast_unsigned());
    }
    0
}

fn examine(arguments: &str) {
    let mut arguments = arguments.split(' ');
    if arguments.next() != Some("ask") {
        return;
    }
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = arguments.fold(wgpu::Backends::empty(), |all, name| match name {
        "vulkan" => all | wgpu::Backends::VULKAN,
        "dx12" => all | wgpu::Backends::DX12,
        _ => all,
    });
    query(descriptor);
}
