//! Shapes of attention: which element of which operand belongs to a batch, head, row and key.

pub(super) mod rule;

use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::definition::{PartialShape, ShapeInputs};
use crate::layout::broadcast_dims;
use crate::tensor::{Dims, shape_text};
use crate::{invalid, require};
use rule::Method;

/// Where the heads are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// `[batch, heads, positions, depth]`, or fewer leading dimensions: operands of a matrix
    /// product.
    HeadsFirst,
    /// `[batch, positions, heads, depth]`: the output of a dense layer.
    HeadsLast,
}

impl Layout {
    /// The layout named by the node's attribute.
    pub fn parse(text: &str) -> Result<Self> {
        match text {
            "BNTH" => Ok(Self::HeadsFirst),
            "BTNH" => Ok(Self::HeadsLast),
            _ => invalid!("layout must be BNTH or BTNH, not {text}"),
        }
    }

    /// Elements between batches, heads and positions of a dense tensor.
    pub const fn strides(self, heads: usize, positions: usize, width: usize) -> Strides {
        match self {
            Self::HeadsFirst => [heads * positions * width, positions * width, width],
            Self::HeadsLast => [heads * positions * width, width, heads * width],
        }
    }
}

/// Elements between batches, heads and positions of an operand; 0 where it is broadcast.
pub type Strides = [usize; 3];

/// One attention over dense operands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Geometry {
    /// Matrices by batch and head.
    pub batch: usize,
    /// Heads of the query.
    pub heads: usize,
    /// Neighbouring heads of the query that share a head of key and value.
    pub group: usize,
    /// Rows of a matrix.
    pub queries: usize,
    /// Keys that a row sees.
    pub keys: usize,
    /// Elements of a query and a key.
    pub depth: usize,
    /// Elements of a value.
    pub width: usize,
    /// Strides of query, key and value. Those of key and value along heads count their own heads.
    pub strides: [Strides; 3],
    /// Strides of the mask along batches, heads, rows and keys.
    pub mask: [usize; 4],
    /// Shape of the result.
    pub dims: Dims,
}

/// How the batches and heads of query, key and value go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heads {
    /// They are equal, as in an `Einsum`.
    Equal,
    /// They broadcast, as in a `BatchMatMulV2`.
    Broadcast,
    /// Each head of key and value serves the same number of heads of the query. Batches are equal,
    /// or may broadcast.
    Grouped { broadcasts: bool },
}

/// An operand as `[batch, heads, positions, depth]`, with its strides in that order.
struct Operand {
    dims: [usize; 4],
    strides: [usize; 4],
}

impl Operand {
    fn new(dims: &[usize], layout: Layout) -> Self {
        let mut padded = [1; 4];
        padded[4 - dims.len()..].copy_from_slice(dims);
        // A single leading dimension is the batch: programs of one head are the same for rank 3 and
        // 4.
        if dims.len() == 3 {
            padded.swap(0, 1);
        }
        let mut strides = [0; 4];
        let mut step = 1;
        for d in (0..4).rev() {
            strides[d] = step;
            step *= padded[d];
        }
        if layout == Layout::HeadsLast {
            padded.swap(1, 2);
            strides.swap(1, 2);
        }
        for (stride, extent) in strides.iter_mut().zip(padded) {
            if extent == 1 {
                *stride = 0;
            }
        }
        Self { dims: padded, strides }
    }

    fn leading(&self) -> Strides {
        [self.strides[0], self.strides[1], self.strides[2]]
    }
}

impl Geometry {
    /// The geometry for these shapes. A mask broadcasts in any case.
    ///
    /// # Errors
    /// `InvalidArgument` if the shapes do not go together.
    pub fn new(
        [query, key, value]: [&[usize]; 3],
        mask: Option<&[usize]>,
        layout: Layout,
        heads: Heads,
    ) -> Result<Self> {
        let rank = query.len();
        let shapes = || {
            format!(
                "query {}, key {}, value {}",
                shape_text(query),
                shape_text(key),
                shape_text(value)
            )
        };
        let ranks = if layout == Layout::HeadsLast { 4..=4 } else { 2..=4 };
        require!(
            ranks.contains(&rank) && key.len() == rank && value.len() == rank,
            "query, key and value must have the same rank of {} to 4, got {}",
            ranks.start(),
            shapes()
        );
        let [q, k, v] = [query, key, value].map(|dims| Operand::new(dims, layout));
        let group = match heads {
            Heads::Grouped { .. } => {
                let shared = k.dims[1] == v.dims[1] && q.dims[1].is_multiple_of(k.dims[1].max(1));
                require!(
                    shared,
                    "the heads of key and value must be equal and divide the query's, got {}",
                    shapes()
                );
                (q.dims[1] / k.dims[1].max(1)).max(1)
            }
            Heads::Equal | Heads::Broadcast => 1,
        };
        require!(
            q.dims[3] == k.dims[3],
            "query and key must have the same depth, got {}",
            shapes()
        );
        let lead = |a: &[usize], b: &[usize]| {
            let (a, b) = (a, [b[0], b[1] * group]);
            let equal = match heads {
                Heads::Equal | Heads::Grouped { broadcasts: false } => a == b,
                Heads::Grouped { broadcasts: true } => a[1] == b[1],
                Heads::Broadcast => true,
            };
            require!(equal, "batches and heads must be equal, got {}", shapes());
            broadcast_dims(a, &b)
                .map_err(|e| e.map_message(|m| format!("{m} (batches and heads of {})", shapes())))
        };
        let products = lead(&q.dims[..2], &k.dims[..2])?;
        let mut scores: Dims = products.iter().copied().chain([q.dims[2], k.dims[2]]).collect();
        let mut masked = [0; 4];
        if let Some(mask) = mask {
            require!(
                mask.len() <= rank,
                "mask {} has more dimensions than {}",
                shape_text(mask),
                shapes()
            );
            let padded: Dims =
                std::iter::repeat_n(1, rank - mask.len()).chain(mask.iter().copied()).collect();
            let mask = Operand::new(&padded, Layout::HeadsFirst);
            scores = broadcast_dims(&scores, &mask.dims)
                .map_err(|e| e.map_message(|m| format!("{m} (scores and mask of {})", shapes())))?;
            masked = mask.strides;
        }
        require!(
            v.dims[2] == scores[3],
            "there must be as many values as keys, got {} with {} keys",
            shapes(),
            scores[3]
        );
        let matrices = lead(&scores[..2], &v.dims[..2])?;
        let (batch, heads, queries, width) = (matrices[0], matrices[1], scores[2], v.dims[3]);
        let whole = match (layout, rank) {
            (Layout::HeadsLast, _) => Dims::from_slice(&[batch, queries, heads, width]),
            (_, 4) => Dims::from_slice(&[batch, heads, queries, width]),
            (_, 3) => Dims::from_slice(&[batch, queries, width]),
            _ => Dims::from_slice(&[queries, width]),
        };
        Ok(Self {
            batch,
            heads,
            group,
            queries,
            keys: scores[3],
            depth: q.dims[3],
            width,
            strides: [q.leading(), k.leading(), v.leading()],
            mask: masked,
            dims: whole,
        })
    }

    /// Elements for each batch of the result and, for training, of query, key and value.
    pub fn packed(&self, training: bool) -> Vec<usize> {
        let inputs = [(self.queries, self.depth), (self.keys, self.depth), (self.keys, self.width)];
        let of_inputs = inputs.into_iter().filter(|_| training);
        std::iter::once((self.queries, self.width))
            .chain(of_inputs)
            .map(|(n, m)| self.heads * n * m)
            .collect()
    }

    /// Shape of the values that the gradient needs from the forward pass: the weights if they went
    /// through memory, else two numbers for each row, the maximum of its scores and the sum of
    /// their exponentials less the maximum. (One number, the logarithm of the sum of exponentials,
    /// would not do for rows that are masked altogether: next to a score of -1e9 the logarithm of
    /// the sum is lost.)
    pub fn saved(&self, method: Method) -> Dims {
        match method {
            Method::Staged(_) => {
                Dims::from_slice(&[self.batch, self.heads, self.queries, self.keys])
            }
            Method::Tiled(_) => Dims::from_slice(&[self.batch * self.heads * self.queries, 2]),
        }
    }

    /// Takes heads of the query together where all of them broadcast one head of key and value.
    pub fn share_keys(&mut self) {
        let one_head = self.strides[1][1] == 0 && self.strides[2][1] == 0;
        if self.group == 1 && one_head {
            self.group = self.heads.max(1);
        }
    }

    /// The geometry of operands whose rows were padded to these widths, query, key and value.
    pub fn widen(&mut self, [depth, _, width]: [usize; 3]) {
        let before = [self.depth, self.depth, self.width].map(|n| n.max(1));
        let after = [depth, depth, width];
        for (strides, (before, after)) in self.strides.iter_mut().zip(before.into_iter().zip(after))
        {
            *strides = strides.map(|n| n / before * after);
        }
        (self.depth, self.width) = (depth, width);
    }
}

/// The result's shape as far as it is known for every layout and kind of mask.
pub fn infer(inputs: &ShapeInputs<'_>) -> Result<Vec<PartialShape>> {
    let [query, key, value, mask @ ..] = inputs.shapes else {
        invalid!("query, key and value are missing")
    };
    let (Some(query), Some(value)) = (query, value) else { return Ok(vec![None]) };
    require!(
        query.len() == value.len() && (2..=4).contains(&query.len()),
        "query and value must have the same rank of 2 to 4, got {} and {}",
        query.len(),
        value.len()
    );
    let last = query.len() - 1;
    let one =
        |shape: &PartialShape, d: usize| shape.as_ref().is_some_and(|s| s.get(d) == Some(&Some(1)));
    let dims = (0..last).map(|d| match query[d] {
        // Where the query has one batch, head or row, key, value and mask may have more.
        Some(1) => (one(key, d) && value[d] == Some(1) && mask.is_empty()).then_some(1),
        known => known,
    });
    Ok(vec![Some(dims.chain([value[last]]).collect())])
}

/// Whether masks of this type choose the keys that take part, instead of being added.
pub const fn is_choice(dtype: DType) -> bool {
    matches!(dtype, DType::Bool)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_differ_in_strides_alone() {
        let dims: &[usize] = &[2, 3, 5, 8];
        let first = Geometry::new([dims; 3], None, Layout::HeadsFirst, Heads::Equal).unwrap();
        assert_eq!((first.batch, first.heads, first.queries, first.keys), (2, 3, 5, 5));
        assert_eq!(first.strides, [[120, 40, 8]; 3]);
        let last = Geometry::new([dims; 3], None, Layout::HeadsLast, Heads::Equal).unwrap();
        assert_eq!((last.batch, last.heads, last.queries, last.keys), (2, 5, 3, 3));
        assert_eq!(last.strides, [[120, 8, 40]; 3]);
        assert_eq!(last.dims[..], *dims);
    }

    #[test]
    fn masks_have_heads_before_rows() {
        let dims: &[usize] = &[2, 4, 3, 8];
        let mask: &[usize] = &[2, 1, 4, 4];
        let g = Geometry::new([dims; 3], Some(mask), Layout::HeadsLast, Heads::Equal).unwrap();
        assert_eq!(g.mask, [16, 0, 4, 1]);
        let plain =
            |mask| Geometry::new([&[2, 4, 8]; 3], mask, Layout::HeadsFirst, Heads::Broadcast);
        let g = plain(Some(&[4, 4])).unwrap();
        assert_eq!((g.mask, g.dims[..].to_vec()), ([0, 0, 4, 1], vec![2, 4, 8]));
        let g = plain(Some(&[2, 1, 4])).unwrap();
        assert_eq!(g.mask, [4, 0, 0, 1]);
    }

    #[test]
    fn heads_of_the_query_share_keys() {
        let with = |q: &[usize], k: &[usize], broadcasts| {
            Geometry::new([q, k, k], None, Layout::HeadsLast, Heads::Grouped { broadcasts })
        };
        let grouped = |q: &[usize], k: &[usize]| with(q, k, false);
        let g = grouped(&[2, 4, 6, 8], &[2, 5, 2, 8]).unwrap();
        assert_eq!((g.heads, g.group, g.queries, g.keys), (6, 3, 4, 5));
        assert_eq!(g.strides, [[192, 8, 48], [80, 8, 16], [80, 8, 16]]);
        assert_eq!(g.dims[..], [2, 4, 6, 8]);
        assert!(grouped(&[2, 4, 6, 8], &[2, 5, 4, 8]).is_err());
        assert!(grouped(&[2, 4, 6, 8], &[1, 5, 2, 8]).is_err());
        // As in the products of matrices, batches may broadcast. Heads may not.
        let g = with(&[2, 4, 6, 8], &[1, 5, 2, 8], true).unwrap();
        assert_eq!((g.batch, g.group, g.strides[1]), (2, 3, [0, 8, 16]));
        assert!(with(&[2, 4, 6, 8], &[2, 5, 4, 8], true).is_err());
        // One head of keys that broadcasts is a group of all heads.
        let (q, k): (&[usize], &[usize]) = (&[2, 6, 4, 8], &[2, 1, 5, 8]);
        let shapes = [q, k, k];
        let mut g = Geometry::new(shapes, None, Layout::HeadsFirst, Heads::Broadcast).unwrap();
        g.share_keys();
        assert_eq!((g.heads, g.group), (6, 6));
    }

    #[test]
    fn inferred_shapes_follow_the_query() {
        let shape =
            |dims: &[i64]| Some(dims.iter().map(|d| usize::try_from(*d).ok()).collect::<Vec<_>>());
        let infer = |shapes: &[PartialShape]| infer(&ShapeInputs { shapes, dtype: &|_| None });
        let q = shape(&[-1, 7, 3, 8]);
        assert_eq!(
            infer(&[q.clone(), q.clone(), shape(&[-1, 9, 3, 4])]).unwrap(),
            [shape(&[-1, 7, 3, 4])]
        );
        let one = shape(&[1, 5, 8]);
        assert_eq!(infer(&vec![one.clone(); 3]).unwrap(), std::slice::from_ref(&one));
        assert_eq!(
            infer(&[one.clone(), shape(&[2, 5, 8]), one.clone()]).unwrap(),
            [shape(&[-1, 5, 8])]
        );
        assert_eq!(infer(&[one.clone(), one.clone(), one, None]).unwrap(), [shape(&[-1, 5, 8])]);
        assert_eq!(infer(&[None, None, None]).unwrap(), [None]);
        assert!(infer(&[shape(&[3]), shape(&[3]), shape(&[3])]).is_err());
    }
}
