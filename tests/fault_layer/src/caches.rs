//! Pipeline caches that keep the compiled pipelines. Drivers that have a cache of their own, or
//! none, give programs an empty one, so that a test could not see whether a program stores it and
//! gives it back.
//!
//! Off until [`keep_pipelines`]. Then a cache's data are the driver's data, the hashes of the
//! shaders of all pipelines that were compiled with it, their number and [`MARK`].

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, c_void};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::functions::{FUNCTIONS, Id};
use crate::miscompiles::miscompiled;
use crate::vulkan::{Function, Object, VK_INCOMPLETE, VK_SUCCESS, VkResult};
use crate::{fast_math, indices, listings, refusals};

const MARK: [u8; 8] = *b"compiled";
/// The bytes of a hash, and of the number of hashes.
const WORD: usize = size_of::<u64>();

/// `VkShaderModuleCreateInfo` and `VkPipelineCacheCreateInfo`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Bytes {
    s_type: i32,
    next: *const c_void,
    flags: u32,
    size: usize,
    data: *const u8,
}

/// `VkComputePipelineCreateInfo`, with its `VkPipelineShaderStageCreateInfo`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Pipeline {
    s_type: i32,
    next: *const c_void,
    flags: u32,
    stage: Stage,
    layout: u64,
    base: u64,
    base_index: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Stage {
    s_type: i32,
    next: *const c_void,
    flags: u32,
    stage: u32,
    module: u64,
    name: *const c_void,
    specialization: *const c_void,
}

type Create = unsafe extern "system" fn(Object, *const Bytes, *const c_void, *mut u64) -> VkResult;
type GetData = unsafe extern "system" fn(Object, u64, *mut usize, *mut u8) -> VkResult;
type Compile = unsafe extern "system" fn(
    Object,
    u64,
    u32,
    *const Pipeline,
    *const c_void,
    *mut u64,
) -> VkResult;

/// A cache: the hashes that it was made of, and those of pipelines that were compiled since.
#[derive(Default)]
struct Cache {
    given: BTreeSet<u64>,
    compiled: BTreeSet<u64>,
}

impl Cache {
    fn hashes(&self) -> BTreeSet<u64> {
        &self.given | &self.compiled
    }
}

struct State {
    on: bool,
    /// The hash of each shader module's code.
    modules: BTreeMap<u64, u64>,
    caches: BTreeMap<u64, Cache>,
    found: u64,
}

static STATE: Mutex<State> =
    Mutex::new(State { on: false, modules: BTreeMap::new(), caches: BTreeMap::new(), found: 0 });

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes caches keep pipelines from now on.
pub fn keep_pipelines() {
    state().on = true;
}

/// The number of pipelines that were in the data of which their cache was made.
pub fn found() -> u64 {
    state().found
}

/// The wrapper of a function that deals with caches.
pub fn wrapper(name: &CStr) -> Option<Function> {
    // SAFETY: a function of any type may be kept as another one until it is called.
    unsafe {
        Some(match name.to_bytes() {
            b"vkCreateShaderModule" => std::mem::transmute::<Create, Function>(create_module),
            b"vkCreatePipelineCache" => std::mem::transmute::<Create, Function>(create_cache),
            b"vkGetPipelineCacheData" => std::mem::transmute::<GetData, Function>(get_data),
            b"vkCreateComputePipelines" => std::mem::transmute::<Compile, Function>(compile),
            _ => return None,
        })
    }
}

/// The table's wrapper, which counts the call and makes it fail or passes it on.
///
/// # Safety
/// `T` must be the function's type.
unsafe fn below<T: Copy>(id: Id) -> T {
    let function = FUNCTIONS[id as usize].wrapper.expect("a function with a wrapper");
    // SAFETY: function pointers have one size; the type is the caller's contract.
    unsafe { std::mem::transmute_copy(&function) }
}

/// # Safety
/// `info` must point to a create info with data that can be read.
unsafe fn data<'a>(info: *const Bytes) -> &'a [u8] {
    // SAFETY: the caller's contract.
    unsafe {
        let Bytes { size, data, .. } = *info;
        if size == 0 { &[] } else { std::slice::from_raw_parts(data, size) }
    }
}

unsafe extern "system" fn create_module(
    device: Object,
    info: *const Bytes,
    allocator: *const c_void,
    module: *mut u64,
) -> VkResult {
    // SAFETY: Vulkan's contract.
    unsafe {
        let create = below::<Create>(Id::vkCreateShaderModule);
        let rewritten = miscompiled(data(info))
            .or_else(|| fast_math::rewritten(data(info)))
            .or_else(|| indices::rewritten(data(info)));
        let result = match rewritten {
            Some(code) => {
                let info = Bytes { size: code.len(), data: code.as_ptr(), ..*info };
                create(device, &info, allocator, module)
            }
            None => create(device, info, allocator, module),
        };
        if result == VK_SUCCESS {
            let mut hasher = DefaultHasher::new();
            data(info).hash(&mut hasher);
            let hash = hasher.finish();
            refusals::created(hash, data(info));
            state().modules.insert(*module, hash);
        }
        result
    }
}

/// The driver's part of a cache's data, and the hashes behind it.
fn split(data: &[u8]) -> (&[u8], BTreeSet<u64>) {
    let word = |at: &[u8]| u64::from_le_bytes(at.try_into().expect("8 bytes"));
    let found = data.strip_suffix(&MARK).and_then(|rest| {
        let (rest, count) = rest.split_last_chunk::<WORD>()?;
        let hashes = usize::try_from(u64::from_le_bytes(*count)).ok()?.checked_mul(WORD)?;
        let (driver, hashes) = rest.split_at_checked(rest.len().checked_sub(hashes)?)?;
        Some((driver, hashes.chunks(WORD).map(word).collect()))
    });
    found.unwrap_or((data, BTreeSet::new()))
}

unsafe extern "system" fn create_cache(
    device: Object,
    info: *const Bytes,
    allocator: *const c_void,
    cache: *mut u64,
) -> VkResult {
    // SAFETY: Vulkan's contract.
    unsafe {
        let (driver, given) = split(data(info));
        let info = Bytes { size: driver.len(), ..*info };
        let result = below::<Create>(Id::vkCreatePipelineCache)(device, &info, allocator, cache);
        if result == VK_SUCCESS {
            state().caches.insert(*cache, Cache { given, ..Cache::default() });
        }
        result
    }
}

unsafe extern "system" fn get_data(
    device: Object,
    cache: u64,
    size: *mut usize,
    data: *mut u8,
) -> VkResult {
    let hashes = {
        let state = state();
        state.caches.get(&cache).filter(|_| state.on).map(Cache::hashes)
    };
    // SAFETY: Vulkan's contract: `data` has room for `size` bytes, or is null to ask for their
    // number.
    unsafe {
        let next = below::<GetData>(Id::vkGetPipelineCacheData);
        let Some(hashes) = hashes else { return next(device, cache, size, data) };
        let mut tail: Vec<u8> = hashes.iter().flat_map(|hash| hash.to_le_bytes()).collect();
        tail.extend((hashes.len() as u64).to_le_bytes());
        tail.extend(MARK);
        if data.is_null() {
            let result = next(device, cache, size, data);
            *size += tail.len();
            return result;
        }
        let Some(room) = (*size).checked_sub(tail.len()) else { return VK_INCOMPLETE };
        *size = room;
        let result = next(device, cache, size, data);
        if result == VK_SUCCESS {
            data.add(*size).copy_from_nonoverlapping(tail.as_ptr(), tail.len());
            *size += tail.len();
        }
        result
    }
}

unsafe extern "system" fn compile(
    device: Object,
    cache: u64,
    count: u32,
    infos: *const Pipeline,
    allocator: *const c_void,
    pipelines: *mut u64,
) -> VkResult {
    // SAFETY: Vulkan's contract.
    unsafe {
        let refused = std::slice::from_raw_parts(infos, count as usize).iter().find_map(|info| {
            let hash = *state().modules.get(&info.stage.module)?;
            refusals::answer(hash, info.flags)
        });
        if let Some(result) = refused {
            return result;
        }
        let listed: Vec<Pipeline> = std::slice::from_raw_parts(infos, count as usize)
            .iter()
            .map(|info| Pipeline { flags: listings::flags(info.flags), ..*info })
            .collect();
        let next = below::<Compile>(Id::vkCreateComputePipelines);
        let result = next(device, cache, count, listed.as_ptr(), allocator, pipelines);
        if result == VK_SUCCESS {
            let mut state = state();
            let State { modules, caches, found, .. } = &mut *state;
            if let Some(cache) = caches.get_mut(&cache) {
                for info in std::slice::from_raw_parts(infos, count as usize) {
                    let Some(hash) = modules.get(&info.stage.module) else { continue };
                    *found += u64::from(cache.given.contains(hash));
                    cache.compiled.insert(*hash);
                }
            }
        }
        result
    }
}
