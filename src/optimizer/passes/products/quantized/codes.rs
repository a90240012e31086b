//! Codes of weights: tensors of bytes, and codes of 4 bits that Keras's `unpack_int4` unpacks.

use super::{Walk, Weights};
use crate::dtype::DType;
use crate::kernels::contract::weights::CodePacking;
use crate::optimizer::attr::Attr;
use crate::optimizer::graph::Output;

impl Walk<'_> {
    /// The codes that a matrix of bytes is: unpacked ones, or else the bytes.
    pub fn codes(&mut self, tensor: Output) -> Option<Weights> {
        let (source, is_transposed) = self.matrix(tensor)?;
        let unpacked = self.attempt(|walk| walk.unpacked(source));
        let mut weights = unpacked.or_else(|| self.stored(source, CodePacking::Bytes))?;
        weights.is_transposed ^= is_transposed;
        Some(weights)
    }

    /// Weights without a step.
    fn stored(&self, codes: Output, packing: CodePacking) -> Option<Weights> {
        let info = self.graph.info(codes);
        let [rows, columns] = info.dims()?[..] else { return None };
        let is_of_bytes = matches!(info.dtype, Some(DType::I8 | DType::U8));
        is_of_bytes.then(|| Weights {
            codes,
            packing,
            extents: [rows, columns],
            is_transposed: false,
            head: None,
            steps: Vec::new(),
            parameters: Vec::new(),
            index: None,
        })
    }

    /// Codes of 4 bits, two rows in a byte. Keras stacks the low and the high bits, and cuts off a
    /// row that only fills the last byte.
    fn unpacked(&mut self, tensor: Output) -> Option<Weights> {
        let rows = self.graph.info(tensor).dims()?[0];
        let whole = self.whole(tensor)?;
        let [stacked, ..] = self.pass(whole).filter(|node| node.op() == "Reshape")?.inputs() else {
            return None;
        };
        let pack = self.pass(*stacked).filter(|node| node.op() == "Pack")?;
        let ([low, high], Some(1)) = (pack.inputs(), pack.attr("axis").and_then(Attr::int)) else {
            return None;
        };
        let bytes = self.nibble(*low)?;
        let shift = self.nibble(*high)?;
        let shifted = self.with_constant(shift, "RightShift", 4)?;
        let [height, width] = self.graph.info(bytes).dims()?[..] else { return None };
        let fits = shifted == bytes
            && self.graph.info(whole).has_dims(&[2 * height, width])
            && rows.div_ceil(2) == height;
        let (source, is_transposed) = self.matrix(bytes).filter(|_| fits)?;
        let packing = if is_transposed { CodePacking::Columns } else { CodePacking::Rows };
        let extents = if is_transposed { [width, rows] } else { [rows, width] };
        Some(Weights { extents, is_transposed, ..self.stored(source, packing)? })
    }

    /// The tensor that a slice from its first row on takes all columns of, or the tensor itself.
    fn whole(&mut self, tensor: Output) -> Option<Output> {
        if self.graph.node(tensor.node).op() != "StridedSlice" {
            return Some(tensor);
        }
        let node = self.pass(tensor)?;
        let [input, begin, _, strides] = node.inputs() else { return None };
        let all = |tensor: &Output, wanted: i64| {
            let values = self.graph.constant(*tensor)?.to_i64().ok()?;
            values.iter().all(|value| *value == wanted).then_some(())
        };
        all(begin, 0).and_then(|()| all(strides, 1))?;
        let mask = |name: &str| node.attr(name).and_then(Attr::int).unwrap_or(0);
        let keeps_rank = mask("shrink_axis_mask") == 0 && mask("new_axis_mask") == 0;
        let dims = [self.graph.info(*input).dims()?, self.graph.info(tensor).dims()?];
        (keeps_rank && dims[0].len() == 2 && dims[0][1] == dims[1][1]).then_some(*input)
    }

    /// The tensor from which an expression takes the low four bits, with their sign if the type has
    /// one.
    fn nibble(&mut self, tensor: Output) -> Option<Output> {
        let bits = match self.graph.info(tensor).dtype? {
            DType::I8 => {
                let flipped = self.with_constant(tensor, "Sub", 8)?;
                self.with_constant(flipped, "BitwiseXor", 8)?
            }
            DType::U8 => tensor,
            _ => return None,
        };
        self.with_constant(bits, "BitwiseAnd", 15)
    }

    /// The other operand of `op`, if one of its operands is the constant `value`.
    fn with_constant(&mut self, tensor: Output, op: &str, value: u8) -> Option<Output> {
        let [a, b] = self.pass(tensor).filter(|node| node.op() == op)?.inputs() else {
            return None;
        };
        let is_value = |tensor: &Output| {
            let constant = self.graph.constant(*tensor);
            let byte = constant.filter(|c| matches!(c.dtype, DType::I8 | DType::U8));
            byte.is_some_and(|c| c.dims.is_empty() && c.to_f64() == [f64::from(value)])
        };
        if is_value(b) {
            return Some(*a);
        }
        let commutes = matches!(op, "BitwiseAnd" | "BitwiseXor");
        (commutes && is_value(a)).then_some(*b)
    }
}
