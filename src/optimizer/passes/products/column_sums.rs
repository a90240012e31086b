//! The gradient of a bias is the sum of the rows of an operand in the product that makes the
//! gradient of the layer's weights. The product's kernel can sum the rows on the way, so both
//! become one node. The gradient of a bias of several dimensions, as in layers with heads, is the
//! sum over the dimensions in front of the bias's own. The products for query, key and value of an
//! attention are one node, and so are their sums.

use rustc_hash::FxHashMap;

use super::product::MatrixProduct;
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::expression::{Expression, Value};
use crate::kernels::fused::products::{JOINED, JOINED_WITH_SUMS, WITH_SUMS};
use crate::kernels::fused::reduce::OP as REDUCE;
use crate::optimizer::attr::Attr;
use crate::optimizer::branches::Branches;
use crate::optimizer::emit::fused;
use crate::optimizer::graph::{Graph, Node, NodeId, Output};
use crate::optimizer::legality::check;
use crate::optimizer::passes::reshape::give_extents;
use crate::optimizer::refusal::Refusal;
use crate::optimizer::shape::{Dim, Shape, TensorInfo};

/// The largest number of changes of shape between a tensor and its reader.
const MAX_ROW: usize = 8;

/// A node that sums the columns of tensors.
struct ColumnSums {
    node: NodeId,
    dtype: DType,
    /// For each output, the tensor whose columns it sums.
    of: Vec<Output>,
    /// The number of columns of each tensor.
    columns: usize,
}

/// Runs the pass.
pub fn run(graph: &mut Graph) -> Result<()> {
    let Some(order) = graph.order() else { return Ok(()) };
    let branches = Branches::of(graph, &order);
    let mut known: FxHashMap<(Vec<Output>, usize), ColumnSums> = FxHashMap::default();
    for id in order.iter().copied() {
        if let Some(sums) = sums(graph, id) {
            known.entry((sorted(&sums.of), sums.columns)).or_insert(sums);
        }
    }
    for id in order.iter().copied() {
        if known.is_empty() {
            break;
        }
        if graph.contains(id)
            && let Some(products) = Products::of(graph, id)
            && let key = (sorted(&products.rights), products.columns)
            && let Some(sums) = known.get(&key)
            && let pair = [id, sums.node]
            && let legal = check(sums.dtype == products.dtype, Refusal::Operand)
                .and_then(|()| graph.share_device(sums.node, id))
                .and_then(|()| branches.run_together(id, sums.node))
                .and_then(|()| graph.are_siblings(&pair))
                .and_then(|()| Ports::of(graph, &products, sums))
            && let Some(ports) = graph.ask("biases", pair, legal)
        {
            replace(graph, products, sums, ports);
            known.remove(&key);
        }
    }
    Ok(())
}

fn sorted(tensors: &[Output]) -> Vec<Output> {
    let mut sorted = tensors.to_vec();
    sorted.sort_unstable();
    sorted
}

/// The tensor that has the same elements as `tensor` in the same order.
fn elements(graph: &Graph, mut tensor: Output) -> Output {
    for _ in 0..MAX_ROW {
        let node = graph.node(tensor.node);
        match (node.op(), node.inputs().first()) {
            ("Reshape" | "ExpandDims" | "Squeeze" | "Identity", Some(input))
                if node.controls().is_empty() =>
            {
                tensor = *input;
            }
            _ => break,
        }
    }
    tensor
}

/// The last extent of a tensor of rows.
fn columns(graph: &Graph, tensor: Output) -> Option<usize> {
    let shape = graph.info(tensor).shape.as_ref().filter(|s| s.len() >= 2)?;
    shape.last()?.known().filter(|n| *n > 0)
}

/// The sums that a node computes, if it computes nothing else.
fn sums(graph: &Graph, id: NodeId) -> Option<ColumnSums> {
    let node = graph.node(id);
    if graph.may_move(id).is_err() {
        return None;
    }
    let one = |tensor, columns| {
        let dtype = node.dtype("T").filter(|t| t.is_float())?;
        Some(ColumnSums { node: id, dtype, of: vec![elements(graph, tensor)], columns })
    };
    match node.op() {
        "Sum" => {
            let &[rows, axes] = node.inputs() else { return None };
            let axes = graph.constant(axes)?.to_i64().ok()?;
            one(rows, columns_behind(graph, rows, &axes)?)
        }
        "BiasAddGrad" => {
            let format = node.attr("data_format").and_then(Attr::string);
            let rows = *node.inputs().first().filter(|_| format.is_none_or(|f| f == "NHWC"))?;
            one(rows, columns(graph, rows)?)
        }
        REDUCE => of_reduction(graph, id, node),
        _ => None,
    }
}

/// The number of columns, which are the elements of the last dimensions of a tensor, if `axes` are
/// all dimensions in front of them.
fn columns_behind(graph: &Graph, tensor: Output, axes: &[i64]) -> Option<usize> {
    let shape = graph.info(tensor).shape.as_ref()?;
    let rank = shape.len() as i64;
    let mut axes: Vec<i64> = axes.iter().map(|a| if *a < 0 { a + rank } else { *a }).collect();
    axes.sort_unstable();
    let first = !axes.is_empty() && axes.iter().copied().eq(0..axes.len() as i64);
    let columns = shape.get(axes.len()..)?.iter().map(|d| d.known());
    let columns = columns.product::<Option<usize>>().filter(|n| *n > 0)?;
    (first && axes.len() < shape.len()).then_some(columns)
}

/// The sums of a fused reduction.
fn of_reduction(graph: &Graph, id: NodeId, node: &Node) -> Option<ColumnSums> {
    let text = |name: &str| node.attr(name).and_then(Attr::string);
    let expression: Expression = text("expression")?.parse().ok()?;
    let plain = expression.steps().is_empty()
        && text("epilogue").is_none_or(str::is_empty)
        && text("reductions")?.split(',').all(|name| name == "Sum")
        && node.attr("whole").and_then(Attr::bool) != Some(true);
    let axes = node.attr("axes").and_then(Attr::ints)?;
    let mut of: Vec<Output> = Vec::new();
    let mut known = None;
    for value in expression.outputs() {
        let Value::Input(input) = value else { return None };
        let input = *node.inputs().get(*input as usize)?;
        let own = (columns_behind(graph, input, axes)?, graph.info(input).dtype?);
        let tensor = elements(graph, input);
        if *known.get_or_insert(own) != own || of.contains(&tensor) {
            return None;
        }
        of.push(tensor);
    }
    let (columns, dtype) = known.filter(|_| plain && of.len() == node.inputs().len())?;
    Some(ColumnSums { node: id, dtype, of, columns })
}

/// Products of one left operand and right operands of matrices.
struct Products {
    node: NodeId,
    dtype: DType,
    /// The tensors with the elements of the right operands, and their number of columns.
    rights: Vec<Output>,
    columns: usize,
    /// The op that computes the sums, too, and its attributes.
    op: &'static str,
    attrs: Vec<(&'static str, Attr)>,
}

impl Products {
    fn of(graph: &Graph, id: NodeId) -> Option<Self> {
        let node = graph.node(id);
        if node.inputs().len() < 2
            || node.inputs()[..2].iter().any(|i| graph.info(*i).rank() != Some(2))
        {
            return None;
        }
        let (op, rights, attrs) = if node.op() == JOINED {
            let flag = node.attr("adj_y").and_then(Attr::bool);
            let extras = node.attr("T_extra").and_then(Attr::dtypes)?;
            if flag == Some(true) || !extras.is_empty() || graph.may_move(id).is_err() {
                return None;
            }
            let names = ["N", "T", "T_out", "adj_x", "constants", "expression"];
            let attrs = names.into_iter().filter_map(|name| Some((name, node.attr(name)?.clone())));
            (JOINED_WITH_SUMS, &node.inputs()[1..], attrs.collect())
        } else {
            let product = MatrixProduct::of(graph, id).filter(|p| !p.transposed[1])?;
            let mut attrs = product.attrs();
            let extras = node.attr("T_extra").cloned();
            attrs.push(("T_extra", extras.unwrap_or_else(|| Attr::from(&[][..] as &[DType]))));
            (WITH_SUMS, &node.inputs()[1..2], attrs)
        };
        let of = columns(graph, *rights.first()?)?;
        let alike = rights.iter().all(|right| columns(graph, *right) == Some(of));
        let rights = rights.iter().map(|right| elements(graph, *right)).collect();
        let dtype = node.dtype("T")?;
        alike.then_some(Self { node: id, dtype, rights, columns: of, op, attrs })
    }
}

const fn of(node: NodeId, port: usize) -> Output {
    Output { node, port: port as u32 }
}

/// The sums of a node that computes them with products.
struct Ports {
    /// For each sum, the right operand whose columns it sums.
    places: Vec<usize>,
    /// The extents of each sum that its readers expect.
    wanted: Vec<Vec<usize>>,
}

impl Ports {
    /// The ports for these products and sums.
    ///
    /// # Errors
    /// The reason why no node computes both.
    fn of(graph: &Graph, products: &Products, sums: &ColumnSums) -> Result<Self, Refusal> {
        let Products { rights, columns, .. } = products;
        let place = |of: &Output| rights.iter().position(|right| right == of);
        let places = sums.of.iter().map(place).collect::<Option<Vec<usize>>>();
        let dims = |port: usize| {
            let dims = graph.info(of(sums.node, port)).dims();
            dims.filter(|dims| dims.iter().product::<usize>() == *columns)
        };
        let wanted = (0..rights.len()).map(dims).collect::<Option<Vec<_>>>();
        let (places, wanted) = places.zip(wanted).ok_or(Refusal::OtherShape)?;
        Ok(Self { places, wanted })
    }
}

fn replace(graph: &mut Graph, products: Products, sums: &ColumnSums, ports: Ports) {
    let Products { node: product, dtype, rights, columns, op, attrs } = products;
    let Ports { places, wanted } = ports;
    let (node, count) = (graph.node(product), rights.len());
    let vector: Shape = [Dim::Known(columns)].into_iter().collect();
    let vector = TensorInfo { dtype: Some(dtype), shape: Some(vector) };
    let output = node.dtype("T_out").unwrap_or(dtype);
    let infos = (0..count)
        .map(|port| TensorInfo { dtype: Some(output), ..graph.info(of(product, port)).clone() })
        .chain(std::iter::repeat_n(vector, count));
    let inputs = node.inputs().to_vec();
    let new = fused(graph, product, "with_sums", op, inputs, attrs, infos.collect());
    let of_products = (0..count).map(|port| (of(product, port), port as u32));
    let of_sums = places.iter().enumerate();
    let of_sums = of_sums.map(|(port, at)| (of(sums.node, port), (count + at) as u32));
    let ports: Vec<(Output, u32)> = of_products.chain(of_sums).collect();
    let new = graph.replace_region(&[product, sums.node], new, &ports);
    for (dims, at) in wanted.iter().zip(places) {
        give_extents(graph, of(new, count + at), dims);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_tells_why_it_does_not_compute_the_sums() {
        let text = "preserve out
            x = Placeholder -> float32[8, 4]
            dy = Placeholder -> float32[8, 3]
            a = Const {value: tensor int32[1] [0]} -> int32[1]
            p = MatMul(x, dy) {T: float32, transpose_a: true, transpose_b: false} -> float32[4, 3]
            s = Sum(dy, a) {T: float32, Tidx: int32, keep_dims: false} -> float32[?]
            out = Custom(p, s)";
        let mut graph = Graph::from_text(text).unwrap();
        graph.keep_journal();
        run(&mut graph).unwrap();
        let apart = graph.journal().unwrap().apart("p").unwrap();
        assert_eq!((&*apart.neighbour, apart.refusal), ("s", Refusal::OtherShape));
    }
}
