//! Strided iteration: how one dense walk over an output reads operands that are broadcast,
//! transposed, sliced or reversed.
//!
//! An [`Iteration`] has the extents of the walk and, for each operand, a stride per dimension (0 if
//! it is broadcast, negative if it is reversed) and an offset, all in elements.
//! [`Iteration::collapse`] merges dimensions that every operand walks evenly, so most programs end
//! with rank 1 or 2 whatever the tensor's rank. The shader text depends only on the [`AccessClass`]
//! that remains; extents, strides and offsets are parameters.

use std::fmt::Write;

use smallvec::SmallVec;

use crate::device::{Key, KeyPart, Parameter, Params};
use crate::error::Result;
use crate::invalid;
use crate::shader::{Field, Shader};
use crate::tensor::{Dims, shape_text};

/// Strides in elements, outermost first.
pub type Strides = SmallVec<[i64; 6]>;

/// The strides of a dense row-major tensor.
pub fn dense_strides(dims: &[usize]) -> Strides {
    let mut strides: Strides = dims.iter().map(|_| 1).collect();
    for d in (0..dims.len().saturating_sub(1)).rev() {
        strides[d] = strides[d + 1] * dims[d + 1] as i64;
    }
    strides
}

/// The shape that results from numpy broadcasting, or TensorFlow's error.
pub fn broadcast_dims(a: &[usize], b: &[usize]) -> Result<Dims> {
    let rank = a.len().max(b.len());
    let at = |dims: &[usize], d: usize| (d + dims.len()).checked_sub(rank).map_or(1, |i| dims[i]);
    let mut out = Dims::new();
    for d in 0..rank {
        match (at(a, d), at(b, d)) {
            (x, y) if x == y => out.push(x),
            (1, y) => out.push(y),
            (x, 1) => out.push(x),
            _ => invalid!("Incompatible shapes: {} vs. {}", shape_text(a), shape_text(b)),
        }
    }
    Ok(out)
}

/// How an operand is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// Element `i` of the walk is element `i` of the operand.
    Linear,
    /// Every element of the walk is the operand's only element.
    Splat,
    /// The operand's element is found by strides.
    Strided,
    /// By strides, in whole units of adjacent elements: see [`Iteration::vector_class`].
    Rows,
    /// By strides, one element for each whole unit: see [`Iteration::vector_class`].
    Columns,
}

impl Access {
    /// Whether elements are found by extents and strides.
    pub const fn is_strided(self) -> bool {
        matches!(self, Self::Strided | Self::Rows | Self::Columns)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Operand {
    strides: Strides,
    offset: i64,
}

/// A walk over `dims` in row-major order with the operands' strides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Iteration {
    dims: Dims,
    operands: SmallVec<[Operand; 3]>,
}

/// The properties that shader text depends on: the rank of the walk and each operand's access.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AccessClass {
    rank: usize,
    operands: SmallVec<[Access; 4]>,
}

impl Iteration {
    /// A walk over `dims` without operands.
    pub fn over(dims: &[usize]) -> Self {
        Self { dims: Dims::from_slice(dims), operands: SmallVec::new() }
    }

    /// Adds an operand by its strides (one for each dimension of the walk) and offset, in elements.
    #[must_use]
    pub fn operand(mut self, strides: &[i64], offset: i64) -> Self {
        assert_eq!(strides.len(), self.dims.len(), "one stride for each dimension");
        self.operands.push(Operand { strides: Strides::from_slice(strides), offset });
        self
    }

    /// Adds a dense operand of shape `dims` that is broadcast to the walk by numpy's rule.
    #[must_use]
    pub fn broadcast(self, dims: &[usize]) -> Self {
        let lead = self.dims.len() - dims.len();
        let dense = dense_strides(dims);
        let strides: Strides = (0..self.dims.len())
            .map(|d| if d < lead || dims[d - lead] == 1 { 0 } else { dense[d - lead] })
            .collect();
        self.operand(&strides, 0)
    }

    /// The same walk with as few dimensions as possible: extents of 1 are removed, and neighbouring
    /// dimensions are merged if every operand walks them as one.
    #[must_use]
    pub fn collapse(self) -> Self {
        let mut dims = Dims::new();
        let mut operands: SmallVec<[Operand; 3]> = self
            .operands
            .iter()
            .map(|o| Operand { strides: Strides::new(), offset: o.offset })
            .collect();
        for (d, &extent) in self.dims.iter().enumerate() {
            if extent == 1 {
                continue;
            }
            let merges = !dims.is_empty()
                && operands.iter().zip(&self.operands).all(|(kept, all)| {
                    kept.strides[kept.strides.len() - 1] == all.strides[d] * extent as i64
                });
            if merges {
                *dims.last_mut().expect("not empty") *= extent;
            } else {
                dims.push(extent);
            }
            for (kept, all) in operands.iter_mut().zip(&self.operands) {
                if merges {
                    kept.strides.pop();
                }
                kept.strides.push(all.strides[d]);
            }
        }
        Self { dims, operands }
    }

    /// Extents of the walk.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Number of elements of the walk.
    pub fn len(&self) -> usize {
        self.dims.iter().product()
    }

    /// Whether the walk has no element.
    pub fn is_empty(&self) -> bool {
        self.dims.contains(&0)
    }

    /// Number of operands.
    pub fn operands(&self) -> usize {
        self.operands.len()
    }

    /// Strides of operand `k`.
    pub fn strides(&self, k: usize) -> &[i64] {
        &self.operands[k].strides
    }

    /// Offset of operand `k`.
    pub fn offset(&self, k: usize) -> i64 {
        self.operands[k].offset
    }

    /// How operand `k` is read.
    pub fn access(&self, k: usize) -> Access {
        let o = &self.operands[k];
        match o.strides[..] {
            _ if o.offset != 0 => Access::Strided,
            [] | [1] => Access::Linear,
            _ if o.strides.iter().all(|s| *s == 0) => Access::Splat,
            _ if o.strides == dense_strides(&self.dims) => Access::Linear,
            _ => Access::Strided,
        }
    }

    /// The class on which shader text depends.
    pub fn class(&self) -> AccessClass {
        let operands: SmallVec<_> = (0..self.operands.len()).map(|k| self.access(k)).collect();
        let strided = operands.contains(&Access::Strided);
        AccessClass { rank: if strided { self.dims.len() } else { 1 }, operands }
    }

    /// The class of a walk in units of `width` adjacent elements. No unit crosses the end of an
    /// innermost run. Each strided operand either has a unit's elements adjacent too, starting at a
    /// multiple of `width` ([`Access::Rows`]), or has one element for all of them
    /// ([`Access::Columns`]). `None` if the operands do not fit units. The last unit of a flat walk
    /// may be incomplete.
    pub fn vector_class(&self, width: usize) -> Option<AccessClass> {
        let mut class = self.class();
        if class.is_flat() {
            return Some(class);
        }
        let whole = |n: i64| n % width as i64 == 0;
        if !whole(*self.dims.last()? as i64) {
            return None;
        }
        for (operand, access) in self.operands.iter().zip(&mut class.operands) {
            let (inner, outer) = operand.strides.split_last()?;
            if *access == Access::Strided {
                *access = match inner {
                    0 => Access::Columns,
                    1 if whole(operand.offset) && outer.iter().all(|s| whole(*s)) => Access::Rows,
                    _ => return None,
                };
            }
        }
        Some(class)
    }

    /// Appends the parameters that [`AccessClass::declare`] declares.
    #[must_use]
    pub fn params(&self, mut params: Params) -> Params {
        let class = self.class();
        if !class.is_strided() {
            return params;
        }
        params = params.list(&self.dims);
        for (operand, access) in self.operands.iter().zip(&class.operands) {
            if *access == Access::Strided {
                // Negative strides and offsets wrap: index arithmetic modulo 2^32 gives the right
                // sum.
                let strides: SmallVec<[u32; 8]> =
                    operand.strides.iter().map(|s| *s as u32).collect();
                params = params.u32(operand.offset as u32).list(&strides);
            }
        }
        params
    }
}

impl KeyPart for &AccessClass {
    fn add_to(&self, key: Key) -> Key {
        self.key(key)
    }
}

/// Of a class and the names of its operands.
impl Parameter<(&AccessClass, &[&str])> for Iteration {
    fn declare((class, names): (&AccessClass, &[&str]), shader: Shader, _: &'static str) -> Shader {
        class.declare(shader, names)
    }

    fn append_to(self, params: Params) -> Params {
        self.params(params)
    }
}

impl AccessClass {
    fn is_strided(&self) -> bool {
        self.operands.iter().any(|access| access.is_strided())
    }

    /// How operand `k` is read.
    pub fn access(&self, k: usize) -> Access {
        self.operands[k]
    }

    /// Whether every operand is linear or a splat.
    pub fn is_flat(&self) -> bool {
        !self.is_strided()
    }

    /// Adds this class to a pipeline's key.
    #[must_use]
    pub fn key(&self, mut key: Key) -> Key {
        key = key.number(self.rank as u32);
        for access in &self.operands {
            key = key.number(*access as u32);
        }
        key
    }

    /// Declares the parameters and, for each operand, `fn index_NAME(i: u32) -> u32`: the index of
    /// the operand's element for element `i` of the walk.
    #[must_use]
    pub fn declare(&self, mut shader: Shader, names: &[&str]) -> Shader {
        assert_eq!(names.len(), self.operands.len(), "one name for each operand");
        let vec4s = self.rank.div_ceil(4);
        if self.is_strided() {
            shader = shader.param("dims", Field::Vec4s(vec4s));
        }
        let mut text = String::new();
        for (name, access) in names.iter().zip(&self.operands) {
            let _ = writeln!(text, "fn index_{name}(i: u32) -> u32 {{");
            match access {
                Access::Linear => text.push_str("    return i;\n"),
                Access::Splat => text.push_str("    return 0u;\n"),
                Access::Strided | Access::Rows | Access::Columns => {
                    shader = shader
                        .param(format!("{name}_offset"), Field::U32)
                        .param(format!("{name}_strides"), Field::Vec4s(vec4s));
                    let lane = |list: &str, d: usize| {
                        format!("p.{list}[{}].{}", d / 4, ["x", "y", "z", "w"][d % 4])
                    };
                    let strides = format!("{name}_strides");
                    let _ = writeln!(text, "    var rest = i;\n    var at = p.{name}_offset;");
                    for d in (1..self.rank).rev() {
                        let (extent, stride) = (lane("dims", d), lane(&strides, d));
                        let _ = writeln!(
                            text,
                            "    at += (rest % {extent}) * {stride};\n    rest = rest / {extent};"
                        );
                    }
                    let outermost = if self.rank == 0 {
                        String::new()
                    } else {
                        format!(" + rest * {}", lane(&strides, 0))
                    };
                    let _ = writeln!(text, "    return at{outermost};");
                }
            }
            text.push_str("}\n\n");
        }
        shader.body(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasting_follows_numpy() {
        assert_eq!(broadcast_dims(&[2, 1, 3], &[4, 1]).unwrap()[..], [2, 4, 3]);
        assert_eq!(broadcast_dims(&[], &[5]).unwrap()[..], [5]);
        assert_eq!(broadcast_dims(&[0, 1], &[1, 3]).unwrap()[..], [0, 3]);
        assert!(broadcast_dims(&[2], &[3]).is_err());
    }

    #[test]
    fn collapsing_keeps_the_walk() {
        let walk =
            Iteration::over(&[2, 3, 1, 4]).broadcast(&[2, 3, 1, 4]).broadcast(&[4]).broadcast(&[]);
        let flat = walk.collapse();
        assert_eq!(flat.dims(), [6, 4]);
        assert_eq!(flat.strides(0), [4, 1]);
        assert_eq!(flat.strides(1), [0, 1]);
        assert_eq!(
            (flat.access(0), flat.access(1), flat.access(2)),
            (Access::Linear, Access::Strided, Access::Splat)
        );
    }

    #[test]
    fn units_of_four_fit_rows_of_whole_units() {
        let walk = |c: usize| {
            Iteration::over(&[6, c])
                .broadcast(&[6, c])
                .broadcast(&[c])
                .broadcast(&[6, 1])
                .broadcast(&[])
        };
        let class = walk(8).vector_class(4).unwrap();
        assert_eq!(
            class.operands[..],
            [Access::Linear, Access::Rows, Access::Columns, Access::Splat]
        );
        assert_eq!(walk(6).vector_class(4), None, "a unit would cross the end of a row");
        let of = |strides: &[i64], offset| {
            Iteration::over(&[6, 8]).operand(strides, offset).vector_class(4)
        };
        assert_eq!(of(&[10, 1], 0), None, "the second row starts within a unit");
        assert_eq!(of(&[16, 1], 2), None, "so does the first");
        assert_eq!(of(&[1, 6], 0), None, "a unit's elements are not side by side");
        assert_eq!(of(&[-8, 1], 40).unwrap().operands[..], [Access::Rows]);
        // The last unit of a flat walk may be incomplete.
        assert!(Iteration::over(&[7]).broadcast(&[7]).vector_class(4).is_some());
    }

    #[test]
    fn equal_shapes_are_linear_and_transposes_are_not() {
        let same = Iteration::over(&[5, 6, 7]).broadcast(&[5, 6, 7]).collapse();
        assert_eq!((same.dims(), same.access(0)), (&[210][..], Access::Linear));
        let transposed = Iteration::over(&[3, 2]).operand(&[1, 3], 0).collapse();
        assert_eq!(transposed.access(0), Access::Strided);
        let reversed = Iteration::over(&[4]).operand(&[-1], 3).collapse();
        assert_eq!(reversed.access(0), Access::Strided);
    }
}
