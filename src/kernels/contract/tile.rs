//! Tiles: which part of a result one workgroup computes, and with which memory. One static table for each class of adapter.

use std::cell::Cell;

use crate::device::Device;

/// Where operands wait for their use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// Loaded straight into registers.
    Registers,
    /// The same, but the lanes of a subgroup share what they load of rows: each loads what belongs to one of eight rows and
    /// broadcasts it. For subgroups of eight or more, and sums of one word.
    Subgroup,
    /// Loaded together into workgroup memory, this many steps of the contracted index at a time: a multiple of 16, so that elements
    /// of 16 bytes take a quarter of the steps.
    Workgroup(u32),
}

/// A workgroup of `lanes_m * lanes_n` invocations, each of which computes `rows` rows of `quads` times four columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tile {
    /// Rows of an invocation.
    pub rows: u32,
    /// Groups of four columns of an invocation.
    pub quads: u32,
    /// Invocations side by side along the rows.
    pub lanes_m: u32,
    /// Invocations side by side along the columns.
    pub lanes_n: u32,
    /// Where operands wait.
    pub memory: Memory,
}

const fn registers(rows: u32, quads: u32, lanes_m: u32, lanes_n: u32) -> Tile {
    Tile { rows, quads, lanes_m, lanes_n, memory: Memory::Registers }
}

/// Lanes in a row, whose number is that of the lanes that share.
const fn subgroup(rows: u32, quads: u32, lanes_n: u32) -> Tile {
    Tile { rows, quads, lanes_m: 1, lanes_n, memory: Memory::Subgroup }
}

const fn workgroup(rows: u32, quads: u32, lanes_m: u32, lanes_n: u32) -> Tile {
    Tile { rows, quads, lanes_m, lanes_n, memory: Memory::Workgroup(16) }
}

/// Lanes that share what they load of rows.
pub const SUBGROUP: u32 = 8;

/// Tiles of software adapters whose subgroups have eight lanes or more. llvmpipe loads lane by lane, in a loop that costs as much as a hundred
/// multiplications of whole subgroups, so what counts is how few loads feed how many products. Few tiles, and none of 32 rows,
/// which is a seventh faster: a model's first step compiles them all.
pub const CPU_SUBGROUP: &[Tile] =
    &[subgroup(16, 1, 8), subgroup(8, 1, 8), registers(8, 1, 2, 4), registers(8, 1, 8, 1), registers(1, 1, 1, 16)];

/// Tiles of other software adapters: lanes along the columns, so that rows come from the workgroup alone and a row's element is the
/// same for all lanes of a subgroup of 8.
pub const CPU: &[Tile] = &[
    registers(8, 2, 1, 16),
    registers(8, 2, 1, 8),
    registers(8, 1, 1, 8),
    registers(8, 1, 2, 4),
    registers(8, 1, 4, 2),
    registers(8, 1, 8, 1),
    registers(4, 2, 1, 8),
    registers(1, 1, 1, 16),
];

/// Tiles of GPUs: workgroup memory of at most 16 KiB, and registers alone for a few rows.
pub const GPU: &[Tile] = &[
    workgroup(8, 2, 16, 16),
    workgroup(4, 1, 16, 16),
    workgroup(4, 1, 8, 8),
    workgroup(4, 1, 32, 2),
    workgroup(4, 1, 2, 32),
    registers(4, 1, 1, 64),
    registers(1, 1, 1, 64),
];

/// The tiles of all tables; some are in two of them.
pub fn all() -> impl Iterator<Item = &'static Tile> {
    let new = |t: &&Tile| !CPU.contains(t);
    CPU.iter().chain(CPU_SUBGROUP.iter().filter(new)).chain(GPU)
}

impl Tile {
    /// Rows of the workgroup.
    pub const fn m(&self) -> usize {
        (self.rows * self.lanes_m) as usize
    }

    /// Columns of the workgroup.
    pub const fn n(&self) -> usize {
        (self.quads * 4 * self.lanes_n) as usize
    }

    /// Workgroups that cover a result of `m` by `n`.
    pub const fn tiles(&self, m: usize, n: usize) -> usize {
        m.div_ceil(self.m()) * n.div_ceil(self.n())
    }

    /// Invocations.
    pub const fn threads(&self) -> u32 {
        self.lanes_m * self.lanes_n
    }

    /// Whether sums of `words` 32-bit words each fit the registers: wide elements take tiles with fewer of them.
    pub const fn fits(&self, words: usize) -> bool {
        words == 1 || !matches!(self.memory, Memory::Subgroup) && (self.rows * self.quads) as usize * words <= 16
    }

    /// A number that no other tile has.
    pub const fn id(&self) -> u32 {
        let memory = match self.memory {
            Memory::Registers => 0,
            Memory::Subgroup => 1,
            Memory::Workgroup(depth) => depth,
        };
        self.rows | self.quads << 6 | self.lanes_m << 9 | self.lanes_n << 16 | memory << 24
    }
}

/// Which table applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Software adapters.
    Cpu,
    /// Software adapters with subgroups of eight lanes or more.
    CpuSubgroup,
    /// GPUs.
    Gpu,
}

thread_local! {
    static FORCED: Cell<Option<Class>> = const { Cell::new(None) };
}

/// Runs `f` with the table of `class` for everything that this thread computes: tests run both tables on any adapter.
pub fn with_class<R>(class: Class, f: impl FnOnce() -> R) -> R {
    let before = FORCED.replace(Some(class));
    let result = f();
    FORCED.set(before);
    result
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Cpu, Self::CpuSubgroup, Self::Gpu];

    /// The class of a device.
    pub fn of(device: &Device) -> Self {
        let sharing = device.capabilities().subgroups && device.info().subgroup_min_size >= SUBGROUP;
        let own = match device.capabilities().cpu {
            true if sharing => Self::CpuSubgroup,
            true => Self::Cpu,
            false => Self::Gpu,
        };
        // What an adapter lacks cannot be forced.
        FORCED.get().filter(|class| sharing || *class != Self::CpuSubgroup).unwrap_or(own)
    }

    /// Its tiles.
    pub const fn table(self) -> &'static [Tile] {
        match self {
            Self::Cpu => CPU,
            Self::CpuSubgroup => CPU_SUBGROUP,
            Self::Gpu => GPU,
        }
    }

    /// How many workgroups keep it busy, and the fewest steps of the contracted index that a workgroup should take when the
    /// contraction is cut for that.
    pub const fn parallelism(self) -> (usize, usize) {
        match self {
            Self::Cpu | Self::CpuSubgroup => (16, 512),
            Self::Gpu => (512, 128),
        }
    }
}

/// What a load of a software adapter costs in products of an invocation.
const LOAD: f64 = 80.0;

/// The tile with the least estimated cost for `batch` results of `m` by `n`, whose sums have `words` 32-bit words each.
pub fn choose(class: Class, words: usize, m: usize, n: usize, batch: usize) -> &'static Tile {
    let (busy, _) = class.parallelism();
    let cost = |t: &Tile| {
        let tiles = t.tiles(m, n) * batch;
        let (rows, columns) = (t.rows as f64, f64::from(t.quads * 4));
        // Per step of the contracted index an invocation loads rows + columns elements for rows * columns products.
        let step = match t.memory {
            Memory::Registers if class == Class::Gpu => rows * columns + 8.0 * (rows + columns),
            // Loads of four.
            Memory::Registers => rows * columns + LOAD * (rows + columns) / 4.0,
            Memory::Subgroup => rows * columns + LOAD * (rows / f64::from(SUBGROUP) + columns) / 4.0,
            Memory::Workgroup(_) => rows * columns + 1.5 * (rows + columns),
        };
        // Idle invocations cost as much as busy ones; too few workgroups leave the machine idle.
        step * f64::from(t.threads()) * tiles.max(busy.min(64)) as f64
    };
    // At equal cost the tile that computes less beyond the result.
    let covered = |t: &Tile| t.tiles(m, n) * t.m() * t.n();
    let best = class
        .table()
        .iter()
        .filter(|t| t.fits(words))
        .min_by(|a, b| cost(a).total_cmp(&cost(b)).then(covered(a).cmp(&covered(b))));
    best.expect("a table is never empty")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_fit_every_adapter_and_have_their_own_ids() {
        let all: Vec<_> = super::all().collect();
        for (i, t) in all.iter().enumerate() {
            assert!(t.threads() <= 256, "{t:?}");
            if let Memory::Workgroup(depth) = t.memory {
                assert!(depth as usize * (t.m() + t.n()) * 4 <= 16 << 10, "{t:?}");
                assert_eq!(depth % 16, 0);
            }
            if t.memory == Memory::Subgroup {
                assert!(
                    t.lanes_m == 1 && t.rows.is_multiple_of(SUBGROUP) && t.threads().is_multiple_of(SUBGROUP),
                    "{t:?}"
                );
                assert!(t.rows <= 4 * SUBGROUP, "one load by rows: {t:?}");
            }
            assert!(t.rows == 1 || t.rows.is_multiple_of(4), "rows come in fours: {t:?}");
            assert!(all[..i].iter().all(|u| u.id() != t.id()), "{t:?}");
        }
    }

    #[test]
    fn narrow_results_get_narrow_tiles() {
        assert_eq!(choose(Class::Cpu, 1, 1024, 1024, 1).n(), 128);
        assert!(choose(Class::Cpu, 1, 128, 10, 1).n() <= 16);
        assert_eq!(choose(Class::Cpu, 1, 1000, 1, 1).n(), 4);
        assert_eq!(choose(Class::Cpu, 1, 1, 1000, 1).m(), 1);
        assert_eq!(choose(Class::Gpu, 1, 4096, 4096, 1).m(), 128);
        assert!(choose(Class::Gpu, 1, 1, 4096, 1).m() <= 8);
        assert!(choose(Class::Gpu, 1, 64, 64, 1).m() <= 64);
    }
}
