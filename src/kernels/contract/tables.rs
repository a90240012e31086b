//! The tiles of each kind of adapter, in one static table each.

use super::software;
use super::tile::{OperandMemory, Tile, cooperative_tile, double, gemv, registers, workgroup};
use crate::device::{Class, Cooperative, MatrixSize, Profile};

/// Tiles of GPUs that share the processor's memory, and of GPUs of unknown kind. An invocation has
/// half as many sums as on a discrete GPU, since some GPUs have a quarter of the registers. Tiles
/// take at most 16 KiB of workgroup memory.
pub const INTEGRATED: &[Tile] = &[
    workgroup(8, 1, 8, 16),
    workgroup(4, 1, 8, 8),
    workgroup(4, 1, 32, 4),
    workgroup(4, 1, 4, 32),
    workgroup(4, 1, 32, 2),
    workgroup(4, 1, 2, 32),
    registers(4, 1, 1, 64),
    registers(1, 1, 1, 64),
    gemv(4, 16, 16),
    gemv(1, 16, 16),
    gemv(4, 1, 64),
    gemv(1, 1, 64),
];

/// Tiles of GPUs with a memory of their own. One whose workgroup memory exceeds what an adapter has
/// is not for it; each shape has one of at most 16 KiB.
pub const DISCRETE: &[Tile] = &[
    double(8, 2, 16, 16),
    workgroup(8, 2, 16, 16),
    double(4, 1, 16, 16),
    double(4, 1, 8, 8),
    workgroup(4, 1, 32, 4),
    workgroup(4, 1, 4, 32),
    workgroup(4, 1, 32, 2),
    workgroup(4, 1, 2, 32),
    registers(4, 1, 1, 64),
    registers(1, 1, 1, 64),
    gemv(4, 16, 16),
    gemv(1, 16, 16),
    gemv(4, 1, 64),
    gemv(1, 1, 64),
];

/// Tiles of GPUs with cooperative matrices, of all sizes and both element types. Those of f32 would
/// take more workgroup memory than there is for 128 rows and columns.
pub static COOPERATIVE: [Tile; 3 * MatrixSize::ALL.len()] = {
    let sizes = MatrixSize::ALL;
    let mut tiles = [cooperative_tile(64, sizes[0], 2); 3 * MatrixSize::ALL.len()];
    let mut i = 0;
    while i < sizes.len() {
        tiles[3 * i] = cooperative_tile(128, sizes[i], 2);
        tiles[3 * i + 1] = cooperative_tile(64, sizes[i], 2);
        tiles[3 * i + 2] = cooperative_tile(64, sizes[i], 4);
        i += 1;
    }
    tiles
};

/// Tiles of these matrices.
pub fn cooperative(offered: Option<Cooperative>) -> impl Iterator<Item = &'static Tile> {
    let memory = offered
        .map(|c| OperandMemory::Cooperative { size: c.size, bytes: c.element.size() as u32 });
    COOPERATIVE.iter().filter(move |t| Some(t.memory) == memory)
}

/// The tiles of all tables but that of cooperative matrices; some are in several of them.
pub fn all() -> impl Iterator<Item = &'static Tile> {
    let tables = [software::LANES, software::SUBGROUPS, INTEGRATED, DISCRETE];
    let before = move |i: usize, tile: &Tile| tables[..i].iter().any(|table| table.contains(tile));
    (0..tables.len()).flat_map(move |i| tables[i].iter().filter(move |tile| !before(i, tile)))
}

/// The tile of this id, in whichever table.
pub fn of_id(id: u32) -> Option<&'static Tile> {
    all().chain(&COOPERATIVE).find(|t| t.id() == id)
}

/// The tiles of an adapter.
pub const fn table(profile: &Profile) -> &'static [Tile] {
    match profile.class {
        Class::Software => software::tiles(profile),
        Class::Integrated => INTEGRATED,
        Class::Discrete => DISCRETE,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tile::SUBGROUP;
    use super::*;

    #[test]
    fn tiles_fit_every_adapter_and_have_their_own_ids() {
        let all: Vec<_> = super::all().chain(&COOPERATIVE).collect();
        for (i, t) in all.iter().enumerate() {
            assert!(t.threads() <= 256, "{t:?}");
            if let OperandMemory::Workgroup { depth, .. } = t.memory {
                assert_eq!(depth % 16, 0);
            }
            if let OperandMemory::Gemv(groups) = t.memory {
                assert!(groups.is_power_of_two(), "{t:?}");
                assert!(t.threads() <= 256, "sums of 64 bytes fit: {t:?}");
            }
            assert!(t.workgroup_memory() <= 32 << 10, "{t:?}");
            if t.memory == OperandMemory::Subgroup {
                assert!(
                    t.lanes_m == 1
                        && t.rows.is_multiple_of(SUBGROUP)
                        && t.threads().is_multiple_of(SUBGROUP),
                    "{t:?}"
                );
                assert!(t.rows <= 4 * SUBGROUP, "one load by rows: {t:?}");
            }
            assert!(t.rows == 1 || t.rows.is_multiple_of(4), "rows come in vec4s: {t:?}");
            assert!(all[..i].iter().all(|u| u.id() != t.id()), "{t:?}");
        }
    }
}
