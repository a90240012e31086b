//! Products of int8 that multiply four steps of the contracted index at once, by `dot4I8Packed`.
//!
//! The contraction is rewritten: four bytes along the contracted index become one element, a word.
//! `a` is then a tensor of words, and so is `b` if its bytes lie along the contracted index, too.
//! Where the columns of `b` lie next to each other, a load takes four columns of four steps and
//! transposes them in registers. Sums are int32, so results equal those of single products.

use super::contraction::{ALayout, BLayout, Contraction, Packing};
use super::element;
use super::tile_variant::TileVariant;
use crate::device::Profile;
use crate::dtype::DType;
use crate::shader::{Shader, codec, vec4};
use crate::tensor::Tensor;

/// Bytes of a word.
pub(super) const PER_WORD: usize = 4;

impl Contraction {
    /// The same contraction over words of four bytes, where the adapter gains by it and the
    /// operands' layouts allow it.
    pub(super) fn packed(&self, profile: &Profile) -> Option<Self> {
        let ALayout::Dense { stride } = self.a_layout else { return None };
        let is_int8 = [&self.a, &self.b].iter().all(|t| t.dtype == DType::I8);
        if !profile.packed_dot || !is_int8 || self.a_step != 1 || self.b_layout != BLayout::Dense {
            return None;
        }
        let matrices = if self.batch.len() == 1 { [0; 2] } else { [self.a_matrix, self.b_matrix] };
        // The distance of a row or column from the next one, where there is one.
        let several = |extent: usize, stride: usize| if extent == 1 { 0 } else { stride };
        let (row, column) = (several(self.m, stride), several(self.n, self.b_column));
        let whole = |numbers: &[usize]| numbers.iter().all(|n| n.is_multiple_of(PER_WORD));
        let aligned = [&self.a, &self.b].iter().all(|t| t.address.is_multiple_of(4));
        if self.outer != 1 || !aligned || !whole(&[self.inner, row]) || !whole(&matrices) {
            return None;
        }
        let packing = if self.b_step == 1 && whole(&[column]) {
            Packing::Words
        } else if self.b_column == 1 && whole(&[self.n, self.b_step]) {
            Packing::Rows
        } else {
            return None;
        };
        let (b, b_step, b_column, b_matrix) = match packing {
            Packing::Words => (words(&self.b), 1, column / PER_WORD, matrices[1] / PER_WORD),
            Packing::Rows => (self.b.clone(), PER_WORD * self.b_step, 1, matrices[1]),
        };
        Some(Self {
            inner: self.inner / PER_WORD,
            a: words(&self.a),
            a_layout: ALayout::Dense { stride: row / PER_WORD },
            a_matrix: matrices[0] / PER_WORD,
            b,
            b_step,
            b_column,
            b_matrix,
            packing: Some(packing),
            ..self.clone()
        })
    }
}

/// The words of a tensor of bytes.
fn words(bytes: &Tensor) -> Tensor {
    Tensor::new(DType::I32, &[bytes.len() / PER_WORD], bytes.address)
}

/// Declares `mac(a, b, c)`, which adds to each element of `c` the scalar product of the bytes of
/// `a` and of an element of `b`.
pub(super) fn declarations(packing: Option<Packing>) -> &'static str {
    if packing.is_none() { "" } else { MAC }
}

const MAC: &str = include_str!("../../../shaders/contract/packed_bytes.wgsl");

/// The statement `c += a * b` for a scalar and two vec4s of a variant.
pub(super) fn multiply_add(v: &TileVariant, a: &str, b: &str, c: &str) -> String {
    match v.packing {
        Some(_) => format!("{c} = mac({a}, {b}, {c});"),
        None => element::multiply_add(v.a.0, a, b, c),
    }
}

/// Binds `b` with `load4_b(i)`: the words of four columns. Each word has a byte of each of four
/// rows; byte `i` is the one of the first row and the first column.
pub(super) fn bind_rows(shader: Shader) -> Shader {
    shader.bind_raw("b", codec::storage(DType::I8), vec4::unit(DType::I8)).body(ROWS)
}

const ROWS: &str = include_str!("../../../shaders/contract/bytes_of_rows.wgsl");

#[cfg(test)]
mod tests {
    use super::*;

    /// A product of int8 whose operands may be stored as their transposes.
    fn product([m, k, n]: [usize; 3], transposed: [bool; 2], address: u64) -> Contraction {
        let of = |dims: [usize; 2], address| Tensor::new(DType::I8, &dims, address);
        let c = Tensor::new(DType::I32, &[m, n], 3 << 40);
        Contraction::product([m, k, n], [&of([m, k], address), &of([k, n], 2 << 40), &c])
            .transposed(transposed)
    }

    #[test]
    fn words_are_taken_where_four_steps_lie_in_one() {
        let packing = |shape, transposed, address| {
            product(shape, transposed, address).packed(&Profile::NVIDIA)?.packing
        };
        let (words, rows) = (Some(Packing::Words), Some(Packing::Rows));
        assert_eq!(packing([3, 8, 5], [false, true], 1 << 40), words);
        assert_eq!(packing([3, 8, 12], [false, false], 1 << 40), rows);
        assert_eq!(packing([3, 8, 5], [false, false], 1 << 40), None, "odd rows of b");
        assert_eq!(packing([3, 6, 12], [false, false], 1 << 40), None, "an odd index");
        assert_eq!(packing([4, 8, 12], [true, false], 1 << 40), None, "a by columns");
        assert_eq!(packing([3, 8, 12], [false, false], 1), None, "an odd address");
        assert!(product([3, 8, 12], [false; 2], 1 << 40).packed(&Profile::APPLE).is_none());
    }

    #[test]
    fn a_packed_product_has_a_quarter_of_the_steps_and_counts_all_operations() {
        let whole = product([8, 64, 16], [false; 2], 1 << 40);
        let packed = whole.packed(&Profile::NVIDIA).unwrap();
        assert_eq!((packed.depth(), packed.b_step), (16, 64));
        assert_eq!(packed.a.bytes(), whole.a.bytes());
        let operations = |profile: &Profile| {
            let choice = super::super::choice::choose(&whole.demand(*profile, None));
            let programs = whole.programs(choice, None, None, profile).unwrap();
            programs.iter().map(|dispatch| dispatch.operations.all()).sum::<u64>()
        };
        assert_eq!(operations(&Profile::NVIDIA), operations(&Profile::APPLE));
    }
}
