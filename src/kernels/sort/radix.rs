//! The device-wide stable radix sort of (key, value) pairs of 32 bits. Each pass sorts by some
//! bits, the lowest first.
//!
//! A pass counts the digits of each block, scans the counts ([`super::scan`]) and places the pairs.
//! Wider keys are sorted by their low words first, then by their high words: [`super::keys::order`]
//! does that for tensors of any type.
//!
//! A workgroup sorts a block by four bits in its memory, so that neighbours read and write
//! neighbouring pairs.

use smallvec::smallvec;

use super::scan;
use crate::device::{Grid, Key, Params, Program};
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
        let params = Params::new().u32(n).u32(blocks).u32(pass * DIGIT);
        ctx.device().enqueue(&Program {
            key: Key::new("sort radix count"),
            shader: &count_shader,
            bindings: smallvec![(&now.keys).into(), (&counts).into()],
            params: params.clone(),
            grid: Grid::groups(blocks),
        })?;
        scan::exclusive(ctx, &counts, &starts)?;
        let tensors = [&now.keys, &now.values, &starts, &next.keys, &next.values];
        ctx.device().enqueue(&Program {
            key: Key::new("sort radix place"),
            shader: &place_shader,
            bindings: tensors.into_iter().map(Into::into).collect(),
            params: params.u32(u32::from(numbered)),
            grid: Grid::groups(blocks),
        })?;
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
    vec![count_shader(), place_shader()]
}

fn count_shader() -> Shader {
    Shader::new("sort radix count")
        .bind("keys", U32)
        .bind("counts", U32)
        .u32s(&["count", "blocks", "shift"])
        .body(include_str!("../../../shaders/sort/radix_count.wgsl"))
}

fn place_shader() -> Shader {
    Shader::new("sort radix place")
        .bind("keys", U32)
        .bind("values", U32)
        .bind("starts", U32)
        .bind("sorted_keys", U32)
        .bind("sorted_values", U32)
        .u32s(&["count", "blocks", "shift", "numbered"])
        .body(include_str!("../../../shaders/sort/radix_place.wgsl"))
}
