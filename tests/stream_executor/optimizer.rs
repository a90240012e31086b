//! The graph C API: registration, and optimizers from their creation to their end, with a graph
//! that only the fake TensorFlow knows.

use std::ffi::{CStr, c_char, c_long};

use super::*;

/// c/experimental/grappler/grappler.h, the part that the tests read.
#[repr(C)]
struct Params {
    struct_size: usize,
    ext: *mut c_void,
    version: [i32; 3],
    device_type: *const c_char,
    configs: *mut Configs,
    optimizer: *mut Optimizer,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Configs {
    struct_size: usize,
    ext: *mut c_void,
    passes: [c_int; 19],
}

type Create = unsafe extern "C" fn() -> *mut c_void;
type Optimize =
    unsafe extern "C" fn(*mut c_void, *const Buffer, *const c_void, *mut Buffer, *mut TF_Status);
type Destroy = unsafe extern "C" fn(*mut c_void);

#[repr(C)]
#[derive(Clone, Copy)]
struct Optimizer {
    struct_size: usize,
    ext: *mut c_void,
    create: Option<Create>,
    optimize: Option<Optimize>,
    destroy: Option<Destroy>,
}

const PARAMS: usize = 56;
const CONFIGS: usize = 92;
const OPTIMIZER: usize = 40;
const LAYOUT: usize = 12;
const REMAPPING: usize = 13;

#[repr(C)]
struct Buffer {
    data: *const c_void,
    length: usize,
    deallocator: Option<unsafe extern "C" fn(*mut c_void, usize)>,
}

/// A function or variable of one of the two libraries.
fn symbol<T: Copy>(library: &libloading::Library, name: &CStr) -> T {
    // SAFETY: every caller names the type that the symbol has.
    *unsafe { library.get::<T>(name.to_bytes_with_nul()) }
        .unwrap_or_else(|e| panic!("{name:?}: {e}"))
}

/// Calls TF_InitGraph with structs that claim these sizes. The bytes that it must not touch are
/// filled with 0x55.
fn register(
    params_size: usize,
    configs_size: usize,
    optimizer_size: usize,
) -> (Params, Configs, Optimizer) {
    let p = plugin();
    let init_kernels: extern "C" fn() = symbol(&p.library, c"TF_InitKernel");
    init_kernels();
    let init: unsafe extern "C" fn(*mut Params, *mut TF_Status) =
        symbol(&p.library, c"TF_InitGraph");
    // SAFETY: all bit patterns are valid values of both; an Option of a function may not be called,
    // and is not.
    let (mut configs, mut optimizer): (Configs, Optimizer) = unsafe {
        (
            std::mem::transmute::<[u8; size_of::<Configs>()], Configs>(
                [0x55; size_of::<Configs>()],
            ),
            std::mem::transmute::<[u8; size_of::<Optimizer>()], Optimizer>(
                [0x55; size_of::<Optimizer>()],
            ),
        )
    };
    (configs.struct_size, optimizer.struct_size) = (configs_size, optimizer_size);
    let mut params = Params {
        struct_size: params_size,
        ext: null_mut(),
        version: [0, 0, 1],
        device_type: std::ptr::null(),
        configs: &raw mut configs,
        optimizer: &raw mut optimizer,
    };
    // SAFETY: the parameters are what TensorFlow passes.
    p.ok(|s| unsafe { init(&raw mut params, s) });
    (params, configs, optimizer)
}

fn functions() -> (Create, Optimize, Destroy) {
    let (params, configs, optimizer) = register(PARAMS, CONFIGS, OPTIMIZER);
    // SAFETY: a static text.
    assert_eq!(unsafe { CStr::from_ptr(params.device_type) }, c"WGPU");
    assert_eq!((configs.passes[LAYOUT], configs.passes[REMAPPING]), (1, 1), "switched off");
    assert_eq!(optimizer.struct_size, OPTIMIZER);
    (optimizer.create.unwrap(), optimizer.optimize.unwrap(), optimizer.destroy.unwrap())
}

#[test]
fn registration_stays_within_smaller_structs() {
    const UNTOUCHED: u64 = 0x5555_5555_5555_5555;
    let address = |f: Option<Destroy>| f.map_or(0, |f| f as usize as u64);
    let (_, configs, optimizer) = register(PARAMS, CONFIGS, OPTIMIZER - 8);
    assert_eq!(address(optimizer.destroy), UNTOUCHED);
    assert!(
        optimizer.create.is_some_and(|f| f as usize as u64 != UNTOUCHED),
        "what fits is filled"
    );
    assert_eq!(
        (optimizer.struct_size, configs.passes[LAYOUT]),
        (OPTIMIZER - 8, 0),
        "nothing is switched off"
    );
    let (_, configs, _) = register(PARAMS, 16 + 4 * REMAPPING, OPTIMIZER);
    assert_eq!((configs.passes[LAYOUT], configs.passes[REMAPPING]), (0, 0x5555_5555));
    for (params, configs, optimizer) in
        [(PARAMS - 8, CONFIGS, OPTIMIZER), (0, 0, 0), (PARAMS, 8, 8)]
    {
        let (_, configs, optimizer) = register(params, configs, optimizer);
        assert_eq!((address(optimizer.destroy), configs.passes[LAYOUT]), (UNTOUCHED, 0x5555_5555));
    }
}

/// A field of a message: bytes with their length.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    out.extend(varint(bytes.len() as u64));
    out.extend_from_slice(bytes);
    out
}

fn varint(mut n: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
    out
}

fn node(name: &str, op: &str, inputs: &[&str], attrs: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut out = [field(1, name.as_bytes()), field(2, op.as_bytes())].concat();
    inputs.iter().for_each(|i| out.extend(field(3, i.as_bytes())));
    out.extend(field(4, b"/job:localhost/replica:0/task:0/device:WGPU:0"));
    attrs
        .iter()
        .for_each(|(k, v)| out.extend(field(5, &[field(1, k.as_bytes()), field(2, v)].concat())));
    field(1, &out)
}

/// A GraphDef with a constant of 1 MiB and a chain that is fused.
fn graph() -> Vec<u8> {
    let float32 = || vec![6 << 3, 1];
    let shape = field(2, &[vec![1 << 3], varint(1 << 18)].concat());
    let tensor = [vec![1 << 3, 1], field(2, &shape), field(4, &vec![7; 1 << 20])].concat();
    [
        node("large", "Const", &[], &[("dtype", float32()), ("value", field(8, &tensor))]),
        node("large_too", "Identity", &["large"], &[("T", float32())]),
        node("x", "Placeholder", &[], &[("dtype", float32())]),
        node("y", "Exp", &["x"], &[("T", float32())]),
        node("z", "Sin", &["y"], &[("T", float32())]),
        node("kept", "Identity", &["z"], &[("T", float32())]),
    ]
    .concat()
}

/// The graph that `optimizer` returns.
fn optimized(optimize: Optimize, optimizer: *mut c_void, graph: &[u8]) -> Vec<u8> {
    let p = plugin();
    let new: unsafe extern "C" fn() -> *mut Buffer = symbol(&p.framework, c"TF_NewBuffer");
    let delete: unsafe extern "C" fn(*mut Buffer) = symbol(&p.framework, c"TF_DeleteBuffer");
    let input = Buffer { data: graph.as_ptr().cast(), length: graph.len(), deallocator: None };
    // SAFETY: buffers and optimizer are alive; the fake does not look at the item.
    unsafe {
        let output = new();
        p.ok(|s| optimize(optimizer, &raw const input, std::ptr::null(), output, s));
        let bytes =
            std::slice::from_raw_parts((*output).data.cast::<u8>(), (*output).length).to_vec();
        delete(output);
        bytes
    }
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|w| w == text.as_bytes())
}

/// Fails unless the number of TensorFlow's objects is back to `before`. Tests that need no device
/// run at the same time, and hold a status now and then.
fn assert_gives_back(live: extern "C" fn() -> c_long, before: c_long) {
    let start = std::time::Instant::now();
    while live() > before {
        assert!(
            start.elapsed().as_secs() < 20,
            "{} objects of TensorFlow's, {before} before",
            live()
        );
        std::thread::yield_now();
    }
}

/// Resident bytes of the process.
#[cfg(target_os = "linux")]
fn resident() -> i64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<i64>().unwrap() * 4096
}

#[cfg(not(target_os = "linux"))]
fn resident() -> i64 {
    0
}

#[test]
fn optimizers_give_everything_back() {
    let (d, _guard) = alone();
    let live: extern "C" fn() -> c_long = symbol(&d.plugin.framework, c"fake_live_objects");
    let (create, optimize, destroy) = functions();
    let graph = graph();
    let run = || {
        // SAFETY: created, used, destroyed once.
        unsafe {
            let optimizer = create();
            let first = optimized(optimize, optimizer, &graph);
            assert!(holds(&first, "_WgpuFused"), "the chain is fused");
            // TensorFlow runs an optimizer twice.
            optimized(optimize, optimizer, &first);
            destroy(optimizer);
        }
    };
    run();
    let before = (live(), resident());
    (0..100).for_each(|_| run());
    assert_gives_back(live, before.0);
    let grown = resident() - before.1;
    assert!(grown < 50 << 20, "100 optimizers that read 1 MiB each left {grown} bytes");
}

#[test]
fn failures_leave_the_graph_as_it_is() {
    let (d, _guard) = alone();
    let live: extern "C" fn() -> c_long = symbol(&d.plugin.framework, c"fake_live_objects");
    let fail: *mut bool = symbol(&d.plugin.framework, c"fail_inference");
    let (create, optimize, destroy) = functions();
    let graph = graph();
    let before = live();
    let stream = d.stream();
    // SAFETY: `fail` is the fake's variable, read only by calls of this thread; the object of
    // `create` is destroyed once.
    unsafe {
        *fail = true;
        let optimizer = create();
        assert_eq!(optimized(optimize, optimizer, &graph), graph, "inference fails");
        *fail = false;
        assert!(optimized(optimize, optimizer, &graph) != graph, "and works again");
        destroy(optimizer);
        assert_eq!(optimized(optimize, null_mut(), &graph), graph, "no optimizer");
        destroy(null_mut());
        assert_eq!(
            optimized(optimize, stream.raw.cast(), &graph),
            graph,
            "a stream for an optimizer"
        );
        destroy(stream.raw.cast());
    }
    stream.block();
    assert_gives_back(live, before);
}
