//! Tiles of attention and of its gradients in registers: which rows a workgroup computes, how its
//! invocations share them, and how many positions of the other side it takes at a time.

use std::ops::Range;

use crate::device::Profile;
use crate::kind::Kind;

/// Groups of four elements that the part of the other side in workgroup memory has at most.
const PART: u32 = 256;

/// The kernel that a tile is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Attention itself: an invocation has a tile of scores, and one of sums.
    Forward,
    /// Its gradients: an invocation has two tiles of products, and up to two of sums.
    Gradient,
}

/// A workgroup of `row_lanes` times `key_lanes` invocations. Each has the products of `rows` rows
/// with four positions in registers. With eight rows it reads 1.25 to 1.5 bytes from workgroup
/// memory for each multiply-add, with four 1.6 to 1.8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegisterTile {
    /// Groups of four elements of a row; rows with fewer elements are padded by zeros.
    pub vec4s: u32,
    /// Invocations side by side along the rows.
    pub row_lanes: u32,
    /// Invocations side by side along the positions of the other side: keys, if rows are queries.
    pub key_lanes: u32,
    /// Rows of an invocation.
    pub rows: u32,
}

/// The tiles for one width of heads. Of two numbers, the first is for GPUs with many registers, the
/// second for other adapters. An invocation has as many rows as the registers and 32 KiB of
/// workgroup memory can hold. With twice the rows of the second number, or with unrolled loops,
/// Intel's compiler for dg2 (Mesa 26.2.6) spills 1 to 88 registers: `rounds` as the bound of a loop
/// prevents unrolling.
struct Width {
    vec4s: u32,
    lanes: [u32; 2],
    forward: [u32; 2],
    gradient: [u32; 2],
}

const fn width(vec4s: u32, lanes: [u32; 2], forward: [u32; 2], gradient: [u32; 2]) -> Width {
    Width { vec4s, lanes, forward, gradient }
}

/// By ascending width.
const WIDTHS: [Width; 6] = [
    width(4, [16, 4], [8, 4], [4, 2]),
    width(8, [8, 8], [8, 4], [4, 2]),
    width(16, [8, 8], [8, 4], [4, 1]),
    width(24, [8, 8], [4, 2], [2, 1]),
    width(32, [4, 16], [8, 4], [4, 1]),
    width(64, [4, 16], [4, 2], [2, 1]),
];

impl Width {
    const fn tile(&self, rows: u32) -> RegisterTile {
        let [row_lanes, key_lanes] = self.lanes;
        RegisterTile { vec4s: self.vec4s, row_lanes, key_lanes, rows }
    }

    fn most(&self, role: Role, kind: Kind) -> u32 {
        let most = match role {
            Role::Forward => self.forward,
            Role::Gradient => self.gradient,
        };
        most[usize::from(kind != Kind::ManyRegisters)]
    }
}

/// Every tile with the kinds of adapters that have it.
pub fn all(role: Role) -> impl Iterator<Item = (RegisterTile, Vec<Kind>)> {
    WIDTHS.iter().flat_map(move |width| {
        [8, 4, 2, 1].into_iter().filter_map(move |rows| {
            let has = |kind: &Kind| rows <= width.most(role, *kind);
            let kinds: Vec<_> = Kind::ALL.into_iter().filter(has).collect();
            (!kinds.is_empty()).then(|| (width.tile(rows), kinds))
        })
    })
}

/// The groups of four elements of the narrowest tile for rows of `elements`.
pub fn vec4s_of(elements: usize) -> Option<u32> {
    WIDTHS.iter().map(|w| w.vec4s).find(|n| *n as usize * 4 >= elements)
}

impl RegisterTile {
    /// The tile for rows of `vec4s` groups, where each of `matrices` has `rows` rows. An invocation
    /// has fewer rows where others would be idle.
    pub fn of(profile: &Profile, role: Role, vec4s: u32, [rows, matrices]: [usize; 2]) -> Self {
        let width = Self::width_of(vec4s);
        let memory = profile.capabilities.workgroup_memory;
        // Attention can also be cut along the keys, to keep all processors busy.
        let enough = if role == Role::Forward { 4 } else { 2 };
        let mut tile = width.tile(width.most(role, profile.kind()));
        while tile.rows > 1
            && (tile.memory(role) > memory
                || tile.workgroup_rows() >= 2 * rows
                || (tile.rows > enough && tile.workgroups(rows, matrices) < profile.workgroups))
        {
            tile.rows /= 2;
        }
        tile
    }

    /// The tile for a driver that refuses this tile's shader. It has the same lanes, at most half
    /// the rows, and no more rows than GPUs with few registers allow. None if this tile has one
    /// row.
    pub fn with_fewer_rows(&self, role: Role) -> Option<Self> {
        let width = Self::width_of(self.vec4s);
        let rows = width.most(role, Kind::FewRegisters).min(self.rows / 2);
        (rows > 0).then(|| width.tile(rows))
    }

    fn width_of(vec4s: u32) -> &'static Width {
        WIDTHS.iter().find(|w| w.vec4s == vec4s).expect("a width of the table")
    }

    /// Workgroups for `matrices` of `rows` rows.
    pub const fn workgroups(&self, rows: usize, matrices: usize) -> usize {
        rows.div_ceil(self.workgroup_rows()) * matrices
    }

    /// The numbers of an invocation's groups of four elements in a row of sums.
    pub const fn own(&self) -> Range<u32> {
        0..self.vec4s / self.key_lanes
    }

    /// Invocations of a workgroup.
    pub const fn lanes(&self) -> u32 {
        self.row_lanes * self.key_lanes
    }

    /// Elements of a row.
    pub const fn width(&self) -> usize {
        self.vec4s as usize * 4
    }

    /// Rows of a workgroup.
    pub const fn workgroup_rows(&self) -> usize {
        (self.rows * self.row_lanes) as usize
    }

    /// Positions of the other side that a workgroup takes at a time.
    pub const fn keys(&self) -> u32 {
        4 * self.key_lanes
    }

    /// Groups of four elements of every one of these that lie in workgroup memory at a time.
    pub const fn key_quads(&self) -> u32 {
        let quads = PART / self.keys();
        if quads < self.vec4s { quads } else { self.vec4s }
    }

    /// Whole positions that lie in workgroup memory at a time.
    pub const fn values(&self) -> u32 {
        let values = 1 << (PART / self.vec4s).ilog2();
        if values < self.keys() { values } else { self.keys() }
    }

    /// Groups of four elements of the larger of these parts.
    pub const fn part(&self) -> u32 {
        let by_quads = self.key_quads() * (self.keys() + 1);
        let whole = self.values() * self.vec4s;
        if by_quads > whole { by_quads } else { whole }
    }

    /// Bytes of workgroup memory.
    pub fn memory(&self, role: Role) -> u32 {
        let rows = self.workgroup_rows() as u32;
        let weights = self.key_lanes * (rows + 1);
        let quads = match role {
            Role::Forward => self.vec4s * (rows + 1) + weights + rows + rows * self.key_lanes / 4,
            Role::Gradient => 2 * self.vec4s * rows + 2 * weights + rows.max(self.keys()),
        };
        16 * (quads + self.part())
    }

    /// Iterations of all loops of an invocation for each `keys` positions.
    pub const fn iterations(&self, role: Role) -> usize {
        let loads_of_quads = (self.keys() * self.key_quads()).div_ceil(self.lanes());
        let loads_of_values = (self.values() * self.vec4s).div_ceil(self.lanes());
        let products = self.vec4s / self.key_quads() * (1 + loads_of_quads + self.key_quads());
        let sums = self.keys() / self.values() * (1 + loads_of_values + self.values() / 4);
        (match role {
            Role::Forward => 1 + products + sums,
            Role::Gradient => 1 + self.keys().div_ceil(self.lanes()) + 2 * (products + sums),
        }) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::fused::attention::MAX_CHUNK;

    const ROLES: [Role; 2] = [Role::Forward, Role::Gradient];

    #[test]
    fn tiles_are_whole_and_fit() {
        assert!(WIDTHS.is_sorted_by_key(|w| w.vec4s));
        for (role, (t, _)) in ROLES.into_iter().flat_map(|r| all(r).map(move |t| (r, t))) {
            assert!(t.vec4s.is_multiple_of(t.key_lanes), "{t:?}");
            assert!(t.vec4s.is_multiple_of(t.key_quads()), "{t:?}");
            assert!(t.keys().is_multiple_of(t.values()) && t.values() >= 4, "{t:?}");
            let memory = t.memory(role);
            assert!(memory <= 32 << 10, "{role:?} {t:?}: {memory} bytes");
            let chunk = MAX_CHUNK / t.keys() as usize * t.iterations(Role::Forward);
            assert!(chunk < 65_535, "{t:?}: {chunk} iterations");
            let fewer = t.with_fewer_rows(role);
            assert_eq!(fewer.is_some(), t.rows > 1, "{t:?}");
            assert!(fewer.is_none_or(|other| other.rows < t.rows && other.memory(role) < memory));
        }
    }

    #[test]
    fn tiles_suit_adapter_and_problem() {
        for profile in Profile::PRESETS {
            for (role, width) in ROLES.into_iter().flat_map(|r| WIDTHS.iter().map(move |w| (r, w)))
            {
                let of = |sizes| RegisterTile::of(&profile, role, width.vec4s, sizes);
                assert_eq!(of([1, 4096]).rows, 1);
                let memory = of([4096, 4096]).memory(role);
                assert!(memory <= profile.capabilities.workgroup_memory, "{profile} {role:?}");
            }
        }
        let rows = |profile, sizes| RegisterTile::of(&profile, Role::Forward, 16, sizes).rows;
        assert_eq!(rows(Profile::NVIDIA, [1024, 512]), 8);
        assert_eq!(rows(Profile::NVIDIA, [128, 12]), 4);
        assert_eq!(rows(Profile::NVIDIA, [16, 4096]), 2);
        assert_eq!(rows(Profile::INTEL, [1024, 512]), 4);
        assert_eq!(rows(Profile::WEBGPU, [1024, 512]), 2);
    }

    #[test]
    fn rows_get_the_narrowest_tile() {
        assert_eq!(vec4s_of(0), Some(4));
        assert_eq!(vec4s_of(64), Some(16));
        assert_eq!(vec4s_of(65), Some(24));
        assert_eq!(vec4s_of(257), None);
    }
}
