//! `sum over z of x[z]^T y[z]` is the product of all rows of `x`, transposed, and all rows of `y`.
//! As a batch of products, a result is written for each matrix and read again for the sum.

use rustc_hash::FxHashMap;

use crate::dtype::DType;
use crate::error::Result;
use crate::optimizer::attr::Attr;
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::passes::reshape::reshape;
use crate::optimizer::shape::{Dim, TensorInfo};

/// A batch of products, and the sum over the batch.
struct Summed {
    product: NodeId,
    sum: NodeId,
    /// The numbers of columns of both operands.
    columns: [usize; 2],
}

/// Runs the pass: replaces each such batch by one product.
pub fn run(graph: &mut Graph) -> Result<()> {
    let Some(order) = graph.order() else { return Ok(()) };
    // A tensor that several products read is reshaped once.
    let mut rows: FxHashMap<Output, Output> = FxHashMap::default();
    for id in order.iter().copied() {
        if graph.contains(id)
            && let Some(summed) = Summed::at(graph, id)
        {
            summed.replace(graph, &mut rows);
        }
    }
    Ok(())
}

/// Whether `axes` are all the `batch` dimensions in front of a matrix. They are constants, or the
/// axes that gradients find for an operand without a batch.
fn over_batch(graph: &Graph, axes: Output, batch: usize) -> Option<bool> {
    let node = graph.node(axes.node);
    if node.op() == "BroadcastGradientArgs" {
        let [x, y] = node.inputs() else { return None };
        let [own, other] = if axes.port == 0 { [x, y] } else { [y, x] };
        return Some(graph.info(*own).has_dims(&[0]) && graph.info(*other).has_dims(&[batch]));
    }
    let rank = batch as i64 + 2;
    let axes = graph.constant(axes)?.to_i64().ok()?;
    let mut axes: Vec<i64> = axes.into_iter().map(|a| if a < 0 { a + rank } else { a }).collect();
    axes.sort_unstable();
    Some(axes.into_iter().eq(0..batch as i64))
}

impl Summed {
    /// The batch of products `product`, if only its sum is used.
    fn at(graph: &Graph, product: NodeId) -> Option<Self> {
        let node = graph.node(product);
        let flag = |name: &str| node.attr(name).and_then(Attr::bool).unwrap_or(false);
        graph.may_go(product).ok()?;
        if node.op() != "BatchMatMulV2" || !flag("adj_x") || flag("adj_y") {
            return None;
        }
        node.dtype("T").filter(|t| t.is_float())?;
        let [x, y] = [0, 1].map(|i| graph.info(node.inputs()[i]).shape.as_ref());
        let ((x, x_lead), (y, y_lead)) = (x?.split_last()?, y?.split_last()?);
        let alike =
            x_lead.len() == y_lead.len() && x_lead.iter().zip(y_lead).all(|(a, b)| a.same(*b));
        if x_lead.len() < 2 || !alike {
            return None;
        }
        let columns = [x.known().filter(|n| *n > 0)?, y.known().filter(|n| *n > 0)?];
        let [sum] = graph.users(product) else { return None };
        let reduction = graph.node(*sum);
        let legal = || graph.share_device(*sum, product).and_then(|()| graph.may_move(*sum));
        let whole = reduction.op() == "Sum"
            && graph.ask("sums", [*sum, product], legal()).is_some()
            && reduction.inputs()[0] == Output { node: product, port: 0 }
            && reduction.attr("keep_dims").and_then(Attr::bool) == Some(false);
        let over_batch = || over_batch(graph, *reduction.inputs().get(1)?, x_lead.len() - 1);
        (whole && over_batch()?).then_some(Self { product, sum: *sum, columns })
    }

    fn replace(self, graph: &mut Graph, rows: &mut FxHashMap<Output, Output>) {
        let Self { product, sum, columns } = self;
        let mut flat = |i: usize| {
            let tensor = graph.node(product).inputs()[i];
            let name = format!("{}/rows", graph.node(tensor.node).name());
            let known = rows.get(&tensor).copied();
            let made =
                known.or_else(|| reshape(graph, &name, tensor, &[None, Some(columns[i])]))?;
            rows.insert(tensor, made);
            Some(made)
        };
        let (Some(x), Some(y)) = (flat(0), flat(1)) else { return };
        graph.set_inputs(product, vec![x, y]);
        let dtype: Option<DType> = graph.node(product).dtype("T");
        let shape = columns.into_iter().map(Dim::Known).collect();
        graph.set_infos(product, vec![TensorInfo { dtype, shape: Some(shape) }]);
        graph.replace_readers(Output { node: sum, port: 0 }, Output { node: product, port: 0 });
        graph.replace_waiters(sum, product);
        graph.remove(sum);
    }
}
