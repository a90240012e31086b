//! Each row once, so that the driver compiles what the plans choose: nothing is timed.
//!
//! `tools/limits` runs this on the drivers of GPUs that are not there, and reads what their
//! compilers say. Each row has a device of its own, on which no pipeline is there yet. Standard
//! error has `@@ row FAMILY: NAME` before what the driver prints for a row, and one of these after
//! it: `@@ done FLOPS BYTES DISPATCHES`, the work of a call and the number of its dispatches;
//! `@@ failed MESSAGE`; `@@ absent`, if the adapter does not offer the op.
//!
//! With candidates, the table of tuned choices is off, and each row that is one contraction has
//! every tile in turn that may be worth choosing: a line `@@ asked CLASS` with the columns of that
//! table, then for each tile `@@ candidate TILE` with figures of the estimate, what the driver
//! prints for it, and its end. The first one is the estimate's choice.

use std::sync::Arc;

use tensorflow_wgpu::Result;
use tensorflow_wgpu::device::{Device, Family, Finding, Profile, Verdict};
use tensorflow_wgpu::kernels::contract::choice::Estimated;
use tensorflow_wgpu::kernels::contract::choices::{self, Asked};
use tensorflow_wgpu::kernels::contract::shipped::schedule_name;
use tensorflow_wgpu::kernels::op::Attrs;
use tensorflow_wgpu::local::Session;

use crate::case::Case;
use crate::context::Context;

/// Enqueues each case once, and returns the number of cases that failed.
pub fn once(adapter: &wgpu::Adapter, cases: &[Case]) -> usize {
    let mut failed = 0;
    for case in cases {
        eprintln!("@@ row {}: {}", case.family, case.name);
        failed += usize::from(!told(
            case,
            Device::open(adapter).and_then(|device| enqueue(&device, case)),
        ));
    }
    failed
}

/// Enqueues each case once with each tile that may be worth choosing on an adapter of this family,
/// and returns the number of cases that failed with the estimate's choice.
pub fn candidates(adapter: &wgpu::Adapter, family: Option<Family>, cases: &[Case]) -> usize {
    let mut failed = 0;
    for case in cases {
        eprintln!("@@ row {}: {}", case.family, case.name);
        let asked = untuned(adapter, 0).and_then(|device| {
            let done = enqueue(&device, case)?;
            Ok((choices::asked(&device, family), done))
        });
        match asked {
            Ok((asked, _)) if asked.len() == 1 => tell(adapter, case, &asked[0]),
            other => failed += usize::from(!told(case, other.map(|(_, work)| work))),
        }
    }
    failed
}

/// A tile is worth compiling if its estimate is at most this many times the least one.
const MOST_COST: f64 = 2.0;

/// Enqueues a case of one contraction with each tile.
fn tell(adapter: &wgpu::Adapter, case: &Case, asked: &Asked) {
    let Some(class) = asked.class else {
        eprintln!("@@ absent");
        return;
    };
    eprintln!("@@ asked {class}");
    let is_chosen = |e: &&Estimated| e.choice.tile == asked.choice.tile;
    let chosen = asked.candidates.iter().find(is_chosen);
    let least = chosen.map_or(f64::MAX, |e| e.cost);
    let others = asked.candidates.iter().filter(|e| !is_chosen(e) && e.cost <= MOST_COST * least);
    for Estimated { choice, cost, steps, products } in chosen.into_iter().chain(others) {
        let (tile, schedule) = (choice.tile, schedule_name(choice.schedule));
        let parts = choice.split_k;
        let (m, n) = (tile.m(), tile.n());
        eprintln!(
            "@@ candidate {tile}\t{parts}\t{schedule}\t{m}\t{n}\t{cost}\t{steps}\t{products}"
        );
        told(case, untuned(adapter, tile.id()).and_then(|device| enqueue(&device, case)));
    }
}

/// A device whose contractions all take this tile, if their sums fit it, or with 0 the estimate's.
fn untuned(adapter: &wgpu::Adapter, tile: u32) -> Result<Arc<Device>> {
    let own = Device::open(adapter)?.profile();
    Device::open_with(adapter, Profile { tile, family: None, ..own }, None)
}

/// Prints what became of a call, and returns whether nothing failed.
fn told(case: &Case, done: Result<Option<Work>>) -> bool {
    match done {
        Ok(Some(Work { bytes, dispatches })) => {
            eprintln!("@@ done {} {bytes} {dispatches}", case.flops);
        }
        Ok(None) => eprintln!("@@ absent"),
        Err(e) => {
            eprintln!("@@ failed {}", e.to_string().replace('\n', " "));
            return false;
        }
    }
    true
}

/// What a call did.
struct Work {
    /// Bytes that it has to move.
    bytes: f64,
    dispatches: u64,
}

fn enqueue(device: &Arc<Device>, case: &Case) -> Result<Option<Work>> {
    trust_matrix_units(device);
    let session = Session::new(Arc::clone(device));
    let node = &case.node;
    let found = session.registry().find(node.op(), |attr| node.dtype(attr).ok());
    let Some(registration) = found else { return Ok(None) };
    let kernel = (registration.create)(node)?;
    let mut context = Context::new(device, &case.inputs);
    context.begin();
    let done = kernel.compute(&mut context);
    // The driver compiles in other threads.
    device.synchronize()?;
    let bytes = case.bytes.unwrap_or(context.necessary as f64);
    context.end()?;
    done?;
    Ok(Some(Work { bytes, dispatches: device.statistics().dispatches }))
}

/// A driver that executes nothing fails the probe of its matrix units, so they count as probed.
fn trust_matrix_units(device: &Device) {
    for offered in device.profile().capabilities.matrices.iter() {
        let pays = Finding::Verdict(Verdict::Pays { lanes: offered.lanes });
        device.matrix_units().usable(offered, |_| pays);
    }
}
