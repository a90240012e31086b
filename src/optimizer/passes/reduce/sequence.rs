//! Reductions of reductions, as in losses: the mean of each row, then the sum of the means. If the
//! inner reduction has no other reader, the outer one reduces over all axes.

use super::roots::{ReducedAxes, reduction};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::reduce::table::Reduction;
use crate::optimizer::graph::{Graph, NewNode, NodeId, Output};
use crate::optimizer::shape::TensorInfo;
use crate::tensor::HostTensor;

/// Joins reductions of reductions.
pub fn join(graph: &mut Graph, order: &[NodeId]) -> Result<()> {
    for id in order {
        if let Some(joined) = Joined::find(graph, *id) {
            joined.apply(graph, *id)?;
        }
    }
    Ok(())
}

/// The new form of the outer reduction.
struct Joined {
    op: &'static str,
    inner: NodeId,
    axes: Vec<i64>,
    keep_dims: bool,
    /// The factor by which the result is multiplied.
    factor: Option<f64>,
}

impl Joined {
    fn find(graph: &Graph, id: NodeId) -> Option<Self> {
        let (outer, of_outer) = own_reduction(graph, id)?;
        let inner = graph.node(id).inputs()[0].node;
        let (name, of_inner) = own_reduction(graph, inner)?;
        let dtype = graph.node(id).dtype("T");
        let alike = of_inner.device == of_outer.device && graph.node(inner).dtype("T") == dtype;
        if !alike || graph.users(inner) != [id] || !Reduction::of(outer).keeps_singles() {
            return None;
        }
        let info = graph.info(graph.node(inner).inputs()[0]);
        let axes = all_axes(&of_inner, &of_outer, info.rank()?)?;
        let covers = of_inner.axes.iter().all(|a| of_outer.axes.contains(a));
        let keeps = match (of_inner.keep_dims, of_outer.keep_dims) {
            (true, false) => covers,
            (inner, outer) => inner == outer,
        };
        // Only wider types qualify: a sum of 16-bit numbers can overflow where the mean of the
        // means cannot.
        let wide = || matches!(dtype, Some(DType::F32 | DType::F64));
        let (op, factor) = match (outer, name) {
            (outer, inner) if outer == inner => (outer, None),
            ("Sum", "Mean") if wide() => ("Sum", Some(1.0 / extent(info, &of_inner.axes)?)),
            ("Mean", "Sum") if wide() => {
                let inner: Vec<i64> = of_inner.axes;
                let rest: Vec<i64> = axes.iter().copied().filter(|a| !inner.contains(a)).collect();
                ("Sum", Some(1.0 / extent(info, &rest)?))
            }
            _ => return None,
        };
        keeps.then_some(Self { op, inner, axes, keep_dims: of_outer.keep_dims, factor })
    }

    fn apply(self, graph: &mut Graph, id: NodeId) -> Result<()> {
        let (outer, tensor) = (graph.node(id), graph.node(self.inner).inputs()[0]);
        let device = outer.device().to_owned();
        let wide = outer.dtype("Tidx") == Some(DType::I64);
        let axes = if wide {
            HostTensor::i64(&[self.axes.len()], &self.axes)
        } else {
            let axes: Vec<i32> = self.axes.iter().map(|a| *a as i32).collect();
            HostTensor::i32(&[axes.len()], &axes)
        };
        let name = outer.name().to_owned();
        let controls = graph.node(self.inner).controls().to_vec();
        let axes = graph.add_constant(format!("{name}/axes"), &device, &axes, tensor);
        graph.set_inputs(id, vec![tensor, axes]);
        controls.into_iter().for_each(|control| graph.add_control(id, control));
        graph.set_attr(id, "keep_dims", self.keep_dims);
        if graph.node(id).op() != self.op {
            graph.set_op(id, self.op);
        }
        graph.remove(self.inner);
        let (Some(factor), Some(dtype)) = (self.factor, graph.node(id).dtype("T")) else {
            return Ok(());
        };
        let output = Output { node: id, port: 0 };
        let factor = HostTensor::floats(dtype, &[], &[factor]);
        let factor = graph.add_constant(format!("{name}/factor"), &device, &factor, output);
        let readers: Vec<_> = graph.readers(output).collect();
        let scaled = graph.add(NewNode {
            name: format!("{name}/scaled"),
            op: "Mul".to_owned(),
            device,
            inputs: vec![output, factor],
            controls: Vec::new(),
            attrs: vec![("T", dtype.into())],
            infos: vec![graph.info(output).clone()],
        });
        for (reader, index) in readers {
            graph.set_input(reader, index, Output { node: scaled, port: 0 });
        }
        Ok(())
    }
}

/// The op and the axes of a plain reduction of TensorFlow.
fn own_reduction(graph: &Graph, id: NodeId) -> Option<(&'static str, ReducedAxes)> {
    let (root, over) = reduction(graph, id)?;
    (!over.whole && root.name == graph.node(id).op()).then_some((root.name, over))
}

/// The axes of both reductions, as axes of the inner reduction's tensor.
fn all_axes(inner: &ReducedAxes, outer: &ReducedAxes, rank: usize) -> Option<Vec<i64>> {
    let kept: Vec<i64> =
        (0..rank as i64).filter(|a| inner.keep_dims || !inner.axes.contains(a)).collect();
    let named = |a: &i64| kept.get(usize::try_from(*a).ok()?).copied();
    let mut axes = outer.axes.iter().map(named).collect::<Option<Vec<_>>>()?;
    axes.extend(&inner.axes);
    axes.sort_unstable();
    axes.dedup();
    Some(axes)
}

/// The number of elements along some axes, if it is known and not 0.
fn extent(info: &TensorInfo, axes: &[i64]) -> Option<f64> {
    let shape = info.shape.as_ref()?;
    let extents = axes.iter().map(|a| shape.get(usize::try_from(*a).ok()?)?.known());
    let product = extents.collect::<Option<Vec<_>>>()?.into_iter().product::<usize>();
    (product > 0).then_some(product as f64)
}
