//! The expression that a program applies to its reductions' results before it stores them. Its
//! inputs are the results and further operands, which have the results' shape or one element.
//!
//! A dispatch binds few tensors, so the outputs may be spread over several: [`Epilogue::parts`].

use std::sync::OnceLock;

use smallvec::SmallVec;

use super::states::States;
use crate::device::Key;
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::expression::wgsl::{Ends, Sink};
use crate::kernels::expression::{Expression, Value};
use crate::require;
use crate::shader::{Field, Shader, vec4};
use crate::tensor::{Dims, Tensor, shape_text};

/// Names of the further operands' bindings.
const EXTRAS: [&str; 5] = ["e0", "e1", "e2", "e3", "e4"];
/// Names of the outputs' bindings.
const OUTPUTS: [&str; 6] = ["y0", "y1", "y2", "y3", "y4", "y5"];

/// The most further operands: with states and one output, seven of eight bindings.
pub const MAX_EXTRAS: usize = EXTRAS.len();
/// The most outputs.
pub const MAX_OUTPUTS: usize = OUTPUTS.len();
/// The most operands and outputs.
const MOST_TENSORS: usize = MAX_EXTRAS + MAX_OUTPUTS;
/// The most parameters: with all others, those of a step over states fit immediates of 128 bytes.
pub const MAX_CONSTANTS: usize = 12;

/// A program's epilogue; without one, the outputs are the results themselves.
#[derive(Debug, Clone)]
pub struct Epilogue {
    /// Its inputs are the results, then the further operands.
    expression: Expression,
    constants: Vec<f32>,
    results: usize,
    /// [`Self::parts`] by the number of bindings.
    parts: [OnceLock<Vec<EpiloguePart>>; MOST_TENSORS + 1],
}

impl Epilogue {
    /// The epilogue `text` with operands of types `extras`; an empty text is none.
    ///
    /// # Errors
    /// `InvalidArgument` if it does not fit the reductions.
    pub fn of(text: &str, extras: &[DType], constants: Vec<f32>, states: &States) -> Result<Self> {
        let results = states.types();
        if text.is_empty() {
            require!(
                extras.is_empty() && constants.is_empty(),
                "operands and parameters of no epilogue"
            );
            return Ok(Self::none(states));
        }
        let expression: Expression = text.parse()?;
        require!(
            expression.inputs() == [&results[..], extras].concat(),
            "results of {results:?} and operands of {extras:?} for {expression}"
        );
        require!(
            expression.constants() == constants.len(),
            "{} constants for the {} parameters of {expression}",
            constants.len(),
            expression.constants()
        );
        require!(
            extras.len() <= MAX_EXTRAS
                && expression.outputs().len() <= MAX_OUTPUTS
                && constants.len() <= MAX_CONSTANTS
                && !expression.outputs().iter().any(|v| matches!(v, Value::Constant(_))),
            "an epilogue beyond what one node computes: {expression}"
        );
        Ok(Self { expression, constants, results: results.len(), parts: Default::default() })
    }

    /// The results as they are.
    pub fn none(states: &States) -> Self {
        let mut expression = Expression::new();
        for dtype in states.types() {
            let result = expression.input(dtype);
            expression.output(result);
        }
        let results = expression.inputs().len();
        Self { expression, constants: Vec::new(), results, parts: Default::default() }
    }

    /// Whether it does nothing.
    pub fn is_none(&self) -> bool {
        self.expression.steps().is_empty() && self.expression.inputs().len() == self.results
    }

    /// The expression.
    pub const fn expression(&self) -> &Expression {
        &self.expression
    }

    /// Types of the outputs.
    pub fn outputs(&self) -> Vec<DType> {
        self.expression.output_types()
    }

    /// Its parameters.
    pub fn constants(&self) -> &[f32] {
        &self.constants
    }

    /// The outputs in groups, each of which one dispatch can write. A dispatch has `bindings`
    /// bindings left for operands and outputs.
    pub fn parts(&self, bindings: usize) -> &[EpiloguePart] {
        let most = bindings.min(MOST_TENSORS);
        self.parts[most].get_or_init(|| self.cut(most))
    }

    fn cut(&self, bindings: usize) -> Vec<EpiloguePart> {
        let mut parts: Vec<EpiloguePart> = Vec::new();
        for output in 0..self.expression.outputs().len() {
            let joined = parts.pop().map(|last| {
                let which: Vec<usize> = last.outputs.iter().copied().chain([output]).collect();
                (self.part(&which), last)
            });
            match joined {
                Some((both, _)) if both.tensors() <= bindings && both.packs_alike() => {
                    parts.push(both)
                }
                Some((_, last)) => parts.extend([last, self.part(&[output])]),
                None => parts.push(self.part(&[output])),
            }
        }
        parts
    }

    fn part(&self, which: &[usize]) -> EpiloguePart {
        let values: Vec<Value> = which.iter().map(|o| self.expression.outputs()[*o]).collect();
        let (expression, inputs) = self.expression.select(&values);
        let (results, operands): (Vec<usize>, Vec<usize>) =
            inputs.into_iter().partition(|i| *i < self.results);
        EpiloguePart {
            text: expression.to_string(),
            expression,
            results,
            operands: operands.into_iter().map(|i| i - self.results).collect(),
            outputs: which.into(),
        }
    }
}

/// A further operand.
#[derive(Debug, Clone)]
pub struct Extra {
    /// The tensor.
    pub tensor: Tensor,
    /// Whether it has an element for each element of the results, not one alone.
    pub whole: bool,
}

impl Extra {
    /// An operand for results of shape `dims`. Extents of 1 make no difference.
    ///
    /// # Errors
    /// `InvalidArgument` if the shapes differ.
    pub fn new(tensor: Tensor, dims: &[usize]) -> Result<Self> {
        let long = |dims: &[usize]| dims.iter().copied().filter(|d| *d != 1).collect::<Dims>();
        let whole = tensor.len() != 1;
        require!(
            !whole || long(&tensor.dims) == long(dims),
            "Incompatible shapes: {} vs. {}",
            shape_text(dims),
            shape_text(&tensor.dims)
        );
        Ok(Self { tensor, whole })
    }
}

/// Outputs that one dispatch writes.
#[derive(Debug, Clone)]
pub struct EpiloguePart {
    expression: Expression,
    text: String,
    /// The results that are its first inputs.
    results: Vec<usize>,
    /// The epilogue's further operands that are its other inputs.
    operands: SmallVec<[usize; 5]>,
    /// The node's outputs.
    pub outputs: SmallVec<[usize; 6]>,
}

impl EpiloguePart {
    /// Types of its outputs.
    pub fn types(&self) -> Vec<DType> {
        self.expression.output_types()
    }

    /// Number of operands and outputs.
    pub fn tensors(&self) -> usize {
        self.operands.len() + self.outputs.len()
    }

    /// Elements of the outputs in a stored word.
    pub fn unit(&self) -> u32 {
        self.expression.output_types().iter().map(|t| t.lanes()).max().unwrap_or(1)
    }

    /// Whether each output has one element in a word, or all that have more have the same number.
    fn packs_alike(&self) -> bool {
        self.expression.output_types().iter().all(|t| [1, self.unit()].contains(&t.lanes()))
    }

    /// The operands that it reads.
    pub fn extras<'e>(&self, all: &'e [Extra]) -> impl Iterator<Item = &'e Extra> {
        self.operands.iter().map(|k| &all[*k])
    }

    /// Its text's properties with these operands of the epilogue.
    pub fn with(&self, all: &[Extra]) -> BoundPart<'_> {
        let wholes = self.extras(all).enumerate().map(|(k, extra)| u32::from(extra.whole) << k);
        BoundPart { part: self, wholes: wholes.sum() }
    }
}

/// A part of an epilogue, and the shapes of its operands.
#[derive(Debug, Clone, Copy)]
pub struct BoundPart<'a> {
    /// The part.
    pub part: &'a EpiloguePart,
    /// A bit for each operand: whether it has an element for each element of the results.
    wholes: u32,
}

impl BoundPart<'_> {
    /// The function `epilogue`.
    pub fn named(&self) -> (&'static str, &Expression, Ends) {
        let EpiloguePart { expression, results, .. } = self.part;
        ("epilogue", expression, Ends { sums: results.len(), sink: Sink::Memory })
    }

    /// Adds the part to a pipeline's key.
    pub fn key(&self, key: Key) -> Key {
        let results = self.part.results.iter().fold(0, |bits, r| bits | 1 << r);
        key.name(&self.part.text).number(results).number(self.wholes)
    }

    /// Declares bindings and parameters, and the statements for the state `all` of output `i`; of
    /// vec4s, for the states of four neighbouring outputs.
    pub fn declare(&self, mut shader: Shader, states: &States, of_vec4s: bool) -> Shader {
        let EpiloguePart { expression, results, .. } = self.part;
        let types = expression.output_types();
        let operands = &expression.inputs()[results.len()..];
        for (dtype, name) in operands.iter().zip(EXTRAS) {
            shader = shader.bind(name, *dtype);
        }
        for c in 0..expression.constants() {
            shader = shader.param(format!("t{c}"), Field::F32);
        }
        let (mut words, mut emit, mut emit_words) = (Vec::new(), Vec::new(), Vec::new());
        let all: &[&str] = if of_vec4s { &["all.a", "all.b", "all.c", "all.d"] } else { &["all"] };
        for (j, all) in all.iter().enumerate() {
            let values = states.results(all);
            let at = if of_vec4s { format!("4u * i + {j}u") } else { "i".to_owned() };
            let extras = EXTRAS[..operands.len()].iter().enumerate().map(|(k, name)| {
                let is_whole = self.wholes >> k & 1 != 0;
                format!("load_{name}({})", if is_whole { &at } else { "0u" })
            });
            let arguments = results.iter().map(|r| values[*r].clone()).chain(extras);
            let constants = (0..expression.constants()).map(|c| format!("p.t{c}"));
            let arguments = arguments.chain(constants).collect::<Vec<_>>().join(", ");
            emit.push(format!("let v{j} = epilogue({arguments});"));
        }
        for (k, (y, dtype)) in OUTPUTS.into_iter().zip(&types).enumerate() {
            let member = if types.len() == 1 { String::new() } else { format!(".y{k}") };
            if of_vec4s {
                shader = vec4::bind_write(shader, y, *dtype);
                let four = ["v0", "v1", "v2", "v3"].map(|v| format!("{v}{member}")).join(", ");
                emit.push(format!("write_{y}(i, vec4({four}), 4u);"));
                continue;
            }
            shader = shader.bind(y, *dtype);
            if dtype.lanes() == 1 {
                emit.push(format!("store_{y}(i, v0{member});"));
            } else {
                words.push(format!("var {y}_bits = 0u;"));
                emit.push(format!("{y}_bits |= pack_{y}(u, v0{member});"));
                emit_words.push(format!("store_{y}_word(unit, {y}_bits);"));
            }
        }
        shader
            .define("SINK", "")
            .define("WORDS", words.join("\n    "))
            .define("EMIT", emit.join("\n            "))
            .define("EMIT_WORDS", emit_words.join("\n    "))
    }
}
