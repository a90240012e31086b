//! The steps of a region's run, in a form that can be repeated, and the inputs for which they hold.

use std::ops::Range;

use smallvec::SmallVec;

use super::members::Members;
use crate::device::{Capture, Captured, Device};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::tensor::{Dims, HostTensor, Tensor};

/// Kernels may choose by the alignment of their tensors, up to this one, which all new tensors
/// have.
const ALIGNMENT: u64 = 256;

/// The bytes of inputs in host memory beyond which no run is repeated.
const MOST_HOST_BYTES: usize = 4096;

/// Everything that the kernels' choices depend on.
#[derive(PartialEq)]
pub struct Inputs {
    device: u32,
    deterministic: bool,
    tensors: Vec<Input>,
    hosts: Vec<HostTensor>,
}

/// A tensor of the region's inputs.
#[derive(PartialEq)]
struct Input {
    dims: Dims,
    /// The address beyond a multiple of [`ALIGNMENT`].
    rest: u64,
    /// The first input at the same address.
    first: usize,
}

impl Inputs {
    /// The inputs of this run. `None` if they cannot be told, or some of `tensors` are missing.
    pub fn of(ctx: &mut dyn OpContext, members: &Members, tensors: &[Tensor]) -> Option<Self> {
        if tensors.len() < members.tensor_uses.len() {
            return None;
        }
        let hosts = members.tensors..members.tensors + members.hosts;
        let hosts: Vec<HostTensor> =
            hosts.map(|i| ctx.host_input(i).ok()).collect::<Option<_>>()?;
        if hosts.iter().map(|host| host.bytes.len()).sum::<usize>() > MOST_HOST_BYTES {
            return None;
        }
        let firsts = firsts(tensors)?;
        let input = |(tensor, first): (&Tensor, usize)| Input {
            dims: tensor.dims.clone(),
            // An empty tensor may be anywhere.
            rest: if tensor.is_empty() { 0 } else { tensor.address % ALIGNMENT },
            first,
        };
        Some(Self {
            device: ctx.device().number(),
            deterministic: ctx.device().matrix_units().is_deterministic(),
            tensors: tensors.iter().zip(firsts).map(input).collect(),
            hosts,
        })
    }
}

/// For each tensor the first one at the same address. `None` if two tensors share only a part of
/// their memory: an address would not tell which of the two a kernel binds.
fn firsts(tensors: &[Tensor]) -> Option<SmallVec<[usize; 64]>> {
    let mut firsts: SmallVec<[usize; 64]> = (0..tensors.len()).collect();
    let begins = tensors.iter().enumerate().filter(|(_, tensor)| !tensor.is_empty());
    let mut sorted: SmallVec<[(u64, usize); 64]> = begins.map(|(i, t)| (t.address, i)).collect();
    sorted.sort_unstable();
    let mut before: Option<(Range<u64>, usize)> = None;
    for (address, i) in sorted {
        let range = address..address + tensors[i].bytes();
        before = match before {
            Some((last, first)) if last.start == address => {
                firsts[i] = first;
                Some((address..last.end.max(range.end), first))
            }
            Some((last, _)) if address < last.end => return None,
            _ => Some((range, i)),
        };
    }
    Some(firsts)
}

/// A tensor's number: the region's inputs come first, then the values of the variables that are
/// read, then the tensors that the steps allocate.
pub type Slot = usize;

/// Where a dispatch binds memory: the bytes behind the beginning of a tensor.
pub struct Place {
    pub slot: Slot,
    pub offset: u64,
}

/// A step of a run.
pub enum Step {
    /// The member of this number begins.
    Member(usize),
    /// Temporary memory.
    Temporary(DType, Dims),
    /// An output of the region that may take the place of an input.
    Forward(Forward),
    /// A dispatch, and the places of its bindings.
    Dispatch(Box<Captured>, SmallVec<[Place; 8]>),
    /// The member of this number changes variables. Its inputs on the device, each with its slot.
    Update(usize, Box<[Option<(Slot, Tensor)>]>),
    /// A temporary, or the value of a variable, is given back.
    Release(Slot),
}

/// Numbers of inputs.
pub type Candidates = SmallVec<[usize; 4]>;

/// How an output of the region is made that may take the place of an input.
pub struct Forward {
    /// The output's number.
    pub o: usize,
    pub dtype: DType,
    pub dims: Dims,
    /// The inputs.
    pub inputs: Candidates,
    /// The input that became this output in the recorded run.
    pub from: Option<usize>,
}

/// The input that became the output, for each [`Forward`] of a run. TensorFlow decides that:
/// something else may refer to an input in one run and not in another.
pub type Forwards = SmallVec<[Option<usize>; 4]>;

/// How an output of the region is set at the end.
pub enum Set {
    /// It is an input with another shape.
    Input(usize),
    /// It is empty.
    Empty,
    /// It is a temporary, the value of a variable, or another output with another shape.
    Held(Slot),
    /// It was made by its step.
    Made(Slot),
}

/// A run that can be repeated.
pub struct Record {
    pub inputs: Inputs,
    pub forwards: Forwards,
    pub steps: Vec<Step>,
    /// The number of slots at the end.
    pub slots: usize,
    /// The outputs.
    pub outputs: Vec<(Set, DType, Dims)>,
    /// The inputs of each member, for error messages.
    pub described: Vec<String>,
    /// The most work that a kernel does in one dispatch.
    pub work: u64,
}

#[cfg(test)]
impl Inputs {
    /// Inputs that equal no inputs with another number.
    pub fn numbered(device: u32) -> Self {
        Self { device, deterministic: false, tensors: Vec::new(), hosts: Vec::new() }
    }
}

#[cfg(test)]
impl Record {
    /// A record without steps for numbered inputs.
    pub fn numbered(number: u32) -> Self {
        Self {
            inputs: Inputs::numbered(number),
            forwards: Forwards::new(),
            steps: Vec::new(),
            slots: 0,
            outputs: Vec::new(),
            described: Vec::new(),
            work: 0,
        }
    }
}

/// The record of a run while it goes on.
pub struct Log {
    capture: Capture,
    /// The memory of each slot, and whether it is in use.
    slots: Vec<(Range<u64>, bool)>,
    record: Record,
    is_complete: bool,
}

impl Log {
    /// Begins the record of a run with these inputs.
    pub fn begin(inputs: Inputs, tensors: &[Tensor]) -> Self {
        let slot = |t: &Tensor| (range(t), !t.is_empty());
        Self {
            capture: Capture::begin(),
            slots: tensors.iter().map(slot).collect(),
            record: Record {
                inputs,
                forwards: Forwards::new(),
                steps: Vec::new(),
                slots: 0,
                outputs: Vec::new(),
                described: Vec::new(),
                work: 0,
            },
            is_complete: true,
        }
    }

    /// A member begins.
    pub fn member(&mut self, at: usize, inputs: String) {
        match self.record.steps.last_mut() {
            // The one before it took no steps.
            Some(Step::Member(last)) => *last = at,
            _ => self.record.steps.push(Step::Member(at)),
        }
        self.record.described.push(inputs);
    }

    /// A step has allocated a tensor.
    pub fn allocated(&mut self, tensor: &Tensor, step: Step) {
        self.dispatched();
        self.record.steps.push(step);
        self.slots.push((range(tensor), !tensor.is_empty()));
    }

    /// An output of the region takes the place of this input, or of none.
    pub fn forwarded(&mut self, from: Option<usize>) {
        self.record.forwards.push(from);
    }

    /// Adds the dispatches since the last step.
    pub fn dispatched(&mut self) {
        for captured in self.capture.take() {
            let place = |binding: &crate::device::Binding| {
                if binding.bytes == 0 {
                    return Some(Place { slot: 0, offset: 0 });
                }
                let slot = self.slot(binding.address)?;
                Some(Place { slot, offset: binding.address - self.slots[slot].0.start })
            };
            let places: Option<SmallVec<_>> = captured.bindings().iter().map(place).collect();
            self.record.work = self.record.work.max(captured.work);
            match places {
                Some(places) => {
                    self.record.steps.push(Step::Dispatch(Box::new(captured), places));
                }
                None => self.is_complete = false,
            }
        }
    }

    /// A member that changes variables runs. Its dispatches are not recorded.
    pub fn update(
        &mut self,
        at: usize,
        inputs: &super::update::Inputs,
        run: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        self.dispatched();
        let place = |input: &Option<Tensor>| {
            let Some(tensor) = input else { return Some(None) };
            let slot = if tensor.is_empty() { 0 } else { self.slot(tensor.address)? };
            let offset = tensor.address.wrapping_sub(self.slots.get(slot)?.0.start);
            Some(Some((slot, Tensor::new(tensor.dtype, &tensor.dims, offset))))
        };
        match inputs.iter().map(place).collect() {
            Some(places) => self.record.steps.push(Step::Update(at, places)),
            None => self.is_complete = false,
        }
        self.capture.without(run)
    }

    /// A temporary is given back.
    pub fn released(&mut self, temporary: &Tensor) {
        match self.slot(temporary.address) {
            Some(slot) => {
                self.slots[slot].1 = false;
                self.record.steps.push(Step::Release(slot));
            }
            None => self.is_complete = false,
        }
    }

    /// An output of the region is set.
    pub fn set(&mut self, tensor: &Tensor, how: impl FnOnce(Slot) -> Set) {
        let slot = if tensor.is_empty() { Some(0) } else { self.slot(tensor.address) };
        match slot {
            Some(slot) => {
                self.record.outputs.push((how(slot), tensor.dtype, tensor.dims.clone()));
            }
            None => self.is_complete = false,
        }
    }

    /// The youngest tensor in use at this address.
    fn slot(&self, address: u64) -> Option<Slot> {
        self.slots.iter().rposition(|(range, is_used)| *is_used && range.contains(&address))
    }

    /// The record of the run, or why there is none.
    pub fn end(mut self, device: &Device) -> std::result::Result<Record, &'static str> {
        self.record.work = self.record.work.max(self.capture.work());
        self.record.slots = self.slots.len();
        if let Some(why) = self.capture.refused() {
            return Err(why);
        }
        if !self.is_complete {
            return Err("it binds memory that is no tensor of the region");
        }
        if device.is_cut(self.record.work) {
            return Err("a dispatch takes long");
        }
        Ok(self.record)
    }
}

fn range(tensor: &Tensor) -> Range<u64> {
    tensor.address..tensor.address + tensor.bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensors(all: &[(u64, usize)]) -> Vec<Tensor> {
        all.iter().map(|(address, n)| Tensor::new(DType::U8, &[*n], *address)).collect()
    }

    #[test]
    fn tensors_at_one_address_are_told() {
        let all = tensors(&[(512, 8), (256, 16), (512, 4), (512, 0), (256, 16)]);
        assert_eq!(firsts(&all).unwrap()[..], [0, 1, 0, 3, 1]);
    }

    #[test]
    fn a_part_of_another_tensor_is_refused() {
        assert!(firsts(&tensors(&[(256, 16), (260, 4)])).is_none());
        assert!(firsts(&tensors(&[(256, 4), (256, 16), (264, 4)])).is_none());
        assert!(firsts(&tensors(&[(256, 16), (272, 4)])).is_some());
        assert!(firsts(&tensors(&[(256, 16), (260, 0)])).is_some(), "an empty one has no memory");
    }
}
