//! Items that are fused two by two. The result of a fusion takes the place of both.

use std::hash::Hash;

use rustc_hash::FxHashMap;

use super::cost::{LAUNCH, Nanos, transfer};
use super::{Fusions, Parts, Planner, Saving};
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::refusal::Refusal;
use crate::optimizer::unions::Unions;

/// Items, each alone at first. A group has the number of its first item.
#[derive(Debug)]
pub struct Groups<T> {
    /// The items of the groups; none for an item that is in the group of an earlier one.
    items: Vec<Option<T>>,
    /// The items of each group. The first one stands for it.
    groups: Unions,
    /// The number of items of the group that an item stands for.
    sizes: Vec<usize>,
}

impl<T> Groups<T> {
    /// Each item alone.
    pub fn new(items: Vec<T>) -> Self {
        let count = items.len();
        let items = items.into_iter().map(Some).collect();
        Self { items, groups: Unions::new(count), sizes: vec![1; count] }
    }

    /// The groups of two items in their order, and their sizes.
    pub fn parts(&self, pair: [usize; 2]) -> Parts {
        let mut groups = pair.map(|at| self.groups.root(at)).map(|at| (at, self.sizes[at]));
        groups.sort_unstable();
        groups
    }

    /// The groups of two items, in their order; `None` if both are in one.
    pub fn pair(&self, pair: [usize; 2]) -> Option<[&T; 2]> {
        let [(a, _), (b, _)] = self.parts(pair);
        (a != b).then_some(())?;
        Some([self.items[a].as_ref()?, self.items[b].as_ref()?])
    }

    /// Puts `both` in the place of the groups of two items.
    pub fn join(&mut self, pair: [usize; 2], both: T) {
        let [(first, _), (second, size)] = self.parts(pair);
        if first != second {
            self.items[second] = None;
            self.groups.join(first, second);
            self.sizes[first] += size;
        }
        self.items[first] = Some(both);
    }

    /// The groups, in the order of their first items.
    pub fn into_items(self) -> impl Iterator<Item = T> {
        self.items.into_iter().flatten()
    }
}

/// The pairs of items with a common key, each with the last `most` before it, in their order. So
/// the number of pairs stays linear.
pub fn pairs<K: Eq + Hash>(
    keys: impl IntoIterator<Item = (usize, K)>,
    most: usize,
) -> Vec<[usize; 2]> {
    let mut earlier: FxHashMap<K, Vec<usize>> = FxHashMap::default();
    let mut pairs = Vec::new();
    for (item, key) in keys {
        let others = earlier.entry(key).or_default();
        if others.last() != Some(&item) {
            pairs.extend(others.iter().rev().take(most).map(|other| [*other, item]));
            others.push(item);
        }
    }
    pairs.sort_unstable_by_key(|[a, b]| (*b, *a));
    pairs.dedup();
    pairs
}

/// An item that may be fused with others which read the same tensors.
pub trait Sibling {
    /// A node of it, for the journal.
    fn node(&self) -> NodeId;

    /// The tensors that it reads.
    fn inputs(&self) -> &[Output];
}

/// What two siblings save as one node: a dispatch, and the tensors that both read.
pub fn together<T: Sibling>(graph: &Graph, a: &T, b: &T) -> Nanos {
    let both = a.inputs().iter().filter(|tensor| b.inputs().contains(tensor));
    both.map(|tensor| transfer(graph.info(*tensor))).fold(LAUNCH, Nanos::saturating_add)
}

/// Items with the question whether one node computes two of them.
struct Siblings<'g, T, F> {
    pass: &'static str,
    graph: &'g Graph,
    groups: Groups<T>,
    with: F,
}

/// Fuses pairs of siblings, the largest saving first. `with` gives the item that computes both, or
/// the reason why there is none.
pub fn join<T: Sibling>(
    pass: &'static str,
    graph: &Graph,
    items: Vec<T>,
    pairs: &[[usize; 2]],
    with: impl Fn(&T, &T) -> Result<T, Refusal>,
) -> Vec<T> {
    let mut siblings = Siblings { pass, graph, groups: Groups::new(items), with };
    Planner::default().fuse(&mut siblings, pairs);
    siblings.groups.into_items().collect()
}

impl<T: Sibling, F: Fn(&T, &T) -> Result<T, Refusal>> Fusions for Siblings<'_, T, F> {
    type Candidate = [usize; 2];

    fn refuse(&self, pair: [usize; 2], refusal: Refusal) {
        if let Some(pair) = self.groups.pair(pair) {
            self.graph.refuse(self.pass, pair.map(T::node), refusal);
        }
    }

    fn parts(&self, pair: [usize; 2]) -> Parts {
        self.groups.parts(pair)
    }

    fn saving(&self, pair: [usize; 2]) -> Option<Saving> {
        let [a, b] = self.groups.pair(pair)?;
        Some(together(self.graph, a, b).into())
    }

    fn fuse(&mut self, pair: [usize; 2]) -> Result<bool, Refusal> {
        let Some([a, b]) = self.groups.pair(pair) else { return Ok(false) };
        let both = (self.with)(a, b)?;
        self.groups.join(pair, both);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_with_a_common_key_are_near() {
        let keys = [(0, 'a'), (0, 'a'), (1, 'a'), (1, 'b'), (2, 'b'), (3, 'a'), (4, 'a')];
        assert_eq!(pairs(keys, 2), [[0, 1], [1, 2], [0, 3], [1, 3], [1, 4], [3, 4]]);
    }

    #[test]
    fn a_group_takes_the_place_of_its_first_item() {
        let mut groups = Groups::new(vec!["a", "b", "c", "d"]);
        groups.join([3, 1], "bd");
        groups.join([2, 3], "bcd");
        assert_eq!(groups.parts([3, 0]), [(0, 1), (1, 3)]);
        assert_eq!((groups.pair([2, 3]), groups.pair([2, 0])), (None, Some([&"a", &"bcd"])));
        assert_eq!(groups.into_items().collect::<Vec<_>>(), ["a", "bcd"]);
    }
}
