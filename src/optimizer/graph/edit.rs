//! Edits of a [`Graph`].

use std::cell::OnceCell;
use std::collections::BTreeMap;

use rustc_hash::FxHashSet;

use super::Graph;
use super::node::{NewNode, Node, NodeId, Output, is_wgpu};
use crate::optimizer::attr::Attr;
use crate::optimizer::shape::TensorInfo;

impl Graph {
    /// A node's data, for changes that TensorFlow does not see.
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

    /// Sets the known information about a node's outputs.
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

    /// Changes a node's op. The caller sees to its attributes.
    pub fn set_op(&mut self, id: NodeId, op: &str) {
        self.edit(id).op = op.into();
    }

    /// Makes a node that nothing reads a `NoOp`, which waits for the same nodes and has its name.
    pub fn set_no_op(&mut self, id: NodeId) {
        debug_assert!(!self.is_read(id), "{} is read", self.node(id).name);
        self.set_inputs(id, Vec::new());
        self.edit(id).attrs_mut().retain(|name, _| name.starts_with('_'));
        self.set_op(id, "NoOp");
        self.set_infos(id, Vec::new());
    }

    /// The name `wish`, or the first of `wish_1`, `wish_2` … that is not taken.
    fn unique_name(&mut self, wish: String) -> String {
        let taken = |name: &str| self.index.contains_key(name) || self.preserved.contains(name);
        if !taken(&wish) {
            return wish;
        }
        let mut suffix = self.suffixes.get(&wish).copied().unwrap_or(0);
        let name = loop {
            suffix += 1;
            let name = format!("{wish}_{suffix}");
            if !taken(&name) {
                break name;
            }
        };
        self.suffixes.insert(wish, suffix);
        name
    }

    /// Adds a node. Its frame is the frame of its data and control inputs. A constant that a loop
    /// may read must be added by [`Self::add_constant`].
    pub fn add(&mut self, new: NewNode) -> NodeId {
        self.edits += 1;
        let node = Node {
            name: self.unique_name(new.name).into(),
            op: new.op.into(),
            on_wgpu: is_wgpu(&new.device, self.device_type),
            device: new.device.into(),
            inputs: Vec::new(),
            controls: Vec::new(),
            input_places: Vec::new(),
            control_places: Vec::new(),
            attrs: OnceCell::from(BTreeMap::from_iter(
                new.attrs.into_iter().map(|(k, v)| (k.to_owned(), v)),
            )),
            infos: new.infos,
            original: None,
            rest: Vec::new(),
        };
        let id = self.insert(node).expect("the name is unique");
        self.set_inputs(id, new.inputs);
        for control in new.controls {
            self.add_control(id, control);
        }
        self.find_frame(id);
        id
    }

    /// Replaces all data inputs.
    pub fn set_inputs(&mut self, id: NodeId, inputs: Vec<Output>) {
        self.edit(id);
        self.clear_inputs(id);
        inputs.into_iter().for_each(|input| self.push_input(id, input));
    }

    /// Replaces one data input.
    pub fn set_input(&mut self, id: NodeId, index: usize, input: Output) {
        self.edit(id);
        self.move_input(id, index, input);
    }

    /// Makes `id` wait for `control`, unless it does already or the two are the same node.
    pub fn add_control(&mut self, id: NodeId, control: NodeId) {
        if id != control && self.control_index(id, control).is_none() {
            self.edit(id);
            self.push_control(id, control);
        }
    }

    /// Removes the wait of `id` for `control`.
    pub fn remove_control(&mut self, id: NodeId, control: NodeId) {
        if self.drop_controls(id, control) {
            self.edit(id);
        }
    }

    /// Makes every reader of `old` read `new` instead.
    pub fn replace_readers(&mut self, old: Output, new: Output) {
        let readers: Vec<_> = self.readers(old).collect();
        for (reader, index) in readers {
            self.set_input(reader, index, new);
        }
    }

    /// Makes every node that waits for `old` wait for `new` instead.
    pub fn replace_waiters(&mut self, old: NodeId, new: NodeId) {
        let waiters: Vec<_> = self.waiters(old).collect();
        for waiter in waiters {
            self.remove_control(waiter, old);
            self.add_control(waiter, new);
        }
    }

    /// Removes a node without users. Panics if it has users or is preserved.
    pub fn remove(&mut self, id: NodeId) {
        assert!(self.users(id).is_empty(), "{} is in use", self.node(id).name);
        assert!(!self.is_preserved(id), "{} is preserved", self.node(id).name);
        self.edits += 1;
        self.clear_edges(id);
        let node = self.nodes[id.index()].take().expect("the node was removed");
        self.index.remove(&node.name);
    }

    /// Removes a node if nothing uses it and it may go.
    pub fn remove_unused(&mut self, id: NodeId) {
        if self.contains(id) && self.users(id).is_empty() && self.may_go(id).is_ok() {
            self.remove(id);
        }
    }

    /// Replaces a region by one node. `outputs` pairs each tensor of the region that is used
    /// outside with a port of the new node. The new node takes over the control edges into the
    /// region and out of it. The region must be convex ([`Graph::is_convex`]), and the new node
    /// must read the region's inputs.
    pub fn replace_region(
        &mut self,
        region: &[NodeId],
        new: NewNode,
        outputs: &[(Output, u32)],
    ) -> NodeId {
        let inside: FxHashSet<NodeId> = region.iter().copied().collect();
        let id = self.add(new);
        self.stand_for(id, region);
        for member in region {
            let controls: Vec<_> = self
                .node(*member)
                .controls
                .iter()
                .copied()
                .filter(|c| !inside.contains(c))
                .collect();
            for control in controls {
                self.add_control(id, control);
            }
        }
        for (old, port) in outputs {
            let readers: Vec<_> = self
                .readers(*old)
                .filter(|(reader, _)| !inside.contains(reader) && *reader != id)
                .collect();
            for (reader, index) in readers {
                self.set_input(reader, index, Output { node: id, port: *port });
            }
        }
        for member in region {
            let waiters: Vec<_> =
                self.waiters(*member).filter(|w| !inside.contains(w) && *w != id).collect();
            for waiter in waiters {
                self.remove_control(waiter, *member);
                self.add_control(waiter, id);
            }
        }
        self.remove_all(region);
        id
    }

    /// Removes nodes that have no users outside the list.
    pub fn remove_all(&mut self, region: &[NodeId]) {
        let mut left: FxHashSet<NodeId> = region.iter().copied().collect();
        let mut free: Vec<NodeId> =
            region.iter().copied().filter(|id| self.users(*id).is_empty()).collect();
        while let Some(id) = free.pop() {
            if left.remove(&id) {
                let used: Vec<NodeId> = self.used(id).collect();
                self.remove(id);
                free.extend(
                    used.into_iter().filter(|id| left.contains(id) && self.users(*id).is_empty()),
                );
            }
        }
        if let Some(id) = left.iter().next() {
            panic!("{} is in use outside of its region", self.node(*id).name);
        }
    }
}
