//! Shapes of a row program's values, and how its rows and columns walk the tensors.

use smallvec::SmallVec;

use super::program::{Action, Output, RowProgram};
use crate::error::Result;
use crate::kernels::expression::{Expression, Value};
use crate::layout::{Iteration, Strides, broadcast_dims, dense_strides};
use crate::require;
use crate::tensor::{Dims, shape_text};

/// Shapes of a program's values, given those of its inputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shapes {
    /// The shape that rows and columns together cover: the shape to which all inputs broadcast.
    pub full: Dims,
    /// Which axes of `full` are reduced.
    pub reduced: SmallVec<[bool; 6]>,
    /// Shapes of the outputs.
    pub outputs: Vec<Dims>,
    /// Shapes of the outputs as they are walked, with the reduced axes kept.
    pub walked: Vec<Dims>,
}

/// `dims` with an extent of 1 in the reduced axes, which are counted from the end.
fn keep(dims: &[usize], axes: &[i64]) -> Dims {
    let mut kept = Dims::from_slice(dims);
    for axis in axes {
        let at = dims.len() as i64 + axis;
        if let Some(extent) = usize::try_from(at).ok().and_then(|at| kept.get_mut(at)) {
            *extent = 1;
        }
    }
    kept
}

/// `dims` without the reduced axes.
fn drop(dims: &[usize], axes: &[i64]) -> Dims {
    let rank = dims.len() as i64;
    dims.iter()
        .enumerate()
        .filter(|(d, _)| !axes.contains(&(*d as i64 - rank)))
        .map(|(_, extent)| *extent)
        .collect()
}

/// Shapes of the values of `expression`.
fn values(expression: &Expression, inputs: &[Dims]) -> Result<Vec<Dims>> {
    let mut steps: Vec<Dims> = Vec::new();
    let of = |steps: &[Dims], value: Value| match value {
        Value::Input(i) => inputs[i as usize].clone(),
        Value::Constant(_) => Dims::new(),
        Value::Step(i) => steps[i as usize].clone(),
    };
    for step in expression.steps() {
        let mut dims = Dims::new();
        for arg in &step.args {
            dims = broadcast_dims(&dims, &of(&steps, *arg))?;
        }
        steps.push(dims);
    }
    Ok(expression.outputs().iter().map(|v| of(&steps, *v)).collect())
}

impl Shapes {
    /// The shapes for inputs of shapes `inputs` where `axes`, counted from the end, are reduced.
    ///
    /// # Errors
    /// `InvalidArgument` if shapes do not broadcast, or where the program's stages mean something
    /// else for these shapes.
    pub fn infer(program: &RowProgram, inputs: &[Dims], axes: &[i64]) -> Result<Self> {
        let mut full = Dims::new();
        for dims in inputs {
            full = broadcast_dims(&full, dims)?;
        }
        let rank = full.len();
        let is_axis = |axis: &i64| *axis < 0 && rank as i64 + axis >= 0;
        require!(
            axes.iter().all(is_axis),
            "axes {axes:?} of a tensor of shape {}",
            shape_text(&full)
        );
        let reduced: SmallVec<[bool; 6]> =
            (0..rank).map(|d| axes.contains(&(d as i64 - rank as i64))).collect();
        let columns = |dims: &[usize]| -> Vec<usize> {
            let at =
                |axis: &i64| usize::try_from(dims.len() as i64 + axis).map_or(1, |at| dims[at]);
            axes.iter().map(at).collect()
        };
        let mut known = inputs.to_vec();
        let mut fulls = Vec::new();
        for stage in program.stages() {
            let given = values(&stage.expression, &known)?;
            match &stage.action {
                Action::Reduce(_) => {
                    for dims in given {
                        let is_whole = columns(&dims) == columns(&full);
                        require!(
                            is_whole,
                            "rows of {} cannot be reduced among rows of {}",
                            shape_text(&dims),
                            shape_text(&full)
                        );
                        known.push(keep(&dims, axes));
                    }
                }
                Action::Row => {
                    for (i, dims) in known.iter().enumerate() {
                        let varies = RowProgram::uses(stage, i)
                            && columns(dims).iter().any(|extent| *extent != 1);
                        require!(
                            !varies,
                            "input {i} of shape {} is not constant in rows",
                            shape_text(dims)
                        );
                    }
                    known.extend(given);
                }
                Action::Full => fulls = given,
            }
        }
        let rows = &known[inputs.len()..];
        let walked: Vec<Dims> = (program.outputs().iter())
            .map(|output| match output {
                Output::Row { value, .. } => rows[*value as usize].clone(),
                Output::Full(value) => fulls[*value as usize].clone(),
            })
            .collect();
        let outputs = (program.outputs().iter().zip(&walked))
            .map(|(output, dims)| match output {
                Output::Row { flat: true, .. } => drop(dims, axes),
                _ => dims.clone(),
            })
            .collect();
        Ok(Self { full, reduced, outputs, walked })
    }
}

/// How tensors are walked: by row, then by column, each a walk with as few dimensions as possible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowWalk {
    /// Over the kept axes.
    pub rows: Iteration,
    /// Over the reduced axes.
    pub columns: Iteration,
}

impl RowWalk {
    /// The walk over `shapes` of tensors of shapes `operands`, which broadcast to it.
    pub fn new(shapes: &Shapes, operands: &[Dims]) -> Self {
        let along = |wanted: bool| {
            let pick = |values: &[usize]| -> Dims {
                values
                    .iter()
                    .zip(&shapes.reduced)
                    .filter(|(_, r)| **r == wanted)
                    .map(|(v, _)| *v)
                    .collect()
            };
            let mut walk = Iteration::over(&pick(&shapes.full));
            for dims in operands {
                let lead = shapes.full.len() - dims.len();
                let dense = dense_strides(dims);
                let strides: Strides = (0..shapes.full.len())
                    .filter(|d| shapes.reduced[*d] == wanted)
                    .map(|d| if d < lead || dims[d - lead] == 1 { 0 } else { dense[d - lead] })
                    .collect();
                walk = walk.operand(&strides, 0);
            }
            walk.collapse()
        };
        Self { rows: along(false), columns: along(true) }
    }

    /// Whether operand `k` has one element for each row.
    pub fn is_constant_in_rows(&self, k: usize) -> bool {
        self.columns.strides(k).iter().all(|s| *s == 0)
    }

    /// Whether every fourth column of every row of operand `k` starts at a multiple of four
    /// elements, with the next three columns behind it.
    pub fn is_in_vec4s(&self, k: usize) -> bool {
        let vec4s = |strides: &[i64]| strides.iter().all(|s| s % 4 == 0);
        match self.columns.strides(k).split_last() {
            Some((1, outer)) => vec4s(outer) && vec4s(self.rows.strides(k)),
            _ => false,
        }
    }

    /// Whether the columns can be taken four at a time: their innermost extent is a multiple of
    /// four.
    pub fn has_vec4s(&self) -> bool {
        self.columns.dims().last().is_some_and(|extent| extent.is_multiple_of(4))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CENTER: &str = "Mean: x: float32, float32; c: 0; return x0 | full: x: float32, float32, \
                          float32; c: 0; s0 = Sub<float32>(x0, x2); s1 = Mul<float32>(s0, x1); \
                          return s1 | return y0, r0, r0 flat";

    fn dims(extents: &[usize]) -> Dims {
        Dims::from_slice(extents)
    }

    #[test]
    fn outputs_have_the_shapes_of_the_ops() {
        let program: RowProgram = CENTER.parse().unwrap();
        let shapes = Shapes::infer(&program, &[dims(&[2, 3, 8]), dims(&[8])], &[-1]).unwrap();
        assert_eq!(shapes.full[..], [2, 3, 8]);
        assert_eq!(shapes.outputs, [dims(&[2, 3, 8]), dims(&[2, 3, 1]), dims(&[2, 3])]);
        let walk = RowWalk::new(&shapes, &[dims(&[2, 3, 8]), dims(&[8]), dims(&[2, 3, 1])]);
        assert_eq!((walk.rows.dims(), walk.columns.dims()), (&[6][..], &[8][..]));
        assert_eq!(
            (walk.is_in_vec4s(0), walk.is_in_vec4s(1), walk.is_in_vec4s(2)),
            (true, true, false)
        );
        assert!(walk.is_constant_in_rows(2) && walk.has_vec4s());
    }

    #[test]
    fn shapes_that_do_not_fit_are_refused() {
        let program: RowProgram = CENTER.parse().unwrap();
        let infer = |x: &[usize], y: &[usize], axes: &[i64]| {
            Shapes::infer(&program, &[dims(x), dims(y)], axes)
        };
        let message = infer(&[2, 8], &[3], &[-1]).unwrap_err().to_string();
        assert!(message.contains("Incompatible shapes: [2,8] vs. [3]"), "{message}");
        // The mean of single elements is not the mean of the rows of the whole.
        assert!(infer(&[2, 1], &[2, 8], &[-1]).is_err());
        assert!(infer(&[8], &[8], &[-2]).is_err());
    }

    #[test]
    fn inner_axes_stay_apart() {
        let program: RowProgram = CENTER.parse().unwrap();
        let group = dims(&[2, 5, 3, 4]);
        let shapes = Shapes::infer(&program, &[group.clone(), dims(&[3, 4])], &[-3, -1]).unwrap();
        assert_eq!(shapes.outputs[1][..], [2, 1, 3, 1]);
        let walk = RowWalk::new(&shapes, &[group]);
        assert_eq!((walk.rows.dims(), walk.rows.strides(0)), (&[2, 3][..], &[60, 4][..]));
        assert_eq!((walk.columns.dims(), walk.columns.strides(0)), (&[5, 4][..], &[12, 1][..]));
        assert!(walk.is_in_vec4s(0));
    }
}
