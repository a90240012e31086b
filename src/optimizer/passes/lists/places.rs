//! Where in the graph nodes run, and where extents stay the same.

use rustc_hash::FxHashSet;

use crate::optimizer::graph::{Graph, NodeId};
use crate::optimizer::shape::Dim;

/// The nodes that run in each run of the graph, and the unknown extents that belong to them.
#[derive(Debug)]
pub struct Places {
    always: Vec<bool>,
    fixed: FxHashSet<u32>,
}

impl Places {
    /// Finds both in a graph whose nodes are given in topological order.
    pub fn of(graph: &Graph, order: &[NodeId]) -> Self {
        let mut places = Self { always: vec![true; graph.capacity()], fixed: FxHashSet::default() };
        let mut seen = FxHashSet::default();
        // The number of loops that contain the node's outputs.
        let mut loops = vec![0u32; graph.capacity()];
        // Whether a node depends on the outputs of a loop.
        let mut behind = vec![false; graph.capacity()];
        // A branch ends with a Merge, but the nodes after it count as part of the branch all the
        // same.
        let mut branch = vec![false; graph.capacity()];
        for id in order {
            let around = graph.used(*id).map(|used| loops[used.index()]).max().unwrap_or(0);
            let inside = match graph.node(*id).op() {
                "Enter" | "RefEnter" => around + 1,
                "Exit" | "RefExit" => around.saturating_sub(1),
                _ => around,
            };
            let is_switch =
                inside == 0 && matches!(graph.node(*id).op(), "Switch" | "RefSwitch" | "_SwitchN");
            loops[id.index()] = inside;
            branch[id.index()] = is_switch || graph.used(*id).any(|used| branch[used.index()]);
            places.always[id.index()] = inside == 0 && !branch[id.index()];
            behind[id.index()] =
                inside < around || graph.used(*id).any(|used| behind[used.index()]);
            let shapes = graph.node(*id).infos.iter().flat_map(|info| &info.shape);
            for symbol in shapes
                .flatten()
                .filter_map(|d| if let Dim::Symbol(s) = d { Some(*s) } else { None })
            {
                // An extent that a loop makes has a number after the loop too. It is then the
                // extent of the last step.
                let is_new = seen.insert(symbol);
                if inside == 0 && (is_new || !behind[id.index()]) {
                    places.fixed.insert(symbol);
                }
            }
        }
        places
    }

    /// Whether a node runs exactly once, whatever the data are: it is neither in a loop nor in a
    /// branch.
    pub fn always_runs(&self, id: NodeId) -> bool {
        self.always[id.index()]
    }

    /// Whether an unknown extent is the same in every step of every loop, because it belongs to a
    /// tensor that exists before the loop.
    pub fn is_fixed(&self, symbol: u32) -> bool {
        self.fixed.contains(&symbol)
    }
}
