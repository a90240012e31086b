//! Tiles: which part of a result one workgroup computes, and with which memory.

use std::fmt;

use crate::device::MatrixSize;
use crate::kind::Kind;

/// The most blocks of a workgroup, which bounds the memory of staged sums.
pub(super) const MOST_BLOCKS: u32 = 8;

/// Where operands wait for their use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TileKind {
    /// Loaded straight into registers.
    Registers,
    /// The same, but the lanes of a subgroup share the loads of rows: each lane loads the elements
    /// of one of eight rows and broadcasts them. For subgroups of eight lanes or more, and sums of
    /// one word.
    Subgroup,
    /// Loaded straight into registers by this many groups of invocations, a power of two, which
    /// take turns at the steps of the contracted index; their sums are added in pairs through
    /// workgroup memory, in an order that depends on nothing else.
    Gemv(u32),
    /// Loaded together into workgroup memory.
    Workgroup {
        /// Steps of the contracted index at a time: a multiple of 16, so that elements of 16 bytes
        /// take a quarter of the steps.
        depth: u32,
        /// Places for each operand, one or two. With two, the next steps are loaded into registers
        /// while the current ones are multiplied, and then go to the other place: one barrier
        /// instead of two.
        buffers: u32,
    },
    /// Loaded into workgroup memory, and multiplied by subgroups as cooperative matrices.
    Cooperative {
        /// The size of the matrices of one multiplication.
        size: MatrixSize,
        /// Bytes of an element: 2 for f16, 4 for f32.
        bytes: u32,
    },
}

/// A workgroup of `lanes_m * lanes_n` invocations, or of groups of that size that share sums. An
/// invocation computes `rows` rows of `vec4s` times four columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tile {
    /// Rows of an invocation.
    pub rows: u32,
    /// Groups of four columns of an invocation.
    pub vec4s: u32,
    /// Invocations side by side along the rows.
    pub lanes_m: u32,
    /// Invocations side by side along the columns.
    pub lanes_n: u32,
    /// Where operands wait.
    pub kind: TileKind,
}

pub(super) const fn registers(rows: u32, vec4s: u32, lanes_m: u32, lanes_n: u32) -> Tile {
    Tile { rows, vec4s, lanes_m, lanes_n, kind: TileKind::Registers }
}

/// A tile with its lanes in a row; the lanes share loads.
pub(super) const fn subgroup(rows: u32, vec4s: u32, lanes_n: u32) -> Tile {
    Tile { rows, vec4s, lanes_m: 1, lanes_n, kind: TileKind::Subgroup }
}

/// A tile with its lanes in a row, in `groups` groups that share sums.
pub(super) const fn gemv(rows: u32, lanes_n: u32, groups: u32) -> Tile {
    Tile { rows, vec4s: 1, lanes_m: 1, lanes_n, kind: TileKind::Gemv(groups) }
}

pub(super) const fn workgroup(rows: u32, vec4s: u32, lanes_m: u32, lanes_n: u32) -> Tile {
    Tile { rows, vec4s, lanes_m, lanes_n, kind: TileKind::Workgroup { depth: 16, buffers: 1 } }
}

pub(super) const fn double(rows: u32, vec4s: u32, lanes_m: u32, lanes_n: u32) -> Tile {
    Tile { rows, vec4s, lanes_m, lanes_n, kind: TileKind::Workgroup { depth: 16, buffers: 2 } }
}

/// A tile of `edge` by `edge` sums for matrices of this size, with elements of `bytes` bytes. Edges
/// of 128 and 32 take 256 invocations, an edge of 64 takes 128.
pub(super) const fn cooperative_tile(edge: u32, size: MatrixSize, bytes: u32) -> Tile {
    let (rows, vec4s, lanes_m, lanes_n) = match edge {
        128 => (8, 2, 16, 16),
        64 => (8, 1, 8, 16),
        _ => (1, 1, 32, 8),
    };
    let kind = TileKind::Cooperative { size, bytes };
    Tile { rows, vec4s, lanes_m, lanes_n, kind }
}

/// Steps of the contracted index that cooperative matrices take at a time.
pub(super) const COOPERATIVE_DEPTH: u32 = 32;
/// Elements between lines of their tiles.
pub const PADDING: u32 = 8;

/// Lanes that share the loads of rows.
pub const SUBGROUP: u32 = 8;

/// The tile's name in tables and reports.
impl fmt::Display for Tile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, vec4s, lanes_m, lanes_n, kind } = self;
        write!(f, "{rows}x{vec4s} in {lanes_m}x{lanes_n} ")?;
        match kind {
            TileKind::Registers => f.write_str("registers"),
            TileKind::Subgroup => f.write_str("subgroup"),
            TileKind::Gemv(groups) => write!(f, "gemv of {groups}"),
            TileKind::Workgroup { buffers: 1, .. } => f.write_str("workgroup"),
            TileKind::Workgroup { .. } => f.write_str("double"),
            TileKind::Cooperative { size, bytes } => write!(f, "matrix {size} of {bytes}"),
        }
    }
}

impl Tile {
    /// Rows of the workgroup.
    pub const fn m(&self) -> usize {
        (self.rows * self.lanes_m) as usize
    }

    /// Columns of the workgroup.
    pub const fn n(&self) -> usize {
        (self.vec4s * 4 * self.lanes_n) as usize
    }

    /// Workgroups that cover a result of `m` by `n`.
    pub const fn tiles(&self, m: usize, n: usize) -> usize {
        m.div_ceil(self.m()) * n.div_ceil(self.n())
    }

    /// Steps of the contracted index at a time, for sums of `words` 32-bit words. None for tiles
    /// that have a single [`crate::device::Schedule`]: those that are not in workgroup memory.
    pub const fn steps(&self, words: usize) -> Option<usize> {
        match self.kind {
            TileKind::Workgroup { depth, .. } => Some(depth as usize / words),
            TileKind::Cooperative { .. } => Some(COOPERATIVE_DEPTH as usize),
            _ => None,
        }
    }

    /// Invocations.
    pub const fn threads(&self) -> u32 {
        self.lanes_m * self.lanes_n * self.groups()
    }

    /// Groups of invocations that take turns at the steps of the contracted index.
    pub const fn groups(&self) -> u32 {
        if let TileKind::Gemv(groups) = self.kind { groups } else { 1 }
    }

    /// Bytes of workgroup memory for elements of one word. With wider elements, tiles in workgroup
    /// memory take fewer steps, and sums take at most 16 KiB.
    pub const fn workgroup_memory(&self) -> u32 {
        match self.kind {
            TileKind::Registers | TileKind::Subgroup => 0,
            TileKind::Gemv(_) => self.threads() * 16,
            TileKind::Workgroup { depth, buffers, .. } => {
                buffers * depth * (self.m() + self.n()) as u32 * 4
            }
            TileKind::Cooperative { size, bytes } => {
                let lines = (self.m() + self.n()) as u32 * (COOPERATIVE_DEPTH + PADDING);
                self.buffers() * lines * bytes + size.sums() * 4 * MOST_BLOCKS
            }
        }
    }

    /// Places for each operand, as [`TileKind::Workgroup`] has them. Cooperative matrices have two
    /// where these take no more workgroup memory than adapters with such matrices have: 48 KiB
    /// where a matrix has 16 rows or columns, else 32 KiB. Tiles of 32 rows have one: Battlemage's
    /// compiler (bmg, Mesa 26.2.6) spills up to 21 registers where loads are under way.
    pub const fn buffers(&self) -> u32 {
        match self.kind {
            TileKind::Workgroup { buffers, .. } => buffers,
            TileKind::Cooperative { size, bytes } => {
                let is_small = size.m == 8 && size.n == 8;
                if bytes == 4 || self.m() < 64 || is_small && self.m() > 64 { 1 } else { 2 }
            }
            _ => 1,
        }
    }

    /// Whether sums of `words` 32-bit words each fit the registers: for wide elements a tile needs
    /// fewer sums.
    pub const fn fits(&self, words: usize, kind: Kind) -> bool {
        let most = if matches!(kind, Kind::FewRegisters) { 4 } else { 16 };
        words == 1
            || !matches!(self.kind, TileKind::Subgroup | TileKind::Cooperative { .. })
                && (self.rows * self.vec4s) as usize * words <= most
    }

    /// A number that identifies the tile.
    pub const fn id(&self) -> u32 {
        let kind = match self.kind {
            TileKind::Registers => 0,
            TileKind::Subgroup => 1,
            TileKind::Gemv(groups) => 2 | groups.ilog2() << 4,
            TileKind::Workgroup { depth, buffers } => (2 + buffers) | (depth / 16) << 4,
            TileKind::Cooperative { size, bytes } => 5 | size.id() << 4 | (bytes / 4) << 7,
        };
        self.rows | self.vec4s << 6 | self.lanes_m << 9 | self.lanes_n << 16 | kind << 24
    }
}
