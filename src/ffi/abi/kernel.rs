//! Functions of kernels.h and tf_tensor.h, and the few of c_api.h that registration needs.

#![expect(non_camel_case_types, reason = "TensorFlow's names")]

use std::ffi::{c_char, c_int, c_void};

use crate::ffi::abi::stream_executor::SP_Stream;
use crate::ffi::status::TF_Status;
use crate::ffi::symbols::symbol_table;

macro_rules! opaque {
    ($($(#[$meta:meta])* $name:ident;)*) => {$(
        $(#[$meta])*
        #[derive(Debug)]
        #[repr(C)]
        pub(crate) struct $name {
            opaque: [u8; 0],
        }
    )*};
}

opaque! {
    /// A kernel under registration.
    TF_KernelBuilder;
    /// The construction of one node's kernel; valid during the create function.
    TF_OpKernelConstruction;
    /// One execution of a node; valid during the compute function.
    TF_OpKernelContext;
    /// A reference to a tensor's buffer with a type and a shape.
    TF_Tensor;
}

/// `TF_DataType`.
pub(crate) type TF_DataType = c_int;

/// The offset between the number of a type and the number of its reference type.
pub(crate) const REFERENCE: TF_DataType = 100;

/// The number of the type `string`.
pub(crate) const STRING: TF_DataType = 7;

/// A string without a terminator. Its memory belongs to the function that returned it.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct TF_StringView {
    pub data: *const c_char,
    pub len: usize,
}

/// Serialized bytes; `data` belongs to the buffer.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct TF_Buffer {
    pub data: *const c_void,
    pub length: usize,
    pub data_deallocator: Option<unsafe extern "C" fn(*mut c_void, usize)>,
}

/// The memory in which a temporary is allocated.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct TF_AllocatorAttributes {
    pub struct_size: usize,
    /// 1 for host memory.
    pub on_host: u8,
}

impl TF_AllocatorAttributes {
    /// The end of the last member, as TensorFlow counts sizes.
    pub const STRUCT_SIZE: usize = std::mem::offset_of!(Self, on_host) + 1;
}

/// Makes a node's kernel.
pub(crate) type CreateFn = unsafe extern "C" fn(*mut TF_OpKernelConstruction) -> *mut c_void;
/// Runs a node's kernel.
pub(crate) type ComputeFn = unsafe extern "C" fn(*mut c_void, *mut TF_OpKernelContext);
/// Frees a node's kernel.
pub(crate) type DeleteFn = unsafe extern "C" fn(*mut c_void);
/// Frees a tensor's memory, with its size in bytes; the last argument is the one that TF_NewTensor
/// got.
pub(crate) type DeallocatorFn = unsafe extern "C" fn(*mut c_void, usize, *mut c_void);

type Construction = *mut TF_OpKernelConstruction;
type Context = *mut TF_OpKernelContext;
type Name = *const c_char;

symbol_table! {
    /// The functions that kernels and their registration call.
    pub(crate) struct KernelApi {
        required {
            TF_NewKernelBuilder:
                unsafe extern "C" fn(Name, Name, CreateFn, ComputeFn,
                    DeleteFn) -> *mut TF_KernelBuilder,
            TF_DeleteKernelBuilder: unsafe extern "C" fn(*mut TF_KernelBuilder),
            TF_KernelBuilder_TypeConstraint:
                unsafe extern "C" fn(*mut TF_KernelBuilder, Name, TF_DataType, *mut TF_Status),
            TF_KernelBuilder_HostMemory: unsafe extern "C" fn(*mut TF_KernelBuilder, Name),
            TF_RegisterKernelBuilder: unsafe extern "C" fn(Name, *mut TF_KernelBuilder,
                *mut TF_Status),

            TF_OpKernelConstruction_GetName: unsafe extern "C" fn(Construction) -> TF_StringView,
            TF_OpKernelConstruction_Failure: unsafe extern "C" fn(Construction, *mut TF_Status),
            TF_OpKernelConstruction_GetAttrSize:
                unsafe extern "C" fn(Construction, Name, *mut i32, *mut i32, *mut TF_Status),
            TF_OpKernelConstruction_GetAttrType:
                unsafe extern "C" fn(Construction, Name, *mut TF_DataType, *mut TF_Status),
            TF_OpKernelConstruction_GetAttrInt64:
                unsafe extern "C" fn(Construction, Name, *mut i64, *mut TF_Status),
            TF_OpKernelConstruction_GetAttrFloat:
                unsafe extern "C" fn(Construction, Name, *mut f32, *mut TF_Status),
            TF_OpKernelConstruction_GetAttrBool:
                unsafe extern "C" fn(Construction, Name, *mut u8, *mut TF_Status),
            TF_OpKernelConstruction_GetAttrString:
                unsafe extern "C" fn(Construction, Name, *mut u8, usize, *mut TF_Status),
            TF_OpKernelConstruction_GetAttrTypeList:
                unsafe extern "C" fn(Construction, Name, *mut TF_DataType, c_int, *mut TF_Status),
            TF_OpKernelConstruction_GetAttrInt64List:
                unsafe extern "C" fn(Construction, Name, *mut i64, c_int, *mut TF_Status),
            TF_OpKernelConstruction_GetAttrFloatList:
                unsafe extern "C" fn(Construction, Name, *mut f32, c_int, *mut TF_Status),

            TF_GetStream: unsafe extern "C" fn(Context, *mut TF_Status) -> SP_Stream,
            TF_NumInputs: unsafe extern "C" fn(Context) -> c_int,
            TF_NumOutputs: unsafe extern "C" fn(Context) -> c_int,
            TF_InputDatatype: unsafe extern "C" fn(Context, c_int) -> TF_DataType,
            TF_ExpectedOutputDataType: unsafe extern "C" fn(Context, c_int) -> TF_DataType,
            TF_GetInput: unsafe extern "C" fn(Context, c_int, *mut *mut TF_Tensor, *mut TF_Status),
            TF_SetOutput: unsafe extern "C" fn(Context, c_int, *const TF_Tensor, *mut TF_Status),
            TF_AllocateOutput: unsafe extern "C" fn(
                Context, c_int, TF_DataType, *const i64, c_int, usize, *mut TF_Status,
            ) -> *mut TF_Tensor,
            TF_ForwardInputOrAllocateOutput: unsafe extern "C" fn(
                Context, *const c_int, c_int, c_int, *const i64, c_int, *mut c_int, *mut TF_Status,
            ) -> *mut TF_Tensor,
            TF_AllocateTemp: unsafe extern "C" fn(
                Context, TF_DataType, *const i64, c_int, *mut TF_AllocatorAttributes,
                    *mut TF_Status,
            ) -> *mut TF_Tensor,
            TF_OpKernelContext_Failure: unsafe extern "C" fn(Context, *mut TF_Status),

            TF_AllocateTensor: unsafe extern "C" fn(TF_DataType, *const i64, c_int,
                usize) -> *mut TF_Tensor,
            TF_DeleteTensor: unsafe extern "C" fn(*mut TF_Tensor),
            TF_TensorType: unsafe extern "C" fn(*const TF_Tensor) -> TF_DataType,
            TF_NumDims: unsafe extern "C" fn(*const TF_Tensor) -> c_int,
            TF_Dim: unsafe extern "C" fn(*const TF_Tensor, c_int) -> i64,
            TF_TensorByteSize: unsafe extern "C" fn(*const TF_Tensor) -> usize,
            TF_TensorData: unsafe extern "C" fn(*const TF_Tensor) -> *mut c_void,
            TF_TensorBitcastFrom: unsafe extern "C" fn(
                *const TF_Tensor, TF_DataType, *mut TF_Tensor, *const i64, c_int, *mut TF_Status,
            ),
        }
        optional {
            TF_OpKernelConstruction_GetNodeDef: unsafe extern "C" fn(Construction,
                *mut TF_Status) -> *mut TF_Buffer,
            TF_GetAllOpList: unsafe extern "C" fn() -> *mut TF_Buffer,
            TF_DeleteBuffer: unsafe extern "C" fn(*mut TF_Buffer),
            TF_GetRegisteredKernelsForOp: unsafe extern "C" fn(Name,
                *mut TF_Status) -> *mut TF_Buffer,
            TF_NewTensor: unsafe extern "C" fn(TF_DataType, *const i64, c_int, *mut c_void, usize,
                DeallocatorFn, *mut c_void) -> *mut TF_Tensor,
            TF_KernelBuilder_Priority: unsafe extern "C" fn(*mut TF_KernelBuilder, i32),
        }
    }
}
