//! Names and layouts of TensorFlow's C++ classes, by release.
//!
//! The layouts follow from the release's headers variant.h, tensor_list.h and op_kernel.h. They
//! hold for Linux, where the wheels are built with libstdc++.

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;

use crate::error::{Error, Result};
use crate::ffi::abi::kernel::TF_OpKernelContext;
use crate::ffi::cxx::{ReturnedStatus, ReturnedString, TensorFromC, TensorToC, is_release};
use crate::ffi::symbols;

/// One release series.
struct Release {
    /// `major.minor.`
    version: &'static str,
    /// `TF_TensorFromTensor`, whose mangled name holds absl's version. None if the C API's
    /// functions for variants are used.
    to_c: Option<&'static CStr>,
}

const RELEASES: &[Release] = &[
    Release {
        version: "2.21.",
        to_c: Some(
            c"_ZN10tensorflow19TF_TensorFromTensorERKNS_6TensorEPN4absl12lts_202508146StatusE",
        ),
    },
    Release {
        version: "2.20.",
        to_c: Some(
            c"_ZN10tensorflow19TF_TensorFromTensorERKNS_6TensorEPN4absl12lts_202501276StatusE",
        ),
    },
    // tensorflow exports the official functions; tensorflow-cpu of the same release does not.
    Release {
        version: "2.19.",
        to_c: Some(
            c"_ZN10tensorflow19TF_TensorFromTensorERKNS_6TensorEPN4absl12lts_202308026StatusE",
        ),
    },
    Release {
        version: "2.22.",
        to_c: Some(
            c"_ZN10tensorflow19TF_TensorFromTensorERKNS_6TensorEPN4absl12lts_202605266StatusE",
        ),
    },
    Release { version: "2.18.", to_c: None },
    Release { version: "2.17.", to_c: None },
    Release { version: "2.16.", to_c: None },
];

type EmptyTensor = unsafe extern "C" fn(*mut u8, c_int);

const FROM_C: &CStr = c"_ZN10tensorflow17TF_TensorToTensorEPK9TF_TensorPNS_6TensorE";
/// The virtual table of `Variant::Value<TensorList>`, with which a variant that holds a list
/// starts.
const LIST_VALUE: &CStr = c"_ZTVN10tensorflow7Variant5ValueINS_10TensorListEEE";
/// The virtual table of `TensorList::Tensors`, the reference-counted vector of a list.
const LIST_TENSORS: &CStr = c"_ZTVN10tensorflow10TensorList7TensorsE";
/// The virtual table of `Variant::Value<data::OptionalVariant>`.
const OPTIONAL_VALUE: &CStr = c"_ZTVN10tensorflow7Variant5ValueINS_4data15OptionalVariantEEE";
const NEW: &CStr = c"_Znwm";
const EMPTY_TENSOR: &CStr = c"_ZN10tensorflow6TensorC1ENS_8DataTypeE";
const COMPATIBLE: &CStr = c"_ZNK10tensorflow18PartialTensorShape16IsCompatibleWithERKS0_";
const MERGE: &CStr = c"_ZNK10tensorflow18PartialTensorShape9MergeWithERKS0_PS0_";
const SHAPE_TEXT: &CStr = c"_ZNK10tensorflow14TensorShapeRep11DebugStringB5cxx11Ev";
const CREATE_KERNEL: &CStr = c"_ZN10tensorflow14CreateOpKernelEN3tsl10DeviceTypeEPNS_10DeviceBaseEPNS0_9AllocatorEPNS_22FunctionLibraryRuntimeEPNS_11ResourceMgrERKSt10shared_ptrIKNS_14NodePropertiesEEiPPNS_8OpKernelE";

/// Byte offsets and sizes of `Variant`, `TensorList`, `TensorList::Tensors` and `Tensor`. They are
/// the same in every release of the table.
pub(super) mod layout {
    /// In `Variant`: whether the value lies within it. If not, its first word points to the value.
    pub const IS_INLINE: usize = 56;
    /// In `Variant::Value<T>`, after its virtual table: the value itself. A list starts with its
    /// `element_shape`.
    pub const VALUE: usize = 8;
    /// In `TensorList`.
    pub const ELEMENT_DTYPE: usize = 24;
    pub const MAX_NUM_ELEMENTS: usize = 28;
    pub const TENSORS: usize = 32;
    /// In `TensorList::Tensors`, after its virtual table: the reference count, then a
    /// `std::vector<Tensor>`.
    pub const REFERENCES: usize = 8;
    pub const VECTOR: usize = 16;
    pub const TENSORS_SIZE: usize = 40;
    pub const TENSOR_SIZE: usize = 32;
    /// In the block that `std::make_shared<std::vector<Tensor>>` makes, after its virtual table:
    /// the two counts, then the vector.
    pub const SHARED_COUNTS: usize = 8;
    pub const SHARED_VALUE: usize = 16;
    pub const SHARED_SIZE: usize = 40;
    /// Indices of virtual functions in the table of `Variant::ValueInterface`.
    pub const CLONE_INTO: usize = 6;
    pub const TYPE_NAME: usize = 9;
    /// The offset from a virtual table's symbol to the address that objects hold: it skips the
    /// offset to top and the type information.
    pub const ADDRESS_POINT: usize = 16;

    /// In `OpKernelConstruction`: the device type, which is a `std::string`, the device, its
    /// allocator, the function library, the resource manager, the node's properties, the version of
    /// its graph and the status.
    pub mod construction {
        pub const DEVICE_TYPE: usize = 0;
        pub const DEVICE: usize = 32;
        pub const ALLOCATOR: usize = 40;
        pub const FUNCTION_LIBRARY: usize = 48;
        pub const RESOURCE_MANAGER: usize = 56;
        pub const PROPERTIES: usize = 64;
        pub const GRAPH_VERSION: usize = 112;
        pub const STATUS: usize = 120;
    }
    /// Indices of virtual functions in the table of `OpKernel`.
    pub mod kernel {
        pub const DELETE: usize = 1;
        pub const COMPUTE: usize = 2;
    }
}

/// The functions and virtual tables for access to lists and optionals.
pub(super) struct ListApi {
    /// The first word of a value that is a list.
    pub list_value: *const c_void,
    /// The first word of a value that is an optional.
    pub optional_value: *const c_void,
    /// The first word of a list's reference-counted vector.
    pub list_tensors: *const c_void,
    pub to_c: TensorToC,
    pub from_c: TensorFromC,
    /// `operator new(size_t)`.
    pub new: unsafe extern "C" fn(usize) -> *mut u8,
    /// `Tensor::Tensor(DataType)`.
    pub empty_tensor: unsafe extern "C" fn(*mut u8, c_int),
    /// `PartialTensorShape::IsCompatibleWith(const PartialTensorShape&) const`.
    pub compatible: unsafe extern "C" fn(*const u8, *const u8) -> bool,
    /// `PartialTensorShape::MergeWith(const PartialTensorShape&, PartialTensorShape*) const`.
    pub merge: unsafe extern "C" fn(*const u8, *const u8, *mut u8) -> ReturnedStatus,
    /// `TensorShapeRep::DebugString() const`.
    pub shape_text: unsafe extern "C" fn(*const u8) -> ReturnedString,
}

// SAFETY: the table holds addresses of code and constants.
unsafe impl Send for ListApi {}
// SAFETY: as above.
unsafe impl Sync for ListApi {}

/// `CreateOpKernel(DeviceType, DeviceBase*, Allocator*, FunctionLibraryRuntime*, ResourceMgr*,
/// const std::shared_ptr<const NodeProperties>&, int, OpKernel**)`. A DeviceType is a string, so
/// C++ passes it by pointer.
pub(super) type CreateOpKernel = unsafe extern "C" fn(
    *mut c_void,
    *mut c_void,
    *mut c_void,
    *mut c_void,
    *mut c_void,
    *const c_void,
    c_int,
    *mut *mut c_void,
) -> ReturnedStatus;

/// `OpKernel::Compute(OpKernelContext*)`.
pub(super) type Compute = unsafe extern "C" fn(*mut c_void, *mut TF_OpKernelContext);

/// The table for the running release, or an error with the reason why there is none.
pub(super) fn lists() -> Result<&'static ListApi> {
    static API: OnceLock<Result<ListApi>> = OnceLock::new();
    API.get_or_init(load_lists).as_ref().map_err(Clone::clone)
}

/// The function that creates TensorFlow's kernels, or an error with the reason why it cannot be
/// used.
pub(super) fn kernels() -> Result<CreateOpKernel> {
    static CREATE: OnceLock<Result<CreateOpKernel>> = OnceLock::new();
    let load = || {
        release()?;
        // SAFETY: the symbol is the function of this mangled name, which encodes its parameters.
        Ok(unsafe { std::mem::transmute::<*const c_void, CreateOpKernel>(find(CREATE_KERNEL)?) })
    };
    CREATE.get_or_init(load).clone()
}

fn unsupported(why: &str) -> Error {
    let version = symbols::tensorflow_version().unwrap_or("of unknown version");
    Error::Unimplemented(format!(
        "TensorFlow {version} has no interface to variants that this plugin knows ({why})"
    ))
}

fn find(name: &CStr) -> Result<*const c_void> {
    symbols::find(name)
        .ok_or_else(|| unsupported(&format!("{} is not exported", name.to_string_lossy())))
}

/// Whether the C API's functions for variants work if they are exported: 2.22.0rc0 exports a
/// TF_ZerosLikeVariant that ends the process.
pub(super) fn official_serve() -> bool {
    !is_release(symbols::tensorflow_version().unwrap_or_default(), "2.22.")
}

fn release() -> Result<&'static Release> {
    if cfg!(not(all(target_os = "linux", target_pointer_width = "64"))) {
        return Err(unsupported("its layout is known for 64-bit Linux"));
    }
    let version = symbols::tensorflow_version().unwrap_or_default();
    let known = RELEASES.iter().find(|r| is_release(version, r.version));
    known.ok_or_else(|| unsupported("the release is not one that it was checked with"))
}

fn load_lists() -> Result<ListApi> {
    let to_c =
        release()?.to_c.ok_or_else(|| unsupported("the C API's functions are not exported"))?;
    // Objects point to the words after the first two of their class's virtual table.
    let table = |name| Ok::<_, Error>(find(name)?.wrapping_byte_add(layout::ADDRESS_POINT));
    // SAFETY: each symbol is the C++ function of this mangled name, which encodes its parameters; a
    // reference is a pointer, a member function takes `this` first, and the release's headers give
    // the return types.
    unsafe {
        Ok(ListApi {
            list_value: table(LIST_VALUE)?,
            optional_value: table(OPTIONAL_VALUE)?,
            list_tensors: table(LIST_TENSORS)?,
            to_c: std::mem::transmute::<*const c_void, TensorToC>(find(to_c)?),
            from_c: std::mem::transmute::<*const c_void, TensorFromC>(find(FROM_C)?),
            new: std::mem::transmute::<*const c_void, unsafe extern "C" fn(usize) -> *mut u8>(
                find(NEW)?,
            ),
            empty_tensor: std::mem::transmute::<*const c_void, EmptyTensor>(find(EMPTY_TENSOR)?),
            compatible: std::mem::transmute::<
                *const c_void,
                unsafe extern "C" fn(*const u8, *const u8) -> bool,
            >(find(COMPATIBLE)?),
            merge: std::mem::transmute::<
                *const c_void,
                unsafe extern "C" fn(*const u8, *const u8, *mut u8) -> ReturnedStatus,
            >(find(MERGE)?),
            shape_text: std::mem::transmute::<
                *const c_void,
                unsafe extern "C" fn(*const u8) -> ReturnedString,
            >(find(SHAPE_TEXT)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_distinct() {
        for (i, r) in RELEASES.iter().enumerate() {
            assert!(r.version.ends_with('.'));
            assert!(
                RELEASES[..i]
                    .iter()
                    .all(|o| o.version != r.version && (o.to_c != r.to_c || r.to_c.is_none()))
            );
        }
    }
}
