//! Changing a [`Graph`].

use std::cell::OnceCell;
use std::collections::BTreeMap;

use rustc_hash::FxHashSet;

use super::Graph;
use super::node::{NewNode, Node, NodeId, Output, is_wgpu};
use crate::optimizer::attr::Attr;
use crate::optimizer::shape::TensorInfo;

impl Graph {
    /// A node's data, which stays what it was for TensorFlow.
    fn edit_quietly(&mut self, id: NodeId) -> &mut Node {
        self.nodes[id.index()].as_mut().expect("the node was removed")
    }

    fn edit(&mut self, id: NodeId) -> &mut Node {
        self.edits += 1;
        let node = self.edit_quietly(id);
        if node.original.is_some() {
            node.attrs();
            node.original = None;
        }
        node
    }

    /// Says what is known of a node's outputs.
    pub fn set_infos(&mut self, id: NodeId, infos: Vec<TensorInfo>) {
        self.edit_quietly(id).infos = infos;
    }

    /// Sets an attribute.
    pub fn set_attr(&mut self, id: NodeId, name: &str, value: impl Into<Attr>) {
        self.edit(id).attrs_mut().insert(name.to_owned(), value.into());
    }

    /// Removes an attribute.
    pub fn remove_attr(&mut self, id: NodeId, name: &str) {
        self.edit(id).attrs_mut().remove(name);
    }

    /// Makes a node one of another op; its attributes are the caller's business.
    pub fn set_op(&mut self, id: NodeId, op: &str) {
        self.edit(id).op = op.into();
    }

    /// `wish`, or `wish_1`, `wish_2` …, whatever is free.
    pub fn unique_name(&self, wish: &str) -> String {
        if !self.index.contains_key(wish) && !self.preserved.contains(wish) {
            return wish.to_owned();
        }
        let free = |name: &String| !self.index.contains_key(name.as_str()) && !self.preserved.contains(name);
        (1..).map(|n| format!("{wish}_{n}")).find(free).expect("there are more numbers than nodes")
    }

    /// Adds a node.
    pub fn add(&mut self, new: NewNode) -> NodeId {
        self.edits += 1;
        let node = Node {
            name: self.unique_name(&new.name).into(),
            op: new.op.into(),
            on_wgpu: is_wgpu(&new.device),
            device: new.device.into(),
            inputs: Vec::new(),
            controls: Vec::new(),
            attrs: OnceCell::from(BTreeMap::from_iter(new.attrs.into_iter().map(|(k, v)| (k.to_owned(), v)))),
            infos: new.infos,
            original: None,
            rest: Vec::new(),
        };
        let id = self.insert(node).expect("the name is unique");
        self.set_inputs(id, new.inputs);
        for control in new.controls {
            self.add_control(id, control);
        }
        id
    }

    /// Replaces all data inputs.
    pub fn set_inputs(&mut self, id: NodeId, inputs: Vec<Output>) {
        for old in std::mem::take(&mut self.edit(id).inputs) {
            self.forget(old.node, id);
        }
        for input in &inputs {
            self.users[input.node.index()].push(id);
        }
        self.edit(id).inputs = inputs;
    }

    /// Replaces one data input.
    pub fn set_input(&mut self, id: NodeId, index: usize, input: Output) {
        let old = std::mem::replace(&mut self.edit(id).inputs[index], input);
        self.forget(old.node, id);
        self.users[input.node.index()].push(id);
    }

    /// Makes `id` wait for `control`, unless it does or is that node itself.
    pub fn add_control(&mut self, id: NodeId, control: NodeId) {
        if id != control && !self.node(id).controls.contains(&control) {
            self.edit(id).controls.push(control);
            self.users[control.index()].push(id);
        }
    }

    /// Makes `id` no longer wait for `control`.
    pub fn remove_control(&mut self, id: NodeId, control: NodeId) {
        if let Some(at) = self.node(id).controls.iter().position(|c| *c == control) {
            self.edit(id).controls.remove(at);
            self.forget(control, id);
        }
    }

    /// Drops one edge from the users of `used`.
    fn forget(&mut self, used: NodeId, user: NodeId) {
        let users = &mut self.users[used.index()];
        if let Some(at) = users.iter().position(|u| *u == user) {
            users.swap_remove(at);
        }
    }

    /// Lets every reader of `old` read `new` instead.
    pub fn replace_readers(&mut self, old: Output, new: Output) {
        let readers: Vec<_> = self.readers(old).collect();
        for (reader, index) in readers {
            self.set_input(reader, index, new);
        }
    }

    /// Lets whoever waits for `old` wait for `new` instead.
    pub fn replace_waiters(&mut self, old: NodeId, new: NodeId) {
        let waiters: Vec<_> = self.waiters(old).collect();
        for waiter in waiters {
            self.remove_control(waiter, old);
            self.add_control(waiter, new);
        }
    }

    /// Removes a node that nobody uses. Panics when somebody does, or when it is preserved.
    pub fn remove(&mut self, id: NodeId) {
        assert!(self.users(id).is_empty(), "{} is in use", self.node(id).name);
        assert!(!self.is_preserved(id), "{} is preserved", self.node(id).name);
        self.edits += 1;
        let node = self.nodes[id.index()].take().expect("the node was removed");
        self.index.remove(&node.name);
        for used in node.inputs.iter().map(|i| i.node).chain(node.controls) {
            self.forget(used, id);
        }
    }

    /// Puts one node in place of a region. `outputs` pairs each tensor of the region that is used outside with the new node's
    /// port. The new node waits for what nodes of the region waited for, and whoever waited for one of them waits for it.
    /// The region must be convex ([`Graph::is_convex`]), and the new node must read what the region did.
    pub fn replace_region(&mut self, region: &[NodeId], new: NewNode, outputs: &[(Output, u32)]) -> NodeId {
        let inside: FxHashSet<NodeId> = region.iter().copied().collect();
        let id = self.add(new);
        for member in region {
            let controls: Vec<_> =
                self.node(*member).controls.iter().copied().filter(|c| !inside.contains(c)).collect();
            for control in controls {
                self.add_control(id, control);
            }
        }
        for (old, port) in outputs {
            let readers: Vec<_> =
                self.readers(*old).filter(|(reader, _)| !inside.contains(reader) && *reader != id).collect();
            for (reader, index) in readers {
                self.set_input(reader, index, Output { node: id, port: *port });
            }
        }
        for member in region {
            let waiters: Vec<_> = self.waiters(*member).filter(|w| !inside.contains(w) && *w != id).collect();
            for waiter in waiters {
                self.remove_control(waiter, *member);
                self.add_control(waiter, id);
            }
        }
        self.remove_all(region);
        id
    }

    /// Removes nodes that only nodes among them use.
    pub fn remove_all(&mut self, region: &[NodeId]) {
        let mut left: Vec<NodeId> = region.to_vec();
        while !left.is_empty() {
            let before = left.len();
            let (free, used): (Vec<_>, Vec<_>) = left.into_iter().partition(|id| self.users(*id).is_empty());
            free.into_iter().for_each(|id| self.remove(id));
            left = used;
            assert!(left.len() < before, "{} is in use outside of its region", self.node(left[0]).name);
        }
    }
}
