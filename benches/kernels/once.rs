//! Each row once, so that the driver compiles what the plans choose: nothing is timed.
//!
//! `tools/limits` runs this on the drivers of GPUs that are not there, and reads what their
//! compilers say. Each row has a device of its own, on which no pipeline is there yet. Standard
//! error has `@@ row FAMILY: NAME` before what the driver prints for a row, and one of these after
//! it: `@@ done FLOPS BYTES DISPATCHES`, the work of a call and the number of its dispatches;
//! `@@ failed MESSAGE`; `@@ absent`, if the adapter does not offer the op.

use std::sync::Arc;

use tensorflow_wgpu::Result;
use tensorflow_wgpu::device::{Device, Finding, Verdict};
use tensorflow_wgpu::kernels::op::Attrs;
use tensorflow_wgpu::local::Session;

use crate::case::Case;
use crate::context::Context;

/// Enqueues each case once, and returns the number of cases that failed.
pub fn once(adapter: &wgpu::Adapter, cases: &[Case]) -> usize {
    let mut failed = 0;
    for case in cases {
        eprintln!("@@ row {}: {}", case.family, case.name);
        match enqueue(adapter, case) {
            Ok(Some(Work { bytes, dispatches })) => {
                eprintln!("@@ done {} {bytes} {dispatches}", case.flops);
            }
            Ok(None) => eprintln!("@@ absent"),
            Err(e) => {
                failed += 1;
                eprintln!("@@ failed {}", e.to_string().replace('\n', " "));
            }
        }
    }
    failed
}

/// What a call did.
struct Work {
    /// Bytes that it has to move.
    bytes: f64,
    dispatches: u64,
}

fn enqueue(adapter: &wgpu::Adapter, case: &Case) -> Result<Option<Work>> {
    let device = Device::open(adapter)?;
    trust_matrix_units(&device);
    let session = Session::new(Arc::clone(&device));
    let node = &case.node;
    let found = session.registry().find(node.op(), |attr| node.dtype(attr).ok());
    let Some(registration) = found else { return Ok(None) };
    let kernel = (registration.create)(node)?;
    let mut context = Context::new(&device, &case.inputs);
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
