//! Scales and zero points: for each row or column, or taken from groups by an index.

use super::Walk;
use crate::dtype::DType;
use crate::kernels::contract::weights::Extents;
use crate::optimizer::attr::Attr;
use crate::optimizer::graph::Output;

/// The types that kernels read parameters in.
const TYPES: [DType; 5] = [DType::F32, DType::F16, DType::BF16, DType::I8, DType::U8];

/// A parameter of a matrix. Its dimensions are named after those of the matrix.
pub struct Parameter {
    pub tensor: Output,
    pub extents: Extents,
    pub index: Option<Output>,
}

impl Walk<'_> {
    /// The parameter that a tensor is for a matrix of extents `dims`.
    pub fn parameter(&mut self, tensor: Output, dims: &[usize]) -> Option<Parameter> {
        let tensor = self.before_casts(tensor)?;
        if self.graph.node(tensor.node).op() == "GatherV2" {
            return self.grouped(tensor, dims);
        }
        let [rows, columns] = *dims else { return None };
        let own = self.graph.info(tensor).dims()?;
        let extents = match own[..] {
            [n] | [1, n] if n == columns && n > 1 => Extents::Column,
            [n, 1] if n == rows && n > 1 => Extents::Row,
            _ => return None,
        };
        let tensor = self.before_views(tensor)?;
        Some(Parameter { tensor: self.typed(tensor)?, extents, index: None })
    }

    /// A parameter with elements for each group. An index names the group of each row or column.
    fn grouped(&mut self, tensor: Output, dims: &[usize]) -> Option<Parameter> {
        let node = self.pass(tensor)?;
        let [params, indices, axis] = node.inputs() else { return None };
        let axis = self.graph.constant(*axis)?.to_i64().ok()?.first()?.rem_euclid(2) as usize;
        let batch = node.attr("batch_dims").and_then(Attr::int).unwrap_or(0);
        let source = self.before_casts(*params)?;
        let (source, is_transposed) = self.matrix(source)?;
        let source = self.before_casts(source)?;
        let groups = self.graph.info(*params).dims()?.get(axis).copied()?;
        let fits = batch == 0
            && self.graph.info(tensor).has_dims(dims)
            && self.graph.info(*indices).has_dims(&[dims[axis]]);
        let extents = match (axis, is_transposed) {
            (0, false) => Extents::GroupColumn,
            (0, true) => Extents::ColumnGroup,
            (_, false) => Extents::RowGroup,
            (_, true) => Extents::GroupRow,
        };
        let index = Some(self.index(*indices, groups).filter(|_| fits)?);
        Some(Parameter { tensor: self.typed(source)?, extents, index })
    }

    /// The index of groups behind the code that counts negative ones from the end, and behind
    /// conversions that keep small whole numbers.
    fn index(&mut self, tensor: Output, groups: usize) -> Option<Output> {
        let counted = self.attempt(|walk| walk.counted(tensor, groups)).unwrap_or(tensor);
        let node = self.graph.node(counted.node);
        let mut source = counted;
        if node.op() == "Cast" && node.dtype("DstT") == Some(DType::I32) {
            source = self.pass(counted)?.inputs()[0];
            let most = match self.graph.info(source).dtype? {
                DType::F16 => 2048,
                DType::BF16 => 256,
                _ => 0,
            };
            if groups <= most {
                source = self.before_casts(source)?;
            }
        }
        let known = [DType::F32, DType::F16, DType::BF16, DType::I32];
        self.graph.info(source).dtype.filter(|t| known.contains(t)).map(|_| source)
    }

    /// The index that `select(index < 0, index + groups, index)` counts from the end.
    fn counted(&mut self, tensor: Output, groups: usize) -> Option<Output> {
        let select = self.pass(tensor).filter(|node| node.op() == "SelectV2")?;
        let [condition, sum, index] = *select.inputs() else { return None };
        let less = self.pass(condition).filter(|node| node.op() == "Less")?.inputs();
        let terms = self.pass(sum).filter(|node| node.op() == "AddV2")?.inputs();
        let (&[compared, zero], &[a, b]) = (less, terms) else { return None };
        let is = |tensor: Output, wanted: usize| {
            let values = self.graph.constant(tensor).and_then(|c| c.to_i64().ok());
            values.is_some_and(|values| values == [wanted as i64])
        };
        let adds = a == index && is(b, groups) || b == index && is(a, groups);
        (compared == index && is(zero, 0) && adds).then_some(index)
    }

    /// The tensor before conversions to types that hold or round it.
    fn before_casts(&mut self, mut tensor: Output) -> Option<Output> {
        loop {
            let node = self.graph.node(tensor.node);
            let is_cast = node.op() == "Cast"
                && node.dtype("DstT").is_some_and(DType::is_single)
                && node
                    .dtype("SrcT")
                    .is_some_and(|from| matches!(from, DType::F32 | DType::I8 | DType::U8));
            if !is_cast {
                return Some(tensor);
            }
            tensor = self.pass(tensor)?.inputs()[0];
        }
    }

    /// The tensor before changes of its extents, and before conversions.
    fn before_views(&mut self, mut tensor: Output) -> Option<Output> {
        while matches!(self.graph.node(tensor.node).op(), "ExpandDims" | "Reshape" | "Squeeze") {
            tensor = self.pass(tensor)?.inputs()[0];
        }
        self.before_casts(tensor)
    }

    fn typed(&self, tensor: Output) -> Option<Output> {
        self.graph.info(tensor).dtype.filter(|t| TYPES.contains(t)).map(|_| tensor)
    }
}
