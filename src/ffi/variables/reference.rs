//! Reference variables of TensorFlow 1, for releases that do not export the official functions.
//!
//! An input of a reference type is a tensor that an op may change, and that then becomes an output
//! by reference. The members of `OpKernelContext` that access it have the same names in all
//! releases. A value is changed in place, as in TensorFlow's own kernels: every holder of the value
//! sees the change.
//!
//! TensorFlow ends the process if such a member is called for an input that is no reference, or the
//! C API's `TF_GetInput` for an input that is one. So [`is_one`] is asked first.

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use super::cxx::CxxApi;
use crate::error::{Error, Result};
use crate::ffi::abi::kernel::{REFERENCE, TF_OpKernelContext};
use crate::ffi::context::{Context, OUTPUT_ALIGNMENT};
use crate::ffi::cxx::ReturnedString;
use crate::ffi::symbols;
use crate::ffi::tensor::OwnedTensor;
use crate::kernels::op::{OpContext, UpdateAll, VariableUpdate};
use crate::tensor::{Tensor, shape_text};

const MUTABLE_INPUT: &CStr = c"_ZN10tensorflow15OpKernelContext13mutable_inputEib";
const REPLACE: &CStr = c"_ZN10tensorflow15OpKernelContext17replace_ref_inputEiRKNS_6TensorEb";
const PASS: &CStr = c"_ZN10tensorflow15OpKernelContext31forward_ref_input_to_ref_outputEii";
const NEW: &CStr = c"_ZN10tensorflow6TensorC1Ev";
const DELETE: &CStr = c"_ZN10tensorflow6TensorD1Ev";
const SAME_SHAPE: &CStr = c"_ZNK10tensorflow11TensorShape10IsSameSizeERKS0_";
const SHAPE_TEXT: &CStr = c"_ZNK10tensorflow14TensorShapeRep11DebugStringB5cxx11Ev";

/// A `tensorflow::Tensor` as C++ returns it or fills it in: its shape, then a pointer to its
/// buffer. It can be moved bytewise. The words after the tensor make Rust return it by a hidden
/// pointer, as C++ does.
#[repr(C, align(16))]
struct CxxTensor([usize; 8]);

/// The word of a tensor that points to its buffer. It is null in an uninitialized tensor.
const BUFFER: usize = 3;

/// `Tensor OpKernelContext::mutable_input(int index, bool lock_held)`.
type MutableInput = unsafe extern "C" fn(*mut TF_OpKernelContext, c_int, bool) -> CxxTensor;
/// `void OpKernelContext::replace_ref_input(int index, const Tensor&, bool lock_held)`.
type Replace = unsafe extern "C" fn(*mut TF_OpKernelContext, c_int, *const CxxTensor, bool);
/// `void OpKernelContext::forward_ref_input_to_ref_output(int input, int output)`.
type Pass = unsafe extern "C" fn(*mut TF_OpKernelContext, c_int, c_int);
/// A constructor without arguments, or a destructor.
type OnTensor = unsafe extern "C" fn(*mut CxxTensor);
/// `bool TensorShape::IsSameSize(const TensorShape&) const`.
type SameShape = unsafe extern "C" fn(*const CxxTensor, *const CxxTensor) -> bool;
/// `string TensorShapeRep::DebugString() const`.
type ShapeText = unsafe extern "C" fn(*const CxxTensor) -> ReturnedString;

/// Functions of `OpKernelContext`, `Tensor` and `TensorShape`.
pub(super) struct Members {
    mutable_input: MutableInput,
    replace: Replace,
    pass: Pass,
    new: OnTensor,
    delete: OnTensor,
    same_shape: SameShape,
    shape_text: ShapeText,
}

/// The functions, or an error that names a function missing from the running TensorFlow.
pub(super) fn members() -> Result<&'static Members> {
    static MEMBERS: OnceLock<Result<Members>> = OnceLock::new();
    MEMBERS.get_or_init(load).as_ref().map_err(Clone::clone)
}

fn load() -> Result<Members> {
    if cfg!(not(all(target_os = "linux", target_pointer_width = "64"))) {
        return Err(Error::Unimplemented(
            "reference variables are not known on this system".to_owned(),
        ));
    }
    let find =
        |name: &CStr| symbols::find(name).ok_or_else(|| symbols::missing(&name.to_string_lossy()));
    // SAFETY: each symbol is the C++ function of this mangled name, which encodes its parameters; a
    // reference is a pointer, a member function takes `this` first, and a Tensor begins with its
    // shape. The headers of 2.16 to 2.22 give the return types.
    unsafe {
        Ok(Members {
            mutable_input: std::mem::transmute::<*const c_void, MutableInput>(find(MUTABLE_INPUT)?),
            replace: std::mem::transmute::<*const c_void, Replace>(find(REPLACE)?),
            pass: std::mem::transmute::<*const c_void, Pass>(find(PASS)?),
            new: std::mem::transmute::<*const c_void, OnTensor>(find(NEW)?),
            delete: std::mem::transmute::<*const c_void, OnTensor>(find(DELETE)?),
            same_shape: std::mem::transmute::<*const c_void, SameShape>(find(SAME_SHAPE)?),
            shape_text: std::mem::transmute::<*const c_void, ShapeText>(find(SHAPE_TEXT)?),
        })
    }
}

/// A `tensorflow::Tensor` of ours.
struct Value {
    members: &'static Members,
    tensor: CxxTensor,
}

impl Value {
    /// A reference to the value of the variable at input `i`.
    fn of(members: &'static Members, ctx: &Context, i: usize) -> Result<Self> {
        if !is_one(ctx, i) {
            return Err(Error::Internal(format!("input {i} is no reference")));
        }
        // SAFETY: the context is valid and the input is a reference. The function locks the value.
        let tensor = unsafe { (members.mutable_input)(ctx.raw(), i as c_int, false) };
        Ok(Self { members, tensor })
    }

    /// The same tensor for C++.
    fn from_c(
        members: &'static Members,
        api: &CxxApi,
        from: &OwnedTensor,
        ctx: &Context,
    ) -> Result<Self> {
        let mut value = Self { members, tensor: CxxTensor([0; 8]) };
        // SAFETY: the constructor makes an empty tensor in memory that is large enough; then the
        // tensor is assigned to.
        let status = unsafe {
            (members.new)(&raw mut value.tensor);
            (api.from_c)(from.as_ptr(), (&raw mut value.tensor).cast())
        };
        status.take(ctx.status())?;
        Ok(value)
    }

    /// The same tensor for C; an error if it is not initialized.
    fn to_c(&self, api: &CxxApi, ctx: &Context) -> Result<OwnedTensor> {
        let status = ctx.status();
        // SAFETY: tensor and status are valid for the call, and the status is OK before it.
        let raw = unsafe { (api.to_c)((&raw const self.tensor).cast(), status.as_ptr()) };
        // SAFETY: TF_TensorFromTensor returns an owned tensor or null.
        unsafe { OwnedTensor::new(ctx.api(), raw, status) }
    }

    /// The address of the C++ object that owns the memory; 0 without memory.
    fn buffer(&self) -> usize {
        self.tensor.0[BUFFER]
    }

    fn is_initialized(&self) -> bool {
        self.buffer() != 0
    }

    fn has_shape_of(&self, other: &Self) -> bool {
        // SAFETY: both tensors are valid.
        unsafe { (self.members.same_shape)(&raw const self.tensor, &raw const other.tensor) }
    }

    fn shape_text(&self) -> String {
        // SAFETY: the tensor is valid; the function returns a string of libstdc++.
        unsafe { (self.members.shape_text)(&raw const self.tensor).take() }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        // SAFETY: the tensor is ours, and is destroyed once.
        unsafe { (self.members.delete)(&raw mut self.tensor) };
    }
}

/// Whether input `i` is a reference.
pub(super) fn is_one(ctx: &Context, i: usize) -> bool {
    // SAFETY: the context is valid, and the op has the input.
    i < ctx.num_inputs()
        && unsafe { (ctx.api().TF_InputDatatype)(ctx.raw(), i as c_int) } > REFERENCE
}

/// Each is held while the values whose buffers have its place are changed, so that no two changes
/// of a value interleave. TensorFlow's own lock guards each value while it is taken or replaced.
static CHANGES: [Mutex<()>; 64] = [const { Mutex::new(()) }; 64];

/// The locks of some values.
type Changes = SmallVec<[MutexGuard<'static, ()>; 4]>;

/// The values of the variables at `inputs`, and their locks. The device may have to become idle
/// before a change has memory, and changes of other variables do not wait for it.
fn lock(
    members: &'static Members,
    ctx: &Context,
    inputs: &[usize],
) -> Result<(SmallVec<[Value; 4]>, Changes)> {
    let values = || inputs.iter().map(|i| Value::of(members, ctx, *i)).collect::<Result<_>>();
    loop {
        let seen: SmallVec<[Value; 4]> = values()?;
        let mut places: SmallVec<[usize; 4]> =
            seen.iter().map(|value| value.buffer() / 64 % CHANGES.len()).collect();
        // In one order, so that two ops never wait for each other.
        places.sort_unstable();
        places.dedup();
        let changes = places.iter().map(|place| CHANGES[*place].lock()).collect();
        let values: SmallVec<[Value; 4]> = values()?;
        // An op may have replaced a value before its lock was taken.
        if seen.iter().zip(&values).all(|(a, b)| a.buffer() == b.buffer()) {
            return Ok((values, changes));
        }
    }
}

pub(super) fn update(
    api: &'static CxxApi,
    ctx: &mut Context,
    i: usize,
    mode: VariableUpdate,
    update: &mut dyn FnMut(&mut dyn OpContext, &Tensor, &Tensor) -> Result<()>,
) -> Result<()> {
    let (values, _changes) = lock(members()?, ctx, &[i])?;
    let value = values[0].to_c(api, ctx)?;
    let view = value.view()?;
    if view.address.is_multiple_of(OUTPUT_ALIGNMENT) {
        ctx.with_locked(i, |ctx| update(ctx, &view, &view))
    } else {
        super::update_by_way_of_temporary(ctx, i, mode, &view, update)
    }
}

pub(super) fn update_all(
    api: &'static CxxApi,
    ctx: &mut Context,
    inputs: &[usize],
    update: &mut UpdateAll<'_>,
) -> Result<()> {
    let (values, _changes) = lock(members()?, ctx, inputs)?;
    let held =
        values.iter().map(|value| value.to_c(api, ctx)).collect::<Result<SmallVec<[_; 4]>>>()?;
    super::update_all_in_place(ctx, inputs, held.iter(), update)
}

/// Sets output 0 to the variable at input 0.
pub(super) fn pass(ctx: &Context) -> Result<()> {
    if !is_one(ctx, 0) {
        return Err(Error::Internal("input 0 is no reference".to_owned()));
    }
    // SAFETY: the context is valid. Input 0 is a reference, and so is output 0 of an op that is
    // registered for references.
    unsafe { (members()?.pass)(ctx.raw(), 0, 0) };
    Ok(())
}

/// Copies input 1 into the variable at input 0: into its own buffer if the shapes agree, else into
/// a new buffer without other references.
pub(super) fn assign(api: &'static CxxApi, ctx: &mut Context, same_shape: bool) -> Result<()> {
    let members = members()?;
    let given = ctx.get_input(1)?;
    let from = given.view()?;
    let shape = Value::from_c(members, api, &given, ctx)?;
    let mut fresh: Option<OwnedTensor> = None;
    loop {
        let (values, changes) = lock(members, ctx, &[0])?;
        let old = &values[0];
        let fits = old.has_shape_of(&shape);
        if same_shape && !fits {
            return Err(Error::InvalidArgument(format!(
                "Assign requires shapes of both tensors to match. lhs shape= {} rhs shape= {}",
                old.shape_text(),
                shape_text(&from.dims)
            )));
        }
        if fits && old.is_initialized() {
            let to = old.to_c(api, ctx)?.address();
            // A variable may be assigned its own value.
            if to != from.address {
                ctx.device().copy(to, from.address, from.bytes())?;
            }
            return pass(ctx);
        }
        if let Some(fresh) = &fresh {
            let new = Value::from_c(members, api, fresh, ctx)?;
            // SAFETY: the context is valid, input 0 is a reference; TensorFlow takes its own
            // reference to the new value.
            unsafe { (members.replace)(ctx.raw(), 0, &raw const new.tensor, false) };
            return pass(ctx);
        }
        // The device may have to become idle before it has memory.
        drop((values, changes));
        let new = ctx.allocate_temp(from.dtype, &from.dims)?;
        ctx.device().copy(new.address(), from.address, from.bytes())?;
        fresh = Some(new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_takes_the_hidden_pointer_and_holds_a_shape() {
        assert!(size_of::<CxxTensor>() > 2 * size_of::<usize>());
        // A shape takes sixteen bytes and the number of elements.
        assert_eq!(BUFFER * size_of::<usize>(), 24);
    }

    #[test]
    fn without_tensorflow_there_are_no_members() {
        assert!(members().is_err());
    }
}
