//! The interface of a kernel, without TensorFlow: attributes in, tensors in, tensors out.
//!
//! `ffi` implements [`Attrs`] and [`OpContext`] on TensorFlow's C API, [`crate::local`] implements
//! them on plain Rust values for tests, benches and machines that have no TensorFlow.

use std::ffi::c_void;
use std::sync::Arc;

use crate::device::Device;
use crate::device::trace::Origin;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::tensor::{HostTensor, Tensor};

/// The attributes of a node. A getter fails with `InvalidArgument` when the attribute is missing or
/// of another kind.
pub trait Attrs {
    /// The op's name, as in `"MatMul"`.
    fn op(&self) -> &str;
    /// `type` attribute.
    fn dtype(&self, name: &str) -> Result<DType>;
    /// `int` attribute.
    fn int(&self, name: &str) -> Result<i64>;
    /// `float` attribute.
    fn float(&self, name: &str) -> Result<f32>;
    /// `bool` attribute.
    fn bool(&self, name: &str) -> Result<bool>;
    /// `string` attribute, which must be UTF-8.
    fn string(&self, name: &str) -> Result<String>;
    /// `list(string)` attribute; the strings may hold any bytes.
    fn byte_strings(&self, name: &str) -> Result<Vec<Vec<u8>>>;
    /// `list(int)` attribute.
    fn ints(&self, name: &str) -> Result<Vec<i64>>;
    /// `list(float)` attribute.
    fn floats(&self, name: &str) -> Result<Vec<f32>>;
    /// `list(type)` attribute.
    fn dtypes(&self, name: &str) -> Result<Vec<DType>>;

    /// `list(string)` attribute, which must be UTF-8.
    fn strings(&self, name: &str) -> Result<Vec<String>> {
        let strings = self.byte_strings(name)?.into_iter().map(String::from_utf8);
        strings
            .collect::<Result<_, _>>()
            .map_err(|_| Error::InvalidArgument(format!("attribute {name} is not UTF-8")))
    }

    /// `shape` attribute of known rank; −1 for an unknown extent.
    fn shape(&self, name: &str) -> Result<Vec<i64>> {
        self.ints(name)
    }

    /// TensorFlow's own kernel for this node, for the few of its kernels that leave their work on
    /// tensors to the device they run on. An op that uses it declares so
    /// ([`crate::kernels::registry::Need`]).
    fn tensorflow_kernel(&self) -> Result<Box<dyn Kernel>> {
        Err(Error::Unimplemented(format!(
            "{}: the kernel is TensorFlow's, which does not run here",
            self.op()
        )))
    }
}

/// TensorFlow's handle of one execution. Only `ffi` can use it.
#[derive(Debug, Clone, Copy)]
pub struct Execution(pub(crate) *mut c_void);

/// How [`OpContext::update_variable`] changes a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VariableUpdate {
    /// Every element is written: `new` starts uninitialized, unless it is `old` itself.
    Dense,
    /// Some elements are written: `new` starts with the contents of `old`, or is `old` itself.
    Sparse,
}

/// The function that [`OpContext::update_variables`] runs under the locks. It receives the context
/// and the variables' values.
pub type UpdateAll<'f> = dyn FnMut(&mut dyn OpContext, &[Tensor]) -> Result<()> + 'f;

/// One execution of a node. Tensors that it hands out stay valid until the kernel returns, and the
/// device's in-order queue keeps enqueued programs valid after that.
pub trait OpContext {
    /// The device on which kernels enqueue their programs.
    fn device(&self) -> &Device;

    /// Number of inputs, with each list input flattened.
    fn num_inputs(&self) -> usize;

    /// Input `i`, which lives on the device.
    fn input(&mut self, i: usize) -> Result<Tensor>;

    /// Input `i`, which was registered as host memory.
    fn host_input(&mut self, i: usize) -> Result<HostTensor>;

    /// Allocates output `i` on the device, uninitialized and at least 16-byte aligned, padded to
    /// whole words.
    fn output(&mut self, i: usize, dtype: DType, dims: &[usize]) -> Result<Tensor>;

    /// Like [`OpContext::output`]. `None` if the output is empty: then nothing is left to do.
    fn some_output(&mut self, i: usize, dtype: DType, dims: &[usize]) -> Result<Option<Tensor>> {
        Ok(Some(self.output(i, dtype, dims)?).filter(|output| !output.is_empty()))
    }

    /// Like [`OpContext::output`], but may reuse the buffer of one of the device inputs
    /// `candidates` if nothing else needs that input and type and size fit. The kernel must then
    /// tolerate that operand being overwritten in place, element by element.
    fn forward_or_output(
        &mut self,
        candidates: &[usize],
        i: usize,
        dtype: DType,
        dims: &[usize],
    ) -> Result<Tensor>;

    /// Makes input `i` itself, with the shape `dims`, the output `o`; no copy (Reshape, Squeeze,
    /// Identity).
    fn forward_input(&mut self, i: usize, o: usize, dims: &[usize]) -> Result<()>;

    /// Sets output `i`, which was registered as host memory.
    fn host_output(&mut self, i: usize, value: &HostTensor) -> Result<()>;

    /// Shows `read` the bytes of input `i`, which was registered as host memory, in place.
    fn read_host(&mut self, i: usize, read: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        read(&self.host_input(i)?.bytes)
    }

    /// Sets output `o` to input `i`, both registered as host memory, after `change` has changed its
    /// bytes. The output is the input itself if nothing else reads it, else a copy.
    fn change_host(
        &mut self,
        i: usize,
        o: usize,
        change: &mut dyn FnMut(&mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let mut value = self.host_input(i)?;
        change(&mut value.bytes)?;
        self.host_output(o, &value)
    }

    /// Writes `bytes` into input `i`, which was registered as host memory, `at` bytes behind its
    /// start. For the few ops that are meant to change an input that other ops see.
    fn overwrite_host_input(&mut self, i: usize, at: usize, bytes: &[u8]) -> Result<()> {
        let _ = (at, bytes);
        Err(Error::Unimplemented(format!(
            "input {i} is TensorFlow's to change, which does not run here"
        )))
    }

    /// Device memory for the time of this kernel (reused only by work enqueued later).
    fn temp(&mut self, dtype: DType, dims: &[usize]) -> Result<Tensor>;

    /// The current value of the variable at input `i`, which is its handle, or in TensorFlow 1 a
    /// reference to it.
    fn read_variable(&mut self, i: usize) -> Result<Tensor> {
        no_variable(i)
    }

    /// Changes the variable at input `i` while its lock is held. The closure receives the context,
    /// `old` and `new`, which have the same type and dims and may be the same memory.
    fn update_variable(
        &mut self,
        i: usize,
        mode: VariableUpdate,
        update: &mut dyn FnMut(&mut dyn OpContext, &Tensor, &Tensor) -> Result<()>,
    ) -> Result<()> {
        let _ = (mode, update);
        no_variable(i)
    }

    /// Changes the variables at `inputs` in place, while the locks of all are held. The locks are
    /// taken in the order of the variables' addresses, so that no two updates wait for each other.
    /// The closure receives the context and each variable's current value, and writes the new value
    /// over it. A variable that is given twice is locked once, and its value lies at one address
    /// ([`super::aliases`]).
    fn update_variables(&mut self, inputs: &[usize], update: &mut UpdateAll<'_>) -> Result<()> {
        let _ = update;
        no_variable(inputs.first().copied().unwrap_or(0))
    }

    /// Gives memory of [`OpContext::temp`] back before the kernel returns.
    fn release(&mut self, temporary: &Tensor) {
        let _ = temporary;
    }

    /// Makes memory of [`OpContext::temp`], or of an output of [`OpContext::forward_or_output`],
    /// the output `o`, with this type and shape.
    fn output_temp(&mut self, o: usize, temporary: &Tensor) -> Result<()> {
        let _ = temporary;
        Err(Error::Unimplemented(format!("output {o} cannot be a temporary here")))
    }

    /// Says for which node of a region the kernel works from now on. `inputs` describes them if the
    /// node has failed.
    fn work_for(&mut self, node: &Arc<Origin>, inputs: Option<String>) {
        let _ = (node, inputs);
    }

    /// Passes the reference variable at input 0 on as output 0.
    fn pass_reference(&mut self) -> Result<()> {
        Err(Error::Unimplemented(
            "reference variables are TensorFlow's, which does not run here".into(),
        ))
    }

    /// Gives the reference variable at input 0, which may have no value yet, a copy of input 1, and
    /// passes it on as output 0. With `same_shape` the value must have the variable's shape.
    fn assign_reference(&mut self, same_shape: bool) -> Result<()> {
        let _ = same_shape;
        self.pass_reference()
    }

    /// Sets output 0 to the sum of all inputs, which are of type variant: objects of TensorFlow
    /// that hold tensors.
    fn add_variants(&mut self) -> Result<()> {
        Err(Error::Unimplemented("variants are TensorFlow's, which does not run here".to_owned()))
    }

    /// Sets output 0 to a copy of input 0, a variant, with zeros for all numbers.
    fn zero_variant(&mut self) -> Result<()> {
        Err(Error::Unimplemented("variants are TensorFlow's, which does not run here".to_owned()))
    }

    /// Keeps input 0 on the device as long as output 0, a string in host memory, is referenced
    /// ([`crate::kernels::parked`]).
    fn park(&mut self) -> Result<()> {
        Err(Error::Unimplemented("tickets are TensorFlow's, which does not run here".to_owned()))
    }

    /// Sets output 0 to the tensor that waits for the ticket at input 0.
    ///
    /// # Errors
    /// `NotFound` if no tensor waits for it, `InvalidArgument` if the tensor is of another type or
    /// device.
    fn unpark(&mut self, dtype: DType) -> Result<()> {
        let _ = dtype;
        self.park()
    }

    /// TensorFlow's handle of this execution, if TensorFlow runs it.
    fn execution(&self) -> Option<Execution> {
        None
    }
}

/// Conveniences over [`OpContext`].
pub trait OpContextExt: OpContext {
    /// All elements of the int32 or int64 host input `i`.
    fn host_i64s(&mut self, i: usize) -> Result<Vec<i64>> {
        self.host_input(i)?.to_i64()
    }

    /// The single element of the int32 or int64 host input `i`; `name` is the input's name in
    /// messages.
    fn host_i64(&mut self, i: usize, name: &str) -> Result<i64> {
        let t = self.host_input(i)?;
        match t.to_i64()?[..] {
            [v] => Ok(v),
            _ => Err(Error::InvalidArgument(format!(
                "{name} must be a scalar, got shape {:?}",
                t.dims
            ))),
        }
    }
}

impl<C: OpContext + ?Sized> OpContextExt for C {}

/// The answer of a context for kernels without variables.
fn no_variable<T>(i: usize) -> Result<T> {
    Err(Error::Internal(format!("input {i} is no variable here")))
}

/// A node's kernel: made once from the attributes, then run any number of times, by several threads
/// at once.
pub trait Kernel: Send + Sync {
    /// Enqueues the node's work and sets its outputs.
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()>;
}

impl Kernel for Box<dyn Kernel> {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        (**self).compute(ctx)
    }
}

impl<F> Kernel for F
where
    F: Fn(&mut dyn OpContext) -> Result<()> + Send + Sync,
{
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        self(ctx)
    }
}
