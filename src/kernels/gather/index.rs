//! Index tensors in shaders: int32, int64, int8 and uint8 by their bytes, one or more components
//! per index.

use std::fmt::Write;

use smallvec::SmallVec;

use crate::device::{Binding, Key, KeyPart, declare_params};
use crate::error::Result;
use crate::require;
use crate::shader::{Element, Shader};
use crate::tensor::Tensor;

/// Components that an index may have.
const MAX_DEPTH: usize = 8;

/// Indices into the rows of a tensor whose leading extents are `extents`.
#[derive(Debug, Clone)]
pub struct Indices {
    /// The tensor; each index is `extents.len()` consecutive elements.
    pub tensor: Tensor,
    /// The extents that the components index.
    pub extents: SmallVec<[usize; 8]>,
}

impl Indices {
    /// Checks the number of components.
    pub fn new(tensor: &Tensor, extents: &[usize]) -> Result<Self> {
        require!(
            extents.len() <= MAX_DEPTH,
            "Only indices.shape[-1] values between 1 and {MAX_DEPTH} are currently supported.  \
             Requested rank: {}",
            extents.len()
        );
        Ok(Self { tensor: tensor.clone(), extents: extents.into() })
    }

    /// Number of rows that can be named.
    pub fn rows(&self) -> usize {
        self.extents.iter().product()
    }

    /// The variant, if there is one for such indices.
    pub fn variant(&self) -> Option<IndexVariant> {
        let variant = IndexVariant { bytes: self.bytes() as u32, depth: self.extents.len() as u32 };
        (1..=3).contains(&variant.depth).then_some(variant)
    }

    fn bytes(&self) -> u64 {
        self.tensor.dtype.size() as u64
    }

    /// The `count` indices from `first` on, as a binding; the shader counts from `first`.
    pub fn binding(&self, first: usize, count: usize) -> Binding {
        let each = self.extents.len() as u64 * self.bytes();
        Binding {
            address: self.tensor.address + first as u64 * each,
            bytes: count as u64 * each,
            unit: 1,
        }
    }

    /// The parameters by which `row_of` reads them.
    pub fn params(&self) -> IndexParams {
        let mut extents = [0; MAX_DEPTH];
        extents[..self.extents.len()].copy_from_slice(&self.extents);
        IndexParams {
            index_bytes: self.tensor.dtype.size(),
            index_signed: self.tensor.dtype.is_signed_integer(),
            depth: self.extents.len(),
            extents,
        }
    }
}

declare_params! {
    /// The parameters by which `row_of` reads indices.
    pub struct IndexParams {
        index_bytes: usize, index_signed: bool, depth: usize, extents: [usize; MAX_DEPTH],
    }
}

/// The binding `indices` with `row_of`, for indices of any type and depth.
#[derive(Debug, Clone, Copy)]
pub struct AnyIndices;

impl Element for AnyIndices {
    fn bind(self, shader: Shader, name: &'static str) -> Shader {
        let text = include_str!("../../../shaders/gather/index.wgsl");
        shader.bind_raw(name, "u32", 1).body(text)
    }
}

/// Indices of a kind that a shader is specialized for, for programs in which finding the row is
/// most of the work: it reads each component once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexVariant {
    bytes: u32,
    depth: u32,
}

impl IndexVariant {
    /// Every variant of [`Indices::variant`].
    pub fn all() -> impl Iterator<Item = Self> {
        [1, 4, 8].into_iter().flat_map(|bytes| [1, 2, 3].map(|depth| Self { bytes, depth }))
    }

    /// The variants of scalar indices.
    pub fn scalars() -> impl Iterator<Item = Self> {
        Self::all().filter(|variant| variant.depth == 1)
    }

    /// Whether there are [`IndexRuns`] of this variant.
    pub const fn has_runs(self) -> bool {
        self.bytes >= 4
    }
}

impl KeyPart for IndexVariant {
    fn add_to(&self, key: Key) -> Key {
        key.number(self.bytes * 16 + self.depth)
    }
}

/// The binding `indices` with `row_of`.
impl Element for IndexVariant {
    fn bind(self, shader: Shader, name: &'static str) -> Shader {
        let component = match self.bytes {
            1 => {
                "    let byte = p.off_indices + i;\n    let value = extractBits(indices[byte >> \
                 2u], (byte & 3u) * 8u, 8u);\n    return select(value, NONE, (p.index_signed != \
                 0u) & (value > 127u));"
            }
            4 => "    return indices[(p.off_indices >> 2u) + i];",
            _ => {
                "    let word = (p.off_indices >> 2u) + 2u * i;\n    return select(NONE, \
                 indices[word], indices[word + 1u] == 0u);"
            }
        };
        let mut text = format!(
            "const NONE = 0xffffffffu;\n\nfn component(i: u32) -> u32 {{\n{component}\n}}\n\n"
        );
        text.push_str("fn row_of(n: u32) -> u32 {\n    var row = 0u;\n    var good = true;\n");
        for d in 0..self.depth {
            let _ = writeln!(
                text,
                "    let c{d} = component(n * {}u + {d}u);\n    row = row * p.extents[0][{d}] + \
                 c{d};\n    good &= c{d} < p.extents[0][{d}];",
                self.depth
            );
        }
        text.push_str("    return select(NONE, row, good);\n}\n");
        shader.bind_raw(name, "u32", 1).body(&text)
    }
}

/// The binding `indices` in units of 16 bytes with `rows_of(q)`, which gives the values of `row_of`
/// for indices 4q to 4q + 3.
#[derive(Debug, Clone, Copy)]
pub struct IndexRuns(pub IndexVariant);

impl Element for IndexRuns {
    fn bind(self, shader: Shader, name: &'static str) -> Shader {
        let Self(IndexVariant { bytes, depth }) = self;
        let (words, units) = (bytes / 4, depth * bytes / 4);
        let mut text =
            String::from("const NONE = 0xffffffffu;\n\nfn rows_of(q: u32) -> vec4<u32> {\n");
        for u in 0..units {
            let _ = writeln!(text, "    let w{u} = indices[p.off_indices + q * {units}u + {u}u];");
        }
        text.push_str("    var rows = vec4(0u);\n    var good = vec4(true);\n");
        for d in 0..depth {
            // Word `high` of component d of the four indices.
            let four = |high: u32| {
                let word = |n: u32| {
                    let at = (n * depth + d) * words + high;
                    format!("w{}.{}", at / 4, ["x", "y", "z", "w"][at as usize % 4])
                };
                format!("vec4({})", (0..4).map(word).collect::<Vec<_>>().join(", "))
            };
            let _ = writeln!(
                text,
                "    let c{d} = {};\n    rows = rows * p.extents[0][{d}] + c{d};\n    good = good \
                 & (c{d} < vec4(p.extents[0][{d}]));",
                four(0)
            );
            if words == 2 {
                let _ = writeln!(text, "    good = good & ({} == vec4(0u));", four(1));
            }
        }
        text.push_str("    return select(vec4(NONE), rows, good);\n}\n");
        shader.bind_raw(name, "vec4<u32>", 16).body(&text)
    }
}
