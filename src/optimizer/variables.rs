//! The nodes that read and write each variable of a graph.

use rustc_hash::FxHashMap;

use super::graph::{Graph, NodeId, Output};

/// Ops that write the whole variable at input 0, from input 1.
pub const ASSIGNS: &[&str] = &["AssignAddVariableOp", "AssignSubVariableOp", "AssignVariableOp"];

/// Ops that read a variable without changing it, besides ReadVariableOp.
const LOOKS: &[&str] =
    &["ResourceGather", "ResourceGatherNd", "VarIsInitializedOp", "VariableShape"];

/// A variable, identified by the tensor from which all of its handles in the graph come.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Variable {
    /// Made by a VarHandleOp of this container and name.
    Named(String, String),
    /// From another source.
    Tensor(Output),
}

/// The nodes that use a variable.
#[derive(Debug, Clone, Default)]
pub struct Uses {
    /// Each ReadVariableOp.
    pub reads: Vec<NodeId>,
    /// All nodes that write it, or might.
    pub writers: Vec<NodeId>,
}

/// The variables that are used by a ReadVariableOp or an assignment.
#[derive(Debug, Default)]
pub struct Variables {
    uses: FxHashMap<Variable, Uses>,
    of: FxHashMap<NodeId, Variable>,
}

/// The origins of handles that were requested so far.
#[derive(Default)]
pub struct Handles {
    behind_identities: FxHashMap<Output, Output>,
    origins: FxHashMap<Output, Output>,
}

impl Handles {
    /// The tensor above identities.
    pub fn behind_identities(&mut self, graph: &Graph, handle: Output) -> Output {
        climb(graph, handle, &mut self.behind_identities, |op, port| op == "Identity" && port == 0)
    }

    /// The tensor above identities and branches.
    fn origin(&mut self, graph: &Graph, handle: Output) -> Output {
        climb(graph, handle, &mut self.origins, |op, port| {
            op == "Switch" || op == "Identity" && port == 0
        })
    }
}

/// Follows first inputs upwards, as long as `passes` accepts the node's op and output.
fn climb(
    graph: &Graph,
    mut at: Output,
    known: &mut FxHashMap<Output, Output>,
    passes: impl Fn(&str, u32) -> bool,
) -> Output {
    let mut passed = Vec::new();
    let end = loop {
        if let Some(end) = known.get(&at) {
            break *end;
        }
        passed.push(at);
        let node = graph.node(at.node);
        match node.inputs().first() {
            Some(input) if passes(node.op(), at.port) => at = *input,
            _ => break at,
        }
    };
    known.extend(passed.into_iter().map(|at| (at, end)));
    end
}

/// The variable of the handles that come from `origin`.
fn variable(graph: &Graph, origin: Output) -> Variable {
    let node = graph.node(origin.node);
    let text = |name: &str| node.attr(name).and_then(|a| a.string()).unwrap_or_default().to_owned();
    if node.op() == "VarHandleOp" {
        let name = Some(text("shared_name")).filter(|n| !n.is_empty());
        return Variable::Named(text("container"), name.unwrap_or_else(|| node.name().to_owned()));
    }
    Variable::Tensor(origin)
}

impl Variables {
    /// Finds the variables of a graph.
    pub fn of(graph: &Graph) -> Self {
        let mut variables = Self::default();
        let mut handles = Handles::default();
        let mut origins: Vec<Output> = Vec::new();
        for id in graph.ids() {
            let node = graph.node(id);
            if let Some(handle) = node.inputs().first()
                && (node.op() == "ReadVariableOp" || ASSIGNS.contains(&node.op()))
            {
                let origin = handles.origin(graph, *handle);
                variables.of.insert(id, variable(graph, origin));
                origins.push(origin);
            }
        }
        origins.sort_unstable();
        origins.dedup();
        for origin in origins {
            let key = variable(graph, origin);
            let uses = variables.uses.entry(key).or_default();
            let mut tensors = vec![origin];
            while let Some(tensor) = tensors.pop() {
                for (user, index) in graph.readers(tensor) {
                    let passes =
                        index == 0 && matches!(graph.node(user).op(), "Identity" | "Switch");
                    match graph.node(user).op() {
                        "ReadVariableOp" => uses.reads.push(user),
                        _ if passes => {
                            tensors.extend([0, 1].map(|port| Output { node: user, port }))
                        }
                        op if LOOKS.contains(&op) && index == 0 => {}
                        _ => uses.writers.push(user),
                    }
                }
            }
        }
        variables
    }

    /// All variables' uses, in no particular order.
    pub fn all(&self) -> impl Iterator<Item = &Uses> {
        self.uses.values()
    }

    /// The variable that a ReadVariableOp or an assignment uses.
    pub fn used_by(&self, id: NodeId) -> Option<&Variable> {
        self.of.get(&id)
    }

    /// The nodes that use a variable.
    pub fn uses(&self, variable: &Variable) -> &Uses {
        &self.uses[variable]
    }
}
