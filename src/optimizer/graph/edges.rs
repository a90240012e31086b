//! Edges of a [`Graph`], kept at both ends.
//!
//! Each end knows the index of the edge in the other end's list. So an edge is added or removed in
//! constant time, however many edges its nodes have: a tensor may have as many readers as the graph
//! has nodes, and a node may have that number of inputs.

use smallvec::SmallVec;

use super::Graph;
use super::node::{Node, NodeId, Output};

/// Lists of control edges up to this length keep their order when an edge is removed. The order has
/// no meaning; it helps people who read the graph.
const ORDERED: usize = 64;

/// The position of an edge among the inputs of its user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Slot {
    /// The data input of this index.
    Input(u32),
    /// The control input of this index.
    Control(u32),
}

/// The edges from a node to its users.
#[derive(Debug, Clone, Default)]
pub(super) struct Users {
    /// The node at the other end of each edge.
    pub nodes: Vec<NodeId>,
    /// The position of the edge among that node's inputs.
    slots: Vec<Slot>,
}

impl Node {
    /// The node at the other end of an edge.
    fn used(&self, slot: Slot) -> NodeId {
        match slot {
            Slot::Input(at) => self.inputs[at as usize].node,
            Slot::Control(at) => self.controls[at as usize],
        }
    }

    /// The index of an edge in the users of the other end.
    fn place(&mut self, slot: Slot) -> &mut u32 {
        match slot {
            Slot::Input(at) => &mut self.input_places[at as usize],
            Slot::Control(at) => &mut self.control_places[at as usize],
        }
    }
}

impl Graph {
    fn at(&mut self, id: NodeId) -> &mut Node {
        self.nodes[id.index()].as_mut().expect("the node was removed")
    }

    /// Adds an edge that its user already has to the users of the other end.
    fn link(&mut self, user: NodeId, slot: Slot) {
        let used = self.at(user).used(slot);
        let users = &mut self.users[used.index()];
        users.nodes.push(user);
        users.slots.push(slot);
        let place = users.nodes.len() as u32 - 1;
        *self.at(user).place(slot) = place;
        if !self.is_back_edge(used, user)
            && let Some(ranks) = self.ranks.get_mut()
        {
            ranks.link(used, user);
        }
    }

    /// Removes an edge that its user still has from the users of the other end.
    fn unlink(&mut self, user: NodeId, slot: Slot) {
        let node = self.at(user);
        let (used, place) = (node.used(slot), *node.place(slot) as usize);
        let users = &mut self.users[used.index()];
        users.nodes.swap_remove(place);
        users.slots.swap_remove(place);
        if let Some((moved, slot)) =
            users.nodes.get(place).copied().zip(users.slots.get(place).copied())
        {
            *self.at(moved).place(slot) = place as u32;
        }
    }

    /// Adds a data input to a node.
    pub(super) fn push_input(&mut self, id: NodeId, input: Output) {
        let node = self.at(id);
        node.inputs.push(input);
        node.input_places.push(0);
        let slot = Slot::Input(node.inputs.len() as u32 - 1);
        self.link(id, slot);
    }

    /// Makes a data input read another tensor.
    pub(super) fn move_input(&mut self, id: NodeId, index: usize, input: Output) {
        let slot = Slot::Input(index as u32);
        self.unlink(id, slot);
        self.at(id).inputs[index] = input;
        self.link(id, slot);
    }

    /// Removes all data inputs of a node.
    pub(super) fn clear_inputs(&mut self, id: NodeId) {
        for at in 0..self.node(id).inputs.len() as u32 {
            self.unlink(id, Slot::Input(at));
        }
        let node = self.at(id);
        node.inputs.clear();
        node.input_places.clear();
    }

    /// Adds a control input to a node.
    pub(super) fn push_control(&mut self, id: NodeId, control: NodeId) {
        let node = self.at(id);
        node.controls.push(control);
        node.control_places.push(0);
        let slot = Slot::Control(node.controls.len() as u32 - 1);
        self.link(id, slot);
    }

    /// Removes the control input at this index.
    fn drop_control(&mut self, id: NodeId, at: usize) {
        self.unlink(id, Slot::Control(at as u32));
        let node = self.at(id);
        if node.controls.len() > ORDERED {
            node.controls.swap_remove(at);
            node.control_places.swap_remove(at);
            if at < node.controls.len() {
                self.renumber(id, at);
            }
        } else {
            node.controls.remove(at);
            node.control_places.remove(at);
            (at..self.node(id).controls.len()).for_each(|at| self.renumber(id, at));
        }
    }

    /// Updates a control edge's index at its other end.
    fn renumber(&mut self, id: NodeId, at: usize) {
        let node = self.node(id);
        let (used, place) = (node.controls[at], node.control_places[at] as usize);
        self.users[used.index()].slots[place] = Slot::Control(at as u32);
    }

    /// Removes all control edges from `control` to `id`: a graph may name one several times.
    /// Returns whether there was one.
    pub(super) fn drop_controls(&mut self, id: NodeId, control: NodeId) -> bool {
        let mut found = false;
        while let Some(at) = self.control_index(id, control) {
            self.drop_control(id, at);
            found = true;
        }
        found
    }

    /// The index of a control edge from `control` to `id`, if there is one. Searches the shorter of
    /// the two nodes' lists.
    pub(super) fn control_index(&self, id: NodeId, control: NodeId) -> Option<usize> {
        let (controls, users) = (&self.node(id).controls, &self.users[control.index()]);
        if controls.len() <= users.nodes.len() {
            return controls.iter().position(|c| *c == control);
        }
        users.nodes.iter().zip(&users.slots).find_map(|(user, slot)| match slot {
            Slot::Control(at) if *user == id => Some(*at as usize),
            _ => None,
        })
    }

    /// Removes all inputs of a node, data and control.
    pub(super) fn clear_edges(&mut self, id: NodeId) {
        self.clear_inputs(id);
        for at in 0..self.node(id).controls.len() as u32 {
            self.unlink(id, Slot::Control(at));
        }
        let node = self.at(id);
        node.controls.clear();
        node.control_places.clear();
    }

    /// The nodes that use this one, by data or control; a node occurs once for each edge.
    pub fn users(&self, id: NodeId) -> &[NodeId] {
        &self.users[id.index()].nodes
    }

    /// The data inputs that read a tensor, as pairs of consumer and index, sorted.
    pub fn readers(&self, output: Output) -> impl Iterator<Item = (NodeId, usize)> + '_ {
        let mut readers: SmallVec<[(NodeId, usize); 8]> =
            self.readers_in_any_order(output).collect();
        readers.sort_unstable();
        readers.into_iter()
    }

    /// Like [`Self::readers`], but unsorted and without a list of its own, for callers that search
    /// for one reader.
    pub fn readers_in_any_order(
        &self,
        output: Output,
    ) -> impl Iterator<Item = (NodeId, usize)> + '_ {
        let users = &self.users[output.node.index()];
        users.nodes.iter().zip(&users.slots).filter_map(move |(user, slot)| match *slot {
            Slot::Input(at) if self.node(*user).inputs[at as usize] == output => {
                Some((*user, at as usize))
            }
            _ => None,
        })
    }

    /// The last output of a node that has a reader, with one of its readers.
    pub fn last_port_read(&self, id: NodeId) -> Option<(u32, NodeId)> {
        let users = &self.users[id.index()];
        let ports = users.nodes.iter().zip(&users.slots).filter_map(|(user, slot)| match *slot {
            Slot::Input(at) => Some((self.node(*user).inputs[at as usize].port, *user)),
            Slot::Control(_) => None,
        });
        ports.max()
    }

    /// Whether some node reads an output of this one.
    pub fn is_read(&self, id: NodeId) -> bool {
        self.users[id.index()].slots.iter().any(|slot| matches!(slot, Slot::Input(_)))
    }

    /// The nodes with a control edge from this one, whether they read it or not, once each, sorted.
    pub fn waiters(&self, id: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let users = &self.users[id.index()];
        let waits =
            |(user, slot): (&NodeId, &Slot)| matches!(slot, Slot::Control(_)).then_some(*user);
        let mut waiters: SmallVec<[NodeId; 8]> =
            users.nodes.iter().zip(&users.slots).filter_map(waits).collect();
        waiters.sort_unstable();
        waiters.dedup();
        waiters.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Graph {
        /// Fails unless the two ends of every edge agree.
        fn check_edges(&self) {
            let mut edges = 0;
            for id in self.ids() {
                let node = self.node(id);
                let inputs = (0..node.inputs.len() as u32).map(Slot::Input).zip(&node.input_places);
                let controls =
                    (0..node.controls.len() as u32).map(Slot::Control).zip(&node.control_places);
                for (slot, place) in inputs.chain(controls) {
                    let users = &self.users[node.used(slot).index()];
                    assert_eq!(
                        (users.nodes[*place as usize], users.slots[*place as usize]),
                        (id, slot)
                    );
                    edges += 1;
                }
            }
            assert_eq!(edges, self.users.iter().map(|u| u.nodes.len()).sum::<usize>());
        }
    }

    /// Checks random edits against the lists of edges.
    #[test]
    fn both_ends_of_an_edge_agree() {
        let mut state = 5u64;
        let mut below = |n: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % n
        };
        let line = |i: usize| {
            if i < 9 { format!("n{i} = A") } else { format!("n{i} = A(n0, n1, n1:1, ^n2, ^n2)") }
        };
        let text: Vec<String> = (0..40).map(line).collect();
        let mut graph = Graph::from_text(&text.join("\n")).unwrap();
        // One node has more control edges than a list that keeps its order.
        let hub = graph.find("n8").unwrap();
        let ids: Vec<NodeId> = graph.ids().collect();
        for _ in 0..100 {
            graph.push_control(hub, ids[below(40)]);
        }
        graph.check_edges();
        for _ in 0..2000 {
            let (a, b) = (ids[below(40)], ids[below(40)]);
            let output = Output { node: b, port: below(2) as u32 };
            let inputs = graph.node(a).inputs().len();
            match below(6) {
                0 if inputs > 0 => graph.set_input(a, below(inputs), output),
                1 => graph.set_inputs(a, vec![output; below(4)]),
                2 => graph.add_control(a, b),
                3 => graph.remove_control(a, b),
                4 => graph.replace_readers(output, Output { node: a, port: 0 }),
                _ => graph.replace_waiters(b, a),
            }
            graph.check_edges();
        }
        assert!(graph.node(hub).controls().len() > 1);
    }

    #[test]
    fn a_control_edge_that_is_named_twice_goes_as_one() {
        let mut graph = Graph::from_text("a = A\nb = A\nc = A(^a, ^a, ^b)").unwrap();
        let [a, b, c] = ["a", "b", "c"].map(|name| graph.find(name).unwrap());
        graph.replace_waiters(a, b);
        assert_eq!((graph.node(c).controls(), graph.users(a)), (&[b][..], &[][..]));
        graph.remove(a);
        graph.check_edges();
    }
}
