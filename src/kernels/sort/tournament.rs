//! The first k elements of each row by a tournament: rows are cut into segments, and the elements
//! that each segment keeps meet in the next round.
//!
//! A round either selects (a small k) or sorts its segments. Both order elements by their keys and
//! then by their positions.

use super::keys::KeyType;
use crate::device::{Grid, declare_params, declare_program};
use crate::dtype::DType::U32;
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::shader::Shader;
use crate::tensor::Tensor;

/// The number of elements that one workgroup sorts or compares with one another: `CAPACITY` in the
/// shaders.
pub const CAPACITY: usize = 1024;
/// The largest k for which a round leaves at most a quarter of the candidates.
pub const TOURNAMENT: usize = CAPACITY / 4;
/// Workgroup sizes of the selecting program, each for a k of up to half its invocations: then the
/// bound lets about 1.4 k elements pass.
const SELECTING: [u32; 4] = [32, 64, 128, 256];
/// Elements of an invocation of the selecting program.
const EACH: usize = 64;

/// Writes the positions of the first `k` elements of each row of the matrix `x` to the uint32
/// tensor `out`. `k` is at most [`TOURNAMENT`] if rows are longer than [`CAPACITY`].
pub fn tournament(
    ctx: &mut dyn OpContext,
    x: &Tensor,
    k: usize,
    descending: bool,
    out: &Tensor,
) -> Result<()> {
    let (rows, length) = (x.dims[0], x.dims[1]);
    let mut candidates: Option<Tensor> = None;
    loop {
        let n = candidates.as_ref().map_or(length, |c| c.dims[1]);
        let plan = RoundPlan::of(n, k);
        let per_row = n.div_ceil(plan.segment());
        let kept = if per_row == 1 { out.clone() } else { ctx.temp(U32, &[rows, per_row * k])? };
        Round { x, candidates: candidates.as_ref(), k, descending, per_row }
            .enqueue(ctx, plan, &kept)?;
        if per_row == 1 {
            return Ok(());
        }
        candidates = Some(kept);
    }
}

/// The work of a round on its segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RoundPlan {
    /// Selects, by workgroups of `workgroup` invocations with `each` elements each.
    Select { workgroup: u32, each: usize },
    /// Sorts.
    Sort,
}

impl RoundPlan {
    /// The round for `n` candidates of each row.
    fn of(n: usize, k: usize) -> Self {
        let Some(workgroup) = SELECTING.into_iter().find(|w| 2 * k <= *w as usize) else {
            return Self::Sort;
        };
        let fitting = (CAPACITY / k + 1).next_power_of_two() / 2;
        let needed = n.div_ceil(workgroup as usize).next_power_of_two();
        Self::Select { workgroup, each: fitting.min(needed).min(EACH) }
    }

    /// Elements of a segment.
    const fn segment(self) -> usize {
        match self {
            Self::Select { workgroup, each } => workgroup as usize * each,
            Self::Sort => CAPACITY,
        }
    }
}

/// One round.
struct Round<'a> {
    x: &'a Tensor,
    /// The candidates of each row that the previous round kept.
    candidates: Option<&'a Tensor>,
    k: usize,
    descending: bool,
    per_row: usize,
}

impl Round<'_> {
    /// Keeps the first `k` of each segment.
    fn enqueue(&self, ctx: &dyn OpContext, plan: RoundPlan, kept: &Tensor) -> Result<()> {
        let (rows, length) = (self.x.dims[0], self.x.dims[1]);
        let n = self.candidates.map_or(length, |c| c.dims[1]);
        let segments = rows * self.per_row;
        let kind = KeyType::of(self.x.dtype);
        let (x, candidates) = (kind.binding(self.x), self.candidates.unwrap_or(kept).into());
        let round = RoundParams {
            segments,
            per_row: self.per_row,
            n,
            length,
            keep: self.k,
            listed: self.candidates.is_some(),
            mask: if self.descending { u32::MAX } else { 0 },
        };
        match plan {
            RoundPlan::Select { workgroup, each } => {
                Select { x, candidates, kept: kept.into(), round, each, shift: each.ilog2() }
                    .enqueue(ctx.device(), &Select::of(kind, workgroup), Grid::groups(segments))
            }
            RoundPlan::Sort => {
                let size = n.min(CAPACITY).next_power_of_two();
                let grid = Grid::groups(segments.div_ceil(CAPACITY / size));
                Sort { x, candidates, kept: kept.into(), round, size }.enqueue(
                    ctx.device(),
                    &Sort::of(kind),
                    grid,
                )
            }
        }
    }
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    let of =
        |kind| SELECTING.map(|w| Select::shader(kind, w)).into_iter().chain([Sort::shader(kind)]);
    KeyType::all().into_iter().flat_map(of).collect()
}

declare_params! {
    /// The segments of a round: `keep` elements of each of `per_row` in a row of `n` candidates,
    /// which are `listed`, or else all `length` elements. `mask` turns the order around.
    struct RoundParams {
        segments: usize, per_row: usize, n: usize, length: usize, keep: usize, listed: bool,
        mask: u32,
    }
}

declare_program! {
    /// Ranks the elements that invocations found to be first in their parts of a segment.
    struct Select = "sort top_k select"(kind: KeyType, workgroup: u32);
    bindings { x: kind, candidates: U32, kept: U32 }
    params { round: RoundParams, each: usize, shift: u32 }
}

impl Select {
    fn shader(kind: KeyType, workgroup: u32) -> Shader {
        let after = "(a.key.x < b.key.x) | ((a.key.x == b.key.x) & (a.at < b.at))";
        let (high, high_at, put, before) = if kind.is_wide() {
            (
                "var<workgroup> high: array<u32, CAPACITY>;",
                "high[slot]",
                "    high[slot] = e.key.y;",
                format!("    return (a.key.y < b.key.y) | ((a.key.y == b.key.y) & ({after}));"),
            )
        } else {
            ("", "0u", "", format!("    return {after};"))
        };
        // The loop is unrolled: then all invocations compare with the same elements, which some
        // drivers load once for all of them.
        let rank: String = (0..workgroup)
            .map(|j| format!("    rank += select(0u, 1u, before(element({j}u), best));\n"))
            .collect();
        Self::declare(format!("top_k select {kind:?}"), kind, workgroup)
            .workgroup([workgroup, 1, 1])
            .define("HIGH", high)
            .define("HIGH_AT", high_at)
            .define("PUT", put)
            .define("BEFORE", before)
            .define("RANK", rank)
            .body(include_str!("../../../shaders/sort/top_k_select.wgsl"))
    }
}

declare_program! {
    /// Sorts segments of `size` elements.
    struct Sort = "sort top_k"(kind: KeyType);
    bindings { x: kind, candidates: U32, kept: U32 }
    params { round: RoundParams, size: usize }
}

impl Sort {
    fn shader(kind: KeyType) -> Shader {
        let after = "(a.x < b.x) | ((a.x == b.x) & (a.y < b.y))";
        let (element, new, before) = if kind.is_wide() {
            // Elements are padded, so that each lies in one access.
            (
                "vec4<u32>",
                "vec4(key.x, at, key.y, 0u)",
                format!("(a.z < b.z) | ((a.z == b.z) & ({after}))"),
            )
        } else {
            ("vec2<u32>", "vec2(key.x, at)", after.to_owned())
        };
        Self::declare(format!("top_k {kind:?}"), kind)
            .workgroup([CAPACITY as u32 / 8, 1, 1])
            .define("ELEMENT", element)
            .define("NEW", new)
            .define("BEFORE", before)
            .body(include_str!("../../../shaders/sort/top_k.wgsl"))
    }
}
