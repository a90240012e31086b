//! Functions of ops.h: they define ops, and the ops' shape functions call them.

use std::ffi::{c_char, c_int};

use crate::ffi::abi::kernel::TF_DataType;
use crate::ffi::status::TF_Status;
use crate::ffi::symbols::symbol_table;

/// An op under definition.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct TF_OpDefinitionBuilder {
    opaque: [u8; 0],
}

/// A node whose output shapes TensorFlow asks for; valid during the shape function.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct TF_ShapeInferenceContext {
    opaque: [u8; 0],
}

/// A reference to a shape of a context. The function that received it deletes it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct TF_ShapeHandle {
    opaque: [u8; 0],
}

/// A reference to an extent of a context. The function that received it deletes it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct TF_DimensionHandle {
    opaque: [u8; 0],
}

/// Sets the outputs' shapes, or an error.
pub(crate) type ShapeFn = unsafe extern "C" fn(*mut TF_ShapeInferenceContext, *mut TF_Status);

type Builder = *mut TF_OpDefinitionBuilder;
type Context = *mut TF_ShapeInferenceContext;
type Shape = *mut TF_ShapeHandle;
type Dimension = *mut TF_DimensionHandle;
type Text = *const c_char;

symbol_table! {
    /// The functions that op definitions and shape functions call.
    pub(crate) struct OpsApi {
        required {
            TF_NewOpDefinitionBuilder: unsafe extern "C" fn(Text) -> Builder,
            TF_OpDefinitionBuilderAddAttr: unsafe extern "C" fn(Builder, Text),
            TF_OpDefinitionBuilderAddInput: unsafe extern "C" fn(Builder, Text),
            TF_OpDefinitionBuilderAddOutput: unsafe extern "C" fn(Builder, Text),
            TF_OpDefinitionBuilderSetIsStateful: unsafe extern "C" fn(Builder, bool),
            TF_OpDefinitionBuilderSetShapeInferenceFunction: unsafe extern "C" fn(Builder, ShapeFn),
            TF_RegisterOpDefinition: unsafe extern "C" fn(Builder, *mut TF_Status),

            TF_ShapeInferenceContextNumInputs: unsafe extern "C" fn(Context) -> i64,
            TF_ShapeInferenceContextGetInput: unsafe extern "C" fn(Context, c_int, Shape,
                *mut TF_Status),
            TF_ShapeInferenceContextSetOutput: unsafe extern "C" fn(Context, c_int, Shape,
                *mut TF_Status),
            TF_ShapeInferenceContextSetUnknownShape: unsafe extern "C" fn(Context, *mut TF_Status),
            TF_ShapeInferenceContext_GetAttrType:
                unsafe extern "C" fn(Context, Text, *mut TF_DataType, *mut TF_Status),
            TF_ShapeInferenceContextRankKnown: unsafe extern "C" fn(Context, Shape) -> c_int,
            TF_ShapeInferenceContextRank: unsafe extern "C" fn(Context, Shape) -> i64,
            TF_ShapeInferenceContextDim: unsafe extern "C" fn(Context, Shape, i64, Dimension),
            TF_ShapeInferenceContextScalar: unsafe extern "C" fn(Context) -> Shape,
            TF_ShapeInferenceContextVectorFromSize: unsafe extern "C" fn(Context, usize) -> Shape,
            TF_ShapeInferenceContextConcatenateShapes:
                unsafe extern "C" fn(Context, Shape, Shape, Shape, *mut TF_Status),
            TF_NewShapeHandle: unsafe extern "C" fn() -> Shape,
            TF_DeleteShapeHandle: unsafe extern "C" fn(Shape),
            TF_NewDimensionHandle: unsafe extern "C" fn() -> Dimension,
            TF_DeleteDimensionHandle: unsafe extern "C" fn(Dimension),
            TF_DimensionHandleValueKnown: unsafe extern "C" fn(Dimension) -> c_int,
            TF_DimensionHandleValue: unsafe extern "C" fn(Dimension) -> i64,
        }
        optional {}
    }
}
