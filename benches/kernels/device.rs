//! The adapter's limits: copies, multiply-adds, and dispatches of a shader that does almost
//! nothing, each measured by a separate program. A kernel's floor is computed from these, in the
//! same run.

use smallvec::smallvec;
use tensorflow_wgpu::device::{Binding, Device, Grid, Key, Params, Program};
use tensorflow_wgpu::shader::{Field, Shader, WORKGROUP};
use tensorflow_wgpu::{DType, Result, Tensor};

use crate::measure::{Budget, Timed, repeat};

/// Rates per second by one clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rates {
    /// Bytes read and written by a copy.
    pub copy: f64,
    /// Multiplications and additions of f32.
    pub flops: f64,
    /// Dispatches, one after the other.
    pub dispatches: f64,
}

/// The rates of an adapter by two clocks. On a software adapter the process's CPU time says more
/// than the wall clock, because other processes do not lengthen it.
#[derive(Debug, Clone, Copy)]
pub struct Peaks {
    /// By the wall clock.
    pub wall: Rates,
    /// By the process's CPU time.
    pub cpu: Rates,
}

impl Peaks {
    /// Measures them.
    pub fn of(device: &Device, budget: &Budget) -> Result<Self> {
        // All rows are compared with these, so a moment of other load on the machine must not
        // dominate the measurement.
        let budget = Budget { total: 3 * budget.total, batches: 3 * budget.batches };
        let (copy, flops, dispatches) =
            (copy(device, &budget)?, flops(device, &budget)?, dispatches(device, &budget)?);
        let [wall, cpu] =
            [0, 1].map(|k| Rates { copy: copy[k], flops: flops[k], dispatches: dispatches[k] });
        Ok(Self { wall, cpu })
    }
}

impl Rates {
    /// The least time that calls with this much work can take, and the resource that limits them.
    pub fn floor(&self, bytes: f64, flops: f64, calls: usize) -> (f64, &'static str) {
        let floors = [
            (bytes / self.copy, "memory"),
            (flops / self.flops, "arithmetic"),
            (calls as f64 / self.dispatches, "dispatch"),
        ];
        floors
            .into_iter()
            .fold((0.0, "nothing"), |most, floor| if floor.0 > most.0 { floor } else { most })
    }
}

/// Work per second by each clock.
fn rate(work: f64, timed: &Timed) -> [f64; 2] {
    [work / timed.best, work / timed.best_cpu]
}

fn buffer(device: &Device, bytes: u64) -> Result<Tensor> {
    let tensor = Tensor::new(DType::F32, &[bytes as usize / 4], device.allocate(bytes)?);
    // Pages that were never written may be shared or absent.
    device.fill(tensor.address, tensor.bytes(), 0)?;
    Ok(tensor)
}

fn copy_program(device: &Device, from: &Tensor, to: &Tensor, count: usize) -> Result<()> {
    let shader = || {
        Shader::new("bench copy")
            .bind_raw("src", "vec4<f32>", 16)
            .bind_raw("dst", "vec4<f32>", 16)
            .u32s(&["count"])
            .body(include_str!("shaders/copy.wgsl"))
    };
    device.enqueue(&Program {
        key: Key::new("bench copy"),
        shader: &shader,
        bindings: smallvec![Binding::raw(from, 16), Binding::raw(to, 16)],
        params: Params::new().u32(count),
        grid: Grid::linear(count, WORKGROUP),
    })
}

fn copy(device: &Device, budget: &Budget) -> Result<[f64; 2]> {
    // Larger than any cache of a GPU; a software adapter spends the host's time.
    let most = if device.profile().is_software() { 64 << 20 } else { 512 << 20 };
    let bytes = device.capabilities().max_binding.min(most) / 256 * 256;
    let (from, to) = (buffer(device, bytes)?, buffer(device, bytes)?);
    let timed =
        repeat(device, budget, &mut || copy_program(device, &from, &to, bytes as usize / 16))?;
    device.deallocate(from.address)?;
    device.deallocate(to.address)?;
    Ok(rate(2.0 * bytes as f64, &timed))
}

fn dispatches(device: &Device, budget: &Budget) -> Result<[f64; 2]> {
    let (from, to) = (buffer(device, 256)?, buffer(device, 256)?);
    let timed = repeat(device, budget, &mut || copy_program(device, &from, &to, 1))?;
    device.deallocate(from.address)?;
    device.deallocate(to.address)?;
    Ok(rate(1.0, &timed))
}

/// A form of the arithmetic: adapters differ in which form is fastest.
struct Form {
    ty: &'static str,
    lanes: usize,
    step: &'static str,
    accumulators: usize,
}

const FUSED: &str = "fma(acc, factor, summand)";
const SEPARATE: &str = "acc * factor + summand";
const FORMS: &[Form] = &[
    Form { ty: "f32", lanes: 1, step: FUSED, accumulators: 8 },
    Form { ty: "f32", lanes: 1, step: SEPARATE, accumulators: 8 },
    Form { ty: "vec4<f32>", lanes: 4, step: FUSED, accumulators: 3 },
    Form { ty: "vec4<f32>", lanes: 4, step: FUSED, accumulators: 6 },
    Form { ty: "vec4<f32>", lanes: 4, step: SEPARATE, accumulators: 3 },
];
/// The number of steps of a chain in one iteration.
const UNROLLED: usize = 8;

fn flops(device: &Device, budget: &Budget) -> Result<[f64; 2]> {
    let (invocations, count) =
        if device.profile().is_software() { (4096_usize, 64_usize) } else { (1 << 20, 64) };
    let to = buffer(device, invocations as u64 * 4)?;
    let mut best = [0.0_f64; 2];
    for (number, form) in FORMS.iter().enumerate() {
        let timed = repeat(device, budget, &mut || {
            device.enqueue(&Program {
                key: Key::new("bench multiply-add").number(number as u32),
                shader: &|| form.shader(),
                bindings: smallvec![Binding::from(&to)],
                params: Params::new().u32(invocations).u32(count).f32(0.999).f32(0.001),
                grid: Grid::linear(invocations, WORKGROUP),
            })
        })?;
        let work = 2 * invocations * count * UNROLLED * form.accumulators * form.lanes;
        let rates = rate(work as f64, &timed);
        best = [best[0].max(rates[0]), best[1].max(rates[1])];
    }
    device.deallocate(to.address)?;
    Ok(best)
}

impl Form {
    fn shader(&self) -> Shader {
        let Self { ty, step, accumulators, lanes } = *self;
        let lines =
            |line: &dyn Fn(usize) -> String| (0..accumulators).map(line).collect::<String>();
        let start = lines(&|a| format!("    var acc{a} = {ty}(start + {a}.0);\n"));
        let steps = lines(&|a| format!("        acc{a} = step(acc{a}, factor, summand);\n"))
            .repeat(UNROLLED);
        let sum = (0..accumulators).map(|a| format!("acc{a}")).collect::<Vec<_>>().join(" + ");
        let sum = if lanes == 1 { sum } else { format!("dot({sum}, {ty}(1.0))") };
        Shader::new(format!("bench multiply-add of {accumulators} {ty}: {step}"))
            .bind("dst", DType::F32)
            .u32s(&["invocations", "count"])
            .param("factor", Field::F32)
            .param("summand", Field::F32)
            .define("ACCUMULATORS", accumulators.to_string())
            .define("STEPS", steps)
            .define("STEP", step)
            .define("START", start)
            .define("SUM", sum)
            .define("TYPE", ty)
            .body(include_str!("shaders/multiply_add.wgsl"))
    }
}
