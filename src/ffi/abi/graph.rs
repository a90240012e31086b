//! Structs and functions of c/experimental/grappler/grappler.h.

#![expect(non_camel_case_types, reason = "TensorFlow's names")]

use std::ffi::{c_char, c_int, c_uchar, c_void};
use std::mem::offset_of;

use crate::ffi::abi::kernel::TF_Buffer;
use crate::ffi::status::TF_Status;
use crate::ffi::symbols::symbol_table;

/// A graph and TensorFlow's knowledge of it; valid during the optimize function.
#[repr(C)]
pub(crate) struct TF_GrapplerItem {
    opaque: [u8; 0],
}

/// Types and shapes of a graph's tensors.
#[repr(C)]
pub(crate) struct TF_GraphProperties {
    opaque: [u8; 0],
}

/// The ops and functions that a graph may name.
#[repr(C)]
pub(crate) struct TF_FunctionLibraryDefinition {
    opaque: [u8; 0],
}

/// A plug-in's wish about one of TensorFlow's passes.
pub(crate) type TF_TriState = c_int;
pub(crate) const TF_TRI_STATE_DEFAULT: TF_TriState = 0;
pub(crate) const TF_TRI_STATE_OFF: TF_TriState = 1;

/// One tri-state for each of TensorFlow's passes.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct TP_OptimizerConfigs {
    pub struct_size: usize,
    pub ext: *mut c_void,
    pub disable_model_pruning: TF_TriState,
    pub implementation_selector: TF_TriState,
    pub function_optimization: TF_TriState,
    pub common_subgraph_elimination: TF_TriState,
    pub arithmetic_optimization: TF_TriState,
    pub debug_stripper: TF_TriState,
    pub constant_folding: TF_TriState,
    pub shape_optimization: TF_TriState,
    pub auto_mixed_precision: TF_TriState,
    pub auto_mixed_precision_onednn_bfloat16: TF_TriState,
    pub auto_mixed_precision_mkl: TF_TriState,
    pub pin_to_host_optimization: TF_TriState,
    pub layout_optimizer: TF_TriState,
    pub remapping: TF_TriState,
    pub loop_optimization: TF_TriState,
    pub dependency_optimization: TF_TriState,
    pub auto_parallel: TF_TriState,
    pub memory_optimization: TF_TriState,
    pub scoped_allocator_optimization: TF_TriState,
}

impl TP_OptimizerConfigs {
    /// The end of the last member that we know, as TensorFlow counts sizes.
    pub const STRUCT_SIZE: usize =
        offset_of!(Self, scoped_allocator_optimization) + size_of::<TF_TriState>();
}

/// Makes an optimizer, once for each graph.
pub(crate) type CreateFn = unsafe extern "C" fn() -> *mut c_void;
/// Optimizes a graph into the last buffer.
pub(crate) type OptimizeFn = unsafe extern "C" fn(
    *mut c_void,
    *const TF_Buffer,
    *const TF_GrapplerItem,
    *mut TF_Buffer,
    *mut TF_Status,
);
/// Frees an optimizer.
pub(crate) type DestroyFn = unsafe extern "C" fn(*mut c_void);

/// The optimizer's functions.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct TP_Optimizer {
    pub struct_size: usize,
    pub ext: *mut c_void,
    pub create_func: Option<CreateFn>,
    pub optimize_func: Option<OptimizeFn>,
    pub destroy_func: Option<DestroyFn>,
}

impl TP_Optimizer {
    /// As above.
    pub const STRUCT_SIZE: usize = offset_of!(Self, destroy_func) + size_of::<Option<DestroyFn>>();
}

/// The argument that TensorFlow passes to `TF_InitGraph`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct TP_OptimizerRegistrationParams {
    pub struct_size: usize,
    pub ext: *mut c_void,
    pub major_version: i32,
    pub minor_version: i32,
    pub patch_version: i32,
    pub device_type: *const c_char,
    pub optimizer_configs: *mut TP_OptimizerConfigs,
    pub optimizer: *mut TP_Optimizer,
}

impl TP_OptimizerRegistrationParams {
    /// As above.
    pub const STRUCT_SIZE: usize = offset_of!(Self, optimizer) + size_of::<*mut TP_Optimizer>();
}

/// The version of the graph C API that these declarations follow.
pub(crate) const GO_MAJOR: i32 = 0;

type Item = *const TF_GrapplerItem;
type Properties = *mut TF_GraphProperties;
type ListSizeFn = unsafe extern "C" fn(Item, *mut c_int, *mut usize, *mut TF_Status);
type ListFn = unsafe extern "C" fn(
    Item,
    *mut *mut c_char,
    *mut usize,
    c_int,
    *mut c_void,
    usize,
    *mut TF_Status,
);
type PropertiesSizeFn = unsafe extern "C" fn(Properties, *const c_char, *mut c_int, *mut TF_Status);
type PropertiesListFn =
    unsafe extern "C" fn(Properties, *const c_char, *mut *mut TF_Buffer, c_int, *mut TF_Status);

symbol_table! {
    /// The functions that the optimizer calls.
    pub(crate) struct GraphApi {
        required {
            TF_GetNodesToPreserveListSize: ListSizeFn,
            TF_GetNodesToPreserveList: ListFn,
            TF_GetFetchNodesListSize: ListSizeFn,
            TF_GetFetchNodesList: ListFn,
            TF_NewGraphProperties: unsafe extern "C" fn(Item) -> Properties,
            TF_DeleteGraphProperties: unsafe extern "C" fn(Properties),
            TF_InferStatically:
                unsafe extern "C" fn(Properties, c_uchar, c_uchar, c_uchar, c_uchar,
                    *mut TF_Status),
            TF_GetInputPropertiesListSize: PropertiesSizeFn,
            TF_GetInputPropertiesList: PropertiesListFn,
            TF_GetOutputPropertiesListSize: PropertiesSizeFn,
            TF_GetOutputPropertiesList: PropertiesListFn,
            TF_NewFunctionLibraryDefinition:
                unsafe extern "C" fn(*const TF_Buffer,
                    *mut TF_Status) -> *mut TF_FunctionLibraryDefinition,
            TF_DeleteFunctionLibraryDefinition:
                unsafe extern "C" fn(*mut TF_FunctionLibraryDefinition),
            TF_LookUpOpDef: unsafe extern "C" fn(
                *mut TF_FunctionLibraryDefinition, *const c_char, *mut TF_Buffer, *mut TF_Status,
            ),
            TF_NewBuffer: unsafe extern "C" fn() -> *mut TF_Buffer,
            TF_DeleteBuffer: unsafe extern "C" fn(*mut TF_Buffer),
        }
        optional {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_header() {
        assert_eq!(TP_OptimizerRegistrationParams::STRUCT_SIZE, 56);
        assert_eq!(TP_OptimizerConfigs::STRUCT_SIZE, 92);
        assert_eq!(TP_Optimizer::STRUCT_SIZE, 40);
    }
}
