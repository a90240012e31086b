//! Slice, and the slice specification of StridedSlice and similar ops: begin, end and strides with
//! TensorFlow's five masks.

use super::plan::Move;
use super::remap::{Axis, Background, Remap, Rule};
use super::{index_values, shape};
use crate::error::Result;
use crate::kernels::op::{Attrs, OpContext};
use crate::layout::{Iteration, Strides, dense_strides};
use crate::tensor::Dims;
use crate::{invalid, require};

/// Slice: inputs begin (1) and size (2).
pub fn slice(ctx: &mut dyn OpContext, dims: &[usize]) -> Result<Move> {
    let (begin, size) = (ctx.host_input(1)?, ctx.host_input(2)?);
    require!(
        begin.dims.len() == 1
            && size.dims.len() == 1
            && begin.dims[0] == dims.len()
            && size.dims[0] == dims.len(),
        "Expected begin and size arguments to be 1-D tensors of size {}, but got shapes {} and {} \
         instead.",
        dims.len(),
        shape(&begin.dims),
        shape(&size.dims)
    );
    let (begin, size) = (begin.to_i64()?, size.to_i64()?);
    let mut out = Dims::new();
    for (i, &n) in dims.iter().enumerate() {
        let (n, b) = (n as i64, begin[i]);
        let rest = n.saturating_sub(b);
        let s = if size[i] == -1 { rest } else { size[i] };
        if n == 0 {
            require!(
                b == 0 && s == 0,
                "Expected begin[{i}] == 0 (got {b}) and size[{i}] == 0 (got {s}) when \
                 input.dim_size({i}) == 0"
            );
        } else {
            require!((0..=n).contains(&b), "Expected begin[{i}] in [0, {n}], but got {b}");
            require!(s >= 0 && s <= rest, "Expected size[{i}] in [0, {rest}], but got {s}");
        }
        out.push(s as usize);
    }
    let strides = dense_strides(dims);
    let offset = begin.iter().zip(&strides).map(|(b, s)| b * s).sum();
    Ok(Move::strided(Iteration::over(&out).operand(&strides, offset)))
}

/// The masks of a strided slice, one bit for each entry of the specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "the names are TensorFlow's attributes")]
pub struct Masks {
    pub begin: i64,
    pub end: i64,
    pub ellipsis: i64,
    pub new_axis: i64,
    pub shrink_axis: i64,
}

impl Masks {
    /// Reads the five attributes.
    pub fn of(attrs: &dyn Attrs) -> Result<Self> {
        Ok(Self {
            begin: attrs.int("begin_mask")?,
            end: attrs.int("end_mask")?,
            ellipsis: attrs.int("ellipsis_mask")?,
            new_axis: attrs.int("new_axis_mask")?,
            shrink_axis: attrs.int("shrink_axis_mask")?,
        })
    }
}

/// A strided slice of a tensor, resolved: one entry for each of the tensor's dimensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StridedSpec {
    /// First coordinate.
    pub begin: Vec<i64>,
    /// The step from one coordinate to the next; a negative one walks backwards.
    pub stride: Vec<i64>,
    /// Number of coordinates.
    pub count: Dims,
    /// The slice's shape, with new axes and without shrunk ones.
    pub shape: Dims,
}

/// The origin of an entry of the shape.
enum Final {
    Dimension(usize),
    NewAxis,
}

impl StridedSpec {
    /// Reads begin, end and strides from the host inputs `first`, `first + 1`, `first + 2`.
    pub fn read(
        ctx: &mut dyn OpContext,
        first: usize,
        masks: &Masks,
        dims: &[usize],
    ) -> Result<Self> {
        let [begin, end, strides] =
            [ctx.host_input(first)?, ctx.host_input(first + 1)?, ctx.host_input(first + 2)?];
        require!(
            strides.dims.len() == 1 && begin.dims == strides.dims && end.dims == strides.dims,
            "Expected begin, end, and strides to be 1D equal size tensors, but got shapes {}, {}, \
             and {} instead.",
            shape(&begin.dims),
            shape(&end.dims),
            shape(&strides.dims)
        );
        Self::resolve(
            &index_values(&begin)?,
            &index_values(&end)?,
            &index_values(&strides)?,
            masks,
            dims,
        )
    }

    /// TensorFlow's `ValidateStridedSliceOp`.
    pub fn resolve(
        begin: &[i64],
        end: &[i64],
        strides: &[i64],
        masks: &Masks,
        dims: &[usize],
    ) -> Result<Self> {
        let entries = strides.len();
        let bit = |mask: i64, i: usize| i < 63 && mask & (1 << i) != 0;
        require!(
            masks.ellipsis & (masks.ellipsis - 1) == 0,
            "Multiple ellipses in slice spec not allowed"
        );
        let ellipsis = (0..entries).find(|i| bit(masks.ellipsis, *i));
        let added_after =
            ellipsis.map_or(0, |e| (e + 1..entries).filter(|i| bit(masks.new_axis, *i)).count());
        let all = entries + usize::from(ellipsis.is_none());

        // There is one entry for each dimension: (begin, end, stride, begin masked, end masked,
        // shrinks).
        let mut dense: Vec<(i64, i64, i64, bool, bool, bool)> = Vec::new();
        let mut finals = Vec::new();
        for i in 0..all {
            if ellipsis.map_or(i == entries, |e| e == i) {
                let next = (dims.len() + 1 + added_after + i).saturating_sub(all).min(dims.len());
                while dense.len() < next {
                    finals.push(Final::Dimension(dense.len()));
                    dense.push((0, 0, 1, true, true, false));
                }
            } else if bit(masks.new_axis, i) {
                finals.push(Final::NewAxis);
            } else {
                let d = dense.len();
                if d == dims.len() {
                    require!(!dims.is_empty(), "Attempting to slice scalar input.");
                    invalid!(
                        "Index out of range using input dim {d}; input has only {} dims",
                        dims.len()
                    );
                }
                let shrinks = bit(masks.shrink_axis, i);
                if !shrinks {
                    finals.push(Final::Dimension(d));
                }
                dense.push((
                    begin[i],
                    end[i],
                    strides[i],
                    bit(masks.begin, i),
                    bit(masks.end, i),
                    shrinks,
                ));
            }
        }

        let mut spec =
            Self { begin: Vec::new(), stride: Vec::new(), count: Dims::new(), shape: Dims::new() };
        for (d, &(begin, end, stride, begin_masked, end_masked, shrinks)) in
            dense.iter().enumerate()
        {
            let n = dims[d] as i64;
            require!(stride != 0, "strides[{d}] must be non-zero");
            require!(!shrinks || stride > 0, "only stride 1 allowed on non-range indexing.");
            let valid = if stride > 0 { [0, n] } else { [-1, n - 1] };
            let canonical = |x: i64, masked: bool, side: usize| match masked {
                true => valid[if stride > 0 { side } else { 1 - side }],
                false => (if x < 0 { n.saturating_add(x) } else { x })
                    .clamp(valid[0], valid[1].max(valid[0])),
            };
            let (first, last) = if shrinks {
                let first = if begin < 0 { n + begin } else { begin };
                require!(
                    (0..n).contains(&first),
                    "slice index {first} of dimension {d} out of bounds."
                );
                (first, first + 1)
            } else {
                (canonical(begin, begin_masked, 0), canonical(end, end_masked, 1))
            };
            let length = last - first;
            let count = if length == 0 || (length < 0) != (stride < 0) {
                0
            } else {
                length.unsigned_abs().div_ceil(stride.unsigned_abs())
            };
            spec.begin.push(first);
            spec.stride.push(stride);
            spec.count.push(count as usize);
        }
        spec.shape = finals
            .iter()
            .map(|f| match f {
                Final::Dimension(d) => spec.count[*d],
                Final::NewAxis => 1,
            })
            .collect();
        Ok(spec)
    }

    /// Strides and offset of the slice in a dense tensor of `dims`.
    pub fn in_dense(&self, dims: &[usize]) -> (Strides, i64) {
        let dense = dense_strides(dims);
        // A dimension of one coordinate takes no step, however long its stride.
        let strides = (0..dims.len())
            .map(|d| if self.count[d] <= 1 { 0 } else { dense[d] * self.stride[d] })
            .collect();
        let empty = self.count.contains(&0);
        (strides, if empty { 0 } else { dense.iter().zip(&self.begin).map(|(s, b)| s * b).sum() })
    }

    /// The move that reads the slice from a dense tensor of `dims`.
    pub fn read_from(&self, dims: &[usize]) -> Move {
        let (strides, offset) = self.in_dense(dims);
        Move::strided(Iteration::over(&self.count).operand(&strides, offset)).reshaped(&self.shape)
    }

    /// The move of a dense tensor of the slice's shape into its place in a tensor of `dims`, over
    /// `background`.
    pub fn write_into(&self, dims: &[usize], background: Background) -> Remap {
        let from = dense_strides(&self.count);
        let mut offset = 0;
        let axes = (0..dims.len())
            .map(|d| {
                let (n, forward) = (self.count[d], self.stride[d] > 0);
                let step = if n <= 1 { 1 } else { self.stride[d].unsigned_abs() as usize };
                let last = n.saturating_sub(1);
                let lowest =
                    if forward { self.begin[d] } else { self.begin[d] - (last * step) as i64 };
                if !forward {
                    offset += last as i64 * from[d];
                }
                let stride = if forward { from[d] } else { -from[d] };
                Axis { out: dims[d], extent: n, begin: lowest.max(0) as usize, step, stride }
            })
            .collect();
        Remap { rule: Rule::Place, axes, offset, background }
    }
}

/// StridedSlice: inputs begin (1), end (2) and strides (3).
pub fn strided_slice(ctx: &mut dyn OpContext, dims: &[usize], masks: &Masks) -> Result<Move> {
    Ok(StridedSpec::read(ctx, 1, masks, dims)?.read_from(dims))
}

/// StridedSliceGrad: inputs shape (0), begin (1), end (2), strides (3) and dy (4), whose extents
/// are `dy`.
pub fn strided_slice_grad(ctx: &mut dyn OpContext, dy: &[usize], masks: &Masks) -> Result<Move> {
    let dims = super::host_shape(ctx, 0, "shape")?;
    let spec = StridedSpec::read(ctx, 1, masks, &dims)?;
    require!(
        dy == &spec.shape[..],
        "shape of dy was {} instead of {}",
        shape(dy),
        shape(&spec.shape)
    );
    Ok(Move::remap(spec.write_into(&dims, Background::ZERO)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(
        begin: &[i64],
        end: &[i64],
        strides: &[i64],
        masks: Masks,
        dims: &[usize],
    ) -> StridedSpec {
        StridedSpec::resolve(begin, end, strides, &masks, dims).unwrap()
    }

    #[test]
    fn ellipsis_and_new_axes_find_their_dimensions() {
        // x[..., newaxis, 1] of [4, 5, 6]
        let masks = Masks { ellipsis: 1, new_axis: 2, shrink_axis: 4, ..Masks::default() };
        let spec = resolve(&[0, 0, 1], &[0, 0, 2], &[1, 1, 1], masks, &[4, 5, 6]);
        assert_eq!((&spec.shape[..], &spec.begin[..]), (&[4, 5, 1][..], &[0, 0, 1][..]));
    }

    #[test]
    fn negative_strides_count_backwards() {
        let masks = Masks { begin: 1, end: 1, ..Masks::default() };
        let spec = resolve(&[0], &[0], &[-2], masks, &[5]);
        assert_eq!((&spec.begin[..], &spec.count[..]), (&[4][..], &[3][..]));
    }
}
