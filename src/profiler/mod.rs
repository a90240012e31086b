//! The data of a profiling session, for TensorBoard and for Python.
//!
//! [`crate::device::trace`] collects it. [`xspace`] writes it as TensorFlow's XSpace, and
//! [`record`] as JSON for `tensorflow_wgpu.profile`. Both name a dispatch by [`name`].

pub mod record;
pub mod xspace;

use crate::device::trace::{DeviceEvent, Trace, Work};

/// The session of a device, with the device's name.
#[derive(Debug)]
pub struct Traced {
    /// The device's number among TensorFlow's devices.
    pub ordinal: usize,
    /// The adapter's name.
    pub adapter: String,
    /// The collected data.
    pub trace: Trace,
}

/// The name of an event: the op, for a fused op also the ops that it replaces, and the shader.
/// Copies have the names that TensorFlow's tools search for.
fn name(event: &DeviceEvent) -> String {
    let shader = match &event.work {
        Work::Upload => return "MemcpyH2D".to_owned(),
        Work::Download => return "MemcpyD2H".to_owned(),
        Work::Dispatch { shader, .. } if shader.is_copy => return "MemcpyD2D".to_owned(),
        Work::Dispatch { shader, .. } => short_label(&shader.label),
    };
    match &event.origin {
        Some(origin) if origin.holds.is_empty() => format!("{} [{shader}]", origin.op),
        Some(origin) => format!("Fused({}) [{shader}]", short_list(&origin.holds)),
        None => format!("[{shader}]"),
    }
}

/// The start of a shader's label, without the expression in it, which may be long.
fn short_label(label: &str) -> &str {
    const MAX_LENGTH: usize = 40;
    let end = label.find([':', '(', '{']).unwrap_or(label.len()).min(MAX_LENGTH);
    let end = (0..=end).rev().find(|at| label.is_char_boundary(*at)).unwrap_or(0);
    label[..end].trim_end_matches(|c: char| c == 'x' || c.is_whitespace())
}

/// A list of ops. A long list is shortened in the middle.
fn short_list(ops: &str) -> String {
    let names: Vec<_> = ops.split(", ").collect();
    match &names[..] {
        [first, second, third, .., last] if names.len() > 6 => {
            format!("{first}, {second}, {third}, ... {} more, {last}", names.len() - 4)
        }
        _ => ops.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::device::trace::{About, Origin};

    fn event(label: &str, origin: Option<Origin>) -> DeviceEvent {
        dispatch(About { label: label.to_owned(), is_copy: false, workgroup: [64; 3] }, origin)
    }

    fn dispatch(shader: About, origin: Option<Origin>) -> DeviceEvent {
        DeviceEvent {
            work: Work::Dispatch { shader: Arc::new(shader), grid: [1, 1, 1], flops: 0 },
            origin: origin.map(Arc::new),
            correlation: 0,
            bytes: 8,
            begin: 0,
            end: 1,
            is_timed: true,
            submission: 1,
        }
    }

    #[test]
    fn dispatches_are_called_by_their_ops_and_shaders() {
        let of = |op: &str, holds: &str| {
            Some(Origin { op: op.into(), node: "a/b".into(), holds: holds.into() })
        };
        assert_eq!(name(&event("matmul", of("MatMul", ""))), "MatMul [matmul]");
        let holds = "MatMul, BiasAdd, Relu";
        let fused = event("matmul", of("_WgpuFusedMatMul", holds));
        assert_eq!(name(&fused), format!("Fused({holds}) [matmul]"));
        let long = event("map", of("_WgpuFusedElementwise", "A, B, C, D, E, F, G, H"));
        assert_eq!(name(&long), "Fused(A, B, C, ... 4 more, H) [map]");
        let copy = About { label: "copy u32".to_owned(), is_copy: true, workgroup: [64; 3] };
        assert_eq!(name(&dispatch(copy, of("Concat", ""))), "MemcpyD2D");
        assert_eq!(name(&event("fill", None)), "[fill]");
    }
}
