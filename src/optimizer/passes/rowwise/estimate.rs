//! Estimates of a region's program: the time to compile it and its memory traffic.

use rustc_hash::FxHashMap;

use super::member::{Extent, Role};
use super::region::{Region, Scene};
use crate::kernels::fused::cost;
use crate::optimizer::graph::{NodeId, Output};

/// The bit of the stage that writes elements, among the bits that stand for stages. The reductions
/// of each level have a stage before it.
const LAST: u32 = u64::BITS - 1;

impl Scene<'_> {
    /// An estimate of the cost of the region's program, without building the program. A value for
    /// each element counts once for each stage that computes it.
    pub fn cost(&self, region: &Region) -> u32 {
        let nodes = self.nodes(region);
        let places: FxHashMap<NodeId, usize> =
            nodes.iter().enumerate().map(|(at, id)| (*id, at)).collect();
        let inputs = |id: NodeId| {
            self.inputs(id)
                .into_iter()
                .filter_map(|i| places.get(&i.node).copied())
                .collect::<Vec<_>>()
        };
        let roles: Vec<_> = nodes.iter().map(|id| self.role(*id)).collect();
        let is_reduced = |at: usize| matches!(roles[at], Some((Role::Reduce(_), _)));
        // The number of reductions on the longest path to each node.
        let mut levels: Vec<u32> = Vec::with_capacity(nodes.len());
        for id in &nodes {
            let level =
                inputs(*id).into_iter().map(|at| levels[at] + u32::from(is_reduced(at))).max();
            levels.push(level.unwrap_or(0));
        }
        let mut stages = vec![0u64; nodes.len()];
        for id in self.exports(region) {
            stages[places[&id]] = 1 << LAST;
        }
        let mut sum = 0u32;
        for (at, id) in nodes.iter().enumerate().rev() {
            let Some((role, extent)) = roles[at] else { return u32::MAX };
            let (own, needed) = match role {
                Role::Reduce(_) if levels[at] >= LAST => return u32::MAX,
                Role::Reduce(_) => (cost::REDUCTION, 1 << levels[at]),
                Role::Copy => (0, stages[at]),
                Role::Call(scalar) => {
                    let weight = scalar.weight();
                    if extent.is_per_element() {
                        (
                            cost::row_stage(weight, true).saturating_mul(stages[at].count_ones()),
                            stages[at],
                        )
                    } else {
                        (cost::row_stage(weight, false), 0)
                    }
                }
            };
            sum = sum.saturating_add(own);
            inputs(*id).into_iter().for_each(|input| stages[input] |= needed);
        }
        sum
    }

    /// The number of tensors with an element for each element of the rows that the region's program
    /// reads and writes.
    pub fn traffic(&self, region: &Region) -> usize {
        let is_full =
            |tensor: Output| self.space.extent(self.graph.info(tensor)) == Some(Extent::Full);
        let read = self.tensors(region).into_iter().filter(|t| is_full(*t)).count();
        let written =
            self.exports(region).into_iter().filter(|id| is_full(Self::output(*id))).count();
        read + written
    }
}
