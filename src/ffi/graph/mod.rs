//! The graph C API: `TF_InitGraph` and the three functions of the optimizer, around
//! [`crate::optimizer`].

mod buffer;
mod item;

use std::ffi::{CStr, c_char, c_void};
use std::mem::offset_of;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::dump::Folder;
use crate::error::{Error, Result};
use crate::ffi::abi::graph::{
    GO_MAJOR, GraphApi, TF_GrapplerItem, TF_TRI_STATE_DEFAULT, TF_TRI_STATE_OFF, TP_Optimizer,
    TP_OptimizerConfigs, TP_OptimizerRegistrationParams,
};
use crate::ffi::abi::kernel::TF_Buffer;
use crate::ffi::guard::{guard_or, guard_status};
use crate::ffi::handle::{Handle, Held};
use crate::ffi::kernel::definitions;
use crate::ffi::status::TF_Status;
use crate::ffi::{device_type, environment, plugin, second_copy};
use crate::optimizer;
use crate::optimizer::memory::LastGraph;
use crate::optimizer::settings::{CAPTURE, Settings, VARIABLE};
use crate::sys::guard::caught;

/// Entry point of the graph C API.
///
/// An error here would abort `import tensorflow`, so none is reported. If something cannot be
/// registered, a line is logged and the optimizer returns graphs unchanged.
///
/// # Safety
/// TensorFlow passes pointers to structs of its own, which are valid for the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TF_InitGraph(
    params: *mut TP_OptimizerRegistrationParams,
    status: *mut TF_Status,
) {
    let _ = status;
    // SAFETY: TensorFlow's pointer, or null.
    guard_or((), "TF_InitGraph", || unsafe { register(params) });
}

/// Writes the members of a C struct that lie within the first `struct_size` bytes. An older
/// TensorFlow has shorter structs and does not ask for the rest.
macro_rules! put {
    ($target:ident: $type:ident { $($field:ident: $value:expr),* $(,)? }) => {{
        let size = (*$target).struct_size;
        $(if offset_of!($type, $field) + member_size(|s: &$type| &s.$field) <= size {
            (&raw mut (*$target).$field).write($value);
        })*
    }};
}

const fn member_size<S, T>(_: fn(&S) -> &T) -> usize {
    size_of::<T>()
}

/// # Safety
/// `params` is null or points to TensorFlow's parameters. They have `struct_size` bytes, and so do
/// the structs behind them.
unsafe fn register(params: *mut TP_OptimizerRegistrationParams) -> Result<()> {
    if params.is_null() {
        return Err(Error::InvalidArgument("no registration parameters".into()));
    }
    // SAFETY: the caller's contract: every struct begins with its size, and only bytes within that
    // size are read or written.
    unsafe {
        let size = (*params).struct_size;
        if size < TP_OptimizerRegistrationParams::STRUCT_SIZE {
            return Err(Error::FailedPrecondition(format!(
                "TensorFlow's registration parameters have {size} bytes only"
            )));
        }
        let (optimizer, configs) = ((*params).optimizer, (*params).optimizer_configs);
        if optimizer.is_null() || configs.is_null() {
            return Err(Error::InvalidArgument(
                "no TP_Optimizer or no TP_OptimizerConfigs to fill".into(),
            ));
        }
        let fits = (*optimizer).struct_size >= TP_Optimizer::STRUCT_SIZE
            && (*configs).struct_size >= TP_OptimizerConfigs::STRUCT_SIZE
            && (*params).major_version == GO_MAJOR;
        if !fits {
            log::warn!(
                "graphs are not optimized: TensorFlow's graph C API is {}.{}.{}, this plugin \
                 knows {GO_MAJOR}",
                (*params).major_version,
                (*params).minor_version,
                (*params).patch_version
            );
        }
        let fits = fits && definitions::are_complete();
        // Our kernels are written for channels last, the layout that Keras makes. TensorFlow's
        // layout optimizer would turn convolutions to channels first on every device but the CPU.
        // The fused ops of its remapper exist for the CPU and CUDA only; ours do the same on these
        // devices.
        let off = fits && plugin::common_capabilities().is_some();
        let ours = if off { TF_TRI_STATE_OFF } else { TF_TRI_STATE_DEFAULT };
        (*params).device_type = second_copy::device_type().as_ptr();
        put!(optimizer: TP_Optimizer {
            create_func: Some(create),
            optimize_func: Some(if fits { optimize } else { keep }),
            destroy_func: Some(destroy),
        });
        put!(optimizer: TP_Optimizer { struct_size:
            TP_Optimizer::STRUCT_SIZE.min((*optimizer).struct_size) });
        put!(configs: TP_OptimizerConfigs { layout_optimizer: ours, remapping: ours });
    }
    Ok(())
}

/// The errors because of which graphs were left unchanged, each once.
static LEFT: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// The largest number of errors that are kept.
const MAX_LEFT: usize = 16;

/// Logs why a graph is left unchanged. A program that traces one function many times gets the
/// message once.
fn leave(error: &Error) {
    let text = error.to_string();
    let mut left = LEFT.lock();
    if !left.contains(&text) && left.len() < MAX_LEFT {
        log::warn!("a graph is left as it is: {text}");
        left.push(text);
    }
}

/// The errors because of which graphs of this process were left unchanged.
pub(crate) fn left() -> Vec<String> {
    LEFT.lock().clone()
}

/// Writes the graphs that are optimized from now on, and the decisions about their nodes, to a
/// folder for the Python package. Null ends that.
///
/// # Safety
/// `folder` must be null or a text that ends with NUL.
#[unsafe(no_mangle)]
unsafe extern "C" fn tensorflow_wgpu_dump_graphs(folder: *const c_char) {
    guard_or((), "tensorflow_wgpu_dump_graphs", || {
        // SAFETY: the caller gives a text that ends with NUL, and it is read before the call ends.
        let text = (!folder.is_null()).then(|| unsafe { CStr::from_ptr(folder) });
        Folder::ask_for_graphs(text.map(|text| text.to_string_lossy().into_owned().into()));
        Ok(())
    });
}

/// An optimizer of one graph, which TensorFlow runs several times.
struct Optimizer {
    settings: Settings,
    memory: LastGraph,
}

impl Held for Optimizer {
    const NAME: &'static str = "graph optimizer";
}

extern "C" fn create() -> *mut c_void {
    guard_or(std::ptr::null_mut(), "creating the graph optimizer", || {
        let text = environment::lookup(VARIABLE).unwrap_or_default();
        // Unknown names of passes are reported when TensorFlow loads the plug-in.
        let (mut settings, _) = Settings::parse(&text);
        settings.device_type = device_type::get();
        settings.capture(&environment::lookup(CAPTURE).unwrap_or_default());
        settings.dump = Folder::of_graphs();
        Ok(Handle::give(Optimizer { settings, memory: LastGraph::default() }))
    })
}

/// # Safety
/// TensorFlow passes the pointer that [`create`] returned, once.
unsafe extern "C" fn destroy(optimizer: *mut c_void) {
    // SAFETY: `create` gave it away, and it is not used any more.
    guard_or((), "destroying the graph optimizer", || unsafe {
        Handle::<Optimizer>::destroy(optimizer)
    });
}

/// # Safety
/// The arguments must be TensorFlow's: the optimizer from [`create`], and buffers and item that are
/// valid for the call.
unsafe extern "C" fn optimize(
    optimizer: *mut c_void,
    graph: *const TF_Buffer,
    item: *const TF_GrapplerItem,
    out: *mut TF_Buffer,
    status: *mut TF_Status,
) {
    guard_status(status, "the graph optimizer", || {
        // SAFETY: TensorFlow's buffers are valid for the call.
        let bytes = unsafe { buffer::contents(graph) };
        // An error of ours must not cost the user a graph that runs well without us.
        let optimized = caught("optimizing a graph", || {
            // SAFETY: `create` returned the pointer, null if that failed.
            let Optimizer { settings, memory } = unsafe { Handle::borrow(optimizer) }?;
            // SAFETY: graph and item are valid for the call, which outlives the value.
            let item = unsafe { item::GrapplerItem::new(GraphApi::get()?, graph, item) }?;
            optimizer::optimize(&Bytes::copy_from_slice(bytes), &item, settings, memory)
        });
        let optimized = optimized.unwrap_or_else(|e| {
            leave(&e);
            None
        });
        // SAFETY: the out buffer is TensorFlow's, empty, and ours to fill.
        unsafe { buffer::fill(out, optimized.unwrap_or_else(|| bytes.to_vec())) }
    });
}

/// Returns the graph unchanged.
///
/// # Safety
/// As for [`optimize`].
unsafe extern "C" fn keep(
    _optimizer: *mut c_void,
    graph: *const TF_Buffer,
    _item: *const TF_GrapplerItem,
    out: *mut TF_Buffer,
    status: *mut TF_Status,
) {
    // SAFETY: both buffers are TensorFlow's and valid for the call.
    guard_status(status, "the graph optimizer", || unsafe {
        buffer::fill(out, buffer::contents(graph).to_vec())
    });
}
