//! Who reads and who writes each variable of a graph.

use rustc_hash::FxHashMap;

use super::graph::{Graph, NodeId, Output};

/// Ops that write the whole of the variable at input 0, from input 1.
pub const ASSIGNS: &[&str] = &["AssignAddVariableOp", "AssignSubVariableOp", "AssignVariableOp"];

/// Ops that look at a variable without changing it, besides ReadVariableOp.
const LOOKS: &[&str] =
    &["ResourceGather", "ResourceGatherNd", "VarIsInitializedOp", "VariableShape"];

/// A variable, by the tensor from which all of its handles in the graph come.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Variable {
    /// Made by a VarHandleOp of this container and name.
    Named(String, String),
    /// From somewhere else.
    Tensor(Output),
}

/// The nodes that use a variable.
#[derive(Debug, Clone, Default)]
pub struct Uses {
    /// Each ReadVariableOp.
    pub reads: Vec<NodeId>,
    /// Everything that writes it or might do so.
    pub writers: Vec<NodeId>,
}

/// The variables that ReadVariableOp or an assignment uses.
#[derive(Debug, Default)]
pub struct Variables {
    uses: FxHashMap<Variable, Uses>,
    of: FxHashMap<NodeId, Variable>,
}

/// Where handles come from, as far as somebody has asked.
#[derive(Default)]
pub struct Handles {
    behind_identities: FxHashMap<Output, Output>,
    origins: FxHashMap<Output, Output>,
}

impl Handles {
    /// The tensor behind identities.
    pub fn behind_identities(&mut self, graph: &Graph, handle: Output) -> Output {
        climb(graph, handle, &mut self.behind_identities, |op, port| op == "Identity" && port == 0)
    }

    /// The tensor behind identities and branches.
    fn origin(&mut self, graph: &Graph, handle: Output) -> Output {
        climb(graph, handle, &mut self.origins, |op, port| {
            op == "Switch" || op == "Identity" && port == 0
        })
    }
}

/// The first input of a first input, and so on, behind all nodes that pass it on by this output.
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

/// The variable that handles from `origin` are those of.
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
    /// Finds them in a graph.
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

    /// All of them, in no order.
    pub fn all(&self) -> impl Iterator<Item = &Uses> {
        self.uses.values()
    }

    /// The variable that a ReadVariableOp or an assignment uses.
    pub fn used_by(&self, id: NodeId) -> Option<&Variable> {
        self.of.get(&id)
    }

    /// Who uses a variable.
    pub fn uses(&self, variable: &Variable) -> &Uses {
        &self.uses[variable]
    }
}
