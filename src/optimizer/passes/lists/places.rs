//! Where in the graph something holds.

use rustc_hash::FxHashSet;

use crate::optimizer::graph::{Graph, NodeId};
use crate::optimizer::shape::Dim;

/// Which nodes run in each run of the graph, and which unknown extents are those of such nodes.
#[derive(Debug)]
pub struct Places {
    always: Vec<bool>,
    fixed: FxHashSet<u32>,
}

impl Places {
    /// Of a graph whose nodes come in this order.
    pub fn of(graph: &Graph, order: &[NodeId]) -> Self {
        let mut places = Self { always: vec![true; graph.capacity()], fixed: FxHashSet::default() };
        let mut seen = FxHashSet::default();
        // Of how many loops the node's outputs are a part.
        let mut loops = vec![0u32; graph.capacity()];
        // Whether something of a node comes out of a loop.
        let mut behind = vec![false; graph.capacity()];
        // A branch ends with a Merge; what comes behind it is taken for a part of it all the same.
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
                // What a loop makes has its number behind the loop too, where it is the last
                // step's.
                let is_new = seen.insert(symbol);
                if inside == 0 && (is_new || !behind[id.index()]) {
                    places.fixed.insert(symbol);
                }
            }
        }
        places
    }

    /// Whether a node runs once, whatever the data are: it is neither in a loop nor in a branch.
    pub fn always_runs(&self, id: NodeId) -> bool {
        self.always[id.index()]
    }

    /// Whether an unknown extent is the same in every step of every loop: it is one of a tensor
    /// that is there before.
    pub fn is_fixed(&self, symbol: u32) -> bool {
        self.fixed.contains(&symbol)
    }
}
