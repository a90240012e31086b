//! Shapes of scores without the scores: if the batch size is not known beforehand, Keras takes the
//! size of a mask from the scores.

use super::labels::{Label, Labelled};
use crate::dtype::DType;
use crate::optimizer::attr::Attr;
use crate::optimizer::graph::{Graph, NewNode, NodeId, Output};
use crate::optimizer::shape::TensorInfo;
use crate::tensor::HostTensor;

/// Whether [`detach`] is possible.
pub fn can_detach(
    graph: &Graph,
    shapes: &[(NodeId, Vec<Label>)],
    operands: &[Labelled; 2],
) -> bool {
    let has_extent = |label: &Label| {
        let found = operands
            .iter()
            .find_map(|(at, labels)| Some((*at, labels.iter().position(|l| l == label)?)));
        found.is_some_and(|(operand, axis)| {
            let info = graph.info(operand);
            let extent = info.shape.as_ref().and_then(|shape| shape.get(axis));
            extent.is_some_and(|d| {
                d.known().map_or(info.dtype.is_some(), |known| i32::try_from(known).is_ok())
            })
        })
    };
    shapes.iter().all(|(id, labels)| {
        let node = graph.node(*id);
        graph.may_move(*id).is_ok()
            && node.dtype("out_type") == Some(DType::I32)
            && labels.iter().all(has_extent)
    })
}

/// Replaces `Shape` nodes, whose inputs have the given axes, by nodes that take the extents from
/// the operands of the product. `None` if that is not possible; [`can_detach`] tells beforehand.
pub fn detach(
    graph: &mut Graph,
    shapes: &[(NodeId, Vec<Label>)],
    operands: &[Labelled; 2],
) -> Option<()> {
    shapes.iter().try_for_each(|(id, labels)| {
        let node = graph.node(*id);
        if graph.may_move(*id).is_err() || node.dtype("out_type") != Some(DType::I32) {
            return None;
        }
        let mut build =
            Build { name: node.name().to_owned(), device: node.device().to_owned(), graph };
        let extents = labels
            .iter()
            .map(|label| build.extent(*label, operands))
            .collect::<Option<Vec<_>>>()?;
        let count = extents.len();
        let attrs =
            vec![("N", (count as i64).into()), ("T", DType::I32.into()), ("axis", 0i64.into())];
        let packed = build.add("packed", "Pack", extents, attrs, &[count]);
        graph.replace_readers(Output { node: *id, port: 0 }, packed);
        graph.replace_waiters(*id, packed.node);
        graph.remove(*id);
        Some(())
    })
}

/// Adds nodes beside a `Shape`.
struct Build<'g> {
    graph: &'g mut Graph,
    name: String,
    device: String,
}

impl Build<'_> {
    fn add(
        &mut self,
        name: &str,
        op: &str,
        inputs: Vec<Output>,
        attrs: Vec<(&'static str, Attr)>,
        dims: &[usize],
    ) -> Output {
        let node = self.graph.add(NewNode {
            name: format!("{}/{name}", self.name),
            op: op.to_owned(),
            device: self.device.clone(),
            inputs,
            controls: Vec::new(),
            attrs,
            infos: vec![TensorInfo::known(DType::I32, dims)],
        });
        Output { node, port: 0 }
    }

    /// A constant that exists wherever `operand` does.
    fn constant(&mut self, operand: Output, dims: &[usize], value: usize) -> Option<Output> {
        let value = HostTensor::i32(dims, &[i32::try_from(value).ok()?]);
        let name = format!("{}/extent", self.name);
        Some(self.graph.add_constant_from(name, &self.device, &value, &[operand]))
    }

    /// The extent of an axis, taken from the operand that has it.
    fn extent(&mut self, label: Label, operands: &[Labelled; 2]) -> Option<Output> {
        let found = operands
            .iter()
            .find_map(|(at, labels)| Some((*at, labels.iter().position(|l| *l == label)?)));
        let (operand, axis) = found?;
        let info = self.graph.info(operand);
        let shape = info.shape.clone()?;
        if let Some(known) = shape.get(axis)?.known() {
            return self.constant(operand, &[], known);
        }
        let attrs = vec![("T", info.dtype?.into()), ("out_type", DType::I32.into())];
        let whole = self.add("operand", "Shape", vec![operand], attrs, &[shape.len()]);
        let mut constant = |value| self.constant(operand, &[1], value);
        let (begin, end, step) = (constant(axis)?, constant(axis + 1)?, constant(1)?);
        let mut attrs = vec![
            ("Index", DType::I32.into()),
            ("T", DType::I32.into()),
            ("shrink_axis_mask", 1i64.into()),
        ];
        let masks = ["begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask"];
        attrs.extend(masks.map(|name| (name, Attr::from(0i64))));
        Some(self.add("extent", "StridedSlice", vec![whole, begin, end, step], attrs, &[]))
    }
}
