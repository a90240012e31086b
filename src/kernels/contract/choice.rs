//! Which tile of an adapter's table a contraction takes, and into how many parts its contracted
//! index is cut: the choice that is estimated to finish first.
//!
//! An estimate counts products of one invocation, as if a machine ran a fixed number of invocations
//! at once and all others after them. Its profile has that number, [`CORE`] for each core.

mod schedule;

use smallvec::SmallVec;

use super::shares::CORE;
use super::tile::{COOPERATIVE_DEPTH, SUBGROUP, Tile, TileKind};
use super::{Contraction, element, software, tables};
use crate::device::{Cooperative, Profile, Schedule};
use crate::dtype::DType;

/// The contraction and the adapter that a choice is made for.
#[derive(Debug, Clone, Copy)]
pub struct Demand {
    /// The adapter.
    pub profile: Profile,
    /// 32-bit words of a sum, by which tiles shrink.
    pub words: usize,
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// Length of the contracted index.
    pub depth: usize,
    /// Number of results.
    pub batch: usize,
    /// Whether neighbouring elements of `b` lie along the contracted index, not along columns.
    pub by_depth: bool,
    /// Cooperative matrices of the operands' type that are used.
    pub cooperative: Option<Cooperative>,
}

impl Demand {
    /// The demand of contractions of this type and these extents: rows, columns, the length of the
    /// contracted index, and the number of results.
    pub(super) fn of(
        profile: Profile,
        dtype: DType,
        [m, n, depth, batch]: [usize; 4],
        by_depth: bool,
        cooperative: Option<Cooperative>,
    ) -> Self {
        let words = element::registers(dtype, profile.kind());
        Self { profile, words, m, n, depth, batch, by_depth, cooperative }
    }
}

impl Contraction {
    /// The demand that a tile is chosen for.
    pub(super) fn demand(&self, profile: Profile, cooperative: Option<Cooperative>) -> Demand {
        let extents = [self.m, self.n, self.depth(), self.batch.len()];
        Demand::of(profile, self.a.dtype, extents, self.is_by_depth(), cooperative)
    }
}

/// A tile with its parts and its schedule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// A tile of the adapter's table.
    pub tile: &'static Tile,
    /// Parts that the contracted index is cut into for parallelism.
    pub split_k: usize,
    /// How workgroups share the tiles.
    pub schedule: Schedule,
}

/// The choice with the least estimated cost.
pub fn choose(d: &Demand) -> Choice {
    let best = estimates(d).min_by(|x, y| order(d, x, y));
    schedule::scheduled(d, best.expect("a table has a tile for every element and adapter").0)
}

/// The same, among `tiles` alone.
pub fn choose_among(d: &Demand, tiles: &[&'static Tile]) -> Choice {
    let among = estimates(d).filter(|(choice, _)| tiles.contains(&choice.tile));
    let best = among.min_by(|x, y| order(d, x, y));
    best.expect("tiles that are offered").0
}

/// The choice with `tile`, with these parts and this schedule or else with the estimated ones. None
/// if the adapter does not have it for the contraction, or if the profile forces another.
pub fn advised(
    d: &Demand,
    tile: &'static Tile,
    parts: Option<usize>,
    schedule: Option<Schedule>,
) -> Option<Choice> {
    let is_forced = d.profile.tile != 0 || d.profile.schedule.is_some();
    if is_forced || !offered(d).any(|t| t == tile) {
        return None;
    }
    let estimated = choose_among(d, &[tile]);
    let choice = Choice { split_k: parts.unwrap_or(estimated.split_k), ..estimated };
    match schedule {
        None => Some(schedule::scheduled(d, choice)),
        Some(Schedule::DataParallel) => Some(choice),
        Some(_) if !schedule::are_known(d, tile) => None,
        // Shares cut tiles themselves, and longer sums are cut for their precision.
        Some(Schedule::StreamK) if d.depth > Contraction::LONGEST_WHOLE => None,
        Some(Schedule::StreamK) => {
            Some(Choice { split_k: 1, schedule: Schedule::StreamK, ..choice })
        }
        Some(schedule) => Some(Choice { schedule, ..choice }),
    }
}

/// The tile of four sums in registers for each invocation: it has no workgroup memory, no barrier
/// and the shortest text.
pub fn plainest(d: &Demand) -> Option<Choice> {
    let is_plain = |t: &&Tile| t.kind == TileKind::Registers && (t.rows, t.vec4s) == (1, 1);
    let tile = offered(d).find(is_plain)?;
    Some(choose_among(d, &[tile]))
}

/// The most choices that are worth timing.
pub const MOST_CANDIDATES: usize = 5;
/// A candidate's estimate may be at most this many times the least one: estimates are not further
/// off than that, and each candidate is run a few times.
const MOST_COST: f64 = 4.0;
/// An adapter may have this many times fewer invocations than its profile says.
const NARROWER: usize = 4;

/// The choices that are worth timing, the one of [`choose`] first.
pub fn candidates(d: &Demand) -> SmallVec<[Choice; MOST_CANDIDATES]> {
    let mut all: SmallVec<[(Choice, f64); 32]> = estimates(d).collect();
    all.sort_by(|x, y| order(d, x, y));
    let Some((first, least)) = all.first().copied() else { return SmallVec::new() };
    let scheduled = schedule::scheduled(d, first);
    let fewer = Choice { split_k: first.split_k / NARROWER, ..first };
    let cut = (fewer.split_k > 1).then_some(fewer);
    let others =
        all[1..].iter().filter(|(_, cost)| *cost <= MOST_COST * least).map(|(choice, _)| *choice);
    let own = std::iter::once(scheduled).chain((scheduled != first).then_some(first));
    own.chain(cut).chain(others).take(MOST_CANDIDATES).collect()
}

/// What the estimate takes with one tile.
#[derive(Debug, Clone, Copy)]
pub struct Estimated {
    /// The choice.
    pub choice: Choice,
    /// Its cost, in products of one invocation.
    pub cost: f64,
    /// The part of it that the steps have. The rest begins and ends workgroups.
    pub steps: f64,
    /// The part of a step's cost that its products have.
    pub products: f64,
}

/// What the estimate takes with each tile that the adapter offers, the best first.
pub fn by_tile(d: &Demand) -> Vec<Estimated> {
    let mut all: SmallVec<[(Choice, f64); 32]> = estimates(d).collect();
    all.sort_by(|x, y| order(d, x, y));
    let mut found: Vec<Estimated> = Vec::new();
    for (choice, cost) in all {
        if found.iter().all(|known| known.choice.tile != choice.tile) {
            let Choice { tile, split_k, .. } = choice;
            found.push(Estimated {
                choice: schedule::scheduled(d, choice),
                cost,
                steps: waves(d, tile, split_k) * steps_cost(d, tile, split_k) / cost,
                products: products(tile) / step_cost(d, tile),
            });
        }
    }
    found
}

/// The bit of a choice's name at which the schedule begins, above its parts and its tile.
const SCHEDULE: u32 = 62;
/// The most parts that a name holds.
const MOST_PARTS: u64 = (1 << 30) - 1;

impl Choice {
    /// Whether its tile multiplies cooperative matrices.
    pub const fn is_cooperative(&self) -> bool {
        matches!(self.tile.kind, TileKind::Cooperative { .. })
    }

    /// A workgroup for each tile.
    pub const fn of_tiles(tile: &'static Tile, split_k: usize) -> Self {
        Self { tile, split_k, schedule: Schedule::DataParallel }
    }

    /// A number that identifies the choice in every process.
    pub const fn name(&self) -> u64 {
        let schedule = match self.schedule {
            Schedule::DataParallel => 0,
            Schedule::Persistent => 1,
            Schedule::StreamK => 2,
        };
        schedule << SCHEDULE | (self.split_k as u64 & MOST_PARTS) << 32 | self.tile.id() as u64
    }

    /// The choice of this name, if the adapter has its tile for the contraction.
    pub fn named(name: u64, d: &Demand) -> Option<Self> {
        let tile = offered(d).find(|t| u64::from(t.id()) == name & u64::from(u32::MAX))?;
        let schedule = match name >> SCHEDULE {
            0 => Schedule::DataParallel,
            1 => Schedule::Persistent,
            2 => Schedule::StreamK,
            _ => return None,
        };
        let known = schedule == Schedule::DataParallel || schedule::are_known(d, tile);
        known.then_some(Self { tile, split_k: (name >> 32 & MOST_PARTS) as usize, schedule })
    }
}

fn fits(d: &Demand, t: &Tile) -> bool {
    let has_lanes = match t.kind {
        TileKind::Subgroup => d.profile.is_software() || d.profile.has_subgroups_of(t.lanes_n),
        _ => true,
    };
    has_lanes
        && t.fits(d.words, d.profile.kind())
        && t.workgroup_memory() <= d.profile.capabilities.workgroup_memory
}

/// The adapter's tiles that suit the contraction.
fn offered(d: &Demand) -> impl Iterator<Item = &'static Tile> {
    tables::table(&d.profile)
        .iter()
        .chain(tables::cooperative(d.cooperative))
        .filter(|t| fits(d, t))
}

/// All possible choices, with their estimated costs.
fn estimates(d: &Demand) -> impl Iterator<Item = (Choice, f64)> {
    let is_offered = |t: &&Tile| match t.kind {
        TileKind::Cooperative { .. } => tables::cooperative(d.cooperative).any(|o| o == *t),
        _ => true,
    };
    let forced = tables::of_id(d.profile.tile).filter(|t| fits(d, t)).filter(is_offered);
    let tiles = offered(d).filter(move |t| forced.is_none_or(|f| f == *t)).chain(forced);
    tiles
        .flat_map(|tile| {
            let tiles = tile.tiles(d.m, d.n) * d.batch;
            match software::estimate(&d.profile, tile, tiles, d.depth) {
                Some((split_k, cost)) => [Some((Choice::of_tiles(tile, split_k), cost)), None],
                None => on_gpu(d, tile),
            }
        })
        .flatten()
}

/// Orders choices by cost; at equal cost, the tile that computes less beyond the result comes
/// first.
fn order(d: &Demand, (a, x): &(Choice, f64), (b, y): &(Choice, f64)) -> std::cmp::Ordering {
    let covered = |t: &Tile| t.tiles(d.m, d.n) * t.m() * t.n();
    x.total_cmp(y).then_with(|| covered(a.tile).cmp(&covered(b.tile)))
}

/// The cost of a load from memory on a GPU, in products of an invocation, where the neighbouring
/// invocations load the same element, the elements next to it, or elements apart from it.
const SAME: f64 = 4.0;
const NEAR: f64 = 8.0;
const APART: f64 = 24.0;
/// The cost of a load from workgroup memory, or from the cache that shares its memory where all
/// lanes of a subgroup load neighbours. Half of the cost of filling workgroup memory is hidden
/// where the next steps are loaded ahead.
const SHARED: f64 = 1.5;
/// The cost of a sum that goes to memory and comes back. The FMA units of large cards compute 15 to
/// 41 products in the time in which their memory moves one byte, so that eight bytes cost 120 to
/// 330; caches hold some of them.
const MOVED: f64 = 100.0;
/// The independent sums with which one invocation in four keeps a lane busy: as many products are
/// on their way at once as of four invocations with a quarter of the sums.
const BUSY: f64 = 64.0;
/// The cost of a workgroup before its first step, and of each addition of two groups' sums with its
/// barrier.
const START: f64 = 100.0;
const BARRIER: f64 = 20.0;
/// The number of products that cooperative matrices of f16 compute in the time of one, and the
/// number that those of f32 compute.
const COOPERATIVE_SPEED: f64 = 8.0;
const COOPERATIVE_SPEED_F32: f64 = 2.0;
/// The fewest steps of an invocation when the contracted index is cut.
const LEAST: usize = 128;
/// The same for invocations that share a sum: their steps are loads without products in between.
const LEAST_GEMV: usize = 16;

/// How many products are computed in the time of one.
const fn speed(t: &Tile) -> f64 {
    match t.kind {
        TileKind::Cooperative { bytes: 4, .. } => COOPERATIVE_SPEED_F32,
        TileKind::Cooperative { .. } => COOPERATIVE_SPEED,
        _ => 1.0,
    }
}

/// The cost of the products of a step.
fn products(t: &Tile) -> f64 {
    f64::from(t.rows * t.vec4s * 4) / speed(t)
}

/// The cost of a step of the contracted index for an invocation.
fn step_cost(d: &Demand, t: &Tile) -> f64 {
    let groups = t.groups();
    let (rows, columns) = (f64::from(t.rows), f64::from(t.vec4s * 4));
    let near = if groups > 1 && d.by_depth { t.lanes_n == 1 } else { t.lanes_n > 1 && !d.by_depth };
    let speed = speed(t);
    let loads = match t.kind {
        TileKind::Subgroup => {
            // The first tile of the same columns brings them into the cache.
            let cached = SHARED + (NEAR - SHARED) / d.m.div_ceil(t.m()) as f64;
            let column = if near { cached } else { APART };
            SHARED * rows / f64::from(SUBGROUP) + column * columns
        }
        TileKind::Registers | TileKind::Gemv(_) => {
            SAME * rows + if near { NEAR } else { APART } * columns
        }
        TileKind::Workgroup { depth, buffers, .. } => {
            let overlapped = if buffers > 1 { 0.5 } else { 1.0 };
            let filling = NEAR * (t.m() + t.n()) as f64 / f64::from(t.threads())
                + 2.0 * BARRIER / f64::from(depth);
            SHARED * (rows + columns) + overlapped * filling
        }
        TileKind::Cooperative { .. } => {
            let filling = NEAR * (t.m() + t.n()) as f64 / f64::from(t.threads());
            filling
                + 2.0 * BARRIER / f64::from(COOPERATIVE_DEPTH)
                + SHARED * (rows + columns) / speed
        }
    };
    products(t) + loads
}

/// The cost of adding up `partial` sums in a second dispatch.
fn finish_cost(d: &Demand, partial: usize) -> f64 {
    f64::from(d.profile.dispatch_cost) + MOVED * partial as f64 / d.profile.invocations as f64
}

/// The least part of a full device's time that a step of a tile takes on a device that is not full:
/// a core has at least one workgroup, and a lane needs enough products that do not wait for each
/// other. The loads of tiles without workgroup memory wait for memory, whose time is the same.
fn least_share(t: &Tile) -> f64 {
    if t.workgroup_memory() == 0 || t.groups() > 1 {
        return 1.0;
    }
    let sums = f64::from(t.rows * t.vec4s * 4);
    (BUSY / sums / 4.0).max(f64::from(t.threads()) / CORE as f64).min(1.0)
}

/// The times that the adapter's invocations run one after the other, with `parts` parts of a tile.
fn waves(d: &Demand, t: &Tile, parts: usize) -> f64 {
    let invocations = t.tiles(d.m, d.n) * d.batch * t.threads() as usize * parts;
    (invocations as f64 / d.profile.invocations as f64).max(least_share(t))
}

/// The cost of all steps of an invocation.
fn steps_cost(d: &Demand, t: &Tile, parts: usize) -> f64 {
    step_cost(d, t) * (d.depth as f64 / parts as f64 / f64::from(t.groups()))
}

/// The choices with this tile: the contracted index in one part, and in as many parts as there is
/// room for.
fn on_gpu(d: &Demand, t: &'static Tile) -> [Option<(Choice, f64)>; 2] {
    let width = d.profile.invocations;
    let invocations = t.tiles(d.m, d.n) * d.batch * t.threads() as usize;
    let groups = t.groups();
    let adding = f64::from(groups.ilog2() * t.rows * t.vec4s) * BARRIER;
    let cost = |split_k: usize| {
        let finish = if split_k > 1 { finish_cost(d, split_k * d.m * d.n * d.batch) } else { 0.0 };
        waves(d, t, split_k) * (steps_cost(d, t, split_k) + START + adding) + finish
    };
    let least = if groups > 1 { LEAST_GEMV * groups as usize } else { LEAST };
    let most = ((least_share(t) * width as f64) as usize / invocations).min(d.depth / least).max(1);
    [Some(1), (most > 1).then_some(most)]
        .map(|split_k| split_k.map(|split_k| (Choice::of_tiles(t, split_k), cost(split_k))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Capabilities, MatrixSize};

    const GPUS: [Profile; 2] = [Profile::INTEL, Profile::NVIDIA];

    /// The profile with `workgroup_memory` bytes of workgroup memory.
    fn with_memory(profile: Profile, workgroup_memory: u32) -> Profile {
        let capabilities = Capabilities { workgroup_memory, ..profile.capabilities };
        Profile { capabilities, ..profile }
    }

    fn demand(profile: Profile, m: usize, n: usize, depth: usize) -> Demand {
        Demand {
            profile: with_memory(profile, 16 << 10),
            words: 1,
            m,
            n,
            depth,
            batch: 1,
            by_depth: false,
            cooperative: None,
        }
    }

    #[test]
    fn narrow_results_get_narrow_tiles() {
        let tile = |profile, m, n| choose(&demand(profile, m, n, 1024)).tile;
        assert_eq!(tile(Profile::SWIFTSHADER, 1024, 1024).n(), 128);
        assert!(tile(Profile::SWIFTSHADER, 128, 10).n() <= 16);
        assert_eq!(tile(Profile::SWIFTSHADER, 1000, 1).n(), 4);
        assert_eq!(tile(Profile::SWIFTSHADER, 1, 1000).m(), 1);
        for profile in GPUS {
            for (m, n, most) in [(4, 4096, 8), (16, 4096, 16), (64, 64, 64)] {
                assert!(
                    tile(profile, m, n).m() <= most,
                    "{profile:?} {m}x{n}: {:?}",
                    tile(profile, m, n)
                );
            }
            assert!(
                tile(profile, 65_536, 16).n() <= 16,
                "{profile:?}: {:?}",
                tile(profile, 65_536, 16)
            );
        }
    }

    #[test]
    fn large_results_get_large_tiles() {
        let discrete = demand(Profile::NVIDIA, 4096, 4096, 4096);
        assert!(choose(&discrete).tile.m() >= 64);
        // With as much memory as most adapters have, loads run ahead of products.
        let ahead =
            choose(&Demand { profile: with_memory(Profile::NVIDIA, 32 << 10), ..discrete }).tile;
        assert!(ahead.m() == 128, "{ahead:?}");
        assert!(matches!(ahead.kind, TileKind::Workgroup { buffers: 2, .. }), "{ahead:?}");
        let wide = choose(&demand(Profile::INTEL, 4096, 4096, 4096)).tile;
        assert_eq!((wide.kind, wide.m(), wide.n()), (TileKind::Subgroup, 8, 32));
        // Subgroups of Xe2 have 16 lanes, and those of Apple 32: no tile is that wide.
        let lanes = |simd_width| Profile { simd_width, ..Profile::INTEL };
        assert_eq!(choose(&demand(lanes(16), 4096, 4096, 4096)).tile.n(), 64);
        assert_eq!(choose(&demand(lanes(32), 4096, 4096, 4096)).tile.m(), 64);
        for profile in GPUS {
            assert_eq!(choose(&demand(profile, 4096, 4096, 4096)).split_k, 1);
        }
    }

    /// A core of a GPU that is not full has workgroups of large tiles; none of them is cut, since
    /// its sums would go to memory and back.
    #[test]
    fn products_that_do_not_fill_a_gpu_take_large_tiles_whole() {
        let profile = with_memory(Profile::NVIDIA, 32 << 10);
        let of = |m, n, depth, batch| {
            let d = Demand { profile, batch, ..demand(profile, m, n, depth) };
            let Choice { tile, split_k, schedule } = choose(&d);
            (tile.m(), tile.n(), split_k, schedule)
        };
        let wide = (128, 64, 1, Schedule::DataParallel);
        assert_eq!(of(1024, 1024, 1024, 1), wide);
        assert_eq!(of(128, 64, 64, 96), wide, "the heads of attention");
        let filters = of(8 * 56 * 56, 64, 576, 1);
        assert_eq!((filters.0, filters.1), (128, 64), "a convolution with 64 filters");
    }

    /// A vector times a matrix reads the matrix once. What counts is that neighbouring invocations
    /// read neighbouring elements, and that enough of them read.
    #[test]
    fn vectors_take_groups_that_share_sums() {
        for profile in GPUS {
            for m in [1, 4] {
                let by_columns = demand(profile, m, 4096, 4096);
                let tile = choose(&by_columns).tile;
                assert!(
                    tile.m() == m && tile.groups() > 1 && tile.lanes_n >= 16,
                    "{profile:?} {m}: {tile:?}"
                );
                let tile = choose(&Demand { by_depth: true, ..by_columns }).tile;
                assert!(
                    tile.m() == m && tile.groups() >= 32 && tile.lanes_n == 1,
                    "{profile:?} {m}: {tile:?}"
                );
            }
            // Sixteen rows share the elements of the matrix through workgroup memory or a cache,
            // and the contracted index is cut.
            let choice = choose(&demand(profile, 16, 4096, 4096));
            let is_shared =
                choice.tile.workgroup_memory() > 0 || choice.tile.kind == TileKind::Subgroup;
            assert!(is_shared && choice.tile.groups() == 1, "{profile:?}: {choice:?}");
            let is_cut = choice.split_k > 1 || choice.schedule == Schedule::StreamK;
            assert!((8..=16).contains(&choice.tile.m()) && is_cut, "{profile:?}: {choice:?}");
        }
    }

    #[test]
    fn cooperative_matrices_take_what_is_large_enough() {
        for profile in GPUS {
            let offered = |size, element| Demand {
                cooperative: Some(Cooperative { size, element, ..Cooperative::F16 }),
                profile: with_memory(profile, 48 << 10),
                ..demand(profile, 2048, 2048, 2048)
            };
            for size in MatrixSize::ALL {
                for (element, bytes) in [(DType::F16, 2), (DType::F32, 4)] {
                    let kind = choose(&offered(size, element)).tile.kind;
                    assert_eq!(kind, TileKind::Cooperative { size, bytes });
                }
            }
            let offered = offered(MatrixSize::new(8, 8, 16), DType::F16);
            assert!(choose(&Demand { m: 1, ..offered }).tile.groups() > 1);
            let small = choose(&Demand { profile: with_memory(profile, 16 << 10), ..offered }).tile;
            assert!(small.workgroup_memory() <= 16 << 10, "{small:?}");
        }
    }

    #[test]
    fn few_results_of_long_contractions_are_cut() {
        for profile in Profile::DISTINCT {
            let Choice { tile, split_k, .. } = choose(&demand(profile, 8, 8, 100_000));
            let parts = tile.tiles(8, 8) * split_k * tile.groups() as usize;
            assert!(parts >= 16, "{profile:?}: {tile:?}, {split_k} parts");
            assert_eq!(choose(&demand(profile, 8, 8, 64)).split_k.max(1), 1, "{profile:?}");
        }
    }

    #[test]
    fn candidates_begin_with_the_choice_and_are_known_by_name() {
        for profile in Profile::DISTINCT {
            for [m, n, depth] in
                [[1, 1, 1], [1, 4096, 4096], [300, 300, 300], [8, 8, 100_000], [4096, 4096, 64]]
            {
                for words in [1, 2, 4] {
                    let d = Demand { words, ..demand(profile, m, n, depth) };
                    let all = candidates(&d);
                    assert_eq!(all[0], choose(&d));
                    for (i, choice) in all.iter().enumerate() {
                        assert_eq!(Choice::named(choice.name(), &d), Some(*choice));
                        assert!(
                            all[..i].iter().all(|other| other.name() != choice.name()),
                            "{all:?}"
                        );
                    }
                    assert!(
                        profile.is_software() || words > 1 || all.len() > 1,
                        "{profile:?} {m}x{n}x{depth}: {all:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_name_of_no_tile_means_nothing() {
        let d = demand(Profile::NVIDIA, 4096, 4096, 4096);
        let tile = |profile: Profile| choose(&Demand { profile, ..d });
        assert_eq!(Choice::named(0, &d), None);
        assert_eq!(Choice::named(u64::MAX, &d), None);
        assert_eq!(Choice::named(tile(Profile::SWIFTSHADER).name(), &d), None, "of another class");
        let wide = choose(&Demand { profile: with_memory(Profile::NVIDIA, 64 << 10), ..d });
        assert_eq!(Choice::named(wide.name(), &d), None, "for more memory: {wide:?}");
        let matrices = choose(&Demand {
            cooperative: Some(Cooperative::F16),
            profile: with_memory(Profile::NVIDIA, 48 << 10),
            ..d
        });
        assert_eq!(Choice::named(matrices.name(), &d), None, "without matrices: {matrices:?}");
    }

    #[test]
    fn tiles_fit_the_workgroup_memory_and_every_element() {
        for profile in Profile::DISTINCT {
            for (words, bytes) in [(1, 16 << 10), (2, 16 << 10), (4, 16 << 10), (1, 64 << 10)] {
                for (m, n) in [(1, 1), (1, 5000), (5000, 1), (300, 300), (5000, 5000)] {
                    let tile =
                        choose(&Demand { words, ..demand(with_memory(profile, bytes), m, n, 777) })
                            .tile;
                    assert!(
                        tile.fits(words, profile.kind()) && tile.workgroup_memory() <= bytes,
                        "{profile:?} {m}x{n}: {tile:?}"
                    );
                }
            }
        }
    }
}
