//! The graph C API: `TF_InitGraph` and the three functions of the optimizer, around [`crate::optimizer`].

mod buffer;
mod item;

use std::ffi::c_void;

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::ffi::guard::{caught, guard_or, guard_status};
use crate::ffi::kernel::definitions;
use crate::ffi::plugin;
use crate::ffi::status::TF_Status;
use crate::ffi::sys::graph::{
    GO_MAJOR, GraphApi, TF_GrapplerItem, TF_TRI_STATE_DEFAULT, TF_TRI_STATE_OFF, TP_Optimizer, TP_OptimizerConfigs,
    TP_OptimizerRegistrationParams,
};
use crate::ffi::sys::kernel::TF_Buffer;
use crate::optimizer;
use crate::optimizer::memory::Memory;
use crate::optimizer::settings::{Settings, VARIABLE};

/// The device type whose graphs we optimize.
const DEVICE_TYPE: &std::ffi::CStr = c"WGPU";

/// Entry point of the graph C API.
///
/// An error here would abort `import tensorflow`, so there is none: what cannot be registered leaves a line in the log, and
/// an optimizer that returns graphs as they are.
///
/// # Safety
/// TensorFlow passes pointers to structs of its own, which are valid for the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TF_InitGraph(params: *mut TP_OptimizerRegistrationParams, status: *mut TF_Status) {
    let _ = status;
    // SAFETY: TensorFlow's pointer, or null.
    let params = unsafe { params.as_mut() };
    guard_or((), "TF_InitGraph", || register(params));
}

fn register(params: Option<&mut TP_OptimizerRegistrationParams>) -> Result<()> {
    let params = params.ok_or_else(|| Error::InvalidArgument("no registration parameters".into()))?;
    // SAFETY: the structs are TensorFlow's, valid for the call; null is refused.
    let (optimizer, configs) = unsafe { (params.optimizer.as_mut(), params.optimizer_configs.as_mut()) };
    let optimizer = optimizer.ok_or_else(|| Error::InvalidArgument("no TP_Optimizer to fill".into()))?;
    let configs = configs.ok_or_else(|| Error::InvalidArgument("no TP_OptimizerConfigs to fill".into()))?;
    let fits = params.struct_size >= TP_OptimizerRegistrationParams::STRUCT_SIZE
        && optimizer.struct_size >= TP_Optimizer::STRUCT_SIZE
        && configs.struct_size >= TP_OptimizerConfigs::STRUCT_SIZE
        && params.major_version == GO_MAJOR;
    if !fits {
        log::warn!(
            "graphs are not optimized: TensorFlow's graph C API is {}.{}.{}, this plugin knows {GO_MAJOR}",
            params.major_version,
            params.minor_version,
            params.patch_version
        );
    }
    let fits = fits && definitions::are_complete();
    params.device_type = DEVICE_TYPE.as_ptr();
    optimizer.struct_size = TP_Optimizer::STRUCT_SIZE.min(optimizer.struct_size);
    optimizer.create_func = Some(create);
    optimizer.optimize_func = Some(if fits { optimize } else { keep });
    optimizer.destroy_func = Some(destroy);
    if fits && plugin::common_capabilities().is_some() {
        // Kernels are written for channels last, which is what Keras makes; the layout optimizer would turn convolutions to
        // channels first for every device that is not the CPU.
        configs.layout_optimizer = TF_TRI_STATE_OFF;
        // Its fused ops exist for the CPU and CUDA alone; ours do the same for these devices.
        configs.remapping = TF_TRI_STATE_OFF;
    } else {
        configs.layout_optimizer = TF_TRI_STATE_DEFAULT;
        configs.remapping = TF_TRI_STATE_DEFAULT;
    }
    Ok(())
}

/// An optimizer of one graph, which TensorFlow runs several times.
struct Optimizer {
    settings: Settings,
    memory: Memory,
}

extern "C" fn create() -> *mut c_void {
    guard_or(std::ptr::null_mut(), "creating the graph optimizer", || {
        let text = std::env::var_os(VARIABLE).map(|v| v.to_string_lossy().into_owned()).unwrap_or_default();
        let (settings, problems) = Settings::parse(&text);
        // TensorFlow makes an optimizer for every graph; once is enough.
        static TOLD: std::sync::Once = std::sync::Once::new();
        TOLD.call_once(|| problems.iter().for_each(|p| log::warn!("{p}")));
        Ok(Box::into_raw(Box::new(Optimizer { settings, memory: Memory::default() })).cast())
    })
}

/// # Safety
/// TensorFlow passes what [`create`] returned, once.
unsafe extern "C" fn destroy(optimizer: *mut c_void) {
    if !optimizer.is_null() {
        // SAFETY: `create` made it by Box::into_raw, and nobody uses it any more.
        drop(unsafe { Box::from_raw(optimizer.cast::<Settings>()) });
    }
}

/// # Safety
/// As TensorFlow calls it: the optimizer from [`create`], buffers and item valid for the call.
unsafe extern "C" fn optimize(
    optimizer: *mut c_void,
    graph: *const TF_Buffer,
    item: *const TF_GrapplerItem,
    out: *mut TF_Buffer,
    status: *mut TF_Status,
) {
    guard_status(status, "the graph optimizer", || {
        // SAFETY: the pointer is what `create` returned, or null where that failed.
        let optimizer = unsafe { optimizer.cast::<Optimizer>().as_ref() };
        // SAFETY: TensorFlow's buffers are valid for the call.
        let bytes = unsafe { buffer::contents(graph) };
        // A trouble of ours must not cost the user a graph that runs well without us.
        let optimized = caught("optimizing a graph", || match optimizer {
            Some(Optimizer { settings, memory }) => {
                // SAFETY: graph and item are valid for the call, which outlives the value.
                let item = unsafe { item::GrapplerItem::new(GraphApi::get()?, graph, item) }?;
                optimizer::optimize(&Bytes::copy_from_slice(bytes), &item, settings, memory)
            }
            None => Ok(None),
        });
        let optimized = optimized.unwrap_or_else(|e| {
            log::warn!("a graph is left as it is: {e}");
            None
        });
        // SAFETY: the out buffer is TensorFlow's, empty, and ours to fill.
        unsafe { buffer::fill(out, optimized.unwrap_or_else(|| bytes.to_vec())) }
    });
}

/// Returns the graph as it is.
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
    guard_status(status, "the graph optimizer", || unsafe { buffer::fill(out, buffer::contents(graph).to_vec()) });
}
