//! Executes a kernel again and again on the same operands, with the memory of the first call. This
//! corresponds to TensorFlow's allocator, which hands out the same blocks in each step.

use tensorflow_wgpu::device::Device;
use tensorflow_wgpu::kernels::op::{OpContext, UpdateAll, VariableUpdate};
use tensorflow_wgpu::{DType, Error, HostTensor, Result, Tensor};

use crate::case::Source;

/// Operands and memory of one row.
pub struct Context<'d> {
    device: &'d Device,
    operands: Vec<Operand>,
    /// Memory in the order in which a call requests it: addresses and sizes.
    memory: Vec<(u64, u64)>,
    asked: usize,
    /// Bytes of the operands that were requested and of the results since the last
    /// [`Context::begin`].
    pub necessary: u64,
}

struct Operand {
    value: HostTensor,
    tensor: Option<Tensor>,
    /// How often a call has to move it: a variable is read and written.
    moves: u64,
    counted: bool,
}

impl<'d> Context<'d> {
    /// Makes the operands' values. They are copied to the device when a kernel requests them there.
    pub fn new(device: &'d Device, inputs: &[Source]) -> Self {
        let operand = |source: &Source| Operand {
            value: source.value(),
            tensor: None,
            moves: if matches!(source, Source::Variable(..)) { 2 } else { 1 },
            counted: false,
        };
        let operands = inputs.iter().map(operand).collect();
        Self { device, operands, memory: Vec::new(), asked: 0, necessary: 0 }
    }

    /// Starts another call.
    pub fn begin(&mut self) {
        self.asked = 0;
        self.necessary = 0;
        self.operands.iter_mut().for_each(|o| o.counted = false);
    }

    /// Frees the memory on the device.
    pub fn end(self) -> Result<()> {
        let operands = self.operands.iter().filter_map(|o| o.tensor.as_ref().map(|t| t.address));
        operands
            .chain(self.memory.iter().map(|(address, _)| *address))
            .try_for_each(|a| self.device.deallocate(a))
    }

    fn operand(&self, i: usize) -> Result<&Operand> {
        self.operands.get(i).ok_or_else(|| Error::InvalidArgument(format!("there is no input {i}")))
    }
}

impl OpContext for Context<'_> {
    fn device(&self) -> &Device {
        self.device
    }

    fn num_inputs(&self) -> usize {
        self.operands.len()
    }

    fn input(&mut self, i: usize) -> Result<Tensor> {
        let tensor = match self.operand(i)? {
            Operand { tensor: Some(tensor), .. } => tensor.clone(),
            Operand { value, .. } => {
                let address = self.device.allocate(value.bytes.len() as u64)?;
                self.device.upload(address, &value.bytes)?;
                Tensor::new(value.dtype, &value.dims, address)
            }
        };
        let operand = &mut self.operands[i];
        operand.tensor = Some(tensor.clone());
        if !std::mem::replace(&mut operand.counted, true) {
            self.necessary += operand.moves * tensor.bytes();
        }
        Ok(tensor)
    }

    fn host_input(&mut self, i: usize) -> Result<HostTensor> {
        Ok(self.operand(i)?.value.clone())
    }

    fn output(&mut self, _: usize, dtype: DType, dims: &[usize]) -> Result<Tensor> {
        let tensor = self.temp(dtype, dims)?;
        self.necessary += tensor.bytes();
        Ok(tensor)
    }

    /// Never forwards an input: a kernel repeated in place would end at infinities or denormal
    /// numbers, which take a different time.
    fn forward_or_output(
        &mut self,
        _: &[usize],
        i: usize,
        dtype: DType,
        dims: &[usize],
    ) -> Result<Tensor> {
        self.output(i, dtype, dims)
    }

    fn forward_input(&mut self, _: usize, _: usize, _: &[usize]) -> Result<()> {
        Ok(())
    }

    fn host_output(&mut self, _: usize, _: &HostTensor) -> Result<()> {
        Ok(())
    }

    fn temp(&mut self, dtype: DType, dims: &[usize]) -> Result<Tensor> {
        let mut tensor = Tensor::new(dtype, dims, 0);
        let wanted = tensor.bytes();
        let found = self.memory.get(self.asked).copied();
        tensor.address = match found {
            Some((address, bytes)) if bytes == wanted => address,
            _ => {
                let made = (self.device.allocate(wanted)?, wanted);
                if let Some((address, _)) = found {
                    self.device.deallocate(address)?;
                    self.memory[self.asked] = made;
                } else {
                    self.memory.push(made);
                }
                made.0
            }
        };
        self.asked += 1;
        Ok(tensor)
    }

    fn read_variable(&mut self, i: usize) -> Result<Tensor> {
        self.input(i)
    }

    fn update_variable(
        &mut self,
        i: usize,
        _: VariableUpdate,
        update: &mut dyn FnMut(&mut dyn OpContext, &Tensor, &Tensor) -> Result<()>,
    ) -> Result<()> {
        let value = self.input(i)?;
        update(self, &value, &value)
    }

    fn update_variables(&mut self, inputs: &[usize], update: &mut UpdateAll<'_>) -> Result<()> {
        let values = inputs.iter().map(|i| self.input(*i)).collect::<Result<Vec<_>>>()?;
        update(self, &values)
    }
}
