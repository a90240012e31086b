//! The tiles of each kind of adapter, in one static table each.

use super::element::registers as registers_of;
use super::software;
use super::tile::{Tile, TileKind, cooperative_tile, double, gemv, registers, subgroup, workgroup};
use crate::device::{Cooperative, MatrixSize, Profile};
use crate::dtype::DType;
use crate::kind::Kind;

/// Tiles of GPUs with at most 128 registers for an invocation, and of GPUs of unknown kind. Tiles
/// take at most 16 KiB of workgroup memory.
///
/// An invocation has at most 16 sums of 32 bits, which Intel's compiler (dg2) keeps in registers:
/// at SIMD8 in workgroup memory and mostly for GEMV, else at SIMD16. With 32 sums (8x1 in 8x16) it
/// spills 24 to 37 registers, with 64 (8x2 in 16x16) 19 to 130. Four rows of two-word
/// elements spill 34, so that those take tiles of one row.
///
/// In tiles without workgroup memory, whose lanes share the loads of rows, 32 sums fit: none of
/// their variants spills (dg2, lnl). With 64 sums (16x1) every variant that was tried spills 64
/// to 87 registers, except one. A workgroup is one subgroup, of 8 invocations up to Xe-HPG and of
/// 16 from Xe2 on.
pub const FEW_REGISTERS: &[Tile] = &[
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
    subgroup(8, 1, 8),
    subgroup(8, 1, 16),
];

/// Tiles of GPUs with more registers. An adapter does not use a tile that needs more workgroup
/// memory than it has; each shape has a tile of at most 16 KiB.
///
/// AMD's compiler spills none of their variants for MatMul (navi31, float32, without cooperative
/// ones: registers, waves for a SIMD):
/// 8x2 in 16x16 has 144 to 252 and 6 to 10; 4x1 in 16x16 96 to 108 and 14 to 16; 4x1 in 32x4 or
/// 4x32 the same; 4x1 in 8x8 with two buffers, in 32x2 or in 2x32 up to 192 and 8, since groups of
/// 64 fill the workgroup memory first; tiles in registers and GEMV at most 72 and 20 to 32.
/// Elements of two words have 8 waves or more, those of four 6.
pub const MANY_REGISTERS: &[Tile] = &[
    double(8, 2, 16, 16),
    workgroup(8, 2, 16, 16),
    double(8, 2, 16, 8),
    double(8, 2, 8, 8),
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
///
/// Matrices of 8x16x16 are those of Intel's Battlemage, whose subgroups of 32 invocations keep 128
/// sums in registers, in tiles of 32 rows and columns. With 256 its compiler (bmg, Mesa 25.0.7)
/// spills 10 to 18 registers of some variants, with 512 about 51, with 1,024 93 and more.
pub static COOPERATIVE: [Tile; 3 * MatrixSize::ALL.len() - 1] = {
    let sizes = MatrixSize::ALL;
    let mut tiles = [cooperative_tile(64, sizes[0], 2); 3 * MatrixSize::ALL.len() - 1];
    let (mut i, mut next) = (0, 0);
    while i < sizes.len() {
        let is_battlemage = sizes[i].m == 8 && sizes[i].n == 16 && sizes[i].k == 16;
        tiles[next] = cooperative_tile(if is_battlemage { 32 } else { 128 }, sizes[i], 2);
        tiles[next + 1] = cooperative_tile(64, sizes[i], 4);
        next += 2;
        if !is_battlemage {
            tiles[next] = cooperative_tile(64, sizes[i], 2);
            next += 1;
        }
        i += 1;
    }
    tiles
};

/// Tiles of these matrices.
pub fn cooperative(offered: Option<Cooperative>) -> impl Iterator<Item = &'static Tile> {
    let kind =
        offered.map(|c| TileKind::Cooperative { size: c.size, bytes: c.element.size() as u32 });
    COOPERATIVE.iter().filter(move |t| Some(t.kind) == kind)
}

/// The tiles of all tables but that of cooperative matrices; some are in several of them.
pub fn all() -> impl Iterator<Item = &'static Tile> {
    let tables = [software::LANES, software::SUBGROUPS, FEW_REGISTERS, MANY_REGISTERS];
    let before = move |i: usize, tile: &Tile| tables[..i].iter().any(|table| table.contains(tile));
    (0..tables.len()).flat_map(move |i| tables[i].iter().filter(move |tile| !before(i, tile)))
}

/// The tile of this id, in whichever table.
pub fn of_id(id: u32) -> Option<&'static Tile> {
    all().chain(&COOPERATIVE).find(|t| t.id() == id)
}

/// The kinds of adapters that have a tile in their table, for elements of this type.
pub fn kinds(tile: &Tile, dtype: DType) -> impl Iterator<Item = Kind> {
    let own = |kind| match kind {
        Kind::Software => software::LANES.iter().chain(software::SUBGROUPS),
        Kind::FewRegisters => FEW_REGISTERS.iter().chain(&COOPERATIVE),
        Kind::ManyRegisters => MANY_REGISTERS.iter().chain(&COOPERATIVE),
    };
    Kind::ALL.into_iter().filter(move |kind| {
        tile.fits(registers_of(dtype, *kind), *kind) && own(*kind).any(|t| t == tile)
    })
}

/// The tiles of an adapter.
pub const fn table(profile: &Profile) -> &'static [Tile] {
    match profile.kind() {
        Kind::Software => software::tiles(profile),
        Kind::FewRegisters => FEW_REGISTERS,
        Kind::ManyRegisters => MANY_REGISTERS,
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
            if let TileKind::Workgroup { depth, .. } = t.kind {
                assert_eq!(depth % 16, 0);
            }
            if let TileKind::Gemv(groups) = t.kind {
                assert!(groups.is_power_of_two(), "{t:?}");
                assert!(t.threads() <= 256, "sums of 64 bytes fit: {t:?}");
            }
            let is_cooperative = matches!(t.kind, TileKind::Cooperative { .. });
            let most = if is_cooperative && t.buffers() > 1 { 48 } else { 32 };
            assert!(t.workgroup_memory() <= most << 10, "{t:?}");
            if t.kind == TileKind::Subgroup {
                assert!(
                    t.lanes_m == 1
                        && t.rows.is_multiple_of(SUBGROUP)
                        && t.threads().is_multiple_of(SUBGROUP),
                    "{t:?}"
                );
                assert!(t.rows <= 4 * SUBGROUP, "one load by rows: {t:?}");
            }
            assert!(
                is_cooperative || t.rows == 1 || t.rows.is_multiple_of(4),
                "rows come in vec4s: {t:?}"
            );
            assert!(all[..i].iter().all(|u| u.id() != t.id()), "{t:?}");
        }
    }
}
