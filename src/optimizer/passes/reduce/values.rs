//! The values that are reduced, as one expression of the tensors outside.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::dtype::DType;
use crate::kernels::expression::{Call, Value};
use crate::kernels::fused::cost;
use crate::optimizer::emit::Draft;
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::meaning::{Engine, Meaning, Scalar, number, scalar};
use crate::optimizer::refusal::Refusal;
use crate::optimizer::shape::TensorInfo;

/// The most constants in one node.
const MAX_CONSTANTS: usize = 16;

/// The element that a node computes.
pub enum Element {
    /// A scalar function of its inputs' elements.
    Call(Scalar),
    /// The element of its first input. The node repeats it along axes of extent 1, or only changes
    /// the extents.
    Same,
}

/// The element that a node computes in a tensor with the shape of `space`.
///
/// # Errors
/// The reason, if the node does something else, or might.
pub fn elementwise(graph: &Graph, id: NodeId, space: &TensorInfo) -> Result<Element, Refusal> {
    let node = graph.node(id);
    let fits = |input: &Output| graph.info(*input).broadcasts_to(space);
    if matches!(Meaning::of(node), Meaning::Repeat) {
        return fits(&node.inputs()[0]).then_some(Element::Same).ok_or(Refusal::OtherShape);
    }
    let scalar = scalar(graph, graph, id, Engine::Reduce)?;
    let whole = match scalar.call {
        Call::Cast(..) | Call::Bitcast(..) => true,
        Call::Row(..) if scalar.is_sum => graph.info(node.inputs()[0]).same_shape(space),
        Call::Row(..) => node.inputs().iter().all(fits),
    };
    whole.then_some(Element::Call(scalar)).ok_or(Refusal::OtherShape)
}

/// Translates tensors to values of one expression.
pub struct Values<'g> {
    graph: &'g Graph,
    /// The known type and shape of the values; none for values after reductions.
    space: Option<&'g TensorInfo>,
    /// Nodes that become part of the expression.
    inside: &'g FxHashSet<NodeId>,
    draft: Draft,
    inputs: Vec<Output>,
    known: FxHashMap<Output, Value>,
}

/// An expression and its operands.
pub struct Translation {
    /// The expression of the values, with its parameters.
    pub draft: Draft,
    /// Its inputs.
    pub inputs: Vec<Output>,
}

impl<'g> Values<'g> {
    /// Translates the values `wanted`, with their types, from the nodes `inside` and the tensors
    /// outside.
    ///
    /// # Errors
    /// The reason why no reduction may have them.
    pub fn translate(
        graph: &'g Graph,
        space: &'g TensorInfo,
        inside: &'g FxHashSet<NodeId>,
        wanted: &[(Output, DType)],
    ) -> Result<Translation, Refusal> {
        let translation = Self::new(graph, Some(space), inside).all(wanted)?;
        let draft = &translation.draft;
        Refusal::check_size(cost::reduce(cost::expression(&draft.expression), 0))?;
        let fits = draft.constants.len() <= MAX_CONSTANTS && !draft.gives_parameters();
        fits.then_some(translation).ok_or(Refusal::Operand)
    }

    /// Translates the values `wanted` of nodes after reductions. `reduced` is the weight of the
    /// reduced values. The first inputs of the expression are the reductions' results.
    ///
    /// # Errors
    /// The reason why no epilogue may have them.
    pub fn behind(
        graph: &'g Graph,
        reduced: u32,
        results: &[(Output, DType)],
        inside: &'g FxHashSet<NodeId>,
        wanted: &[(Output, DType)],
    ) -> Result<Translation, Refusal> {
        let mut values = Self::new(graph, None, inside);
        for (tensor, dtype) in results {
            let value = values.draft.input(*dtype);
            values.known.insert(*tensor, value);
        }
        let translation = values.all(wanted)?;
        let epilogue = cost::expression(&translation.draft.expression);
        Refusal::check_size(cost::reduce(reduced, epilogue)).map(|()| translation)
    }

    fn new(graph: &'g Graph, space: Option<&'g TensorInfo>, inside: &'g FxHashSet<NodeId>) -> Self {
        Self {
            graph,
            space,
            inside,
            draft: Draft::default(),
            inputs: Vec::new(),
            known: FxHashMap::default(),
        }
    }

    fn all(mut self, wanted: &[(Output, DType)]) -> Result<Translation, Refusal> {
        for (tensor, dtype) in wanted {
            let value = self.value(*tensor, *dtype)?;
            self.draft.output(value);
        }
        Ok(Translation { draft: self.draft, inputs: self.inputs })
    }

    fn value(&mut self, tensor: Output, dtype: DType) -> Result<Value, Refusal> {
        if let Some(value) = self.known.get(&tensor) {
            return Ok(*value);
        }
        let value = if self.inside.contains(&tensor.node) {
            self.computed(tensor.node)?
        } else if let Some(number) = self.number(tensor, dtype) {
            self.draft.constant(number)
        } else {
            self.inputs.push(tensor);
            self.draft.input(dtype)
        };
        self.known.insert(tensor, value);
        Ok(value)
    }

    /// The only element of a constant, if a parameter can hold it and the constant does not affect
    /// the shape of the result.
    fn number(&self, tensor: Output, dtype: DType) -> Option<f32> {
        let rank = self.space.map_or(Some(usize::MAX), TensorInfo::rank)?;
        let number = number(self.graph, tensor).filter(|n| dtype.is_single() && n.rank <= rank)?;
        Some(number.value)
    }

    fn computed(&mut self, id: NodeId) -> Result<Value, Refusal> {
        let node = self.graph.node(id);
        let element = match self.space {
            Some(space) => elementwise(self.graph, id, space),
            None => follower(self.graph, id),
        };
        match element? {
            Element::Same => self.value(node.inputs()[0], node.dtype("T").ok_or(Refusal::NoType)?),
            Element::Call(scalar) => {
                let mut args = Vec::new();
                for (at, input) in node.inputs().iter().enumerate() {
                    args.push(self.value(*input, scalar.input_type(at))?);
                }
                self.draft.scalar(&scalar, &args).ok_or(Refusal::Operand)
            }
        }
    }
}

/// The element that a node after a reduction computes.
///
/// # Errors
/// The reason, if the node does something else, or might.
pub fn follower(graph: &Graph, id: NodeId) -> Result<Element, Refusal> {
    match Meaning::of(graph.node(id)) {
        Meaning::Repeat => Err(Refusal::OtherShape),
        Meaning::View => Ok(Element::Same),
        _ => elementwise(graph, id, graph.info(Output { node: id, port: 0 })),
    }
}
