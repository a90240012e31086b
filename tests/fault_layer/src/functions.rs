//! The table of functions that can fail. A row is a function with its parameters behind the first
//! one, a handle, and the results other than success that Vulkan allows. It becomes a wrapper that
//! counts the call and makes it fail or passes it on. Rows without parameters are wrapped by
//! [`chain`].

use std::ffi::{CStr, c_void};

use crate::chain;
use crate::faults::strike;
use crate::vulkan::{Function, Object, VkResult};

const TIMEOUT: VkResult = 2;
const HOST: VkResult = -1;
const DEVICE: VkResult = -2;
const INITIALIZATION: VkResult = -3;
const LOST: VkResult = -4;
const MAP: VkResult = -5;
const TOO_MANY: VkResult = -10;
const FRAGMENTED: VkResult = -12;
const UNKNOWN: VkResult = -13;
const FRAGMENTATION: VkResult = -1_000_161_000;

/// A function that can fail.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Its name.
    pub name: &'static CStr,
    /// The results that Vulkan allows it, apart from success.
    pub results: &'static [VkResult],
    /// Its wrapper; None for functions that [`chain`] wraps itself.
    pub(crate) wrapper: Option<Function>,
}

type Any = *const c_void;
type Out = *mut c_void;

macro_rules! wrapper {
    ($name:ident) => { None };
    ($name:ident ($($arg:ident: $type:ty),*)) => {{
        type Wrapped = unsafe extern "system" fn(Object $(, $type)*) -> VkResult;
        unsafe extern "system" fn wrapper(object: Object $(, $arg: $type)*) -> VkResult {
            if let Some(result) = strike(Id::$name) {
                return result;
            }
            // SAFETY: the next element's function of this name, with the types that Vulkan gives
            // it.
            unsafe {
                let next = chain::next(object, Id::$name);
                std::mem::transmute::<Function, Wrapped>(next)(object $(, $arg)*)
            }
        }
        // SAFETY: the loader's functions have this type until they are called with their own.
        Some(unsafe { std::mem::transmute::<Wrapped, Function>(wrapper) })
    }};
}

macro_rules! functions {
    ($($name:ident $(($($arg:ident: $type:ty),*))? [$($result:ident),*])*) => {
        /// The index of a row.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[expect(non_camel_case_types, reason = "Vulkan's names")]
        #[repr(usize)]
        pub enum Id { $($name),* }

        /// Number of functions.
        pub const COUNT: usize = [$(Id::$name),*].len();

        /// All functions that can fail.
        pub static FUNCTIONS: &[Row] = &[$(Row {
            name: c_str(concat!(stringify!($name), "\0")),
            results: &[$($result),*],
            wrapper: wrapper!($name $(($($arg: $type),*))?),
        }),*];
    };
}

const fn c_str(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a name ends with its only NUL"),
    }
}

functions! {
    vkCreateInstance [HOST, DEVICE, INITIALIZATION]
    vkCreateDevice [HOST, DEVICE, INITIALIZATION, LOST, TOO_MANY]
    vkEnumeratePhysicalDevices(count: Out, devices: Out) [HOST, DEVICE, INITIALIZATION]
    vkEnumerateDeviceExtensionProperties(layer: Any, count: Out, properties: Out) [HOST, DEVICE]
    vkAllocateMemory(info: Any, allocator: Any, memory: Out) [HOST, DEVICE, TOO_MANY]
    vkMapMemory(memory: u64, offset: u64, size: u64, flags: u32, data: Out) [HOST, DEVICE, MAP]
    vkFlushMappedMemoryRanges(count: u32, ranges: Any) [HOST, DEVICE]
    vkInvalidateMappedMemoryRanges(count: u32, ranges: Any) [HOST, DEVICE]
    vkCreateBuffer(info: Any, allocator: Any, buffer: Out) [HOST, DEVICE]
    vkBindBufferMemory(buffer: u64, memory: u64, offset: u64) [HOST, DEVICE]
    vkCreateShaderModule(info: Any, allocator: Any, module: Out) [HOST, DEVICE]
    vkCreateDescriptorSetLayout(info: Any, allocator: Any, layout: Out) [HOST, DEVICE]
    vkCreatePipelineLayout(info: Any, allocator: Any, layout: Out) [HOST, DEVICE]
    vkCreatePipelineCache(info: Any, allocator: Any, cache: Out) [HOST, DEVICE]
    vkGetPipelineCacheData(cache: u64, size: Out, data: Out) [HOST, DEVICE]
    vkCreateComputePipelines(cache: u64, count: u32, infos: Any, allocator: Any,
        pipelines: Out) [HOST, DEVICE, UNKNOWN]
    vkCreateDescriptorPool(info: Any, allocator: Any, pool: Out) [HOST, DEVICE, FRAGMENTATION]
    vkAllocateDescriptorSets(info: Any, sets: Out) [HOST, DEVICE, FRAGMENTED]
    vkCreateCommandPool(info: Any, allocator: Any, pool: Out) [HOST, DEVICE]
    vkResetCommandPool(pool: u64, flags: u32) [HOST, DEVICE]
    vkAllocateCommandBuffers(info: Any, buffers: Out) [HOST, DEVICE]
    vkBeginCommandBuffer(info: Any) [HOST, DEVICE]
    vkEndCommandBuffer() [HOST, DEVICE]
    vkCreateFence(info: Any, allocator: Any, fence: Out) [HOST, DEVICE]
    vkWaitForFences(count: u32, fences: Any, all: u32, timeout: u64) [HOST, DEVICE, LOST, TIMEOUT]
    vkGetFenceStatus(fence: u64) [HOST, DEVICE, LOST]
    vkCreateSemaphore(info: Any, allocator: Any, semaphore: Out) [HOST, DEVICE]
    vkWaitSemaphores(info: Any, timeout: u64) [HOST, DEVICE, LOST, TIMEOUT]
    vkGetSemaphoreCounterValue(semaphore: u64, value: Out) [HOST, DEVICE, LOST]
    vkCreateQueryPool(info: Any, allocator: Any, pool: Out) [HOST, DEVICE]
    vkGetQueryPoolResults(pool: u64, first: u32, count: u32, size: usize, data: Out, stride: u64,
        flags: u32) [HOST, DEVICE, LOST]
    vkQueueSubmit(count: u32, submits: Any, fence: u64) [HOST, DEVICE, LOST]
    vkQueueSubmit2(count: u32, submits: Any, fence: u64) [HOST, DEVICE, LOST]
    vkQueueWaitIdle() [HOST, DEVICE, LOST]
    vkDeviceWaitIdle() [HOST, DEVICE, LOST]
}
