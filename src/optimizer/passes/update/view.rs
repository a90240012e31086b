//! The pass's view of a graph: which nodes write which variables and when, and which nodes an
//! update may take in.

use crate::optimizer::branches::Branches;
use crate::optimizer::graph::paths::Places;
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::history::{History, Writer};
use crate::optimizer::legality::{Legal, check};
use crate::optimizer::meaning::{Engine, Meaning, Scalar};
use crate::optimizer::refusal::Refusal;
use crate::optimizer::shape::TensorInfo;
use crate::optimizer::variables::{ASSIGNS, Variable, Variables};

/// A graph with its variables, their history, and its branches.
pub struct View<'g> {
    pub graph: &'g Graph,
    pub places: &'g Places<'g>,
    pub history: &'g History,
    pub branches: &'g Branches,
    pub variables: &'g Variables,
}

impl View<'_> {
    /// The last node that writes the variable that `id` uses, before `id` does.
    pub fn last_writer(&self, id: NodeId) -> Writer {
        self.history.last_writer(id)
    }

    /// The variable that a read or an assignment uses.
    pub fn variable(&self, id: NodeId) -> Option<&Variable> {
        self.variables.used_by(id)
    }

    /// The value that is assigned.
    pub fn value(&self, assign: NodeId) -> Output {
        self.graph.node(assign).inputs()[1]
    }

    /// The extents of the assigned value, if they are known.
    pub fn dims(&self, assign: NodeId) -> Option<Vec<usize>> {
        self.graph.info(self.value(assign)).dims()
    }

    /// Whether a node is an assignment that an update may take in.
    pub fn is_candidate(&self, id: NodeId) -> bool {
        let node = self.graph.node(id);
        ASSIGNS.contains(&node.op())
            && node.on_wgpu()
            && node.inputs().len() == 2
            && !self.branches.in_loop(id)
            && self.dims(id).is_some()
            && node
                .dtype("dtype")
                .is_some_and(|t| self.graph.info(self.value(id)).dtype.is_none_or(|v| v == t))
    }

    /// Checks that two nodes run on the same device under the same conditions.
    ///
    /// # Errors
    /// `OtherDevice` or `OtherConditions`.
    pub fn together(&self, a: NodeId, b: NodeId) -> Legal {
        self.graph.share_device(a, b)?;
        self.branches.run_together(a, b)
    }

    /// The scalar function of an elementwise node. Its output must have these extents, and each
    /// input these or one element, so that broadcasting certainly gives the same.
    ///
    /// # Errors
    /// The reason why no update computes it.
    pub fn call(&self, id: NodeId, dims: &[usize]) -> Result<Scalar, Refusal> {
        let node = self.graph.node(id);
        let output = self.graph.info(Output { node: id, port: 0 });
        check(output.has_dims(dims), Refusal::OtherShape)?;
        self.graph.may_go(id)?;
        let scalar = Meaning::of(node).scalar().filter(|s| !s.is_sum).ok_or(Refusal::NoFunction)?;
        scalar.suits(Engine::Update)?;
        let fits = |input: &Output| self.fits(self.graph.info(*input), dims);
        check(node.inputs().iter().all(fits), Refusal::OtherShape).map(|()| scalar)
    }

    /// Whether a tensor has these extents, or one element that broadcasts to them.
    pub fn fits(&self, info: &TensorInfo, dims: &[usize]) -> bool {
        info.has_dims(dims)
            || info.is_single() && info.rank().is_some_and(|rank| rank <= dims.len())
    }
}
