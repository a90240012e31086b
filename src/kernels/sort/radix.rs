//! The device-wide stable radix sort of (key, value) pairs of 32 bits, some bits a pass, lowest
//! first.
//!
//! A pass counts the digits of each block, scans the counts ([`super::scan`]) and places the pairs.
//! Wider keys are sorted by their low words first, then by their high words: [`super::keys::order`]
//! does that for tensors of any type.
//!
//! A workgroup of a GPU sorts a block by four bits in its memory, so that neighbours read and write
//! neighbouring pairs. An invocation of a software adapter takes a long run by up to eight bits
//! alone: half the passes, and neither barriers nor atomics.

use smallvec::{SmallVec, smallvec};

use super::scan;
use crate::device::{Barriers, Grid, Key, Params, Profile, Program};
use crate::dtype::DType::U32;
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::shader::Shader;
use crate::tensor::Tensor;

/// Pairs that one workgroup sorts.
const BLOCK: usize = 2048;
/// Bits that a workgroup sorts by.
const BLOCK_BITS: u32 = 4;
/// The most bits that a run is sorted by.
const RUN_BITS: u32 = 8;
/// Invocations of a workgroup that sorts runs: a subgroup of a software adapter.
const RUNS: u32 = 8;
/// The fewest and the most pairs of a run. The counts of a run are as much work as the fewest.
const RUN: (usize, usize) = (256, 2048);

/// Keys and what travels with them: uint32 tensors of one length.
#[derive(Debug, Clone)]
pub struct Pairs {
    /// The keys.
    pub keys: Tensor,
    /// The values.
    pub values: Tensor,
}

/// Sorts by `keys`, which have no higher bits than the lowest `bits`, ascending, equal keys in
/// their order. Without `values` the keys' positions travel along: the result's values are the
/// permutation. `keys` and `values` are used as scratch memory.
pub fn sort(
    ctx: &mut dyn OpContext,
    keys: &Tensor,
    values: Option<&Tensor>,
    bits: u32,
) -> Result<Pairs> {
    let profile = ctx.device().profile();
    let n = ctx.device().check_extent(keys.len())? as usize;
    let cut = Cut::of(profile, n, bits);
    let other = ctx.temp(U32, &[n])?;
    let (positions, permutation) = (ctx.temp(U32, &[n])?, ctx.temp(U32, &[n])?);
    let mut now = Pairs { keys: keys.clone(), values: values.unwrap_or(&positions).clone() };
    let mut next = Pairs { keys: other, values: permutation };
    if n == 0 {
        return Ok(now);
    }
    let counts = ctx.temp(U32, &[cut.counts()])?;
    let starts = ctx.temp(U32, &[cut.counts() + 1])?;
    let mut numbered = values.is_none();
    for pass in 0..cut.passes {
        cut.count(ctx, pass, &now.keys, &counts)?;
        scan::exclusive(ctx, &counts, &starts)?;
        cut.place(ctx, pass, numbered, &now, &starts, &next)?;
        numbered = false;
        std::mem::swap(&mut now, &mut next);
    }
    Ok(now)
}

/// How the pairs are cut into parts, and the keys into digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cut {
    profile: Profile,
    pairs: usize,
    /// Pairs of a part: of a workgroup's block, or of an invocation's run.
    part: usize,
    parts: usize,
    /// Bits of a digit.
    digit: u32,
    passes: u32,
}

impl Cut {
    fn of(profile: Profile, pairs: usize, bits: u32) -> Self {
        // A pass with no bits left still writes the positions.
        let bits = bits.max(1);
        let (part, most) = match profile.barriers {
            Barriers::Cheap => (BLOCK, BLOCK_BITS),
            Barriers::Dear => (run(pairs), RUN_BITS),
        };
        let passes = bits.div_ceil(most);
        let digit =
            if profile.barriers == Barriers::Cheap { BLOCK_BITS } else { bits.div_ceil(passes) };
        Self { profile, pairs, part, parts: pairs.div_ceil(part).max(1), digit, passes }
    }

    /// Elements of the table of counts, which has the parts of each digit together.
    const fn counts(&self) -> usize {
        self.parts << self.digit
    }

    /// Parameters of both programs.
    fn params(&self, pass: u32) -> Params {
        let params = Params::new().u32(self.pairs).u32(self.parts).u32(pass * self.digit);
        match self.profile.barriers {
            Barriers::Cheap => params,
            Barriers::Dear => params.u32(self.part).u32((1_u32 << self.digit) - 1),
        }
    }

    fn grid(&self) -> Grid {
        match self.profile.barriers {
            Barriers::Cheap => Grid::groups(self.parts),
            Barriers::Dear => Grid::linear(self.parts, RUNS),
        }
    }

    fn count(&self, ctx: &dyn OpContext, pass: u32, keys: &Tensor, counts: &Tensor) -> Result<()> {
        let (name, shader): (_, fn() -> Shader) = match self.profile.barriers {
            Barriers::Cheap => ("sort radix count", count_shader),
            Barriers::Dear => ("sort runs count", run_count_shader),
        };
        ctx.device().enqueue(&Program {
            key: Key::new(name),
            shader: &shader,
            bindings: smallvec![keys.into(), counts.into()],
            params: self.params(pass),
            grid: self.grid(),
        })
    }

    /// Places the pairs `from` in `to`. With `numbered`, positions are their values.
    fn place(
        &self,
        ctx: &dyn OpContext,
        pass: u32,
        numbered: bool,
        from: &Pairs,
        starts: &Tensor,
        to: &Pairs,
    ) -> Result<()> {
        let (name, shader): (_, &dyn Fn() -> Shader) = match self.profile.barriers {
            Barriers::Cheap => ("sort radix place", &place_shader),
            Barriers::Dear => ("sort runs place", &|| run_place_shader(numbered)),
        };
        let params = self.params(pass);
        let tensors: SmallVec<[&Tensor; 5]> =
            smallvec![&from.keys, &from.values, starts, &to.keys, &to.values];
        ctx.device().enqueue(&Program {
            key: Key::new(name)
                .number(u32::from(numbered && self.profile.barriers == Barriers::Dear)),
            shader,
            bindings: tensors.into_iter().map(Into::into).collect(),
            params: if self.profile.barriers == Barriers::Cheap {
                params.u32(u32::from(numbered))
            } else {
                params
            },
            grid: self.grid(),
        })
    }
}

/// Pairs of a run, of which there are some hundred where that leaves them long enough. Runs begin
/// an odd number of 64 bytes apart, for what lies a multiple of 4 KiB apart falls into few sets of
/// a cache, and a subgroup reads as many runs at once.
fn run(pairs: usize) -> usize {
    let wanted = (pairs / 256).clamp(RUN.0, RUN.1);
    wanted / 32 * 32 + 16
}

/// Bits that hold every number below `n`.
pub const fn bits_below(n: usize) -> u32 {
    usize::BITS - n.saturating_sub(1).leading_zeros()
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    vec![
        count_shader(),
        place_shader(),
        run_count_shader(),
        run_place_shader(false),
        run_place_shader(true),
    ]
}

fn count_shader() -> Shader {
    Shader::new("sort radix count")
        .bind("keys", U32)
        .bind("counts", U32)
        .u32s(&["count", "blocks", "shift"])
        .body(include_str!("../../../shaders/sort/radix_count.wgsl"))
}

fn place_shader() -> Shader {
    places("sort radix place")
        .u32s(&["count", "blocks", "shift", "numbered"])
        .body(include_str!("../../../shaders/sort/radix_place.wgsl"))
}

fn places(label: &str) -> Shader {
    Shader::new(label)
        .bind("keys", U32)
        .bind("values", U32)
        .bind("starts", U32)
        .bind("sorted_keys", U32)
        .bind("sorted_values", U32)
}

fn runs(shader: Shader) -> Shader {
    shader
        .u32s(&["count", "runs", "shift", "run", "mask"])
        .workgroup([RUNS, 1, 1])
        .body(&format!("const MOST_DIGITS = {}u;\n", 1 << RUN_BITS))
}

fn run_count_shader() -> Shader {
    runs(Shader::new("sort runs count").bind("keys", U32).bind("counts", U32))
        .body(include_str!("../../../shaders/sort/radix_run_count.wgsl"))
}

fn run_place_shader(numbered: bool) -> Shader {
    runs(places("sort runs place"))
        .define("VALUE", if numbered { "i" } else { "load_values(i)" })
        .body(include_str!("../../../shaders/sort/radix_run_place.wgsl"))
}
