//! Tiles of attention in workgroup memory: which rows a workgroup computes and how many keys it
//! takes at a time.

use crate::kind::Kind;

/// A workgroup of `lanes` invocations, `parts` of which share a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tile {
    /// Groups of four elements of a row; rows with fewer elements are padded by zeros.
    pub vec4s: u32,
    /// Invocations.
    pub lanes: u32,
    /// Invocations that share a row.
    pub parts: u32,
    /// Keys in workgroup memory.
    pub keys: u32,
    /// Keys that one step takes.
    pub step: u32,
    /// Whether compilers must not write out the loop over steps.
    pub rolled: bool,
}

const fn tile(vec4s: u32, parts: u32, keys: u32) -> Tile {
    Tile { vec4s, lanes: 64, parts, keys, step: 4, rolled: false }
}

const fn rolled(vec4s: u32, parts: u32, keys: u32, step: u32) -> Tile {
    Tile { step, rolled: true, ..tile(vec4s, parts, keys) }
}

/// The tiles of a kind of adapters, one for each width, by ascending width.
struct Table {
    forward: [Tile; 6],
    /// The tiles of the gradient, where `keys` are positions of the other side.
    gradient: [Tile; 6],
}

/// The tiles of software adapters, and of GPUs with more than 128 registers.
const USUAL: Table = Table {
    forward: [
        tile(4, 1, 16),
        tile(8, 1, 16),
        tile(16, 2, 16),
        tile(24, 4, 8),
        tile(32, 4, 8),
        tile(64, 8, 4),
    ],
    gradient: [
        tile(4, 1, 16),
        tile(8, 2, 16),
        tile(16, 4, 8),
        tile(24, 8, 8),
        tile(32, 8, 8),
        tile(64, 16, 4),
    ],
};

/// The tiles of GPUs with few registers. Intel's compiler for dg2 (Mesa 25.0.7) unrolls loops of
/// few iterations. It spilled 31 to 113 registers in the usual forward tiles of 24 groups and more,
/// and 4 to 229 in every tile of the gradient except the keys' narrowest one. With rolled loops and
/// steps of two it spilled 11 to 57 in the keys' gradient. These tiles spill none.
const FEW_REGISTERS: Table = Table {
    forward: [
        tile(4, 1, 16),
        tile(8, 1, 16),
        tile(16, 2, 16),
        rolled(24, 4, 8, 4),
        rolled(32, 4, 8, 4),
        rolled(64, 8, 4, 2),
    ],
    gradient: [
        rolled(4, 1, 16, 1),
        rolled(8, 2, 16, 1),
        rolled(16, 4, 8, 1),
        rolled(24, 8, 8, 2),
        rolled(32, 8, 8, 1),
        rolled(64, 16, 4, 1),
    ],
};

const fn table(kind: Kind) -> &'static Table {
    match kind {
        Kind::FewRegisters => &FEW_REGISTERS,
        _ => &USUAL,
    }
}

/// Every tile once, of the gradient or of the forward pass, with the kinds of adapters that have
/// it.
pub fn all(gradient: bool) -> impl Iterator<Item = (&'static Tile, Vec<Kind>)> {
    let of = move |kind| if gradient { &table(kind).gradient } else { &table(kind).forward };
    [Kind::ManyRegisters, Kind::FewRegisters].into_iter().flat_map(move |kind| {
        let first = kind == Kind::ManyRegisters;
        let is_new = move |tile: &&Tile| first || !of(Kind::ManyRegisters).contains(tile);
        of(kind).iter().filter(is_new).map(move |tile| {
            (tile, Kind::ALL.into_iter().filter(|kind| of(*kind).contains(tile)).collect())
        })
    })
}

impl Tile {
    /// The narrowest tile for rows of `width` elements.
    pub fn of(kind: Kind, width: usize) -> Option<&'static Self> {
        table(kind).forward.iter().find(|t| t.width() >= width)
    }

    /// The gradient's tile for rows as wide as those of `self`. It has more rows in registers, so
    /// more invocations share each row.
    pub fn of_gradient(&self, kind: Kind) -> &'static Self {
        let mut tiles = table(kind).gradient.iter();
        tiles.find(|t| t.vec4s == self.vec4s).expect("there is a tile for every width")
    }

    /// The tile with the same rows, keys and parts that takes fewer registers, if it differs from
    /// this one: for drivers that refuse this one's shader.
    pub fn with_few_registers(&self, gradient: bool) -> Option<&'static Self> {
        let few = table(Kind::FewRegisters);
        let tiles = if gradient { &few.gradient } else { &few.forward };
        let same = |t: &&Self| {
            (t.vec4s, t.lanes, t.parts, t.keys) == (self.vec4s, self.lanes, self.parts, self.keys)
        };
        tiles.iter().find(same).filter(|t| *t != self)
    }

    /// A number for how the loop over steps is written.
    pub const fn loop_id(&self) -> u32 {
        self.step << 1 | self.rolled as u32
    }

    /// The same as text.
    pub fn loop_text(&self) -> String {
        format!("steps of {}{}", self.step, if self.rolled { ", rolled" } else { "" })
    }

    /// Elements of a row.
    pub const fn width(&self) -> usize {
        self.vec4s as usize * 4
    }

    /// Rows of a workgroup.
    pub const fn rows(&self) -> usize {
        (self.lanes / self.parts) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_sound(t: &Tile, bytes: u32) {
        assert!(t.vec4s.is_multiple_of(t.parts) && t.lanes.is_multiple_of(t.parts), "{t:?}");
        assert!(t.keys.is_multiple_of(t.step), "{t:?}");
        assert!(bytes <= 16 << 10, "{t:?}: {bytes} bytes");
    }

    #[test]
    fn every_tile_with_a_loop_of_another_form_has_one_in_reserve() {
        for (gradient, Table { forward, .. }) in [(false, &USUAL), (true, &USUAL)] {
            for tile in forward {
                let tile = if gradient { tile.of_gradient(Kind::ManyRegisters) } else { tile };
                let reserve = tile.with_few_registers(gradient);
                assert_eq!(reserve.is_some(), gradient || tile.vec4s >= 24, "{tile:?}");
                assert!(reserve.is_none_or(|t| t.with_few_registers(gradient).is_none()));
            }
        }
    }

    #[test]
    fn tiles_fit_every_adapter() {
        for kind in Kind::ALL {
            let Table { forward, gradient } = table(kind);
            assert!(forward.is_sorted_by_key(|t| t.vec4s));
            assert!(forward.iter().map(|t| t.vec4s).eq(gradient.iter().map(|t| t.vec4s)));
            for t in forward {
                is_sound(t, 2 * t.keys * t.vec4s * 16 + t.keys * t.lanes * 4);
            }
            for t in gradient {
                is_sound(t, 2 * t.keys * t.vec4s * 16 + 2 * t.keys * t.lanes * 4);
            }
        }
    }

    #[test]
    fn every_tile_is_listed_once() {
        for gradient in [false, true] {
            let all: Vec<_> = all(gradient).collect();
            for kind in Kind::ALL {
                let own = all.iter().filter(|(_, kinds)| kinds.contains(&kind));
                assert_eq!(own.count(), 6, "{kind:?}, gradient: {gradient}");
            }
        }
    }

    #[test]
    fn rows_get_the_narrowest_tile() {
        for kind in Kind::ALL {
            assert_eq!(Tile::of(kind, 64).unwrap().vec4s, 16);
            assert_eq!(Tile::of(kind, 65).unwrap().vec4s, 24);
            assert_eq!(Tile::of(kind, 257), None);
        }
    }
}
