//! The decisions of passes: the nodes that each fused node replaced, and the reasons why neighbours
//! stayed apart. A graph keeps them only for dumps.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::outside::Outside;
use super::refusal::Refusal;

/// A node of the graph before the optimizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Original {
    /// Its name.
    pub name: Arc<str>,
    /// Its op.
    pub op: Arc<str>,
}

/// Why a pass did not fuse a node with a neighbour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Apart {
    /// The pass.
    pub pass: &'static str,
    /// The neighbour's name.
    pub neighbour: Arc<str>,
    /// The reason.
    pub refusal: Refusal,
}

/// A node before regions were made, and where it is since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// Its op.
    pub op: Arc<str>,
    /// The region's name, or why it is in none.
    pub region: Result<Arc<str>, Outside>,
}

/// The decisions about a graph's nodes, by name.
#[derive(Debug, Clone, Default)]
pub struct Journal {
    replaced: BTreeMap<Arc<str>, Vec<Original>>,
    apart: RefCell<BTreeMap<Arc<str>, Apart>>,
    placed: BTreeMap<Arc<str>, Placed>,
}

impl Journal {
    /// The nodes that a node replaced.
    pub fn replaced(&self, name: &str) -> &[Original] {
        self.replaced.get(name).map_or(&[], Vec::as_slice)
    }

    /// The last reason why a node stayed apart from a neighbour.
    pub fn apart(&self, name: &str) -> Option<Apart> {
        self.apart.borrow().get(name).cloned()
    }

    /// The places of the nodes, in regions or outside, by name. It is empty if none were made.
    pub const fn placed(&self) -> &BTreeMap<Arc<str>, Placed> {
        &self.placed
    }

    /// Writes where a node is.
    pub(super) fn place(&mut self, node: Original, region: Result<Arc<str>, Outside>) {
        self.placed.insert(node.name, Placed { op: node.op, region });
    }

    /// Writes that `new` replaces these nodes, and what they replaced.
    pub(super) fn replace(&mut self, new: Arc<str>, nodes: Vec<Original>) {
        let mut all = self.replaced.remove(&new).unwrap_or_default();
        for node in nodes {
            match self.replaced.remove(&node.name) {
                Some(earlier) => all.extend(earlier),
                None => all.push(node),
            }
        }
        self.replaced.insert(new, all);
    }

    /// Writes why a node stays apart from a neighbour.
    pub(super) fn part(&self, node: Arc<str>, apart: Apart) {
        self.apart.borrow_mut().insert(node, apart);
    }

    /// The nodes that nodes of an earlier run replaced.
    pub(super) fn recall(&mut self, earlier: &Self) {
        self.replaced.clone_from(&earlier.replaced);
    }
}
