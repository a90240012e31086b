//! Access to variables by TensorFlow's C++ functions, for releases that do not export the official
//! ones.
//!
//! The mangled names and the layout of `tensorflow::Var` differ between releases, so a table by
//! version holds both. The functions do what TensorFlow's own kernels do: `LookupResource<Var>`,
//! `Var::mu()` and `Var::tensor()`.

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;
#[cfg(not(target_os = "linux"))]
use std::sync::atomic::AtomicI32 as RefCount;
#[cfg(target_os = "linux")]
use std::sync::atomic::AtomicI64 as RefCount;
use std::sync::atomic::{AtomicBool, Ordering};

use smallvec::SmallVec;

use crate::error::{Error, Result};
use crate::ffi::abi::kernel::TF_OpKernelContext;
use crate::ffi::context::{Context, OUTPUT_ALIGNMENT};
use crate::ffi::cxx::{ReturnedStatus, TensorFromC, TensorToC, is_release};
use crate::ffi::symbols;
use crate::ffi::tensor::OwnedTensor;
use crate::kernels::op::{OpContext, UpdateAll, VariableUpdate};
use crate::tensor::Tensor;

/// One release series: the names of its symbols and the offsets of the members of `Var`.
struct Release {
    /// `major.minor.`
    version: &'static str,
    description: &'static str,
    lookup: &'static CStr,
    to_c: &'static CStr,
    lock: &'static CStr,
    unlock: &'static CStr,
    layout: Layout,
}

/// Byte offsets within `tensorflow::Var`.
#[derive(Debug, Clone, Copy)]
struct Layout {
    references: usize,
    is_initialized: usize,
    mutex: usize,
    tensor: usize,
}

const RELEASES: &[Release] = &[
    Release {
        version: "2.21.",
        description: "C++ symbols of 2.21",
        lookup: c"_ZN10tensorflow14LookupResourceINS_3VarELb0EEEN4absl12lts_202508146StatusEPNS_15OpKernelContextERKNS_14ResourceHandleEPPT_",
        to_c: c"_ZN10tensorflow19TF_TensorFromTensorERKNS_6TensorEPN4absl12lts_202508146StatusE",
        lock: c"_ZN4absl12lts_202508145Mutex4lockEv",
        unlock: c"_ZN4absl12lts_202508145Mutex6unlockEv",
        layout: Layout { references: 8, is_initialized: 24, mutex: 32, tensor: 40 },
    },
    Release {
        version: "2.20.",
        description: "C++ symbols of 2.20",
        lookup: c"_ZN10tensorflow14LookupResourceINS_3VarELb0EEEN4absl12lts_202501276StatusEPNS_15OpKernelContextERKNS_14ResourceHandleEPPT_",
        to_c: c"_ZN10tensorflow19TF_TensorFromTensorERKNS_6TensorEPN4absl12lts_202501276StatusE",
        lock: c"_ZN4absl12lts_202501275Mutex4LockEv",
        unlock: c"_ZN4absl12lts_202501275Mutex6UnlockEv",
        layout: Layout { references: 8, is_initialized: 24, mutex: 32, tensor: 40 },
    },
    // tensorflow exports the official functions; tensorflow-cpu of the same release does not.
    Release {
        version: "2.19.",
        description: "C++ symbols of 2.19",
        lookup: c"_ZN10tensorflow14LookupResourceINS_3VarELb0EEEN4absl12lts_202308026StatusEPNS_15OpKernelContextERKNS_14ResourceHandleEPPT_",
        to_c: c"_ZN10tensorflow19TF_TensorFromTensorERKNS_6TensorEPN4absl12lts_202308026StatusE",
        lock: c"_ZN4absl12lts_202308025Mutex4LockEv",
        unlock: c"_ZN4absl12lts_202308025Mutex6UnlockEv",
        layout: Layout { references: 8, is_initialized: 24, mutex: 32, tensor: 40 },
    },
];

/// The releases with a known way to reach variables, by the official functions or by these symbols.
/// A DLL exports no useful C++ symbols.
const SUPPORTED: &str = if cfg!(windows) { "2.16 to 2.19 and 2.22" } else { "2.16 to 2.22" };

const HANDLE: &CStr = c"_ZN10tensorflow15HandleFromInputEPNS_15OpKernelContextEi";
const FROM_C: &CStr = c"_ZN10tensorflow17TF_TensorToTensorEPK9TF_TensorPNS_6TensorE";
/// The virtual table of `Var`, to which the first word of a variable points.
const VAR: &CStr = c"_ZTVN10tensorflow3VarE";
/// The offset from a virtual table's symbol to the address that objects hold: it skips the offset
/// to top and the type information.
const ADDRESS_POINT: usize = 16;
/// 2.21 for macOS does not export this function.
const UNIQUE: &CStr = c"_ZNK10tensorflow6Tensor13RefCountIsOneEv";

type HandleFromInput = unsafe extern "C" fn(*mut TF_OpKernelContext, c_int) -> *const c_void;
type LookupResource =
    unsafe extern "C" fn(*mut TF_OpKernelContext, *const c_void, *mut *mut u8) -> ReturnedStatus;
type MutexFn = unsafe extern "C" fn(*mut u8);
type RefCountIsOne = unsafe extern "C" fn(*const u8) -> bool;

/// The functions and the layout of the running release.
pub(super) struct CxxApi {
    description: &'static str,
    layout: Layout,
    /// The value of a variable's first word.
    table: usize,
    handle: HandleFromInput,
    lookup: LookupResource,
    pub(super) to_c: TensorToC,
    pub(super) from_c: TensorFromC,
    lock: MutexFn,
    unlock: MutexFn,
    /// If None, every value counts as shared, so that each update makes a new buffer.
    unique: Option<RefCountIsOne>,
}

impl CxxApi {
    pub const fn description(&self) -> &'static str {
        self.description
    }
}

/// The functions of the running TensorFlow, or an error if we know none of its.
pub(super) fn api() -> Result<&'static CxxApi> {
    static API: OnceLock<Result<CxxApi>> = OnceLock::new();
    API.get_or_init(load).as_ref().map_err(Clone::clone)
}

fn load() -> Result<CxxApi> {
    let version = symbols::tensorflow_version().unwrap_or("of unknown version");
    let unsupported = |why: &str| {
        Error::Unimplemented(format!(
            "TensorFlow {version} has no interface to variables that this plugin knows ({why}); \
             it works with the releases {SUPPORTED}"
        ))
    };
    if cfg!(any(windows, not(target_pointer_width = "64"))) {
        return Err(unsupported("the C API's functions for variables are not exported"));
    }
    let release = RELEASES.iter().find(|r| is_release(version, r.version)).ok_or_else(|| {
        unsupported(
            "it is no release of 2.19, 2.20 or 2.21, and its C API's functions are not exported",
        )
    })?;
    let find = |name: &CStr| {
        symbols::find(name)
            .ok_or_else(|| unsupported(&format!("{} is not exported", name.to_string_lossy())))
    };
    // SAFETY: each symbol is the C++ function of this mangled name, which encodes its parameters; a
    // reference is a pointer, a member function takes `this` first, and the release's headers give
    // the return types.
    unsafe {
        Ok(CxxApi {
            description: release.description,
            layout: release.layout,
            table: find(VAR)? as usize + ADDRESS_POINT,
            handle: std::mem::transmute::<*const c_void, HandleFromInput>(find(HANDLE)?),
            lookup: std::mem::transmute::<*const c_void, LookupResource>(find(release.lookup)?),
            to_c: std::mem::transmute::<*const c_void, TensorToC>(find(release.to_c)?),
            from_c: std::mem::transmute::<*const c_void, TensorFromC>(find(FROM_C)?),
            lock: std::mem::transmute::<*const c_void, MutexFn>(find(release.lock)?),
            unlock: std::mem::transmute::<*const c_void, MutexFn>(find(release.unlock)?),
            unique: symbols::find(UNIQUE)
                .map(|unique| std::mem::transmute::<*const c_void, RefCountIsOne>(unique)),
        })
    }
}

/// A reference to a `Var`, given back on drop. Its value is accessed under its lock.
struct Variable {
    api: &'static CxxApi,
    var: *mut u8,
}

impl Variable {
    fn find(api: &'static CxxApi, ctx: &Context, i: usize) -> Result<Self> {
        let mut var: *mut u8 = std::ptr::null_mut();
        // SAFETY: the input is a resource handle, as the op declares; `HandleFromInput` returns a
        // reference into the input, and `LookupResource` writes a Var with a reference of ours
        // unless its status is an error.
        let status =
            unsafe { (api.lookup)(ctx.raw(), (api.handle)(ctx.raw(), i as c_int), &raw mut var) };
        if let Err(e) = status.take(ctx.status()) {
            return Err(match e {
                Error::NotFound(why) => super::not_found(&why),
                other => other,
            });
        }
        let variable = Self { api, var };
        if let Err(e) = variable.check_layout() {
            // Giving the reference back would write to a word that may not be a count.
            std::mem::forget(variable);
            return Err(e);
        }
        Ok(variable)
    }

    /// Compares the first variable of the process with the layout in the table of releases, so that
    /// a variable with another layout is never written.
    fn check_layout(&self) -> Result<()> {
        static CHECKED: AtomicBool = AtomicBool::new(false);
        if CHECKED.load(Ordering::Relaxed) {
            return Ok(());
        }
        let layout = self.api.layout;
        // SAFETY: a Var reaches beyond its tensor in every release. Only words and bytes are read,
        // and no pointer is followed.
        let fits = unsafe {
            let references = self.var.add(layout.references).cast::<RefCount>();
            is_variable(
                self.var.cast::<usize>().read() == self.api.table,
                (*references).load(Ordering::Relaxed),
                self.var.add(layout.is_initialized).read(),
                std::slice::from_raw_parts(self.tensor(), SHAPE_SIZE),
            )
        };
        if !fits {
            let version = symbols::tensorflow_version().unwrap_or("of unknown version");
            return Err(Error::Internal(format!(
                "variables of TensorFlow {version} are not laid out as in the releases this \
                 plugin knows; set TF_WGPU_VISIBLE_DEVICES=-1 to go without WGPU, and \
                 please report this build of TensorFlow"
            )));
        }
        CHECKED.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// The lock, an `absl::Mutex`.
    const fn mutex(&self) -> *mut u8 {
        // SAFETY: the offset is within the Var.
        unsafe { self.var.add(self.api.layout.mutex) }
    }

    /// Takes the lock.
    fn lock(&self) -> Lock<'_> {
        // SAFETY: our reference keeps the Var alive.
        unsafe { (self.api.lock)(self.mutex()) };
        Lock(self)
    }

    fn check_initialized(&self) -> Result<()> {
        // SAFETY: a C++ bool, guarded by the lock that we hold.
        if unsafe { *self.var.add(self.api.layout.is_initialized) } == 0 {
            return Err(super::not_found("the variable has no value"));
        }
        Ok(())
    }

    /// `Var::tensor()`.
    const fn tensor(&self) -> *mut u8 {
        // SAFETY: the offset is within the Var.
        unsafe { self.var.add(self.api.layout.tensor) }
    }

    /// A reference to the current value.
    fn value(&self, ctx: &Context) -> Result<OwnedTensor> {
        // A TF_Status is an absl::Status and nothing else.
        let status = ctx.status();
        // SAFETY: the lock is held; tensor and status are valid for the call, and the status is OK
        // before it.
        let raw = unsafe { (self.api.to_c)(self.tensor(), status.as_ptr()) };
        // SAFETY: TF_TensorFromTensor returns an owned tensor or null.
        unsafe { OwnedTensor::new(ctx.api(), raw, status) }
    }

    /// Whether there is no other reference to the buffer, as far as that can be known.
    fn is_unique(&self) -> bool {
        // SAFETY: the lock is held, so no thread can take another reference meanwhile.
        self.api.unique.is_some_and(|unique| unsafe { unique(self.tensor()) })
    }

    /// Makes `new` the value.
    fn set(&self, ctx: &Context, new: &OwnedTensor) -> Result<()> {
        // SAFETY: the lock is held. The function assigns to the tensor, which releases its old
        // buffer.
        let status = unsafe { (self.api.from_c)(new.as_ptr(), self.tensor()) };
        status.take(ctx.status())
    }
}

/// The size of a `TensorShape`, with which a `Tensor` starts. The last three of its first sixteen
/// bytes are the type, the rank and the representation of the extents. The number of elements
/// follows.
const SHAPE_SIZE: usize = 24;

/// Whether these members look like a variable's.
fn is_variable(
    has_table: bool,
    references: impl Into<i64>,
    is_initialized: u8,
    shape: &[u8],
) -> bool {
    let (dtype, representation) = (shape[13], shape[15]);
    let elements = i64::from_ne_bytes(shape[16..24].try_into().unwrap_or([0xff; 8]));
    has_table
        // The variable's owner holds one reference, and we hold another.
        && (1..1 << 31).contains(&references.into())
        && is_initialized <= 1
        && (1..64).contains(&dtype)
        && representation <= 2
        && elements >= 0
}

/// A lock that is held until drop.
struct Lock<'v>(&'v Variable);

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        // SAFETY: we hold the lock, and the Var is alive by the reference of `Variable`.
        unsafe { (self.0.api.unlock)(self.0.mutex()) };
    }
}

impl Drop for Variable {
    fn drop(&mut self) {
        // SAFETY: we hold one reference. The count is the atomic at this offset. At zero,
        // `RefCounted::Unref` calls NotifyDeleted and then deletes the object. The virtual table
        // starts with the two destructors, of which the second deletes, and NotifyDeleted comes
        // after them.
        unsafe {
            let count = &*self.var.add(self.api.layout.references).cast::<RefCount>();
            if count.fetch_sub(1, Ordering::AcqRel) == 1 {
                let table = *self.var.cast::<*const unsafe extern "C" fn(*mut u8)>();
                (*table.add(2))(self.var);
                (*table.add(1))(self.var);
            }
        }
    }
}

pub(super) fn read(api: &'static CxxApi, ctx: &mut Context, i: usize) -> Result<Tensor> {
    let variable = Variable::find(api, ctx, i)?;
    let lock = variable.lock();
    variable.check_initialized()?;
    let value = variable.value(ctx)?;
    drop(lock);
    drop(variable);
    let view = value.view()?;
    ctx.hold(view.address, value);
    Ok(view)
}

pub(super) fn update(
    api: &'static CxxApi,
    ctx: &mut Context,
    i: usize,
    mode: VariableUpdate,
    update: &mut dyn FnMut(&mut dyn OpContext, &Tensor, &Tensor) -> Result<()>,
) -> Result<()> {
    let variable = Variable::find(api, ctx, i)?;
    let _lock = variable.lock();
    variable.check_initialized()?;
    let unique = variable.is_unique();
    let value = variable.value(ctx)?;
    let old = value.view()?;
    if unique && old.address.is_multiple_of(OUTPUT_ALIGNMENT) {
        return ctx.with_locked(i, |ctx| update(ctx, &old, &old));
    }
    let fresh = ctx.allocate_temp(old.dtype, &old.dims)?;
    let new = fresh.view()?;
    if mode == VariableUpdate::Sparse {
        ctx.device().copy(new.address, old.address, old.bytes())?;
    }
    ctx.with_locked(i, |ctx| update(ctx, &old, &new))?;
    variable.set(ctx, &fresh)
}

pub(super) fn update_all(
    api: &'static CxxApi,
    ctx: &mut Context,
    inputs: &[usize],
    update: &mut UpdateAll<'_>,
) -> Result<()> {
    let mut variables: SmallVec<[Variable; 4]> = SmallVec::with_capacity(inputs.len());
    for i in inputs {
        variables.push(Variable::find(api, ctx, *i)?);
    }
    let mut order: SmallVec<[&Variable; 4]> = variables.iter().collect();
    order.sort_by_key(|v| v.var);
    order.dedup_by_key(|v| v.var);
    let _locks: SmallVec<[Lock<'_>; 4]> = order.iter().map(|v| v.lock()).collect();
    let mut held: SmallVec<[OwnedTensor; 4]> = SmallVec::with_capacity(order.len());
    // The value of each variable once, in the order of `order`.
    let mut own: SmallVec<[Tensor; 4]> = SmallVec::with_capacity(order.len());
    let mut replaced: SmallVec<[(&Variable, usize); 4]> = SmallVec::new();
    for variable in &order {
        variable.check_initialized()?;
        let unique = variable.is_unique();
        let value = variable.value(ctx)?;
        let old = value.view()?;
        held.push(value);
        if unique && old.address.is_multiple_of(OUTPUT_ALIGNMENT) {
            own.push(old);
            continue;
        }
        let fresh = ctx.allocate_temp(old.dtype, &old.dims)?;
        let new = fresh.view()?;
        ctx.device().copy(new.address, old.address, old.bytes())?;
        replaced.push((variable, held.len()));
        held.push(fresh);
        own.push(new);
    }
    let value = |v: &Variable| own[order.partition_point(|other| other.var < v.var)].clone();
    let values: SmallVec<[Tensor; 4]> = variables.iter().map(value).collect();
    ctx.with_all_locked(inputs, |ctx| update(ctx, &values))?;
    for (variable, fresh) in replaced {
        variable.set(ctx, &held[fresh])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_distinct_and_consistent() {
        for (i, r) in RELEASES.iter().enumerate() {
            assert!(
                r.version.ends_with('.') && r.description.contains(r.version.trim_end_matches('.'))
            );
            assert!(RELEASES[..i].iter().all(|other| other.version != r.version));
            assert!(is_release(&format!("{}0", r.version), r.version));
            assert!(r.layout.mutex > r.layout.is_initialized && r.layout.tensor > r.layout.mutex);
        }
    }

    #[test]
    fn a_variable_is_told_from_other_objects() {
        let mut shape = [0; SHAPE_SIZE];
        (shape[13], shape[14]) = (1, 1);
        shape[16] = 12;
        assert!(is_variable(true, 2, 1, &shape) && is_variable(true, 1, 0, &shape));
        assert!(!is_variable(false, 2, 1, &shape), "another class");
        assert!(
            !is_variable(true, 0, 1, &shape) && !is_variable(true, 1_i64 << 40, 1, &shape),
            "no count"
        );
        assert!(!is_variable(true, 2, 7, &shape), "no bool");
        for (place, value) in [(13, 0), (13, 200), (15, 9), (23, 0x80)] {
            let mut other = shape;
            other[place] = value;
            assert!(!is_variable(true, 2, 1, &other), "byte {place}");
        }
    }
}
