//! The cost of barriers between dispatches: small dispatches in different parts of one buffer, in a
//! buffer each, and each on the results of the one before.
//!
//! A small dispatch fills a small part of a GPU, so dispatches without hazards between them could
//! run side by side. wgpu allows that only if they have no buffer in common. No driver reports how
//! much time that costs.

use std::fmt::Write;

use serde_json::{Value, json};
use smallvec::smallvec;
use tensorflow_wgpu::device::{Binding, Device, Grid, Key, Params, Profile, Program};
use tensorflow_wgpu::shader::{Field, Shader, WORKGROUP};
use tensorflow_wgpu::{DType, Result, Tensor};

use crate::measure::{Budget, repeat};
use crate::report;

/// The number of dispatches in a batch, which is one submission and one pass.
const DISPATCHES: usize = 64;
/// Workgroups of a dispatch: one, and a number that leaves most of a large GPU idle.
const WORKGROUPS: [usize; 2] = [1, 16];
/// Steps of each invocation: none, to measure the dispatch alone, and some microseconds' worth.
const STEPS: [usize; 2] = [0, 8192];
/// Steps for a software adapter, which has no width to fill.
const SOFTWARE_STEPS: [usize; 2] = [0, 64];

/// The memory that dispatches write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// Different parts of one buffer.
    Parts,
    /// A buffer each.
    Buffers,
    /// The memory that the dispatch before wrote, whose results they read.
    Chain,
}

impl Pattern {
    const ALL: [Self; 3] = [Self::Parts, Self::Buffers, Self::Chain];

    /// Its name in tables and JSON.
    const fn name(self) -> &'static str {
        match self {
            Self::Parts => "independent, one buffer",
            Self::Buffers => "independent, a buffer each",
            Self::Chain => "dependent",
        }
    }
}

/// The times of a dispatch.
#[derive(Debug, Clone)]
pub struct Row {
    pub pattern: Pattern,
    /// Whether barriers stand only where data needs them.
    pub own_barriers: bool,
    pub workgroups: usize,
    pub steps: usize,
    /// Microseconds of a dispatch; the median of the batches.
    pub microseconds: f64,
    /// Microseconds in the fastest batch.
    pub best: f64,
    /// Host time of a dispatch in microseconds. If it is longer than `microseconds`, the GPU waits.
    pub host: f64,
    /// Barriers among all dispatches of a batch, and the barriers that data needs.
    pub barriers: u64,
    pub needed: u64,
}

impl Row {
    /// The rule for barriers, as a value of `TF_WGPU_BARRIERS`.
    const fn rule(&self) -> &'static str {
        if self.own_barriers { "data" } else { "wgpu" }
    }
}

/// Measures each pattern with each size, with barriers by wgpu's rule and, if the adapter supports
/// it, with only the barriers that data needs.
pub fn both(adapter: &wgpu::Adapter, device: &Device, budget: &Budget) -> Result<Vec<Row>> {
    let mut all = rows(device, budget)?;
    let profile = Profile { own_barriers: true, ..device.profile() };
    if !device.profile().own_barriers {
        let other = Device::open_with(adapter, profile, None)?;
        if other.profile().own_barriers {
            all.extend(rows(&other, budget)?);
        }
    }
    Ok(all)
}

/// Measures each pattern with each size.
fn rows(device: &Device, budget: &Budget) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let steps = if device.profile().is_software() { SOFTWARE_STEPS } else { STEPS };
    for (workgroups, steps) in WORKGROUPS.iter().flat_map(|w| steps.map(|s| (*w, s))) {
        for pattern in Pattern::ALL {
            rows.push(measure(device, budget, pattern, workgroups, steps)?);
        }
    }
    Ok(rows)
}

fn measure(
    device: &Device,
    budget: &Budget,
    pattern: Pattern,
    workgroups: usize,
    steps: usize,
) -> Result<Row> {
    let elements = workgroups * WORKGROUP as usize;
    let bytes = elements as u64 * 4;
    let blocks = if pattern == Pattern::Buffers { DISPATCHES } else { 1 };
    let parts = if pattern == Pattern::Parts { DISPATCHES } else { 1 };
    let addresses: Vec<u64> =
        (0..blocks).map(|_| device.allocate(bytes * parts as u64)).collect::<Result<_>>()?;
    for address in &addresses {
        device.fill(*address, bytes * parts as u64, 0)?;
    }
    // The writes of a fill must be in another pass.
    device.synchronize()?;
    let mut unit = || {
        for i in 0..DISPATCHES {
            let address = addresses[i % blocks] + (i % parts) as u64 * bytes;
            enqueue(device, &Tensor::new(DType::F32, &[elements], address), workgroups, steps)?;
        }
        // Each unit is a pass of its own.
        device.flush();
        Ok(())
    };
    // Until its text is analysed, a program counts as if it wrote all its bindings.
    unit()?;
    device.synchronize()?;
    let timed = repeat(device, budget, &mut unit)?;
    for address in addresses {
        device.deallocate(address)?;
    }
    let of_dispatch = |seconds: f64| seconds * 1e6 / DISPATCHES as f64;
    Ok(Row {
        pattern,
        own_barriers: device.profile().own_barriers,
        workgroups,
        steps,
        microseconds: of_dispatch(timed.seconds),
        best: of_dispatch(timed.best),
        host: of_dispatch(timed.host),
        barriers: timed.counted.barriers,
        needed: timed.counted.barriers_needed,
    })
}

fn enqueue(device: &Device, x: &Tensor, workgroups: usize, steps: usize) -> Result<()> {
    let shader = || {
        Shader::new("bench barriers")
            .bind("x", DType::F32)
            .u32s(&["steps"])
            .param("factor", Field::F32)
            .param("summand", Field::F32)
            .body(include_str!("shaders/barriers.wgsl"))
    };
    device.enqueue(&Program {
        key: Key::new("bench barriers"),
        shader: &shader,
        bindings: smallvec![Binding::from(x)],
        params: Params::new().u32(steps).f32(0.999).f32(0.001),
        grid: Grid::groups(workgroups),
    })
}

/// The rows as Markdown.
pub fn table(rows: &[Row]) -> String {
    let mut text =
        "| Dispatches | Workgroups | Steps | µs | Best µs | Host µs | Barriers | Needed |\n\
                    |---|---|---|---|---|---|---|---|---|\n"
            .to_owned();
    for row in rows {
        let _ = writeln!(
            text,
            "| {DISPATCHES} {} | {} | {} | {} | {:.2} | {:.2} | {:.2} | {} | {} |",
            row.pattern.name(),
            row.rule(),
            row.workgroups,
            row.steps,
            row.microseconds,
            row.best,
            row.host,
            row.barriers,
            row.needed
        );
    }
    text
}

/// The whole report.
pub fn json(device: &Device, note: &str, rows: &[Row]) -> Value {
    let mut all = report::machine(device, note);
    all["kind"] = json!("barriers");
    all["dispatches"] = json!(DISPATCHES);
    // Without immediates all dispatches share the buffer of parameters.
    all["immediates"] = json!(device.capabilities().immediates);
    all["rows"] = rows
        .iter()
        .map(|row| {
            json!({
                "pattern": row.pattern.name(), "rule": row.rule(),
                "workgroups": row.workgroups, "steps": row.steps,
                "us": row.microseconds, "best_us": row.best, "host_us": row.host,
                "barriers": row.barriers, "needed": row.needed,
            })
        })
        .collect();
    all
}
