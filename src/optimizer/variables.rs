//! Who reads and who writes each variable of a graph, and under which conditions nodes run.

use rustc_hash::{FxHashMap, FxHashSet};

use super::graph::{Graph, NodeId, Output};

/// Ops that write the whole of the variable at input 0, from input 1.
pub const ASSIGNS: &[&str] = &["AssignAddVariableOp", "AssignSubVariableOp", "AssignVariableOp"];

/// Ops that look at a variable without changing it, besides ReadVariableOp.
const LOOKS: &[&str] = &["ResourceGather", "ResourceGatherNd", "VarIsInitializedOp", "VariableShape"];

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

/// The tensor behind identities.
pub fn behind_identities(graph: &Graph, mut handle: Output) -> Output {
    while graph.node(handle.node).op() == "Identity" && handle.port == 0 {
        let Some(input) = graph.node(handle.node).inputs().first() else { break };
        handle = *input;
    }
    handle
}

/// Where a handle comes from, through identities and branches.
fn origin(graph: &Graph, mut handle: Output) -> Output {
    loop {
        handle = behind_identities(graph, handle);
        let node = graph.node(handle.node);
        match (node.op(), node.inputs().first()) {
            ("Switch", Some(input)) => handle = *input,
            _ => return handle,
        }
    }
}

fn variable(graph: &Graph, handle: Output) -> Variable {
    let origin = origin(graph, handle);
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
        let mut origins: FxHashSet<Output> = FxHashSet::default();
        for id in graph.ids() {
            let node = graph.node(id);
            if let Some(handle) = node.inputs().first()
                && (node.op() == "ReadVariableOp" || ASSIGNS.contains(&node.op()))
            {
                variables.of.insert(id, variable(graph, *handle));
                origins.insert(origin(graph, *handle));
            }
        }
        for origin in origins {
            let key = variable(graph, origin);
            let uses = variables.uses.entry(key).or_default();
            let mut tensors = vec![origin];
            while let Some(tensor) = tensors.pop() {
                for (user, index) in graph.readers(tensor) {
                    let passes = index == 0 && matches!(graph.node(user).op(), "Identity" | "Switch");
                    match graph.node(user).op() {
                        "ReadVariableOp" => uses.reads.push(user),
                        _ if passes => tensors.extend([0, 1].map(|port| Output { node: user, port })),
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

/// The conditions under which a node runs: the branches of `Switch`es and the loops of TensorFlow 1 that it is in.
pub type Conditions = u32;

/// The conditions of all nodes.
pub struct Branches {
    sets: Vec<Vec<Condition>>,
    of: Vec<Conditions>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Condition {
    Branch(Output, u32),
    Loop(String),
}

impl Branches {
    /// Finds them in a graph whose nodes have this order.
    pub fn of(graph: &Graph, order: &[NodeId]) -> Self {
        let mut known: FxHashMap<Vec<Condition>, Conditions> = FxHashMap::default();
        let mut branches = Self { sets: vec![Vec::new()], of: vec![0; graph.capacity()] };
        known.insert(Vec::new(), 0);
        // The conditions outside of each loop.
        let mut around: FxHashMap<String, Vec<Condition>> = FxHashMap::default();
        for id in order {
            let node = graph.node(*id);
            let mut sets: Vec<Vec<Condition>> = Vec::new();
            for input in node.inputs() {
                let mut set = branches.sets[branches.of[input.node.index()] as usize].clone();
                let from = graph.node(input.node);
                if from.op() == "Switch" {
                    // A loop's Switch leaves the loop or stays in it.
                    set.push(Condition::Branch(from.inputs()[1], input.port));
                }
                sets.push(set);
            }
            sets.extend(node.controls().iter().map(|c| branches.sets[branches.of[c.index()] as usize].clone()));
            let mut set = match node.op() {
                "Merge" if !sets.is_empty() => {
                    let (first, others) = sets.split_first().expect("it is not empty");
                    first.iter().filter(|c| others.iter().all(|s| s.contains(c))).cloned().collect()
                }
                _ => sets.concat(),
            };
            if node.op() == "Enter" {
                let frame = node.attr("frame_name").and_then(|a| a.string()).unwrap_or_default().to_owned();
                let outside = around.entry(frame.clone()).or_default();
                outside.extend(set.iter().cloned());
                outside.sort_unstable();
                outside.dedup();
                set.push(Condition::Loop(frame));
            }
            if node.op() == "Exit" {
                let loops = set.iter().filter_map(|c| match c {
                    Condition::Loop(frame) => around.get(frame),
                    Condition::Branch(..) => None,
                });
                // The innermost loop has the most around it.
                set = loops.max_by_key(|a| a.len()).cloned().unwrap_or_default();
            }
            set.sort_unstable();
            set.dedup();
            let next = branches.sets.len() as u32;
            let number = *known.entry(set.clone()).or_insert_with(|| {
                branches.sets.push(set);
                next
            });
            branches.of[id.index()] = number;
        }
        branches
    }

    /// The conditions of a node: equal numbers are equal conditions.
    pub fn conditions(&self, id: NodeId) -> Conditions {
        self.of[id.index()]
    }

    /// Whether a node is part of a loop.
    pub fn in_loop(&self, id: NodeId) -> bool {
        self.sets[self.conditions(id) as usize].iter().any(|c| matches!(c, Condition::Loop(_)))
    }
}
