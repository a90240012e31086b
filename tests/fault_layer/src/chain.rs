//! The protocol of Vulkan's layers: the loader asks for functions by name, and each element of the
//! chain asks the next one.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};
use std::sync::{PoisonError, RwLock};

use crate::caches;
use crate::faults::{self, strike};
use crate::functions::{COUNT, FUNCTIONS, Id};
use crate::vulkan::{
    CreateDevice, CreateInfo, CreateInstance, Destroy, Function, GetProcAddr, LAYER_LINK_INFO,
    LAYER_NEGOTIATE_INTERFACE_STRUCT, LOADER_DEVICE_CREATE_INFO, LOADER_INSTANCE_CREATE_INFO,
    LayerCreateInfo, Link, Negotiation, Object, VK_ERROR_INITIALIZATION_FAILED, VK_SUCCESS,
    VkResult,
};
use crate::{counters, listings, slow};

/// The version of the interface between loader and layers that has this negotiation.
const INTERFACE_VERSION: u32 = 2;

/// The next element of one instance or device.
#[derive(Clone, Copy)]
struct Next {
    /// The instance or device itself, as a number.
    object: usize,
    get_proc_addr: GetProcAddr,
    /// The function that destroys `object`. It is looked up early, because layers above forget the
    /// object before they pass the call on.
    destroy: Option<Function>,
    /// The functions in the order of the table.
    functions: [Option<Function>; COUNT],
}

impl Next {
    /// # Safety
    /// `get_proc_addr` must be the next element's and know `object`.
    unsafe fn new(object: Object, get_proc_addr: GetProcAddr, destroy: &CStr) -> Self {
        let find = |name: &CStr| {
            // SAFETY: the caller's contract.
            unsafe { get_proc_addr(object, name.as_ptr()) }
        };
        let functions = std::array::from_fn(|i| {
            let name = FUNCTIONS[i].name;
            // Drivers of Vulkan 1.1 and older have some functions only as extensions.
            find(name).or_else(|| {
                let extended = [name.to_bytes(), b"KHR\0"].concat();
                find(CStr::from_bytes_with_nul(&extended).expect("it ends with its only NUL"))
            })
        });
        Self { object: object as usize, get_proc_addr, destroy: find(destroy), functions }
    }
}

/// The next elements by the loader's table, to which every handle of an instance or a device
/// points.
static NEXT: RwLock<Option<HashMap<usize, Next>>> = RwLock::new(None);

/// The key of an instance or a device, the same for all its handles.
///
/// # Safety
/// `object` must be a dispatchable handle.
unsafe fn key(object: Object) -> usize {
    // SAFETY: the caller's contract.
    unsafe { *object }
}

/// # Safety
/// As for [`key`].
unsafe fn next_of(object: Object) -> Option<Next> {
    // SAFETY: the caller's contract.
    let key = unsafe { key(object) };
    NEXT.read().unwrap_or_else(PoisonError::into_inner).as_ref()?.get(&key).copied()
}

fn with_map<T>(f: impl FnOnce(&mut HashMap<usize, Next>) -> T) -> T {
    f(NEXT.write().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

/// The next element's function for `object`.
///
/// # Safety
/// `object` must be a dispatchable handle of an instance or a device that was made through this
/// layer.
pub unsafe fn next(object: Object, id: Id) -> Function {
    // SAFETY: the caller's contract.
    let next = unsafe { next_of(object) }
        .expect("a handle of an instance or device made through this layer");
    next.functions[id as usize].expect("a function that the next element has")
}

/// The next element's function of this name, which the table does not have.
///
/// # Safety
/// As for [`next`].
pub unsafe fn function(object: Object, name: &CStr) -> Option<Function> {
    // SAFETY: the caller's contract.
    unsafe { (next_of(object)?.get_proc_addr)(object, name.as_ptr()) }
}

/// The first call of the loader.
///
/// # Safety
/// The loader passes its own struct.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn vkNegotiateLoaderLayerInterfaceVersion(
    negotiation: *mut Negotiation,
) -> VkResult {
    // SAFETY: the caller's contract.
    let Some(negotiation) = (unsafe { negotiation.as_mut() }) else {
        return VK_ERROR_INITIALIZATION_FAILED;
    };
    if negotiation.s_type != LAYER_NEGOTIATE_INTERFACE_STRUCT
        || negotiation.version < INTERFACE_VERSION
    {
        return VK_ERROR_INITIALIZATION_FAILED;
    }
    negotiation.version = INTERFACE_VERSION;
    negotiation.get_instance_proc_addr = Some(get_instance_proc_addr);
    negotiation.get_device_proc_addr = Some(get_device_proc_addr);
    negotiation.get_physical_device_proc_addr = None;
    VK_SUCCESS
}

/// The functions that the chain itself must wrap.
unsafe fn own(name: &CStr) -> Option<Function> {
    // SAFETY: a function of any type may be kept as another one until it is called.
    unsafe {
        Some(match name.to_bytes() {
            b"vkGetInstanceProcAddr" => {
                std::mem::transmute::<GetProcAddr, Function>(get_instance_proc_addr)
            }
            b"vkGetDeviceProcAddr" => {
                std::mem::transmute::<GetProcAddr, Function>(get_device_proc_addr)
            }
            b"vkCreateInstance" => std::mem::transmute::<CreateInstance, Function>(create_instance),
            b"vkCreateDevice" => std::mem::transmute::<CreateDevice, Function>(create_device),
            b"vkDestroyInstance" => std::mem::transmute::<Destroy, Function>(destroy_instance),
            b"vkDestroyDevice" => std::mem::transmute::<Destroy, Function>(destroy_device),
            _ => return None,
        })
    }
}

/// Our wrapper of a function, or the next element's function if there is none.
unsafe fn find(object: Object, name: *const c_char) -> Option<Function> {
    // SAFETY: the loader passes a string and a handle, or null while there is no instance.
    unsafe {
        let text = CStr::from_ptr(name);
        if faults::crashes(text) {
            return Some(faults::crash);
        }
        if let Some(own) = own(text) {
            return Some(own);
        }
        if object.is_null() {
            return None;
        }
        let below = (next_of(object)?.get_proc_addr)(object, name)?;
        let plain = text.to_bytes().strip_suffix(b"KHR").unwrap_or(text.to_bytes());
        let wrappers = [caches::wrapper, slow::wrapper, listings::wrapper, counters::wrapper];
        if let Some(wrapper) = wrappers.iter().find_map(|wrapper| wrapper(text)) {
            return Some(wrapper);
        }
        let row = FUNCTIONS.iter().find(|row| row.name.to_bytes() == plain);
        Some(row.and_then(|row| row.wrapper).unwrap_or(below))
    }
}

unsafe extern "system" fn get_instance_proc_addr(
    instance: Object,
    name: *const c_char,
) -> Option<Function> {
    // SAFETY: Vulkan's contract.
    unsafe { find(instance, name) }
}

unsafe extern "system" fn get_device_proc_addr(
    device: Object,
    name: *const c_char,
) -> Option<Function> {
    // SAFETY: Vulkan's contract.
    unsafe { find(device, name) }
}

/// Takes this layer's link out of the chain of a create info.
///
/// # Safety
/// `info` must be the create info that the loader passed.
unsafe fn take_link(info: *const c_void, s_type: i32) -> Option<&'static Link> {
    // SAFETY: every struct of the chain begins with its type and the next one; the link is the
    // loader's.
    unsafe {
        let mut at: *mut LayerCreateInfo = (*info.cast::<CreateInfo>()).next;
        while let Some(layer) = at.as_mut() {
            if layer.s_type == s_type && layer.function == LAYER_LINK_INFO {
                let link = &*layer.link;
                layer.link = link.next;
                return Some(link);
            }
            at = layer.next;
        }
        None
    }
}

unsafe extern "system" fn create_instance(
    info: *const c_void,
    allocator: *const c_void,
    made: *mut Object,
) -> VkResult {
    if let Some(result) = strike(Id::vkCreateInstance) {
        return result;
    }
    // SAFETY: the protocol of layers: the next element's function is looked up with a null handle.
    unsafe {
        let Some(link) = take_link(info, LOADER_INSTANCE_CREATE_INFO) else {
            return VK_ERROR_INITIALIZATION_FAILED;
        };
        let get = link.get_instance_proc_addr;
        let Some(create) = get(std::ptr::null(), c"vkCreateInstance".as_ptr()) else {
            return VK_ERROR_INITIALIZATION_FAILED;
        };
        let result = std::mem::transmute::<Function, CreateInstance>(create)(info, allocator, made);
        if result == VK_SUCCESS {
            let next = Next::new(*made, get, c"vkDestroyInstance");
            with_map(|map| map.insert(key(*made), next));
        }
        result
    }
}

unsafe extern "system" fn create_device(
    physical: Object,
    info: *const c_void,
    allocator: *const c_void,
    made: *mut Object,
) -> VkResult {
    if let Some(result) = strike(Id::vkCreateDevice) {
        return result;
    }
    // SAFETY: the protocol of layers.
    unsafe {
        let Some(link) = take_link(info, LOADER_DEVICE_CREATE_INFO) else {
            return VK_ERROR_INITIALIZATION_FAILED;
        };
        let get = link.get_device_proc_addr;
        let instance = next_of(physical).map_or(std::ptr::null(), |next| next.object as Object);
        let Some(create) = (link.get_instance_proc_addr)(instance, c"vkCreateDevice".as_ptr())
        else {
            return VK_ERROR_INITIALIZATION_FAILED;
        };
        let create = std::mem::transmute::<Function, CreateDevice>(create);
        let result = slow::starts_workers(|| {
            listings::open(info, |info| create(physical, info, allocator, made))
        });
        if result == VK_SUCCESS {
            let next = Next::new(*made, get, c"vkDestroyDevice");
            with_map(|map| map.insert(key(*made), next));
        }
        result
    }
}

/// Forgets an instance or a device, and makes the next element destroy it.
unsafe fn destroy(object: Object, allocator: *const c_void) {
    if object.is_null() {
        return;
    }
    // SAFETY: the handle is alive until the next element's function ends.
    unsafe {
        let next = with_map(|map| map.remove(&key(object)));
        if let Some(destroy) = next.and_then(|next| next.destroy) {
            std::mem::transmute::<Function, Destroy>(destroy)(object, allocator);
        }
    }
}

unsafe extern "system" fn destroy_instance(instance: Object, allocator: *const c_void) {
    // SAFETY: Vulkan's contract.
    unsafe { destroy(instance, allocator) }
}

unsafe extern "system" fn destroy_device(device: Object, allocator: *const c_void) {
    // SAFETY: Vulkan's contract.
    unsafe { destroy(device, allocator) }
}
