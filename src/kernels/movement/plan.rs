//! Ops with one input and one output: each plans its move from shapes and host inputs, and one
//! executor runs the plan on the device, or on the host for int32 tensors, which TensorFlow keeps
//! in host memory.

use smallvec::SmallVec;

use super::remap::{Axis, Background, Remap, Rule};
use super::walk::copy_strided;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::op::{Kernel, OpContext};
use crate::layout::{Access, Iteration, dense_strides};
use crate::tensor::{Dims, HostTensor, shape_text};

/// How the elements of an output are found in an input.
#[derive(Debug, Clone)]
pub enum ElementSource {
    /// By strides: the walk over the output with the input's strides as its only operand.
    Strided(Iteration),
    /// Coordinate by coordinate.
    Remap(Remap),
}

/// A planned move: the output's extents and where its elements come from.
#[derive(Debug, Clone)]
pub struct Move {
    /// Extents of the output; their product is the number of elements that the source yields.
    pub dims: Dims,
    /// Where its elements come from.
    pub source: ElementSource,
}

impl Move {
    /// A strided move whose walk has the output's extents.
    pub fn strided(walk: Iteration) -> Self {
        Self { dims: walk.dims().into(), source: ElementSource::Strided(walk) }
    }

    /// A remapped move.
    pub fn remap(remap: Remap) -> Self {
        Self { dims: remap.dims(), source: ElementSource::Remap(remap) }
    }

    /// The input itself with other extents.
    pub fn reshape(dims: &[usize]) -> Self {
        Self {
            dims: dims.into(),
            source: ElementSource::Strided(Iteration::over(dims).broadcast(dims)),
        }
    }

    /// The output seen with other extents of the same product.
    #[must_use]
    pub fn reshaped(self, dims: &[usize]) -> Self {
        debug_assert_eq!(self.dims.iter().product::<usize>(), dims.iter().product::<usize>());
        Self { dims: dims.into(), ..self }
    }

    fn is_identity(&self, input: &[usize]) -> bool {
        let n: usize = input.iter().product();
        match &self.source {
            ElementSource::Strided(walk) => {
                let walk = walk.clone().collapse();
                walk.len() == n && walk.dims().len() <= 1 && walk.access(0) == Access::Linear
            }
            ElementSource::Remap(r) => {
                let dense = dense_strides(&r.dims());
                let same =
                    |(a, s): (&Axis, &i64)| a.is_identity() && (a.stride == *s || a.out <= 1);
                r.offset == 0 && r.axes.iter().zip(&dense).all(same)
            }
        }
    }

    /// Runs the move of input `input` into output `output`, both on the device.
    pub fn run(&self, ctx: &mut dyn OpContext, input: usize, output: usize) -> Result<()> {
        let src = ctx.input(input)?;
        if self.is_identity(&src.dims) {
            return ctx.forward_input(input, output, &self.dims);
        }
        let dst = ctx.output(output, src.dtype, &self.dims)?;
        match &self.source {
            ElementSource::Strided(walk) => {
                let walk = walk.clone().operand(&dense_strides(walk.dims()), 0);
                copy_strided(ctx.device(), &walk, &src, &dst)
            }
            ElementSource::Remap(remap) => remap.enqueue(ctx.device(), &src, &dst),
        }
    }

    /// The move of a host tensor.
    pub fn of_host(&self, src: &HostTensor) -> Result<HostTensor> {
        let size = src.dtype.size();
        let mut bytes = host_bytes(src.dtype, &self.dims)?;
        let mut push = |at: Option<i64>, background: &Background| match (at, background) {
            (Some(at), _) => bytes.extend_from_slice(&src.bytes[at as usize * size..][..size]),
            (None, Background::Element(e)) => bytes.extend_from_slice(&e[..size]),
            (None, Background::Keep) => bytes.extend(std::iter::repeat_n(0, size)),
        };
        match &self.source {
            ElementSource::Strided(walk) => each_coordinate(walk.dims(), |c| {
                let at = c.iter().zip(walk.strides(0)).map(|(c, s)| *c as i64 * s).sum::<i64>();
                push(Some(walk.offset(0) + at), &Background::ZERO);
            }),
            ElementSource::Remap(remap) => {
                each_coordinate(&remap.dims(), |c| push(remap.element(c), &remap.background))
            }
        }
        Ok(HostTensor { dtype: src.dtype, dims: self.dims.clone(), bytes })
    }
}

/// Room for a host tensor of any extents: a Vec that cannot grow would end the process.
fn host_bytes(dtype: DType, dims: &[usize]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let size = dims.iter().try_fold(dtype.size(), |n, d| n.checked_mul(*d));
    match size.map(|n| bytes.try_reserve_exact(n)) {
        Some(Ok(())) => Ok(bytes),
        _ => Err(Error::ResourceExhausted(format!(
            "out of memory for a {dtype} tensor of shape {} on the host",
            shape_text(dims)
        ))),
    }
}

impl Remap {
    /// The source element of the output element at `coordinates`, if it has one.
    fn element(&self, coordinates: &[usize]) -> Option<i64> {
        let mut at = self.offset;
        for (a, c) in self.axes.iter().zip(coordinates) {
            let (c, begin, n) = (*c as i64, a.begin as i64, a.extent as i64);
            let k = match self.rule {
                Rule::Place => {
                    let k = c - begin;
                    if k < 0 || k % a.step as i64 != 0 || k / a.step as i64 >= n {
                        return None;
                    }
                    k / a.step as i64
                }
                Rule::Roll => (c + begin) % a.out as i64,
                Rule::Symmetric | Rule::Reflect => {
                    let skip = i64::from(self.rule == Rule::Reflect);
                    match c - begin {
                        k if k < 0 => -k - 1 + skip,
                        k if k >= n => 2 * n - 1 - skip - k,
                        k => k,
                    }
                }
            };
            at += k * a.stride;
        }
        Some(at)
    }
}

/// Calls `f` with every coordinate of `dims` in row-major order.
fn each_coordinate(dims: &[usize], mut f: impl FnMut(&[usize])) {
    if dims.contains(&0) {
        return;
    }
    let mut c: SmallVec<[usize; 6]> = dims.iter().map(|_| 0).collect();
    loop {
        f(&c);
        let Some(d) = (0..dims.len()).rev().find(|d| c[*d] + 1 < dims[*d]) else { return };
        c[d] += 1;
        c[d + 1..].fill(0);
    }
}

/// The memory in which the tensors of an op live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryType {
    /// Device memory.
    Device,
    /// Host memory: TensorFlow's int32 tensors.
    Host,
}

/// A kernel with one moved input, by a planner that sees the input's extents and type.
pub struct Unary<P> {
    /// Where input and output live.
    pub memory: MemoryType,
    /// The moved input.
    pub input: usize,
    /// Plans the move.
    pub plan: P,
}

impl<P> Kernel for Unary<P>
where
    P: Fn(&mut dyn OpContext, &[usize], DType) -> Result<Move> + Send + Sync,
{
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        match self.memory {
            MemoryType::Device => {
                let src = ctx.input(self.input)?;
                let plan = (self.plan)(ctx, &src.dims, src.dtype)?;
                plan.run(ctx, self.input, 0)
            }
            MemoryType::Host => {
                let src = ctx.host_input(self.input)?;
                let plan = (self.plan)(ctx, &src.dims, src.dtype)?;
                ctx.host_output(0, &plan.of_host(&src)?)
            }
        }
    }
}
