//! The recorder's part in a session of the tracer: it writes the timestamps.

use std::sync::Arc;

use super::{Recorder, open, open_pass};
use crate::device::Timestamps;
use crate::device::probe::Probe;
use crate::device::trace::{Tracer, Work};
use crate::error::Result;

impl Recorder {
    /// Opens a pass for one dispatch if the device is traced and times dispatches by passes.
    pub(super) fn open_own_pass(&mut self) -> Option<[u32; 2]> {
        if !self.probe.as_ref()?.has_own_passes() {
            return None;
        }
        self.end_pass();
        let (set, [first, last]) = self.probe.as_mut()?.pass_queries(&self.gpu)?;
        let encoder = open(&mut self.encoder, &self.gpu.device);
        let writes = wgpu::ComputePassTimestampWrites {
            query_set: &set,
            beginning_of_pass_write_index: Some(first),
            end_of_pass_write_index: Some(last),
        };
        open_pass(&mut self.pass, encoder, Some(writes));
        Some([first, last])
    }

    /// Records a copy, and times it while the device is traced.
    pub(super) fn timed(
        &mut self,
        work: Work,
        bytes: u64,
        copy: impl FnOnce(&mut wgpu::CommandEncoder),
    ) {
        self.end_pass();
        let encoder = open(&mut self.encoder, &self.gpu.device);
        let Some(probe) = &mut self.probe else { return copy(encoder) };
        let begin = probe.stamp(&self.gpu, encoder);
        copy(encoder);
        let end = begin.and_then(|_| probe.stamp(&self.gpu, encoder));
        probe.copy(work, bytes, begin.zip(end).map(|(begin, end)| [begin, end]));
    }

    /// Ends the batch if it has no queries left for another command.
    pub(super) fn make_room(&mut self) {
        if self.probe.as_ref().is_some_and(|probe| !probe.has_room()) {
            self.submit();
        }
    }

    /// Starts timing the work that is recorded from now on.
    pub fn begin_probe(&mut self, tracer: &Arc<Tracer>, timestamps: Timestamps) -> Result<()> {
        self.submit();
        self.probe = Some(Box::new(Probe::new(tracer, timestamps, &self.gpu)?));
        Ok(())
    }

    /// Makes a batch report the GPU's time.
    pub fn calibrate(&mut self) {
        self.make_room();
        if self.probe.is_none() {
            return;
        }
        self.end_pass();
        if self.open_own_pass().is_some() {
            self.end_pass();
        }
        let encoder = open(&mut self.encoder, &self.gpu.device);
        if let Some(probe) = &mut self.probe {
            probe.stamp(&self.gpu, encoder);
            probe.calibrate();
        }
    }

    /// Stops timing. Returns how the GPU was timed.
    pub fn end_probe(&mut self) -> Timestamps {
        self.submit();
        self.probe.take().map_or(Timestamps::None, |probe| probe.timestamps())
    }
}
