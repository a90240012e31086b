//! Finds weights with a product of low rank, the products that read them, and the gradients of the
//! factors.

use super::axes::{Axes, Matrix, is_of_floats};
use crate::dtype::DType;
use crate::optimizer::attr::Attr;
use crate::optimizer::branches::Branches;
use crate::optimizer::graph::{Graph, Node, NodeId, Output};
use crate::optimizer::legality::{Legal, check};
use crate::optimizer::meaning::{is_view, number};
use crate::optimizer::refusal::Refusal;

/// The largest number of nodes between two products.
const MAX_ROW: usize = 16;

/// The largest number of users of a factor that are searched.
const MAX_USERS: usize = 64;

/// The most products with a sum: each adds two products of low rank, and one product is saved. A
/// layer whose activations are computed again has two forward products, and two gradients.
const MAX_PRODUCTS: usize = 4;

/// The extents of a matrix are at least this many times the rank.
const MIN_RATIO: usize = 16;

/// A node that stands in the way, and why.
type Obstacle = (NodeId, Refusal);

/// A sum of weights and a product of low rank, with the products around it.
pub struct LowRank {
    /// The sum.
    pub sum: NodeId,
    /// The weights.
    pub weights: Output,
    /// The product of the factors.
    pub delta: Delta,
    /// The type of the sum.
    pub stored: DType,
    /// The type of the products that read it.
    pub dtype: DType,
    /// How these products see the sum.
    pub matrix: Matrix,
    /// The products.
    pub products: Vec<Product>,
    /// The gradients of the factors.
    pub gradient: Gradient,
}

/// A product of two factors that is added to weights.
pub struct Delta {
    /// The factors `[rows, rank]` and `[rank, width]`.
    pub factors: [Output; 2],
    /// The number by which the product is multiplied.
    pub scale: f64,
    /// The nodes from the sum to the product.
    pub nodes: Vec<NodeId>,
    /// The number of columns of the first factor.
    pub rank: usize,
}

/// A product with the sum as its right operand.
pub struct Product {
    /// The product.
    pub id: NodeId,
    /// Whether it transposes the sum.
    pub is_transposed: bool,
}

/// The gradients of the factors.
pub struct Gradient {
    /// The gradient of the sum, the product of its left operand, transposed, and the right one.
    pub of_sum: NodeId,
    /// The gradients of the two factors, where they are needed.
    pub of_factors: [Option<NodeId>; 2],
    /// The nodes from the gradients of the factors to the gradient of the sum, without these.
    pub between: Vec<NodeId>,
}

/// The attributes of a product that transpose its operands, if it is one of two tensors.
fn flags(node: &Node) -> Option<[bool; 2]> {
    let names = match node.op() {
        "BatchMatMulV2" => ["adj_x", "adj_y"],
        "MatMul" => ["transpose_a", "transpose_b"],
        _ => return None,
    };
    Some(names.map(|name| node.attr(name).and_then(Attr::bool).unwrap_or(false)))
}

/// The extents of a matrix, if they are known and not 0.
fn matrix(graph: &Graph, tensor: Output) -> Option<[usize; 2]> {
    let dims = graph.info(tensor).dims()?;
    <[usize; 2]>::try_from(dims).ok().filter(|dims| !dims.contains(&0))
}

/// The last extent of a tensor, if it is known.
fn columns(graph: &Graph, tensor: Output) -> Option<usize> {
    graph.info(tensor).shape.as_ref()?.last()?.known()
}

/// The tensor that a node multiplies by a number, and the number.
fn scaled(graph: &Graph, node: &Node) -> Option<(Output, f64)> {
    let &[a, b] = node.inputs() else { return None };
    let by = |x: Output, by: Output| {
        let number = number(graph, by)?;
        (number.rank <= graph.info(x).rank()?).then_some((x, f64::from(number.value)))
    };
    (node.op() == "Mul").then(|| by(a, b).or_else(|| by(b, a)))?
}

impl Delta {
    /// The product behind `tensor`, with the extents of its rows and columns.
    fn of(graph: &Graph, mut tensor: Output) -> Option<(Self, [usize; 2])> {
        let (mut scale, mut nodes) = (1.0, Vec::new());
        while nodes.len() < MAX_ROW {
            let node = graph.node(tensor.node);
            nodes.push(tensor.node);
            if let Some((before, by)) = scaled(graph, node) {
                (tensor, scale) = (before, scale * by);
            } else if is_view(node) {
                tensor = *node.inputs().first()?;
            } else {
                let &[a, b] = node.inputs() else { return None };
                let ([rows, rank], [_, width]) = (matrix(graph, a)?, matrix(graph, b)?);
                let found = Self { factors: [a, b], scale, nodes, rank };
                return (flags(node)? == [false, false]).then_some((found, [rows, width]));
            }
        }
        None
    }
}

/// What readers of a sum need to be to read the weights instead.
struct Rules<'g> {
    graph: &'g Graph,
    branches: &'g Branches,
    sum: NodeId,
}

impl Rules<'_> {
    /// Checks that a node may change with the sum.
    fn joins(&self, id: NodeId) -> Legal {
        self.graph.may_join(id, self.sum)?;
        self.branches.run_together(id, self.sum)
    }

    /// Checks that a node may go with the sum, and that no node waits for it.
    fn goes(&self, id: NodeId) -> Legal {
        check(self.graph.waiters(id).next().is_none(), Refusal::OtherConditions)?;
        self.joins(id)
    }
}

/// The products that read a sum, and what they see of it.
struct Readers {
    products: Vec<(Product, Axes)>,
    /// The first node that is no such product.
    stranger: Option<Obstacle>,
}

impl Readers {
    /// The products behind views of the sum.
    fn of(rules: &Rules<'_>, extents: &[usize]) -> Self {
        let graph = rules.graph;
        let mut found = Self { products: Vec::new(), stranger: None };
        let mut open = vec![(Output { node: rules.sum, port: 0 }, Axes::of(extents))];
        while let Some((tensor, axes)) = open.pop() {
            for (reader, index) in graph.readers(tensor) {
                let known = flags(graph.node(reader)).filter(|_| index == 1);
                if let Some([false, is_transposed]) = known {
                    found.products.push((Product { id: reader, is_transposed }, axes.clone()));
                } else if index == 0
                    && let Some(axes) = axes.behind(graph, reader)
                {
                    open.push((Output { node: reader, port: 0 }, axes));
                } else {
                    found.stranger.get_or_insert((reader, Refusal::ReadElsewhere));
                    continue;
                }
                if let Err(reason) = rules.joins(reader) {
                    found.stranger.get_or_insert((reader, reason));
                }
            }
        }
        found.products.sort_unstable_by_key(|(product, _)| product.id);
        found
    }
}

impl LowRank {
    /// The sum `sum`, if it is one of weights and a product of low rank, and the gradients of the
    /// factors are computed.
    ///
    /// # Errors
    /// The node that stands in the way, and why.
    pub fn of(graph: &Graph, branches: &Branches, sum: NodeId) -> Result<Option<Self>, Obstacle> {
        let Some((weights, delta, extents)) = parts(graph, sum) else { return Ok(None) };
        let rules = Rules { graph, branches, sum };
        let readers = Readers::of(&rules, &extents);
        let Some((Product { id: first, .. }, axes)) = readers.products.first() else {
            return Ok(None);
        };
        let heads = Gradient::heads(graph, &delta);
        let Some(gradient) = heads.iter().flatten().next().copied() else { return Ok(None) };
        rules.goes(sum).and_then(|()| graph.may_move(sum)).map_err(|reason| (*first, reason))?;
        if let Some(stranger) = readers.stranger {
            return Err(stranger);
        }
        check(readers.products.len() <= MAX_PRODUCTS, Refusal::ReadElsewhere)
            .map_err(|reason| (*first, reason))?;
        let matrix = axes.matrix(extents.len()).ok_or((*first, Refusal::OtherShape))?;
        let rank = delta.rank.saturating_mul(MIN_RATIO);
        check(rank <= matrix.depth && rank <= matrix.width, Refusal::HighRank)
            .map_err(|reason| (gradient, reason))?;
        let node = graph.node(*first);
        let found = Self {
            sum,
            weights,
            stored: graph.node(sum).dtype("T").ok_or((*first, Refusal::NoType))?,
            dtype: node.dtype("T").ok_or((*first, Refusal::NoType))?,
            gradient: Gradient::of(&rules, &heads, &delta, &matrix, axes)?,
            delta,
            matrix,
            products: Vec::new(),
        };
        check(found.fits(), Refusal::Type(found.dtype)).map_err(|reason| (*first, reason))?;
        for (product, other) in &readers.products {
            let legal = check(other == axes, Refusal::OtherShape)
                .and_then(|()| found.check_operand(graph, product));
            legal.map_err(|reason| (product.id, reason))?;
        }
        found.check_gradient(graph).map_err(|reason| (found.gradient.of_sum, reason))?;
        let products = readers.products.into_iter().map(|(product, _)| product).collect();
        Ok(Some(Self { products, ..found }))
    }

    /// Whether the products have the type of the sum, or bfloat16 if the sum is in float32, and all
    /// extents fit into int32. In float16, the product of a gradient and the second factor, which
    /// begins with zeros, would often be too small for the type.
    fn fits(&self) -> bool {
        let narrows = self.stored == DType::F32 && self.dtype == DType::BF16;
        let extents = [self.matrix.rows(), self.matrix.columns()];
        self.stored.is_float()
            && self.dtype != DType::F16
            && (narrows || self.stored == self.dtype)
            && extents.iter().all(|extent| i32::try_from(*extent).is_ok())
    }

    /// Checks the type of a product, and the type and columns of its left operand.
    fn check_operand(&self, graph: &Graph, product: &Product) -> Legal {
        let node = graph.node(product.id);
        let Matrix { depth, .. } = self.matrix;
        let expected = if product.is_transposed { self.matrix.columns() } else { depth };
        self.check_tensor(graph, node.inputs()[0], expected)?;
        let result = graph.info(Output { node: product.id, port: 0 });
        let is_known = result.dtype == Some(self.dtype) && result.rank().is_some();
        check(node.dtype("T") == Some(self.dtype) && is_known, Refusal::Operand)
    }

    /// Checks the type and the number of columns of a tensor that low-rank products read.
    fn check_tensor(&self, graph: &Graph, tensor: Output, expected: usize) -> Legal {
        let is_typed = graph.info(tensor).dtype == Some(self.dtype);
        check(is_typed && columns(graph, tensor) == Some(expected), Refusal::Operand)
    }

    /// Checks the operands of the gradient of the sum.
    fn check_gradient(&self, graph: &Graph) -> Legal {
        let node = graph.node(self.gradient.of_sum);
        let [left, right] = node.inputs() else { return Err(Refusal::Operand) };
        check(node.dtype("T") == Some(self.dtype), Refusal::Type(self.dtype))?;
        let ranks = [left, right].map(|tensor| graph.info(*tensor).rank());
        check(ranks == [Some(2); 2], Refusal::Operand)?;
        self.check_tensor(graph, *left, self.matrix.depth)?;
        self.check_tensor(graph, *right, self.matrix.columns())
    }
}

/// The weights and the product of a sum, and its extents.
fn parts(graph: &Graph, sum: NodeId) -> Option<(Output, Delta, Vec<usize>)> {
    let node = graph.node(sum);
    let &[a, b] = node.inputs() else { return None };
    let result = graph.info(Output { node: sum, port: 0 });
    let extents = result.dims().filter(|extents| extents.len() >= 2)?;
    [(a, b), (b, a)].into_iter().find_map(|(weights, delta)| {
        let same = [weights, delta].iter().all(|term| graph.info(*term).same_shape(result));
        let (delta, [rows, width]) = same.then(|| Delta::of(graph, delta))??;
        let (last, leading) = extents.split_last()?;
        let is_of_rows = width == *last && rows == leading.iter().product::<usize>();
        is_of_rows.then(|| (weights, delta, extents.clone()))
    })
}

impl Gradient {
    /// The nodes that have the form of gradients of the two factors.
    fn heads(graph: &Graph, delta: &Delta) -> [Vec<NodeId>; 2] {
        let [a, b] = delta.factors;
        let of = |factor: Output, index: usize, transposed: [bool; 2]| {
            let is_searched = graph.users(factor.node).len() <= MAX_USERS;
            let readers = is_searched.then(|| graph.readers(factor)).into_iter().flatten();
            let is_one = |(id, at): &(NodeId, usize)| {
                *at == index && flags(graph.node(*id)) == Some(transposed)
            };
            readers.filter(is_one).map(|(reader, _)| reader).collect()
        };
        [of(b, 1, [false, true]), of(a, 0, [true, false])]
    }

    /// The gradients of the factors `heads`, if they are computed from the gradient of the sum
    /// alone.
    ///
    /// # Errors
    /// The node that stands in the way, and why.
    fn of(
        rules: &Rules<'_>,
        heads: &[Vec<NodeId>; 2],
        delta: &Delta,
        matrix: &Matrix,
        axes: &Axes,
    ) -> Result<Self, Obstacle> {
        let graph = rules.graph;
        let mut tensor = None;
        // The gradient of the sum is the left operand for the first factor, and the right one for
        // the second.
        for (ids, index) in heads.iter().zip(0..) {
            for id in ids {
                rules.goes(*id).map_err(|reason| (*id, reason))?;
                let operand = graph.node(*id).inputs()[index];
                if *tensor.get_or_insert(operand) != operand || ids.len() > 1 {
                    return Err((*id, Refusal::ReadElsewhere));
                }
            }
        }
        let of_factors = heads.each_ref().map(|ids| ids.first().copied());
        let mut tensor = tensor.ok_or((rules.sum, Refusal::Alone))?;
        graph
            .stays_inside(tensor, |id| of_factors.contains(&Some(id)))
            .map_err(|reason| (tensor.node, reason))?;
        let (mut between, mut scale) = (Vec::new(), 1.0);
        while flags(graph.node(tensor.node)).is_none() {
            let (id, node) = (tensor.node, graph.node(tensor.node));
            let is_passed = is_view(node) || is_of_floats(node) || node.op() == "Transpose";
            let before = match scaled(graph, node) {
                Some((before, by)) => {
                    scale *= by;
                    before
                }
                None if is_passed && between.len() < MAX_ROW => node.inputs()[0],
                None => return Err((id, Refusal::Operand)),
            };
            rules.goes(id).map_err(|reason| (id, reason))?;
            graph
                .stays_inside(before, |reader| reader == id)
                .map_err(|reason| (before.node, reason))?;
            between.push(id);
            tensor = before;
        }
        let of_sum = tensor.node;
        rules.goes(of_sum).map_err(|reason| (of_sum, reason))?;
        let transposes = flags(graph.node(of_sum)) == Some([true, false]);
        check(transposes, Refusal::Operand).map_err(|reason| (of_sum, reason))?;
        // The nodes from the gradient of the sum to the factors' gradients must undo the view.
        let start = axes.with_extents(vec![matrix.depth, matrix.columns()]);
        let behind = between.iter().rev().try_fold(start, |axes, id| {
            let is_scaled = scaled(graph, graph.node(*id)).is_some();
            if is_scaled { Some(axes) } else { axes.behind(graph, *id) }
        });
        let undone = behind.is_some_and(|axes| axes.is_original([matrix.rows(), matrix.width]));
        let is_alike = graph.info(tensor).has_dims(&[matrix.depth, matrix.columns()]);
        check(undone && is_alike && scale == delta.scale, Refusal::OtherShape)
            .map_err(|reason| (of_sum, reason))?;
        Ok(Self { of_sum, of_factors, between })
    }
}
