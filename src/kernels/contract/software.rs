//! Tiles of software adapters, and their costs. A processor loads for each lane of a vector in
//! turn, so the number of products for each load decides.

use super::tile::{SUBGROUP, Tile, TileKind, registers, subgroup};
use crate::device::Profile;

/// Tiles of software adapters whose subgroups have eight lanes or more. llvmpipe loads lane by
/// lane, in a loop that costs as much as a hundred multiplications of whole subgroups, so the
/// number of products for each load decides. The tiles are few, and none has 32 rows, which would
/// be a seventh faster: a model's first step compiles them all.
pub const SUBGROUPS: &[Tile] = &[
    subgroup(16, 1, 8),
    subgroup(8, 1, 8),
    registers(8, 1, 2, 4),
    registers(8, 1, 8, 1),
    registers(1, 1, 1, 16),
];

/// Tiles of other software adapters: lanes along the columns, so that rows come from the workgroup
/// alone and a row's element is the same for all lanes of a subgroup of 8.
pub const LANES: &[Tile] = &[
    registers(8, 2, 1, 16),
    registers(8, 2, 1, 8),
    registers(8, 1, 1, 8),
    registers(8, 1, 2, 4),
    registers(8, 1, 4, 2),
    registers(8, 1, 8, 1),
    registers(4, 2, 1, 8),
    registers(1, 1, 1, 16),
];

/// The tiles of a software adapter.
pub const fn tiles(profile: &Profile) -> &'static [Tile] {
    if profile.shares_loads() { SUBGROUPS } else { LANES }
}

/// The cost of a load on a software adapter, in products of an invocation.
const LOAD: f64 = 80.0;
/// The fewest steps of a software adapter's workgroup when the contracted index is cut.
const LEAST_DEPTH: usize = 512;

/// Parts of the contracted index, and the estimated cost of a contraction of `depth` steps by
/// `tiles` workgroups of a tile; None for a GPU.
pub(super) fn estimate(
    profile: &Profile,
    t: &Tile,
    tiles: usize,
    depth: usize,
) -> Option<(usize, f64)> {
    if !profile.is_software() {
        return None;
    }
    let busy = profile.workgroups;
    let (rows, columns) = (f64::from(t.rows), f64::from(t.vec4s * 4));
    // For each step of the contracted index an invocation loads rows + columns elements, four at a
    // time, for rows * columns products.
    let own = if t.kind == TileKind::Subgroup { rows / f64::from(SUBGROUP) } else { rows };
    let step = rows * columns + LOAD * (own + columns) / 4.0;
    // Idle invocations cost as much as busy ones; too few workgroups leave the machine idle.
    let cost = step * f64::from(t.threads()) * tiles.max(busy) as f64;
    Some(((busy / tiles).min(depth / LEAST_DEPTH), cost))
}
