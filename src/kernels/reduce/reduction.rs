//! A reduction with its expression and its epilogue, and the texts of its steps.

use super::epilogue::{Epilogue, Extra};
use super::program::{MAX_BINDINGS, MAX_INPUTS, Reads, StepProgram, Vec4s};
use super::states::States;
use crate::dtype::DType;
use crate::kernels::expression::Expression;
use crate::layout::AccessClass;
use crate::shader::{Shader, WORKGROUP, vec4};

/// The most bytes of a state of which an invocation has four: a workgroup's states must fit 16 KiB.
const MAX_STATE_OF_FOUR: usize = 16;

/// Reductions of an expression's values for every element of a walk, over the same axes, with an
/// epilogue. Plain ops have constant programs.
pub struct ReductionProgram {
    /// The values of an element.
    pub expression: Expression,
    /// Its text.
    pub text: String,
    /// Their reductions.
    pub states: States,
    /// The epilogue of the results.
    pub epilogue: Epilogue,
}

impl ReductionProgram {
    /// A program without an epilogue: its outputs are the results of the reductions.
    pub fn new(expression: Expression, states: States) -> Self {
        let epilogue = Epilogue::none(&states);
        Self { text: expression.to_string(), expression, states, epilogue }
    }
    /// The texts of steps over a walk of class `class`, for `tests/shaders.rs`: every kind of
    /// source, sink and vec4s.
    pub fn shaders(&self, extras: &[Extra], class: &AccessClass, out: &mut Vec<Shader>) {
        // Every second input is read in vec4s.
        const READ: u32 = 0b0101_0101;
        let Self { expression, text, states, epilogue } = self;
        let accumulator = [states.accumulator()];
        let are_four = |types: &[DType]| types.iter().all(|t| vec4::supports(*t));
        // Steps over states have the same text for every walk. Steps over vec4s differ between
        // walks as other steps do, so the flat one suffices.
        let flat = usize::from(class.is_flat());
        let sources = [Reads::Elements(expression, text, class), Reads::States];
        for reads in sources.into_iter().take(1 + flat) {
            let read = match reads {
                Reads::Elements(..) => expression.inputs(),
                Reads::States => &accumulator,
            };
            // Parameters may take a buffer, as in `room`.
            let most = if read.len() > MAX_INPUTS { 2 * MAX_BINDINGS } else { MAX_BINDINGS - 1 };
            let mask = READ & ((1 << read.len()) - 1);
            let parts = epilogue.parts(most - read.len()).iter();
            let parts = parts.filter(|part| read.len() + part.tensors() <= most);
            let sinks: Vec<_> =
                [None].into_iter().chain(parts.map(|part| Some(part.with(extras)))).collect();
            let vec4s = [Vec4s::None, Vec4s::Rows(mask), Vec4s::Columns(mask)];
            for vec4s in vec4s.into_iter().take(1 + 2 * flat) {
                for (finish, lanes) in sinks.iter().flat_map(|s| [1, 8, 64].map(|l| (*s, l))) {
                    let written = finish.map_or(accumulator.to_vec(), |finish| finish.part.types());
                    let is_possible = match vec4s {
                        Vec4s::None => true,
                        Vec4s::Rows(_) => are_four(read),
                        Vec4s::Columns(_) => {
                            are_four(read) && are_four(&written) && self.has_small_states()
                        }
                    };
                    if !is_possible {
                        continue;
                    }
                    let workgroup = if lanes == 8 { 8 } else { WORKGROUP };
                    let columns = lanes == 64 && !matches!(vec4s, Vec4s::Rows(_));
                    let program =
                        StepProgram { states, reads, finish, vec4s, lanes, columns, workgroup };
                    out.push(program.shader());
                }
            }
        }
    }

    /// Whether an invocation may have four states.
    pub fn has_small_states(&self) -> bool {
        self.states.planes() * self.states.accumulator().size() <= MAX_STATE_OF_FOUR
    }
}
