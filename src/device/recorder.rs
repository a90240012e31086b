//! The recorder: the one open command encoder of a device and its open compute pass.
//!
//! All streams of a device share it, so they are trivially ordered. A batch goes to the submitter
//! when it is needed (for a read-back, a wait, or a poll of an unfinished event) or when it is due.
//! Uploads are staged at once and recorded as copies, unless the host writes to the device's memory
//! itself.

mod paged;
mod traced;
mod unstaged;

use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::barriers::{Access, Hazards};
use super::batch::Batch;
use super::belt::Belt;
use super::bind_groups::{BindGroups, Range, Ranges};
use super::checked::checked;
use super::compiler::Pipeline;
use super::completion::{AfterWork, Completion, Load, Serial};
use super::gpu::{self, Gpu, ReadFrom, Readback, Sink};
use super::memory::Block;
use super::pace;
use super::paging::{Link, Pager};
use super::parameters::Parameters;
use super::pending::{Record, Uses};
use super::pipelines::Planned;
use super::probe::{Asked, Probe};
use super::program::Grid;
use super::staging::Staging;
use super::statistics::Statistics;
use super::submitter::{Recorded, Submitter};
use super::trace::Work;
use crate::error::Result;
use crate::sys::guard::caught;
use paged::PagedMemory;

/// A resolved binding: block, byte offset (aligned) and byte length within it.
pub(crate) type Bound = (Arc<Block>, u64, u64);

/// A dispatch without its pipeline.
pub(crate) struct Dispatch {
    /// Contents of the first binding, in front of `bound`; no binding if empty.
    pub table: Vec<u32>,
    pub bound: SmallVec<[Bound; 8]>,
    /// The whole parameter block.
    pub params: SmallVec<[u32; 32]>,
    pub grid: Grid,
    /// The bytes that it reads and writes.
    pub bytes: u64,
    /// Its work, as `pace` counts it.
    pub work: u64,
    /// The op that asked for it, while the device is traced.
    pub asked: Option<Box<Asked>>,
}

pub(crate) struct Recorder {
    gpu: Arc<Gpu>,
    completion: Arc<Completion<Gpu>>,
    submitter: Arc<Submitter<Gpu>>,
    // The pass must end before the encoder is used: see `encoder`.
    pass: Option<wgpu::ComputePass<'static>>,
    /// The memory that the dispatches of the pass touch.
    hazards: Hazards,
    /// Blocks for which the last dispatch waits.
    conflicts: Vec<u32>,
    /// Whether the recorder puts the barriers between dispatches, because wgpu takes all bindings
    /// for read-only.
    own_barriers: bool,
    /// If so, the buffers that dispatches of the pass bind.
    bound: FxHashMap<u32, wgpu::Buffer>,
    encoder: Option<wgpu::CommandEncoder>,
    after: Vec<AfterWork<Readback>>,
    belt: Belt,
    /// Host bytes that the open batch holds: uploads and read-backs.
    staged: u64,
    tables: Parameters,
    uniforms: Parameters,
    batch: Batch,
    bind_groups: BindGroups<wgpu::BindGroup>,
    /// Serial of the last submission.
    submitted: Serial,
    /// Present while the device is traced.
    probe: Option<Box<Probe>>,
    /// Present if the device pages.
    paged: Option<Box<PagedMemory>>,
    /// Memory that the pager has just given back, with the submission that it waits for.
    leaving: Vec<(Serial, u64)>,
    /// Host-visible blocks that the open batch uses.
    visible: SmallVec<[Arc<Block>; 4]>,
    pub statistics: Statistics,
}

impl Recorder {
    /// Makes the buffers of parameters too, so that no first operation fails because there is no
    /// memory for them.
    pub fn new(
        gpu: Arc<Gpu>,
        own_barriers: bool,
        completion: Arc<Completion<Gpu>>,
        submitter: Arc<Submitter<Gpu>>,
        paging: Option<Arc<Link>>,
    ) -> Result<Self> {
        Ok(Self {
            tables: Parameters::of_tables(&gpu.device)?,
            uniforms: Parameters::of_blocks(&gpu.device)?,
            gpu,
            completion,
            submitter,
            pass: None,
            hazards: Hazards::default(),
            conflicts: Vec::new(),
            own_barriers,
            bound: FxHashMap::default(),
            encoder: None,
            after: Vec::new(),
            belt: Belt::default(),
            staged: 0,
            batch: Batch::default(),
            bind_groups: BindGroups::default(),
            submitted: 0,
            probe: None,
            paged: paging.map(|link| PagedMemory::new(Pager::new(link))),
            leaving: Vec::new(),
            visible: SmallVec::new(),
            statistics: Statistics::default(),
        })
    }

    /// Records one dispatch. A dispatch that fails leaves nothing in the batch.
    fn dispatch(&mut self, pipeline: &Pipeline, uses: Uses, dispatch: &Dispatch) -> Result<()> {
        let work = self.batch.work.saturating_add(dispatch.work);
        if self.batch.is_full(self.completion.expected(work)) {
            self.submit();
        }
        self.make_room();
        let Dispatch { table, bound, params, grid, bytes, work, asked } = dispatch;
        let first = usize::from(!table.is_empty());
        let placed;
        let bound: &[Bound] = if self.paged.is_some() {
            placed = self.placed(bound, uses, first)?;
            &placed
        } else {
            bound
        };
        let (table, params): (&[u8], &[u8]) =
            (bytemuck::cast_slice(table), bytemuck::cast_slice(params));
        let (table_at, uniform_at) =
            self.place(table, if pipeline.uniform { params } else { &[] })?;
        let mut offsets: SmallVec<[u32; 8]> = SmallVec::new();
        let mut ranges = Ranges::new();
        let mut bind = |block: u32, offset: u64, size: u64| {
            let (offset, dynamic) = if pipeline.dynamic { split(offset) } else { (offset, 0) };
            ranges.push(Range { block, offset, size });
            if pipeline.dynamic {
                offsets.push(dynamic);
            }
        };
        if !table.is_empty() {
            bind(self.tables.id(), table_at, table.len() as u64);
        }
        for (block, offset, size) in bound {
            bind(block.id, *offset, *size);
        }
        if pipeline.uniform {
            ranges.push(Range { block: self.uniforms.id(), offset: 0, size: params.len() as u64 });
            offsets.push(uniform_at as u32);
        }
        let (device, made) = (&self.gpu.device, &mut self.statistics.bind_groups);
        let group = self.bind_groups.get(&ranges, || {
            *made += 1;
            let table = (!table.is_empty()).then_some(self.tables.buffer());
            let tensors = bound.iter().map(|(b, ..)| b.buffer());
            let buffers = table.into_iter().chain(tensors).chain([self.uniforms.buffer()]);
            checked(device, "cannot bind tensors", || {
                bind_group(device, &pipeline.layout, buffers, &ranges)
            })
        })?;
        let own_pass = self.open_own_pass();
        self.keep_apart(uses, bound, first);
        for (block, offset, size) in bound {
            self.note_use(block, &(*offset..offset + size));
        }
        let encoder = open(&mut self.encoder, &self.gpu.device);
        let pass = open_pass(&mut self.pass, encoder, None);
        let begin = self.probe.as_mut().and_then(|probe| probe.before(&self.gpu, pass));
        pass.set_pipeline(&pipeline.raw);
        pass.set_bind_group(0, &group, &offsets);
        if !pipeline.uniform && !params.is_empty() {
            pass.set_immediates(0, params);
        }
        let [x, y, z] = grid.0;
        pass.dispatch_workgroups(x, y, z);
        if let Some(probe) = &mut self.probe {
            let end = begin.and_then(|_| probe.after(&self.gpu, pass));
            let queries = begin.zip(end).map(|(begin, end)| [begin, end]).or(own_pass);
            probe.dispatch(&pipeline.about, grid.0, *bytes, asked.as_deref(), queries);
        }
        self.statistics.dispatches += 1;
        self.statistics.bytes += bytes;
        self.batch.dispatch(*bytes, *work, !pipeline.used.swap(true, Ordering::Relaxed));
        self.submit_if_due();
        Ok(())
    }

    /// Counts the barriers before a dispatch, and puts the barriers that wgpu does not put. `bound`
    /// begins with the shader's binding number `first`: there is a table if that is not 0.
    fn keep_apart(&mut self, uses: Uses, bound: &[Bound], first: usize) {
        let accesses = accesses(bound, uses, first);
        // Tables are only read, from a buffer that holds nothing else. wgpu puts no barriers for a
        // uniform buffer.
        let own = (first > 0).then_some(Access {
            block: self.tables.id(),
            bytes: 0..1,
            reads: true,
            writes: false,
        });
        let accesses: SmallVec<[Access; 9]> = accesses.chain(own).collect();
        let barriers = self.hazards.dispatch(&accesses, &mut self.conflicts);
        let counts = if self.own_barriers { barriers.needed } else { barriers.implied };
        self.statistics.barriers += u64::from(counts);
        self.statistics.barriers_needed += u64::from(barriers.needed);
        if !self.own_barriers {
            return;
        }
        for (block, ..) in bound {
            let is_first = match self.bound.entry(block.id) {
                Entry::Vacant(entry) => {
                    entry.insert(block.buffer().clone());
                    true
                }
                Entry::Occupied(_) => false,
            };
            if let Some(at) = self.conflicts.iter().position(|id| *id == block.id) {
                // The first transition ends the use as a read-only buffer but makes no write
                // available. The second one makes writes available to reads and writes.
                self.conflicts.swap_remove(at);
                self.written(block.buffer());
                self.written(block.buffer());
            } else if is_first {
                // After copies and other passes a barrier is needed for writes, too.
                self.written(block.buffer());
            }
        }
    }

    /// Tells wgpu that the open pass has written `buffer`.
    fn written(&mut self, buffer: &wgpu::Buffer) {
        let transition =
            wgpu::BufferTransition { buffer, state: wgpu::BufferUses::STORAGE_READ_WRITE };
        self.pass().transition_resources(std::iter::once(transition), std::iter::empty());
    }

    /// Records a copy of `bytes` (at most [`Belt::LIMIT`]) to the device. Offset and length are
    /// multiples of 4.
    pub fn upload(&mut self, block: &Arc<Block>, offset: u64, bytes: &[u8]) -> Result<()> {
        let len = bytes.len() as u64;
        let block = self.destination(block, offset, len)?;
        self.make_room();
        self.end_pass();
        let (staging, at) = self.belt.write(&self.gpu.device, bytes)?;
        let staging = staging.clone();
        self.timed(Work::Upload, len, |encoder| {
            encoder.copy_buffer_to_buffer(&staging, at, block.buffer(), offset, len);
        });
        self.note_use(&block, &(offset..offset + len));
        self.count_upload(bytes.len() as u64);
        Ok(())
    }

    /// Records a copy of the first `len` bytes of a buffer from `pool`, which goes back to the
    /// pool.
    pub fn upload_from(
        &mut self,
        block: &Arc<Block>,
        offset: u64,
        staging: &wgpu::Buffer,
        len: u64,
        pool: &Staging,
    ) -> Result<()> {
        let block = self.destination(block, offset, len)?;
        self.make_room();
        self.timed(Work::Upload, len, |encoder| {
            encoder.copy_buffer_to_buffer(staging, 0, block.buffer(), offset, len);
        });
        pool.recall(self.encoder(), staging);
        self.note_use(&block, &(offset..offset + len));
        self.count_upload(len);
        Ok(())
    }

    /// Records a read-back of `[offset, offset + len)` of a block; the sink that `sink` makes runs
    /// after the next submission.
    pub fn readback(
        &mut self,
        block: &Arc<Block>,
        offset: u64,
        len: u64,
        sink: impl FnOnce() -> Sink,
    ) -> Result<()> {
        let start = offset & !3;
        let copied = (offset + len).next_multiple_of(4) - start;
        let buffer = self.gpu.readback_buffer(copied)?;
        let source = self.source(block)?;
        self.make_room();
        self.timed(Work::Download, len, |encoder| {
            encoder.copy_buffer_to_buffer(&source, start, &buffer, 0, copied);
        });
        self.note_use(block, &(start..start + copied));
        let first = (offset - start) as usize;
        let range = first..first + len as usize;
        self.statistics.downloads += 1;
        self.statistics.downloaded += len;
        self.staged += copied;
        self.batch.work = self.batch.work.saturating_add(pace::of_copy(copied));
        let from = ReadFrom::Staging(buffer);
        self.after.push(AfterWork::Readback(Readback { from, range, sink: sink() }));
        Ok(())
    }

    /// Runs `f` on the completion thread after everything recorded so far. The next submission
    /// carries it.
    pub fn callback(&mut self, f: Box<dyn FnOnce() + Send>) {
        self.after.push(AfterWork::Callback(f));
    }

    /// Writes a timestamp into `query` of a set.
    pub fn timestamp(&mut self, queries: &wgpu::QuerySet, query: u32) {
        self.encoder().write_timestamp(queries, query);
    }

    /// Resolves two timestamps and hands them to `sink` as 16 bytes.
    pub fn resolve_timestamps(&mut self, queries: &wgpu::QuerySet, sink: Sink) {
        let device = &self.gpu.device;
        let buffers = self.gpu.readback_buffer(16).and_then(|buffer| {
            let resolved = checked(device, "cannot read timestamps", || {
                device.create_buffer(&wgpu::BufferDescriptor {
                    label: Some("timestamps"),
                    size: 256,
                    usage: wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC,
                    mapped_at_creation: false,
                })
            })?;
            Ok((buffer, resolved))
        });
        match buffers {
            Ok((buffer, resolved)) => {
                let encoder = self.encoder();
                encoder.resolve_query_set(queries, 0..2, &resolved, 0);
                encoder.copy_buffer_to_buffer(&resolved, 0, &buffer, 0, 16);
                let from = ReadFrom::Staging(buffer);
                self.after.push(AfterWork::Readback(Readback { from, range: 0..16, sink }));
            }
            Err(e) => self.callback(Box::new(move || sink(Err(e)))),
        }
    }

    /// The serial that will be complete when everything recorded so far is.
    pub fn serial(&self) -> Serial {
        if self.is_empty() { self.submitted } else { self.submitted + 1 }
    }

    /// Makes the submitter's thread submit the recorded work, if there is any.
    pub fn submit(&mut self) {
        self.hand_over();
        self.submitter.wake();
    }

    /// Hands the recorded work, if there is any, to the submitter and returns the serial of the
    /// last submission. The caller must make sure that it is submitted.
    pub fn hand_over(&mut self) -> Serial {
        if self.is_empty() {
            return self.submitted;
        }
        // Whatever happens here, the serial must complete, because a thread may wait for it.
        let batch = caught("the end of a batch", || {
            self.end_pass();
            self.show_to_host();
            let Some(mut encoder) = self.encoder.take() else { return Ok(None) };
            let serial = self.submitted + 1;
            let traced =
                self.probe.as_mut().and_then(|p| p.end_batch(&self.gpu, &mut encoder, serial));
            let submitted = traced.map(|(after, submitted)| {
                self.after.push(after);
                submitted
            });
            self.belt.hand_over(&encoder);
            self.statistics.submissions += 1;
            let params = [self.tables.take(), self.uniforms.take()];
            Ok(Some(gpu::Batch { encoder, params, submitted }))
        });
        self.submitted += 1;
        let Batch { work, is_first, .. } = std::mem::take(&mut self.batch);
        let load = Load { staged: std::mem::take(&mut self.staged), work, is_first };
        let after = std::mem::take(&mut self.after);
        self.submitter.push(Recorded { serial: self.submitted, batch, after, load });
        self.submitted
    }

    /// The serial of the last submission, which may still be on its way.
    pub const fn submitted(&self) -> Serial {
        self.submitted
    }

    /// Drops the bind groups of a freed block, perhaps later.
    pub fn forget(&mut self, block: &Block) {
        self.bind_groups.free(block);
    }

    /// Drops the bind groups of all freed blocks, and frames without tensors. Returns whether there
    /// were freed blocks.
    pub fn sweep(&mut self) -> bool {
        self.release_frames();
        self.bind_groups.sweep()
    }

    /// Drops the bind groups of all freed blocks.
    pub fn sweep_groups(&mut self) {
        self.bind_groups.sweep();
    }

    /// Bind groups kept at the moment.
    pub fn bind_groups_held(&self) -> u64 {
        self.bind_groups.len() as u64
    }

    fn is_empty(&self) -> bool {
        self.encoder.is_none() && self.after.is_empty()
    }

    fn count_upload(&mut self, bytes: u64) {
        self.statistics.uploads += 1;
        self.statistics.uploaded += bytes;
        self.batch.uploaded += bytes;
        self.batch.work = self.batch.work.saturating_add(pace::of_copy(bytes));
        self.staged += bytes;
        self.submit_if_due();
    }

    fn submit_if_due(&mut self) {
        let expected = self.completion.expected(self.batch.work);
        if self.batch.is_due(expected, self.completion.done() == self.submitted) {
            self.submit();
        }
    }

    /// The open encoder, with no pass open in it.
    fn encoder(&mut self) -> &mut wgpu::CommandEncoder {
        self.end_pass();
        open(&mut self.encoder, &self.gpu.device)
    }

    /// Ends the open pass, if there is one. Tells wgpu which buffers the pass has written, for the
    /// work after it.
    fn end_pass(&mut self) {
        if let Some(probe) = &mut self.probe {
            probe.end_pass();
        }
        for (_, buffer) in std::mem::take(&mut self.bound) {
            self.written(&buffer);
        }
        self.pass = None;
        self.hazards.end();
    }

    fn pass(&mut self) -> &mut wgpu::ComputePass<'static> {
        open_pass(&mut self.pass, open(&mut self.encoder, &self.gpu.device), None)
    }

    /// Keeps a table and a parameter block for the submission and returns their offsets in their
    /// buffers.
    fn place(&mut self, table: &[u8], params: &[u8]) -> Result<(u64, u64)> {
        if !self.tables.has_room(table) || !self.uniforms.has_room(params) {
            self.submit();
            self.tables.restart(&self.gpu.device, table, &mut self.bind_groups)?;
            self.uniforms.restart(&self.gpu.device, params, &mut self.bind_groups)?;
        }
        Ok((self.tables.place(table), self.uniforms.place(params)))
    }
}

impl Record for Recorder {
    type Plan = Planned;
    type Dispatch = Dispatch;

    fn record(&mut self, plan: &Planned, dispatch: &Dispatch) -> Result<()> {
        let pipeline = plan.wait_for_any().as_ref().map_err(Clone::clone)?;
        self.dispatch(pipeline, plan.known_uses(), dispatch)
    }
}

/// The memory that a program touches through its bindings, of which the first is the shader's
/// number `first`. A program that writes parts of words or vec4s at the end of a tensor stays
/// within its binding.
fn accesses(bound: &[Bound], uses: Uses, first: usize) -> impl Iterator<Item = Access> {
    bound.iter().zip(first..).map(move |((block, offset, size), binding)| Access {
        block: block.id,
        bytes: *offset..*offset + *size,
        reads: uses.reads(binding),
        writes: uses.writes(binding),
    })
}

/// Splits an offset into a part that belongs to a bind group and a part that is given with the
/// dispatch, which has 32 bits.
const fn split(offset: u64) -> (u64, u32) {
    const DYNAMIC: u64 = (1 << 31) - 1;
    (offset & !DYNAMIC, (offset & DYNAMIC) as u32)
}

fn open_pass<'a>(
    pass: &'a mut Option<wgpu::ComputePass<'static>>,
    encoder: &mut wgpu::CommandEncoder,
    timestamp_writes: Option<wgpu::ComputePassTimestampWrites<'_>>,
) -> &'a mut wgpu::ComputePass<'static> {
    pass.get_or_insert_with(|| {
        let descriptor = wgpu::ComputePassDescriptor { label: None, timestamp_writes };
        encoder.begin_compute_pass(&descriptor).forget_lifetime()
    })
}

fn open<'a>(
    encoder: &'a mut Option<wgpu::CommandEncoder>,
    device: &wgpu::Device,
) -> &'a mut wgpu::CommandEncoder {
    encoder.get_or_insert_with(|| {
        device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
    })
}

/// The group that binds `ranges` of `buffers`.
fn bind_group<'a>(
    device: &wgpu::Device,
    layout: &wgpu::BindGroupLayout,
    buffers: impl Iterator<Item = &'a wgpu::Buffer>,
    ranges: &[Range],
) -> wgpu::BindGroup {
    let entries: SmallVec<[wgpu::BindGroupEntry<'_>; 8]> = buffers
        .zip(ranges)
        .zip(0..)
        .map(|((buffer, range), binding)| wgpu::BindGroupEntry {
            binding,
            resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                buffer,
                offset: range.offset,
                size: wgpu::BufferSize::new(range.size),
            }),
        })
        .collect();
    device.create_bind_group(&wgpu::BindGroupDescriptor { label: None, layout, entries: &entries })
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn an_offset_is_the_sum_of_its_parts() {
        for offset in [0, 256, (1 << 31) - 256, 1 << 31, (1 << 32) + 512, (5 << 31) + 768] {
            let (fixed, dynamic) = split(offset);
            assert_eq!(fixed + u64::from(dynamic), offset);
            assert_eq!((fixed % (1 << 31), dynamic % 256), (0, 0), "{offset}");
        }
    }
}
