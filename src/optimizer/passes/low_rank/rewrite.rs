//! Puts products with the factors in the place of a product with their product.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::axes::Matrix;
use super::find::{LowRank, Product};
use super::weights::{copy_again, read_weights};
use crate::dtype::DType;
use crate::optimizer::attr::Attr;
use crate::optimizer::graph::{Graph, NewNode, NodeId, Output};
use crate::optimizer::shape::{Dim, Shape, TensorInfo};
use crate::tensor::HostTensor;

/// For each tensor the matrices to which it was reshaped, by their numbers of columns.
#[derive(Default)]
pub struct KnownMatrices(FxHashMap<Output, SmallVec<[(usize, Output); 2]>>);

impl KnownMatrices {
    fn get(&self, tensor: Output, columns: usize) -> Option<Output> {
        let found = self.0.get(&tensor)?.iter().find(|(known, _)| *known == columns);
        found.map(|(_, matrix)| *matrix)
    }

    fn insert(&mut self, tensor: Output, columns: usize, matrix: Output) {
        self.0.entry(tensor).or_default().push((columns, matrix));
    }

    /// Takes note that the readers of a tensor, which include its reshapes, read another one. The
    /// tensor itself is no matrix of that one.
    fn rename(&mut self, old: Output, new: Output) {
        if let Some(mut matrices) = self.0.remove(&old) {
            matrices.retain(|(_, matrix)| *matrix != old);
            self.0.entry(new).or_default().extend(matrices);
        }
    }
}

/// The largest number of nodes in a row that are searched.
const MAX_ROW: usize = 8;

/// Rewrites the products with the sum, and the gradients of the factors, and removes the sum and
/// its gradient.
pub fn replace(graph: &mut Graph, found: &LowRank, matrices: &mut KnownMatrices) {
    let mut build = Build::new(graph, found, matrices);
    for product in &found.products {
        build.rewrite_product(product);
    }
    build.rewrite_gradients();
    read_weights(graph, found);
    copy_again(graph, found);
    let gradient = &found.gradient;
    let backward = gradient.of_factors.iter().flatten().chain(&gradient.between);
    let forward = [&found.sum, &found.weights.node].into_iter().chain(&found.delta.nodes);
    for id in backward.chain([&gradient.of_sum]).chain(forward) {
        graph.remove_unused(*id);
    }
}

/// The tensor further up that constant reshapes turn into `tensor`.
fn base(graph: &Graph, mut tensor: Output) -> Output {
    for _ in 0..MAX_ROW {
        let node = graph.node(tensor.node);
        let [before, shape] = node.inputs() else { break };
        let is_free = node.op() == "Reshape" && node.controls().is_empty();
        if !is_free || graph.node(shape.node).op() != "Const" {
            break;
        }
        tensor = *before;
    }
    tensor
}

/// A dimension times a number.
fn times(extent: Dim, by: usize) -> Dim {
    match (extent, by) {
        (extent, 1) => extent,
        (Dim::Known(n), by) => n.checked_mul(by).map_or(Dim::Unknown, Dim::Known),
        _ => Dim::Unknown,
    }
}

/// Adds the products with the factors of one sum.
struct Build<'g> {
    graph: &'g mut Graph,
    found: &'g LowRank,
    matrices: &'g mut KnownMatrices,
    /// The factors as the products read them: `[depth, heads * rank]` and `[rank, width]`.
    factors: [Output; 2],
    /// The products of matrices with the first factor, and with the second one transposed.
    multiplied: [FxHashMap<Output, Output>; 2],
}

impl<'g> Build<'g> {
    fn new(graph: &'g mut Graph, found: &'g LowRank, matrices: &'g mut KnownMatrices) -> Self {
        let factors = found.delta.factors;
        let multiplied = [FxHashMap::default(), FxHashMap::default()];
        let mut build = Self { graph, found, matrices, factors, multiplied };
        let [a, b] = factors.map(|factor| build.converted("factor", factor, found.dtype));
        build.factors = [build.viewed(a), b];
        build
    }

    /// The shape of the sum as the products read it.
    const fn shape(&self) -> &'g Matrix {
        &self.found.matrix
    }

    /// The rank, and the rank of all heads together.
    const fn ranks(&self) -> [usize; 2] {
        [self.found.delta.rank, self.found.delta.rank * self.shape().heads]
    }

    /// Adds a node that is named after its part in the computation.
    fn add(
        &mut self,
        part: &str,
        op: &str,
        inputs: Vec<Output>,
        attrs: Vec<(&'static str, Attr)>,
        info: TensorInfo,
    ) -> Output {
        let sum = self.graph.node(self.found.sum);
        let node = NewNode {
            name: format!("{}/low_rank/{part}", sum.name()),
            op: op.to_owned(),
            device: sum.device().to_owned(),
            inputs,
            controls: Vec::new(),
            attrs,
            infos: vec![info],
        };
        Output { node: self.graph.add(node), port: 0 }
    }

    fn converted(&mut self, part: &str, tensor: Output, dtype: DType) -> Output {
        let info = self.graph.info(tensor).clone();
        let Some(from) = info.dtype.filter(|from| *from != dtype) else { return tensor };
        let attrs = vec![("SrcT", from.into()), ("DstT", dtype.into()), ("Truncate", false.into())];
        self.add(part, "Cast", vec![tensor], attrs, TensorInfo { dtype: Some(dtype), ..info })
    }

    /// A constant that is read beside a tensor.
    fn constant(&mut self, part: &str, value: &HostTensor, beside: Output) -> Output {
        let sum = self.graph.node(self.found.sum);
        let (name, device) = (format!("{}/low_rank/{part}", sum.name()), sum.device().to_owned());
        self.graph.add_constant(name, &device, value, beside)
    }

    /// A tensor with a new shape, of which `dims` may leave one extent out. `None` for extents
    /// beyond int32.
    fn reshaped(
        &mut self,
        part: &str,
        tensor: Output,
        dims: &[Option<usize>],
        shape: Shape,
    ) -> Option<Output> {
        let extents = dims.iter().map(|dim| dim.map_or(Some(-1), |n| i32::try_from(n).ok()));
        let extents = extents.collect::<Option<Vec<i32>>>()?;
        let value = HostTensor::i32(&[extents.len()], &extents);
        let extents = self.constant("extents", &value, tensor);
        Some(self.with_extents(part, tensor, extents, shape))
    }

    /// A tensor with the extents that another one lists.
    fn with_extents(
        &mut self,
        part: &str,
        tensor: Output,
        extents: Output,
        shape: Shape,
    ) -> Output {
        let dtype = self.graph.info(tensor).dtype.unwrap_or(self.found.dtype);
        let attrs = vec![("T", dtype.into()), ("Tshape", DType::I32.into())];
        let info = TensorInfo { dtype: Some(dtype), shape: Some(shape) };
        self.add(part, "Reshape", vec![tensor, extents], attrs, info)
    }

    /// A tensor as a matrix with these columns, and this number of rows.
    fn flat(&mut self, tensor: Output, rows: Dim, columns: usize) -> Output {
        let shape = self.graph.info(tensor).shape.as_deref();
        if matches!(shape, Some([_, last]) if *last == Dim::Known(columns)) {
            return tensor;
        }
        let shape = Shape::from_slice(&[rows, Dim::Known(columns)]);
        let made = self.reshaped("rows", tensor, &[None, Some(columns)], shape);
        made.expect("the columns were checked")
    }

    /// An operand of a product as a matrix with these columns.
    fn matrix(&mut self, operand: Output, columns: usize) -> Output {
        let source = base(self.graph, operand);
        let count = self.graph.info(source).len().map_or(Dim::Unknown, |n| Dim::Known(n / columns));
        if let Some(known) = self.matrices.get(source, columns) {
            return known;
        }
        let is_matrix = match self.graph.info(operand).shape.as_deref() {
            Some([rows, _]) => *rows != Dim::Unknown || count == Dim::Unknown,
            _ => false,
        };
        let matrix = if is_matrix { operand } else { self.flat(source, count, columns) };
        self.matrices.insert(source, columns, matrix);
        matrix
    }

    /// The number of rows of a matrix, for each head.
    fn rows_of(&self, matrix: Output, heads: usize) -> Dim {
        let shape = self.graph.info(matrix).shape.as_ref();
        shape.and_then(|shape| shape.first()).map_or(Dim::Unknown, |rows| times(*rows, heads))
    }

    fn transposed(&mut self, tensor: Output, order: &[usize]) -> Output {
        let TensorInfo { dtype, shape } = self.graph.info(tensor).clone();
        let shape = shape.map(|shape| order.iter().map(|at| shape[*at]).collect());
        let values: Vec<i32> = order.iter().map(|at| *at as i32).collect();
        let order = self.constant("order", &HostTensor::i32(&[values.len()], &values), tensor);
        let types = dtype.map(|dtype| ("T", dtype.into()));
        let attrs = types.into_iter().chain([("Tperm", DType::I32.into())]).collect();
        self.add("moved", "Transpose", vec![tensor, order], attrs, TensorInfo { dtype, shape })
    }

    /// A tensor with the extents of the leading axes in the order of `axes`, and the rank. The
    /// result has the axes in the order of the weights, or in that of the view.
    fn moved(&mut self, tensor: Output, axes: &[usize], order: &[usize]) -> Output {
        let [rank, _] = self.ranks();
        let leading = axes.iter().map(|at| self.shape().leading[*at]);
        let extents: Vec<usize> = leading.chain([rank]).collect();
        let dims: Vec<Option<usize>> = extents.iter().copied().map(Some).collect();
        let shape = extents.into_iter().map(Dim::Known).collect();
        let cut = self.reshaped("axes", tensor, &dims, shape);
        let order: Vec<usize> = order.iter().copied().chain([order.len()]).collect();
        self.transposed(cut.expect("the extents were checked"), &order)
    }

    /// The view of the first factor that corresponds to the view of the sum.
    fn viewed(&mut self, factor: Output) -> Output {
        let matrix = self.shape();
        let [_, columns] = self.ranks();
        let own: Vec<usize> = (0..matrix.order.len()).collect();
        let moved = match matrix.keeps_order() {
            true => factor,
            false => self.moved(factor, &own, &matrix.order),
        };
        self.flat(moved, Dim::Known(matrix.depth), columns)
    }

    /// The gradient of the first factor, from the gradient of its view.
    fn unviewed(&mut self, gradient: Output) -> Output {
        let matrix = self.shape();
        let [rank, _] = self.ranks();
        let mut back = vec![0; matrix.order.len()];
        matrix.order.iter().zip(0..).for_each(|(at, place)| back[*at] = place);
        let moved = match matrix.keeps_order() {
            true => gradient,
            false => self.moved(gradient, &matrix.order, &back),
        };
        self.flat(moved, Dim::Known(matrix.rows()), rank)
    }

    /// A product of two matrices, which are transposed if `flags` say so.
    fn product(&mut self, part: &str, operands: [Output; 2], flags: [bool; 2]) -> Output {
        let dims = [0, 1].map(|i| {
            let shape = self.graph.info(operands[i]).shape.as_ref();
            let kept = usize::from((i == 1) != flags[i]);
            shape.and_then(|shape| shape.get(kept).copied()).unwrap_or(Dim::Unknown)
        });
        let dtype = self.found.dtype;
        let attrs = vec![
            ("T", dtype.into()),
            ("grad_a", false.into()),
            ("grad_b", false.into()),
            ("transpose_a", flags[0].into()),
            ("transpose_b", flags[1].into()),
        ];
        let info = TensorInfo { dtype: Some(dtype), shape: Some(Shape::from_slice(&dims)) };
        self.add(part, "MatMul", operands.to_vec(), attrs, info)
    }

    /// A tensor times the number by which the product of the factors is multiplied.
    fn scaled(&mut self, tensor: Output) -> Output {
        let scale = self.found.delta.scale;
        if scale == 1.0 {
            return tensor;
        }
        let dtype = self.found.dtype;
        let by = self.constant("scale", &HostTensor::floats(dtype, &[], &[scale]), tensor);
        let info = self.graph.info(tensor).clone();
        self.add("scaled", "Mul", vec![tensor, by], vec![("T", dtype.into())], info)
    }

    /// The product of the left operand `x` and the first factor, with columns for each head.
    fn left(&mut self, x: Output) -> Output {
        let x = self.matrix(x, self.shape().depth);
        if let Some(known) = self.multiplied[0].get(&x) {
            return *known;
        }
        let product = self.product("x_a", [x, self.factors[0]], [false, false]);
        let product = self.scaled(product);
        self.multiplied[0].insert(x, product);
        product
    }

    /// A tensor with the columns of the sum as one row for each head.
    fn heads(&mut self, y: Output) -> Output {
        let &Matrix { heads, width, .. } = self.shape();
        let matrix = self.matrix(y, self.shape().columns());
        self.flat(matrix, self.rows_of(matrix, heads), width)
    }

    /// The product of a tensor with the columns of the sum and the second factor, transposed, with
    /// columns for each head.
    fn right(&mut self, y: Output) -> Output {
        let y = self.matrix(y, self.shape().columns());
        if let Some(known) = self.multiplied[1].get(&y) {
            return *known;
        }
        let heads = self.heads(y);
        let product = self.product("y_b", [heads, self.factors[1]], [false, true]);
        let product = self.scaled(product);
        let [_, columns] = self.ranks();
        let flat = self.flat(product, self.rows_of(y, 1), columns);
        self.multiplied[1].insert(y, flat);
        flat
    }

    /// The product of [`Self::left`] as one row for each head.
    fn left_heads(&mut self, x: Output) -> Output {
        let left = self.left(x);
        let [rank, _] = self.ranks();
        self.flat(left, self.rows_of(left, self.shape().heads), rank)
    }

    /// Adds the product with both factors to the product with the weights.
    fn rewrite_product(&mut self, product: &Product) {
        let result = Output { node: product.id, port: 0 };
        let readers: Vec<_> = self.graph.readers(result).collect();
        let operand = self.graph.node(product.id).inputs()[0];
        let added = if product.is_transposed {
            let right = self.right(operand);
            self.product("y_b_a", [right, self.factors[0]], [false, true])
        } else {
            let left = self.left_heads(operand);
            self.product("x_a_b", [left, self.factors[1]], [false, false])
        };
        let info = self.graph.info(added).clone();
        let columns = if product.is_transposed { self.shape().depth } else { self.shape().width };
        let whole = self.flat(result, self.rows_of(added, 1), columns);
        let attrs = vec![("T", self.found.dtype.into())];
        let sum = self.add("sum", "AddV2", vec![whole, added], attrs, info);
        let shaped = self.like(sum, result);
        for (reader, index) in readers {
            self.graph.set_input(reader, index, shaped);
        }
        self.matrices.rename(result, sum);
    }

    /// A tensor with the shape of another one that has the same number of elements.
    fn like(&mut self, tensor: Output, other: Output) -> Output {
        let info = self.graph.info(other).clone();
        let shape = info.shape.clone().unwrap_or_default();
        let is_matrix = |shape: &[Dim]| matches!(shape, [_, last] if last.known().is_some());
        let own = self.graph.info(tensor).shape.as_deref().unwrap_or_default();
        if is_matrix(&shape) && is_matrix(own) && own[1] == shape[1] {
            return tensor;
        }
        let dims: Vec<Option<usize>> = shape.iter().map(|extent| extent.known()).collect();
        let unknown = dims.iter().filter(|extent| extent.is_none()).count();
        if (unknown == 0 || unknown == 1 && !dims.contains(&Some(0)))
            && let Some(made) = self.reshaped("result", tensor, &dims, shape.clone())
        {
            return made;
        }
        let dtype = self.found.dtype;
        let attrs = vec![("T", dtype.into()), ("out_type", DType::I32.into())];
        let extents = TensorInfo::known(DType::I32, &[shape.len()]);
        let extents = self.add("shape", "Shape", vec![other], attrs, extents);
        self.with_extents("result", tensor, extents, shape)
    }

    /// Computes the gradients of the factors from the operands of the gradient of the sum.
    fn rewrite_gradients(&mut self) {
        let gradient = &self.found.gradient;
        let &[x, y] = self.graph.node(gradient.of_sum).inputs() else { return };
        if let Some(old) = gradient.of_factors[0] {
            let operands = [self.matrix(x, self.shape().depth), self.right(y)];
            let product = self.product("gradient_a", operands, [true, false]);
            self.wait(product.node, old);
            let product = self.converted("gradient_a", product, self.found.stored);
            let new = self.unviewed(product);
            self.stand_for(old, new);
        }
        if let Some(old) = gradient.of_factors[1] {
            let operands = [self.left_heads(x), self.heads(y)];
            let product = self.product("gradient_b", operands, [true, false]);
            self.wait(product.node, old);
            let new = self.converted("gradient_b", product, self.found.stored);
            self.stand_for(old, new);
        }
    }

    /// Makes a product wait for what the gradient of a factor waits for, and the nodes between it
    /// and the gradient of the sum.
    fn wait(&mut self, product: NodeId, old: NodeId) {
        let gradient = &self.found.gradient;
        let all = [&old].into_iter().chain(&gradient.between).chain([&gradient.of_sum]);
        let controls: Vec<NodeId> =
            all.flat_map(|id| self.graph.node(*id).controls()).copied().collect();
        controls.into_iter().for_each(|control| self.graph.add_control(product, control));
    }

    fn stand_for(&mut self, old: NodeId, new: Output) {
        self.graph.stand_for(new.node, &[old]);
        self.graph.replace_readers(Output { node: old, port: 0 }, new);
    }
}
