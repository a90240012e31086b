//! Kernels without TensorFlow: runs a registered op on host values, for tests, benches and machines
//! with a bare GPU.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::device::trace::Origin;
use crate::device::{Capabilities, Device, Profile, Selection};
use crate::dtype::DType;
use crate::error::{Error, Result};
pub use crate::kernels::node::Node;
use crate::kernels::op::{Attrs, Kernel, OpContext, UpdateAll, VariableUpdate};
use crate::kernels::registry::Registry;
use crate::tensor::{HostTensor, Tensor};

/// An input of [`Session::run`].
#[derive(Debug, Clone)]
pub enum Input {
    /// A tensor. It is uploaded to the device, or stays on the host if the kernel is registered
    /// that way.
    Value(HostTensor),
    /// A handle to a variable of the session.
    Variable(usize),
}

impl From<HostTensor> for Input {
    fn from(t: HostTensor) -> Self {
        Self::Value(t)
    }
}

fn first_adapter() -> Result<wgpu::Adapter> {
    let selection = Selection::enumerate(&|name| std::env::var(name).ok());
    let problem = selection.problem;
    let first = selection.adapters.into_iter().next();
    first.ok_or_else(|| Error::Unavailable(problem.unwrap_or_default()))
}

/// A device with a registry and variables. Device memory of inputs and outputs is freed after each
/// run.
pub struct Session {
    /// The device.
    pub device: Arc<Device>,
    registry: Registry,
    variables: Vec<Variable>,
    /// The shift of input addresses in elements, to test interior pointers.
    pub misalign: usize,
    arena: Option<Arena>,
}

/// A block of device memory from which tensors are cut one after the other.
#[derive(Debug, Clone)]
struct Arena {
    block: Range<u64>,
    next: u64,
}

impl Session {
    /// A session on a device.
    pub fn new(device: Arc<Device>) -> Self {
        Self {
            registry: Registry::new(*device.capabilities()),
            device,
            variables: Vec::new(),
            misalign: 0,
            arena: None,
        }
    }

    /// A session on the first adapter of this machine. The whole process shares one device.
    pub fn shared() -> Result<Self> {
        static DEVICE: OnceLock<Result<Arc<Device>>> = OnceLock::new();
        Ok(Self::new(DEVICE.get_or_init(|| Device::open(&first_adapter()?)).clone()?))
    }

    /// A session under `profile`, as far as the adapter supports it, with one device for each
    /// profile. So tests on a software adapter run the programs of a GPU.
    pub fn under(profile: Profile) -> Result<Self> {
        static DEVICES: Mutex<Vec<(Profile, Arc<Device>)>> = Mutex::new(Vec::new());
        let mut devices = DEVICES.lock();
        if let Some((_, device)) = devices.iter().find(|(p, _)| *p == profile) {
            return Ok(Self::new(device.clone()));
        }
        let adapter = first_adapter()?;
        let device = Device::open_with(&adapter, profile.on(Profile::of(&adapter)), None)?;
        devices.push((profile, device.clone()));
        Ok(Self::new(device))
    }

    /// A session on a device that binds at most `bytes` at once, so that even small tensors are
    /// computed in windows.
    pub fn binding(bytes: u64) -> Result<Self> {
        let own = Self::shared()?.device.profile();
        let capabilities = Capabilities { max_binding: bytes, ..own.capabilities };
        Self::under(Profile { capabilities, ..own })
    }

    /// Whether the device supports a type, so that tests can skip the others. Prints each skipped
    /// type. If `CI` is set, it panics if adapters of this profile do support the type, for then
    /// something is broken.
    pub fn runs(&self, dtype: DType) -> bool {
        let runs = self.device.capabilities().supports(dtype);
        if !runs {
            let own = self.device.profile();
            let must = Profile::named(own.name).is_some_and(|p| p.capabilities.supports(dtype));
            let what = format!("skipped: {own} runs no {dtype} here");
            assert!(!must || std::env::var_os("CI").is_none(), "{what}, but does elsewhere");
            println!("{what}");
        }
        runs
    }

    /// The elements of `types` that the device [`Session::runs`].
    pub fn supported(&self, types: impl IntoIterator<Item = DType>) -> Vec<DType> {
        types.into_iter().filter(|t| self.runs(*t)).collect()
    }

    /// From now on, cuts all tensors from one block of `bytes`, as TensorFlow's allocator does. No
    /// part of it is freed.
    pub fn use_arena(&mut self, bytes: u64) -> Result<()> {
        let start = self.device.allocate(bytes)?;
        self.arena = Some(Arena { block: start..start + bytes, next: start });
        Ok(())
    }

    fn allocate(&mut self, bytes: u64) -> Result<u64> {
        let Some(arena) = &mut self.arena else { return self.device.allocate(bytes) };
        let address = arena.next;
        let next = (address + bytes.max(1)).next_multiple_of(256);
        if next > arena.block.end {
            return Err(Error::ResourceExhausted(format!(
                "the arena has no room for {bytes} bytes"
            )));
        }
        arena.next = next;
        Ok(address)
    }

    fn deallocate(&self, address: u64) -> Result<()> {
        match &self.arena {
            Some(arena) if arena.block.contains(&address) => Ok(()),
            _ => self.device.deallocate(address),
        }
    }

    /// The kernels that the device offers.
    pub const fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Makes a variable and returns its index.
    pub fn variable(&mut self, value: &HostTensor) -> Result<usize> {
        let tensor = self.upload(value)?;
        let block = self.block(&tensor);
        self.variables.push(Variable { tensor, block });
        Ok(self.variables.len() - 1)
    }

    /// The value of a variable.
    pub fn variable_value(&self, variable: usize) -> Result<HostTensor> {
        self.download(&self.variables[variable].tensor)
    }

    /// Copies a value to the device.
    pub fn upload(&mut self, value: &HostTensor) -> Result<Tensor> {
        let shift = (self.misalign * value.dtype.size()) as u64;
        let address = self.allocate(value.bytes.len() as u64 + shift)? + shift;
        let tensor = Tensor::new(value.dtype, &value.dims, address);
        self.device.upload(address, &value.bytes)?;
        Ok(tensor)
    }

    /// The address of the allocation of a tensor that [`Session::upload`] made.
    fn block(&self, tensor: &Tensor) -> u64 {
        tensor.address - (self.misalign * tensor.dtype.size()) as u64
    }

    /// Copies a tensor to the host.
    pub fn download(&self, tensor: &Tensor) -> Result<HostTensor> {
        let mut bytes = vec![0; tensor.bytes() as usize];
        self.device.download(tensor.address, &mut bytes)?;
        Ok(HostTensor { dtype: tensor.dtype, dims: tensor.dims.clone(), bytes })
    }

    /// Runs one op and returns its outputs.
    pub fn run(&mut self, node: &Node, inputs: &[Input]) -> Result<Vec<HostTensor>> {
        let dtype_of = |name: &str| node.dtype(name).ok();
        let registration = self
            .registry
            .find(node.op(), dtype_of)
            .ok_or_else(|| Error::NotFound(format!("no kernel for {node:?}")))?;
        let kernel = (registration.create)(node)?;
        let device = self.device.clone();
        let _span = device.is_traced().then(|| {
            let (op, node, holds) = (node.op().to_owned(), node.op().to_owned(), String::new());
            device.op_span(&Arc::new(Origin { op, node, holds }))
        });
        self.run_kernel(&*kernel, inputs).map_err(|e| e.context(node.op()))
    }

    /// Runs a kernel that was made before, and may have run before, and returns its outputs.
    pub fn run_kernel(&mut self, kernel: &dyn Kernel, inputs: &[Input]) -> Result<Vec<HostTensor>> {
        let mut ctx = LocalContext {
            session: self,
            inputs: inputs.to_vec(),
            uploaded: vec![None; inputs.len()],
            outputs: Vec::new(),
            allocated: Vec::new(),
        };
        let computed = kernel.compute(&mut ctx);
        let LocalContext { outputs, allocated, .. } = ctx;
        let values = computed.and_then(|()| {
            outputs
                .into_iter()
                .enumerate()
                .map(|(i, o)| match o {
                    Some(Output::Device(t)) => self.download(&t),
                    Some(Output::Host(t)) => Ok(t),
                    None => Err(Error::Internal(format!("output {i} was not set"))),
                })
                .collect()
        });
        for address in allocated {
            self.deallocate(address)?;
        }
        values
    }
}

/// A variable's value and the allocation that holds it.
#[derive(Debug, Clone)]
struct Variable {
    tensor: Tensor,
    block: u64,
}

#[derive(Debug, Clone)]
enum Output {
    Device(Tensor),
    Host(HostTensor),
}

struct LocalContext<'s> {
    session: &'s mut Session,
    inputs: Vec<Input>,
    uploaded: Vec<Option<Tensor>>,
    outputs: Vec<Option<Output>>,
    allocated: Vec<u64>,
}

impl LocalContext<'_> {
    /// Sets an output. Like TensorFlow, refuses one that is set already.
    fn set(&mut self, i: usize, output: Output) -> Result<()> {
        if self.outputs.len() <= i {
            self.outputs.resize(i + 1, None);
        }
        if self.outputs[i].is_some() {
            return Err(Error::Internal(format!("output {i} is allocated twice")));
        }
        self.outputs[i] = Some(output);
        Ok(())
    }

    fn value(&self, i: usize) -> Result<&HostTensor> {
        match self.inputs.get(i) {
            Some(Input::Value(t)) => Ok(t),
            other => Err(Error::InvalidArgument(format!("input {i} is {other:?}, not a tensor"))),
        }
    }

    fn variable(&self, i: usize) -> Result<usize> {
        match self.inputs.get(i) {
            Some(Input::Variable(v)) => Ok(*v),
            other => Err(Error::InvalidArgument(format!("input {i} is {other:?}, not a variable"))),
        }
    }
}

impl OpContext for LocalContext<'_> {
    fn device(&self) -> &Device {
        &self.session.device
    }

    fn num_inputs(&self) -> usize {
        self.inputs.len()
    }

    fn input(&mut self, i: usize) -> Result<Tensor> {
        if let Some(Some(t)) = self.uploaded.get(i) {
            return Ok(t.clone());
        }
        let value = self.value(i)?.clone();
        let tensor = self.session.upload(&value)?;
        self.allocated.push(self.session.block(&tensor));
        self.uploaded[i] = Some(tensor.clone());
        Ok(tensor)
    }

    fn host_input(&mut self, i: usize) -> Result<HostTensor> {
        self.value(i).cloned()
    }

    fn output(&mut self, i: usize, dtype: DType, dims: &[usize]) -> Result<Tensor> {
        let tensor = self.temp(dtype, dims)?;
        self.set(i, Output::Device(tensor.clone()))?;
        Ok(tensor)
    }

    fn forward_or_output(
        &mut self,
        candidates: &[usize],
        i: usize,
        dtype: DType,
        dims: &[usize],
    ) -> Result<Tensor> {
        // Inputs belong to this run only, so forwarding is always legal and gets tested.
        for &c in candidates {
            let t = self.input(c)?;
            if t.dtype == dtype
                && t.len() == dims.iter().product::<usize>()
                && t.address.is_multiple_of(16)
            {
                let t = t.reshaped(dims);
                self.set(i, Output::Device(t.clone()))?;
                return Ok(t);
            }
        }
        self.output(i, dtype, dims)
    }

    fn forward_input(&mut self, i: usize, o: usize, dims: &[usize]) -> Result<()> {
        let t = self.input(i)?.reshaped(dims);
        self.set(o, Output::Device(t))
    }

    fn host_output(&mut self, i: usize, value: &HostTensor) -> Result<()> {
        self.set(i, Output::Host(value.clone()))
    }

    fn temp(&mut self, dtype: DType, dims: &[usize]) -> Result<Tensor> {
        let mut tensor = Tensor::new(dtype, dims, 0);
        tensor.address = self.session.allocate(tensor.bytes())?;
        self.allocated.push(tensor.address);
        Ok(tensor)
    }

    fn release(&mut self, temporary: &Tensor) {
        let is_it = |address: &u64| *address == temporary.address;
        if let Some(at) = self.allocated.iter().position(is_it) {
            self.allocated.swap_remove(at);
            let freed = self.session.deallocate(temporary.address);
            freed.unwrap_or_else(|e| log::error!("{e}"));
        }
    }

    fn output_temp(&mut self, o: usize, temporary: &Tensor) -> Result<()> {
        self.set(o, Output::Device(temporary.clone()))
    }

    fn read_variable(&mut self, i: usize) -> Result<Tensor> {
        Ok(self.session.variables[self.variable(i)?].tensor.clone())
    }

    fn update_variable(
        &mut self,
        i: usize,
        mode: VariableUpdate,
        update: &mut dyn FnMut(&mut dyn OpContext, &Tensor, &Tensor) -> Result<()>,
    ) -> Result<()> {
        let variable = self.variable(i)?;
        let old = self.session.variables[variable].clone();
        let address = self.session.allocate(old.tensor.bytes())?;
        let new = Variable {
            tensor: Tensor::new(old.tensor.dtype, &old.tensor.dims, address),
            block: address,
        };
        if mode == VariableUpdate::Sparse {
            self.session.device.copy(address, old.tensor.address, old.tensor.bytes())?;
        }
        let updated = update(self, &old.tensor, &new.tensor);
        let (kept, freed) = if updated.is_ok() { (new, old) } else { (old, new) };
        self.session.variables[variable] = kept;
        self.allocated.push(freed.block);
        updated
    }

    fn update_variables(&mut self, inputs: &[usize], update: &mut UpdateAll<'_>) -> Result<()> {
        let places = inputs.iter().map(|i| self.variable(*i)).collect::<Result<Vec<_>>>()?;
        let mut variables = places.clone();
        variables.sort_unstable();
        variables.dedup();
        let mut fresh = Vec::new();
        for variable in &variables {
            let old = self.session.variables[*variable].tensor.clone();
            let address = self.session.allocate(old.bytes())?;
            self.session.device.copy(address, old.address, old.bytes())?;
            fresh.push(Tensor::new(old.dtype, &old.dims, address));
        }
        let value = |place: &usize| fresh[variables.partition_point(|v| v < place)].clone();
        let values: Vec<Tensor> = places.iter().map(value).collect();
        let updated = update(self, &values);
        for (variable, tensor) in variables.into_iter().zip(fresh) {
            let new = Variable { block: tensor.address, tensor };
            let freed = if updated.is_ok() {
                std::mem::replace(&mut self.session.variables[variable], new)
            } else {
                new
            };
            self.allocated.push(freed.block);
        }
        updated
    }
}
