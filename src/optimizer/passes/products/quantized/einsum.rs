//! Einsums that are products of a tensor's last dimensions with a matrix of weights.

use crate::dtype::DType;
use crate::optimizer::attr::Attr;
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::legality::check;
use crate::optimizer::passes::products::product::MatrixProduct;
use crate::optimizer::refusal::Refusal;

/// Such an einsum.
pub struct EinsumProduct {
    pub product: MatrixProduct,
    /// The number of dimensions of the left operand that are contracted.
    pub contracted: usize,
    /// The extents of the columns.
    pub columns: Vec<usize>,
    /// The right operand's dimensions in this order: the contracted dimensions, then the columns.
    pub order: Vec<usize>,
    /// The number of contracted elements, and of columns.
    pub matrix: [usize; 2],
}

impl EinsumProduct {
    /// The einsum of a node; none for another op, or if there are not two operands.
    ///
    /// # Errors
    /// The reason why an einsum is no such product.
    pub fn of(graph: &Graph, id: NodeId) -> Result<Option<Self>, Refusal> {
        let node = graph.node(id);
        let ([left, right], "Einsum") = (node.inputs(), node.op()) else { return Ok(None) };
        graph.may_move(id)?;
        let dtype = node.dtype("T").ok_or(Refusal::NoType)?;
        check(dtype.is_float() && dtype != DType::F64, Refusal::Type(dtype))?;
        let equation = node.attr("equation").and_then(Attr::string);
        let equation = equation.ok_or(Refusal::NoAttribute("equation"))?;
        let (contracted, order) = order(equation).ok_or(Refusal::Operand)?;
        let dims = graph.info(*right).dims().filter(|dims| dims.len() == order.len());
        let dims = dims.ok_or(Refusal::OtherShape)?;
        let extents: Vec<usize> = order.iter().map(|at| dims[*at]).collect();
        let (steps, columns) = extents.split_at(contracted);
        Ok(Some(Self {
            product: MatrixProduct {
                dtype,
                transposed: [false; 2],
                operands: [*left, *right],
                expression: format!("x: {dtype}; c: 0; return x0"),
                constants: Vec::new(),
                extras: Vec::<Output>::new(),
                output: dtype,
            },
            contracted,
            columns: columns.to_vec(),
            matrix: [steps.iter().product(), columns.iter().product()],
            order,
        }))
    }
}

/// The number of contracted dimensions, and the order of the right operand's dimensions: first the
/// dimensions at the end of the left operand, then the dimensions at the end of the result.
fn order(equation: &str) -> Option<(usize, Vec<usize>)> {
    let (operands, result) = equation.split_once("->")?;
    let (left, right) = operands.split_once(',')?;
    let are_labels = |labels: &str| {
        let distinct = labels.char_indices().all(|(at, label)| !labels[..at].contains(label));
        distinct && labels.chars().all(|label| label.is_ascii_alphabetic())
    };
    let rows = left.find(|label| right.contains(label)).filter(|rows| *rows > 0)?;
    let (rows, steps) = left.split_at(rows);
    let columns = result.strip_prefix(rows)?;
    let order: Option<Vec<usize>> =
        steps.chars().chain(columns.chars()).map(|label| right.find(label)).collect();
    let apart = !columns.is_empty() && !columns.contains(|label| steps.contains(label));
    let fits = [left, right, result].into_iter().all(are_labels) && apart;
    order.filter(|order| fits && order.len() == right.len()).map(|order| (steps.len(), order))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_that_end_an_operand_are_steps_and_columns() {
        assert_eq!(order("btd,dnh->btnh"), Some((1, vec![0, 1, 2])));
        assert_eq!(order("btnh,nhd->btd"), Some((2, vec![0, 1, 2])));
        assert_eq!(order("btnh,dnh->btd"), Some((2, vec![1, 2, 0])));
        assert_eq!(order("btd,ndh->btnh"), Some((1, vec![1, 0, 2])));
        for other in ["bd,bdh->bh", "dbt,dn->btn", "btd,dn->tbn", "btd,dnk->btn", "bb,bn->bn"] {
            assert_eq!(order(other), None, "{other}");
        }
        for other in ["...d,dn->...n", "btd,dn", "bt,dn->btdn", "d,dn->n", "btd,d->bt"] {
            assert_eq!(order(other), None, "{other}");
        }
    }
}
