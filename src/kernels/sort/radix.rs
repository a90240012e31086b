//! The device-wide stable radix sort of (key, value) pairs of 32 bits. Each pass sorts by some
//! bits, the lowest first.
//!
//! A pass counts the digits of each block, scans the counts ([`super::scan`]) and places the pairs.
//! Wider keys are sorted by their low words first, then by their high words: [`super::keys::order`]
//! does that for tensors of any type.
//!
//! A workgroup sorts a block by four bits in its memory, so that neighbours read and write
//! neighbouring pairs.

use super::scan;
use crate::device::{Grid, declare_program};
use crate::dtype::DType::U32;
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::shader::Shader;
use crate::tensor::Tensor;

/// Pairs that one workgroup sorts.
const BLOCK: usize = 2048;
/// Bits that a workgroup sorts by.
const DIGIT: u32 = 4;

/// Keys and the values that travel with them: uint32 tensors of one length.
#[derive(Debug, Clone)]
pub struct Pairs {
    /// The keys.
    pub keys: Tensor,
    /// The values.
    pub values: Tensor,
}

/// Sorts by `keys`, of which at most the lowest `bits` bits are set, ascending; equal keys keep
/// their order. Without `values` the keys' positions travel along: the result's values are the
/// permutation. `keys` and `values` are used as scratch memory.
pub fn sort(
    ctx: &mut dyn OpContext,
    keys: &Tensor,
    values: Option<&Tensor>,
    bits: u32,
) -> Result<Pairs> {
    let n = ctx.device().check_extent(keys.len())? as usize;
    let blocks = n.div_ceil(BLOCK);
    let other = ctx.temp(U32, &[n])?;
    let (positions, permutation) = (ctx.temp(U32, &[n])?, ctx.temp(U32, &[n])?);
    let mut now = Pairs { keys: keys.clone(), values: values.unwrap_or(&positions).clone() };
    let mut next = Pairs { keys: other, values: permutation };
    if n == 0 {
        return Ok(now);
    }
    // The table of counts holds the blocks of each digit together.
    let counts = ctx.temp(U32, &[blocks << DIGIT])?;
    let starts = ctx.temp(U32, &[(blocks << DIGIT) + 1])?;
    let mut numbered = values.is_none();
    // A pass with no bits left still writes the positions.
    for pass in 0..bits.max(1).div_ceil(DIGIT) {
        CountDigits {
            keys: (&now.keys).into(),
            counts: (&counts).into(),
            count: n,
            blocks,
            shift: pass * DIGIT,
        }
        .enqueue(ctx.device(), &CountDigits::of(), Grid::groups(blocks))?;
        scan::exclusive(ctx, &counts, &starts)?;
        PlaceByDigit {
            keys: (&now.keys).into(),
            values: (&now.values).into(),
            starts: (&starts).into(),
            sorted_keys: (&next.keys).into(),
            sorted_values: (&next.values).into(),
            count: n,
            blocks,
            shift: pass * DIGIT,
            numbered,
        }
        .enqueue(ctx.device(), &PlaceByDigit::of(), Grid::groups(blocks))?;
        numbered = false;
        std::mem::swap(&mut now, &mut next);
    }
    Ok(now)
}

/// Bits that hold every number below `n`.
pub const fn bits_below(n: usize) -> u32 {
    usize::BITS - n.saturating_sub(1).leading_zeros()
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    vec![CountDigits::shader(), PlaceByDigit::shader()]
}

declare_program! {
    /// Counts the digits of each block.
    struct CountDigits = "sort radix count"();
    bindings { keys: U32, counts: U32 }
    params { count: usize, blocks: usize, shift: u32 }
    shader "sort radix count" => .body(include_str!("../../../shaders/sort/radix_count.wgsl"))
}

declare_program! {
    /// Moves keys and values to the places of their digits.
    struct PlaceByDigit = "sort radix place"();
    bindings { keys: U32, values: U32, starts: U32, sorted_keys: U32, sorted_values: U32 }
    params { count: usize, blocks: usize, shift: u32, numbered: bool }
    shader "sort radix place" => .body(include_str!("../../../shaders/sort/radix_place.wgsl"))
}
