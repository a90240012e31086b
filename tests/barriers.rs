//! Barriers between dispatches: the counts, and that results are the same with only the barriers
//! that data needs.

use std::sync::Arc;

use smallvec::smallvec;
use tensorflow_wgpu::device::{
    Binding, Device, Grid, Key, Params, Profile, Program, Selection, Statistics,
};
use tensorflow_wgpu::local::{Node, Session};
use tensorflow_wgpu::shader::Shader;
use tensorflow_wgpu::{DType, HostTensor, Tensor};

const ELEMENTS: usize = 1024;
const BYTES: u64 = 4 * ELEMENTS as u64;

/// The first adapter's device, with barriers by wgpu's rule or only where data needs them.
fn device(own_barriers: bool) -> Arc<Device> {
    let selection = Selection::enumerate(&|name| std::env::var(name).ok());
    let adapter = selection.adapters.first().expect("a Vulkan driver");
    let shared = Session::shared().expect("a Vulkan driver").device.profile();
    Device::open_with(adapter, Profile { own_barriers, ..shared }, None).expect("a device")
}

fn tensor(address: u64) -> Tensor {
    Tensor::new(DType::U32, &[ELEMENTS], address)
}

/// `to[i] = 3 * from[i] + 1`.
fn step(device: &Device, from: &Tensor, to: &Tensor) {
    let shader = || {
        Shader::new("a step").bind("from_x", DType::U32).bind("to_x", DType::U32).body(
            "{{ENTRY}} {\n    let i = linear_id(workgroup_id, num_workgroups, local_index);\n    \
             store_to_x(i, 3u * load_from_x(i) + 1u);\n}\n",
        )
    };
    let program = Program {
        key: Key::new("a step"),
        shader: &shader,
        bindings: smallvec![Binding::from(from), Binding::from(to)],
        params: Params::new(),
        grid: Grid::linear(ELEMENTS, 256),
    };
    device.enqueue(&program).expect("a dispatch");
}

/// The counts of `work` in one pass.
fn counted(device: &Device, work: &dyn Fn()) -> Statistics {
    // Until its text is analysed, a program counts as if it wrote all its bindings.
    for _ in 0..100 {
        work();
        device.synchronize().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let before = device.statistics();
    work();
    device.synchronize().unwrap();
    let after = device.statistics();
    Statistics {
        dispatches: after.dispatches - before.dispatches,
        barriers: after.barriers - before.barriers,
        barriers_needed: after.barriers_needed - before.barriers_needed,
        ..Statistics::default()
    }
}

fn counts(s: Statistics) -> [u64; 3] {
    [s.dispatches, s.barriers, s.barriers_needed]
}

#[test]
fn barriers_by_wgpus_rule_and_those_that_data_needs() {
    for own in [false, true] {
        let device = device(own);
        let block = device.allocate(16 * BYTES).unwrap();
        let other = device.allocate(2 * BYTES).unwrap();
        device.fill(block, 16 * BYTES, 0).unwrap();
        device.fill(other, 2 * BYTES, 0).unwrap();
        device.synchronize().unwrap();
        let part = |i: u64| tensor(block + i * BYTES);
        let implied = |wgpu: u64, needed: u64| if own { needed } else { wgpu };
        let independent = counted(&device, &|| {
            (0..8).for_each(|i| step(&device, &part(i), &part(8 + i)));
        });
        assert_eq!(counts(independent), [8, implied(7, 0), 0]);
        let chain = counted(&device, &|| {
            (0..8).for_each(|i| step(&device, &part(i), &part(i + 1)));
        });
        assert_eq!(counts(chain), [8, 7, 7]);
        // Two chains take turns: each barrier serves both.
        let chains = counted(&device, &|| {
            for i in 0..4 {
                step(&device, &part(i), &part(i + 1));
                step(&device, &part(8 + i), &part(9 + i));
            }
        });
        assert_eq!(counts(chains), [8, implied(7, 3), 3]);
        let blocks = counted(&device, &|| {
            step(&device, &part(0), &part(1));
            step(&device, &tensor(other), &tensor(other + BYTES));
        });
        assert_eq!(counts(blocks), [2, 0, 0]);
    }
}

/// Steps between random parts of two blocks, with copies in between, compared with the same steps
/// on the host.
#[test]
fn results_are_those_of_the_order_of_calls() {
    for own in [false, true] {
        let device = device(own);
        let blocks = [0, 1].map(|_| device.allocate(8 * BYTES).unwrap());
        let mut host = [0_u32; 16];
        for (i, value) in host.iter_mut().enumerate() {
            *value = i as u32;
            let bytes: Vec<u8> = value.to_le_bytes().repeat(ELEMENTS);
            device.upload(blocks[i / 8] + i as u64 % 8 * BYTES, &bytes).unwrap();
        }
        let place = |i: usize| tensor(blocks[i / 8] + i as u64 % 8 * BYTES);
        let mut state = 1_u32;
        let mut random = |n: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) as usize % n as usize
        };
        for round in 0..400 {
            let (from, to) = (random(16), random(16));
            step(&device, &place(from), &place(to));
            host[to] = host[from].wrapping_mul(3).wrapping_add(1);
            if round % 50 == 49 {
                let at = random(16);
                let bytes = (round as u32).to_le_bytes().repeat(ELEMENTS);
                device.upload(place(at).address, &bytes).unwrap();
                host[at] = round as u32;
            }
        }
        for (i, want) in host.iter().enumerate() {
            let mut bytes = vec![0; BYTES as usize];
            device.download(place(i).address, &mut bytes).unwrap();
            let all = bytes.as_chunks().0.iter().all(|b| u32::from_le_bytes(*b) == *want);
            assert!(all, "part {i}, own barriers {own}");
        }
    }
}

/// Ops of several dispatches, with parameters in immediates and in a buffer, give the same bits.
#[test]
fn ops_give_the_same_bits() {
    let floats = |dims: &[usize]| {
        let count: usize = dims.iter().product();
        let values: Vec<f64> = (0..count).map(|i| (i * 37 % 101) as f64 / 50.0 - 1.0).collect();
        HostTensor::floats(DType::F32, dims, &values)
    };
    let matmul = Node::new("MatMul")
        .attr("T", DType::F32)
        .attr("transpose_a", false)
        .attr("transpose_b", false);
    let softmax = Node::new("Softmax").attr("T", DType::F32);
    let add = Node::new("AddV2").attr("T", DType::F32);
    let cases: [(&Node, Vec<HostTensor>); 4] = [
        // Split along the contracted index: parts, then their sums.
        (&matmul, vec![floats(&[3, 20_000]), floats(&[20_000, 5])]),
        (&matmul, vec![floats(&[70, 40]), floats(&[40, 68])]),
        (&softmax, vec![floats(&[30, 1000])]),
        (&add, vec![floats(&[3, 1, 5, 1, 7]), floats(&[1, 4, 1, 6, 7])]),
    ];
    let results = |own: bool| {
        let mut session = Session::new(device(own));
        cases.clone().map(|(node, inputs)| {
            let inputs: Vec<_> = inputs.into_iter().map(Into::into).collect();
            session.run(node, &inputs).expect("a result")[0].bytes.clone()
        })
    };
    assert_eq!(results(true), results(false));
}
