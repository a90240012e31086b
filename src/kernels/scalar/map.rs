//! The program behind every elementwise kernel: one function of the inputs' elements, with one or
//! more values, over any broadcast walk.
//!
//! Three access classes, each its own pipeline:
//! - vector: four elements per invocation: no type exceeds 32 bits, addresses are aligned, and
//!   every input is linear, a splat, or read by strides that keep four elements together
//!   ([`Iteration::vector_class`]);
//! - flat: every input is linear or a splat: one stored unit per invocation;
//! - strided: some input is read by strides: one stored unit per invocation.
//!
//! A walk whose tensors exceed the adapter's largest binding is cut along its outermost dimension
//! into windows.

use std::fmt::Write;

use smallvec::SmallVec;

use super::row::Function;
use crate::device::{Binding, Device, Grid, Key, Params, Program};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::{Access, AccessClass, Iteration};
use crate::shader::{Field, Shader, WORKGROUP, library, vec4};
use crate::tensor::Tensor;

/// Names of the inputs' bindings.
const NAMES: [&str; 6] = ["x0", "x1", "x2", "x3", "x4", "x5"];

/// Names of the outputs' bindings.
const RESULTS: [&str; 6] = ["y0", "y1", "y2", "y3", "y4", "y5"];

/// The most inputs of one program: with the output, seven of eight bindings.
pub const MAX_INPUTS: usize = NAMES.len();

/// The most inputs and outputs together.
pub const MAX_TENSORS: usize = MAX_INPUTS + 1;

/// The properties that the text of an elementwise shader depends on, apart from access.
pub struct Signature<'a> {
    /// The op, or another name that tells the functions of these types apart, for keys.
    pub op: &'a str,
    /// Types of the inputs.
    pub inputs: &'a [DType],
    /// Types of the outputs.
    pub outputs: &'a [DType],
    /// Names of the function's `f32` arguments behind the inputs, which come from parameters.
    pub attrs: &'a [&'a str],
    /// The function itself; called once for each pipeline. With several outputs it returns a struct
    /// of `y0`, `y1`, ….
    pub function: &'a dyn Fn() -> Function,
    /// Operations for an element. A function such as an exponential counts as one operation, a cast
    /// as none.
    pub operations: u32,
}

/// Libraries of functions so long that four copies take compilers up to a minute.
const LONG: [&str; 5] = ["bessel", "incomplete_beta", "incomplete_gamma", "integrals", "zeta"];

/// How a program reads and writes its tensors.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Form {
    /// Whether an invocation computes four elements.
    is_vector: bool,
    class: AccessClass,
}

impl Signature<'_> {
    fn key(&self, form: &Form) -> Key {
        let mut key = Key::new("elementwise").name(self.op);
        for dtype in self.outputs.iter().chain(self.inputs) {
            key = key.dtype(*dtype);
        }
        form.class.key(key.number(u32::from(form.is_vector)))
    }

    fn shader(&self, form: &Form) -> Shader {
        let function = (self.function)();
        let names = &NAMES[..self.inputs.len()];
        let access = if form.is_vector { "vec4 " } else { "" };
        let types =
            self.inputs.iter().chain(self.outputs).map(|t| t.name()).collect::<Vec<_>>().join(" ");
        let mut shader =
            Shader::new(format!("{} ({types}) {access}{:?}", function.name, form.class))
                .u32s(&["count"]);
        for attr in self.attrs {
            shader = shader.param(*attr, Field::F32);
        }
        if form.is_vector {
            self.vector(shader, &function, form, names)
        } else {
            self.plain(shader, &function, form, names)
        }
    }

    /// The call of the function with `arguments` for the inputs.
    fn call(&self, function: &Function, arguments: impl Iterator<Item = String>) -> String {
        let attrs = self.attrs.iter().map(|a| format!("p.{a}"));
        format!("{}({})", function.name, arguments.chain(attrs).collect::<Vec<_>>().join(", "))
    }

    /// The text behind the function's value that gives output `k`.
    fn member(&self, k: usize) -> String {
        if self.outputs.len() == 1 { String::new() } else { format!(".y{k}") }
    }

    fn plain(
        &self,
        mut shader: Shader,
        function: &Function,
        form: &Form,
        names: &[&'static str],
    ) -> Shader {
        for (name, dtype) in names.iter().zip(self.inputs) {
            shader = shader.bind(name, *dtype);
        }
        for (name, dtype) in RESULTS.iter().zip(self.outputs) {
            shader = shader.bind(name, *dtype);
        }
        shader = form.class.declare(shader, names).body(&function.text);
        let call = self.call(function, names.iter().map(|n| format!("load_{n}(index_{n}(i))")));
        if let [output] = self.outputs {
            let value =
                format!("\nfn value(i: u32) -> {} {{\n    return {call};\n}}\n", output.value());
            return shader.body(&value).map(RESULTS[0]);
        }
        let lanes = self.lanes();
        let (mut words, mut stores) = (String::new(), String::new());
        for (k, dtype) in self.outputs.iter().enumerate() {
            let _ = match dtype.lanes() {
                1 => writeln!(stores, "        store_y{k}(i, v.y{k});"),
                n => {
                    let _ = writeln!(words, "    var word{k} = 0u;");
                    let last = n - 1;
                    writeln!(
                        stores,
                        "        word{k} |= pack_y{k}(lane & {last}u, v.y{k});\n        if (lane \
                         & {last}u) == {last}u || i + 1u == p.count {{\n            \
                         store_y{k}_word(i / {n}u, word{k});\n            word{k} = 0u;\n        \
                         }}"
                    )
                }
            };
        }
        let body = format!(
            "{words}    for (var lane = 0u; lane < {lanes}u && first + lane < p.count; lane += \
             1u) {{\n        let i = first + lane;\n        let v = {call};\n{stores}    }}\n"
        );
        shader.body(&entry(lanes, &body))
    }

    fn vector(
        &self,
        mut shader: Shader,
        function: &Function,
        form: &Form,
        names: &[&'static str],
    ) -> Shader {
        let (mut body, mut sources) = (String::new(), Vec::new());
        for (k, (name, dtype)) in names.iter().zip(self.inputs).enumerate() {
            let access = form.class.access(k);
            shader = if is_vector(access) {
                vec4::bind_read(shader, name, *dtype)
            } else {
                shader.bind(name, *dtype)
            };
            let value = match access {
                Access::Linear => format!("read_{name}(t)"),
                Access::Rows => format!("read_{name}(index_{name}(first) / {}u)", vec4::WIDTH),
                Access::Splat => format!("load_{name}(0u)"),
                Access::Columns => format!("load_{name}(index_{name}(first))"),
                Access::Strided => unreachable!("no class of vector walks has it"),
            };
            let _ = writeln!(body, "    let {name}_v = {value};");
            sources.push((name, is_vector(access)));
        }
        if !form.class.is_flat() {
            shader = form.class.declare(shader, names);
        }
        let is_long = library::called(&function.text).iter().any(|name| LONG.contains(name));
        if is_long {
            body.push_str(&self.lane_by_lane(function, &sources));
        } else {
            for lane in LANES {
                let argument = |(name, is_four): &(&&str, bool)| {
                    if *is_four { format!("{name}_v.{lane}") } else { format!("{name}_v") }
                };
                let call = self.call(function, sources.iter().map(argument));
                let _ = writeln!(body, "    let {lane} = {call};");
            }
        }
        for (k, (name, dtype)) in RESULTS.iter().zip(self.outputs).enumerate() {
            let value = if is_long {
                format!("done_{k}")
            } else {
                let lanes = LANES.map(|lane| format!("{lane}{}", self.member(k))).join(", ");
                format!("vec4<{}>({lanes})", dtype.value())
            };
            shader = vec4::bind_write(shader, name, *dtype);
            let _ = writeln!(body, "    write_{name}(t, {value}, p.count - first);");
        }
        shader.body(&function.text).body(&entry(vec4::WIDTH, &body))
    }

    /// The function of four elements that were read, by one call in a loop. The loop takes an
    /// element from the front of the arguments and appends a result to `done`.
    fn lane_by_lane(&self, function: &Function, sources: &[(&&'static str, bool)]) -> String {
        let (mut before, mut after) = (String::new(), String::new());
        for (name, _) in sources.iter().filter(|(_, is_four)| *is_four) {
            let _ = writeln!(before, "    var rest_{name} = {name}_v;");
            let _ = writeln!(after, "        rest_{name} = rest_{name}.yzwx;");
        }
        for (k, dtype) in self.outputs.iter().enumerate() {
            let member = self.member(k);
            let _ = writeln!(before, "    var done_{k} = vec4<{}>();", dtype.value());
            let _ = writeln!(after, "        done_{k} = vec4(done_{k}.yzw, v{member});");
        }
        let argument = |(name, is_four): &(&&str, bool)| {
            if *is_four { format!("rest_{name}.x") } else { format!("{name}_v") }
        };
        let call = self.call(function, sources.iter().map(argument));
        format!(
            "{before}    for (var lane = 0u; lane < rounds(4u); lane += 1u) {{\n        let v = \
             {call};\n{after}    }}\n"
        )
    }

    /// Elements that one invocation of the plain program computes: whole words of every output.
    fn lanes(&self) -> u32 {
        self.outputs.iter().map(|t| t.lanes()).max().unwrap_or(1)
    }

    /// Every form for tests: vector and flat with each input linear or a splat, strided of ranks
    /// 2 and 5.
    pub fn shaders(&self) -> Vec<Shader> {
        let n = self.inputs.len();
        let mut classes = Vec::new();
        for splats in 0..1usize << n {
            let walk = (0..n).fold(Iteration::over(&[8]), |walk, k| {
                walk.operand(&[i64::from(splats >> k & 1 == 0)], 0)
            });
            classes.push(walk.class());
        }
        let mut shaders = Vec::new();
        for rank in [2usize, 5] {
            let dims = vec![4; rank];
            let walk = |inner: &dyn Fn(usize) -> i64| {
                let strides = |k| [&vec![8; rank - 1][..], &[inner(k)]].concat();
                (0..n).fold(Iteration::over(&dims), |walk, k| walk.operand(&strides(k), 0))
            };
            classes.push(walk(&|_| 3).class());
            // Rows and columns take turns.
            let first = usize::from(rank == 2);
            if self.can_use_vectors()
                && let Some(class) =
                    walk(&|k| ((k + first) % 2) as i64).vector_class(vec4::WIDTH as usize)
            {
                shaders.push(self.shader(&Form { is_vector: true, class }));
            }
        }
        for class in classes {
            if class.is_flat() && self.can_use_vectors() {
                shaders.push(self.shader(&Form { is_vector: true, class: class.clone() }));
            }
            shaders.push(self.shader(&Form { is_vector: false, class }));
        }
        shaders
    }

    /// The forms of an op whose inputs have the output's shape.
    pub fn linear_shaders(&self) -> Vec<Shader> {
        let walk = self.inputs.iter().fold(Iteration::over(&[8]), |walk, _| walk.operand(&[1], 0));
        let class = walk.class();
        [false, true]
            .into_iter()
            .filter(|is_vector| !is_vector || self.can_use_vectors())
            .map(|is_vector| self.shader(&Form { is_vector, class: class.clone() }))
            .collect()
    }

    fn can_use_vectors(&self) -> bool {
        self.inputs.iter().chain(self.outputs).all(|t| vec4::supports(*t))
    }

    /// Enqueues the function over `outputs`, which have the same dims. Each input's dims broadcast
    /// to these. An input may share an output's memory if it has its dims and type: an invocation
    /// reads all its elements before it writes.
    pub fn run(
        &self,
        device: &Device,
        inputs: &[Tensor],
        outputs: &[Tensor],
        attrs: &[f32],
    ) -> Result<()> {
        debug_assert_eq!((inputs.len(), outputs.len()), (self.inputs.len(), self.outputs.len()));
        let dims = &outputs[0].dims;
        if outputs[0].is_empty() {
            return Ok(());
        }
        let walk =
            inputs.iter().fold(Iteration::over(dims), |walk, t| walk.broadcast(&t.dims)).collapse();
        let bases: Bases = inputs.iter().chain(outputs).map(|t| t.address).collect();
        self.windows(device, &walk, &bases, attrs)
    }

    /// Enqueues the function over a dense `output` of the extents of `walk`, whose operands,
    /// without offsets, are the inputs.
    pub fn run_walk(
        &self,
        device: &Device,
        walk: &Iteration,
        inputs: &[Tensor],
        output: &Tensor,
    ) -> Result<()> {
        debug_assert!((0..inputs.len()).all(|k| walk.offset(k) == 0));
        if output.is_empty() {
            return Ok(());
        }
        let bases: Bases = inputs.iter().chain([output]).map(|t| t.address).collect();
        self.windows(device, &walk.clone().collapse(), &bases, &[])
    }

    /// Runs `walk`, or its parts if a tensor exceeds the largest binding.
    fn windows(
        &self,
        device: &Device,
        walk: &Iteration,
        bases: &Bases,
        attrs: &[f32],
    ) -> Result<()> {
        // A binding starts at an aligned address and ends at a multiple of 16 bytes.
        let capabilities = device.capabilities();
        let limit = capabilities.max_binding - u64::from(capabilities.storage_alignment) - 16;
        let rows = self.rows_that_fit(walk, limit);
        let Some(&extent) = walk.dims().first() else {
            return self.launch(device, walk, bases, attrs);
        };
        if rows >= extent {
            return self.launch(device, walk, bases, attrs);
        }
        let inner = &walk.dims()[1..];
        let step = if rows >= 16 { rows & !15 } else { rows.max(1) };
        let step_elements = step * inner.iter().product::<usize>();
        if step_elements % self.lanes() as usize != 0 {
            return Err(Error::ResourceExhausted(format!(
                "a broadcast to {:?} elements of {:?} exceeds this adapter's largest storage \
                 binding of {} bytes",
                walk.dims(),
                self.outputs,
                capabilities.max_binding
            )));
        }
        for start in (0..extent).step_by(step) {
            let dims: SmallVec<[usize; 6]> = match rows {
                0 => SmallVec::from_slice(inner),
                _ => [step.min(extent - start)].into_iter().chain(inner.iter().copied()).collect(),
            };
            let mut part = Iteration::over(&dims);
            let mut at = bases.clone();
            for (k, dtype) in self.inputs.iter().enumerate() {
                let strides = walk.strides(k);
                part = part.operand(if rows == 0 { &strides[1..] } else { strides }, 0);
                at[k] += start as u64 * strides[0] as u64 * dtype.size() as u64;
            }
            for (base, dtype) in at[self.inputs.len()..].iter_mut().zip(self.outputs) {
                *base += (start / step * step_elements * dtype.size()) as u64;
            }
            self.windows(device, &part.collapse(), &at, attrs)?;
        }
        Ok(())
    }

    /// The extent of the outermost dimension of a part in which every tensor's span has at most
    /// `limit` bytes; 0 if even one row is larger.
    fn rows_that_fit(&self, walk: &Iteration, limit: u64) -> usize {
        let Some((&extent, inner)) = walk.dims().split_first() else { return 1 };
        let row: usize = inner.iter().product();
        let largest = self.outputs.iter().map(|t| t.size()).max().unwrap_or(1);
        let mut fit = (limit / (row as u64 * largest as u64)).min(extent as u64);
        for (k, dtype) in self.inputs.iter().enumerate() {
            let strides = walk.strides(k);
            let span: u64 =
                inner.iter().zip(&strides[1..]).map(|(d, s)| (*d as u64 - 1) * *s as u64).sum();
            let elements = limit / dtype.size() as u64;
            let rows = match (elements.checked_sub(span + 1), strides[0] as u64) {
                (None, _) => 0,
                (Some(_), 0) => extent as u64,
                (Some(rest), stride) => rest / stride + 1,
            };
            fit = fit.min(rows);
        }
        fit as usize
    }

    /// One dispatch.
    fn launch(
        &self,
        device: &Device,
        walk: &Iteration,
        bases: &Bases,
        attrs: &[f32],
    ) -> Result<()> {
        let n = self.inputs.len();
        let fits = |class: &AccessClass| {
            let aligned =
                |k: usize, dtype: DType| bases[k].is_multiple_of(u64::from(vec4::unit(dtype)));
            self.can_use_vectors()
                && self.outputs.iter().enumerate().all(|(k, t)| aligned(n + k, *t))
                && self
                    .inputs
                    .iter()
                    .enumerate()
                    .all(|(k, t)| !is_vector(class.access(k)) || aligned(k, *t))
        };
        let vectors = walk.vector_class(vec4::WIDTH as usize).filter(fits);
        let is_vector = vectors.is_some();
        let form = Form { is_vector, class: vectors.unwrap_or_else(|| walk.class()) };
        device.check_extent(walk.len())?;
        let floats = self.inputs.iter().any(|t| t.is_float());
        let operations = if floats { u64::from(self.operations) * walk.len() as u64 } else { 0 };
        self.with_program(&form, walk, bases, attrs, |program| {
            if !is_vector || program.block_bytes() <= device.capabilities().immediates as usize {
                return device.enqueue_counted(program, operations);
            }
            // Its parameters lie in a uniform buffer already, so a driver that refuses the shader
            // would refuse the portable form, which is the same.
            let plain = Form { is_vector: false, class: walk.class() };
            self.with_program(&plain, walk, bases, attrs, |reserve| {
                device.enqueue_or(program, Some(reserve), operations)
            })
        })
    }

    /// Calls `call` with the program of one dispatch.
    fn with_program<T>(
        &self,
        form: &Form,
        walk: &Iteration,
        bases: &Bases,
        attrs: &[f32],
        call: impl FnOnce(&Program<'_>) -> T,
    ) -> T {
        let mut bindings: SmallVec<[Binding; 8]> = SmallVec::new();
        for (k, dtype) in self.inputs.iter().enumerate() {
            let span: u64 = walk
                .dims()
                .iter()
                .zip(walk.strides(k))
                .map(|(d, s)| (*d as u64 - 1) * *s as u64)
                .sum();
            let is_vector = form.is_vector && is_vector(form.class.access(k));
            let unit = if is_vector { vec4::unit(*dtype) } else { dtype.size() as u32 };
            bindings.push(Binding {
                address: bases[k],
                bytes: (span + 1) * dtype.size() as u64,
                unit,
            });
        }
        for (dtype, address) in self.outputs.iter().zip(&bases[self.inputs.len()..]) {
            let unit = if form.is_vector { vec4::unit(*dtype) } else { dtype.size() as u32 };
            let bytes = (walk.len() * dtype.size()) as u64;
            bindings.push(Binding { address: *address, bytes, unit });
        }
        let count = Params::new().u32(walk.len());
        let params = attrs.iter().fold(count, |params, v| params.f32(*v));
        let elements = if form.is_vector { vec4::WIDTH } else { self.lanes() };
        call(&Program {
            key: self.key(form),
            shader: &|| self.shader(form),
            bindings,
            params: walk.params(params),
            grid: Grid::linear(walk.len().div_ceil(elements as usize), WORKGROUP),
        })
    }
}

/// Whether a vector program reads four elements at once of an input with this access.
const fn is_vector(access: Access) -> bool {
    matches!(access, Access::Linear | Access::Rows)
}

/// The lanes of a unit of four elements.
const LANES: [&str; 4] = ["x", "y", "z", "w"];

/// An entry point in which each invocation computes `elements` elements from `first` on with
/// `body`.
fn entry(elements: u32, body: &str) -> String {
    format!(
        "\n{{{{ENTRY}}}} {{\n    let t = \
         linear_id(workgroup_id, num_workgroups, local_index);\n    let first = t * \
         {elements}u;\n    if first >= p.count {{\n        return;\n    }}\n{body}}}\n"
    )
}

/// Addresses of the inputs, then of the outputs.
type Bases = SmallVec<[u64; 8]>;
