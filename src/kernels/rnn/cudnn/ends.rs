//! The ends of sequences: the rows of their first and last steps in tensors over all steps. States
//! are added to these rows, or copied from them. Sequences without steps keep their states.

use smallvec::{SmallVec, smallvec};

use super::extents::Extents;
use crate::device::{Binding, Device, Grid, Key, Params, Program};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::windows::{limit, part, ranges, too_large};
use crate::shader::{Shader, WORKGROUP};
use crate::tensor::Tensor;

/// The operation on states and rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    /// States are added to the rows.
    Add,
    /// States are copied from the rows.
    Take,
}

/// A step of a sequence, in the order in which a direction walks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    First,
    Last,
}

/// Columns of a tensor that has a row for each step and sequence.
#[derive(Debug, Clone, Copy)]
pub struct Columns<'a> {
    pub tensor: &'a Tensor,
    /// The first of the columns.
    pub at: usize,
    /// The number of columns.
    pub count: usize,
    /// Elements of a row.
    pub width: usize,
}

/// The same number of columns of a tensor that has a row for each sequence.
#[derive(Debug, Clone, Copy)]
pub struct States<'a> {
    pub tensor: &'a Tensor,
    /// Where the first row begins.
    pub at: usize,
    /// Elements between rows.
    pub stride: usize,
}

/// The ends of the sequences of a network in one direction.
#[derive(Debug, Clone, Copy)]
pub struct Ends<'a> {
    pub extents: &'a Extents,
    /// The lengths on the device, if they differ.
    pub lengths: Option<&'a Tensor>,
    /// The direction, 0 or 1.
    pub direction: usize,
}

impl Ends<'_> {
    /// Adds states to rows.
    pub fn add(&self, device: &Device, end: End, to: Columns<'_>, from: States<'_>) -> Result<()> {
        self.enqueue(device, Act::Add, end, to, from)
    }

    /// Copies rows as states. Those of sequences without steps stay as they are.
    pub fn take(&self, device: &Device, end: End, from: Columns<'_>, to: States<'_>) -> Result<()> {
        self.enqueue(device, Act::Take, end, from, to)
    }

    /// Copies the states of sequences without steps, of `columns` elements each, to the same
    /// places.
    pub fn keep_idle(
        &self,
        device: &Device,
        columns: usize,
        before: States<'_>,
        after: &Tensor,
    ) -> Result<()> {
        let idle = |lengths: &Vec<i32>| lengths.contains(&0);
        let (true, Some(lengths)) = (self.extents.lengths.as_ref().is_some_and(idle), self.lengths)
        else {
            return Ok(());
        };
        let real = after.dtype;
        let count = self.extents.batch * columns;
        device.enqueue(&Program {
            key: Key::new("rnn idle").dtype(real),
            shader: &|| idle_shader(real),
            bindings: smallvec![before.tensor.into(), after.into(), lengths.into()],
            params: Params::new().u32(count).u32(columns).u32(before.at).u32(before.stride),
            grid: Grid::linear(count, WORKGROUP),
        })
    }

    fn enqueue(
        &self,
        device: &Device,
        act: Act,
        end: End,
        rows: Columns<'_>,
        states: States<'_>,
    ) -> Result<()> {
        let (extents, real) = (self.extents, rows.tensor.dtype);
        let count = extents.batch * rows.count;
        let fitting = limit(device.capabilities()) as usize / (rows.width * real.size());
        if fitting == 0 {
            return Err(too_large(device.capabilities(), "a row of a recurrent layer"));
        }
        let late = (self.direction == 1) != (end == End::Last);
        let [step_rows, sequence_rows] = extents.row_strides();
        for (first, bound) in ranges(extents.rows(), fitting) {
            let window = part(rows.tensor, first * rows.width, bound * rows.width);
            let mut bindings: SmallVec<[Binding; 8]> =
                smallvec![Binding::from(&window), states.tensor.into()];
            bindings.extend(self.lengths.map(Binding::from));
            device.enqueue(&Program {
                key: Key::new("rnn ends")
                    .dtype(real)
                    .number(act as u32)
                    .number(u32::from(self.lengths.is_some())),
                shader: &|| shader(act, real, self.lengths.is_some()),
                bindings,
                params: Params::new()
                    .u32(count)
                    .u32(rows.count)
                    .u32(rows.width)
                    .u32(rows.at)
                    .u32(states.at)
                    .u32(states.stride)
                    .u32(extents.steps)
                    .u32(step_rows)
                    .u32(sequence_rows)
                    .u32(first)
                    .u32(first + bound)
                    .u32(u32::from(late)),
                grid: Grid::linear(count, WORKGROUP),
            })?;
        }
        Ok(())
    }
}

fn shader(act: Act, real: DType, lengths: bool) -> Shader {
    let (name, body) = match act {
        Act::Add => ("add", "store_rows(at, load_rows(at) + load_states(state));"),
        Act::Take => ("take", "store_states(state, load_rows(at));"),
    };
    let label = format!("rnn ends {name} {real}{}", if lengths { " of lengths" } else { "" });
    let shader = Shader::new(label).bind("rows", real).bind("states", real);
    let shader = if lengths { shader.bind("lengths", DType::I32) } else { shader };
    shader
        .u32s(&["count", "columns", "width", "at", "state_at", "state_stride"])
        .u32s(&["steps", "step_rows", "sequence_rows", "first_row", "rows_end", "late"])
        .define("LENGTH", if lengths { "u32(load_lengths(sequence))" } else { "p.steps" })
        .define("BODY", body)
        .body(include_str!("../../../../shaders/rnn/ends.wgsl"))
}

fn idle_shader(real: DType) -> Shader {
    Shader::new(format!("rnn idle {real}"))
        .bind("before", real)
        .bind("after", real)
        .bind("lengths", DType::I32)
        .u32s(&["count", "columns", "state_at", "state_stride"])
        .body(include_str!("../../../../shaders/rnn/idle.wgsl"))
}

/// Every shader.
pub fn shaders() -> Vec<Shader> {
    let mut all = Vec::new();
    for real in [DType::F32, DType::F64] {
        for act in [Act::Add, Act::Take] {
            all.extend([false, true].map(|lengths| shader(act, real, lengths)));
        }
        all.push(idle_shader(real));
    }
    all
}
