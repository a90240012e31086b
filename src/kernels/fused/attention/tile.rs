//! Tiles of attention in workgroup memory: which rows a workgroup computes and how many keys it
//! takes at a time.

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
}

const fn tile(vec4s: u32, parts: u32, keys: u32) -> Tile {
    Tile { vec4s, lanes: 64, parts, keys, step: 4 }
}

/// All tiles, by ascending width.
pub const TILES: &[Tile] = &[
    tile(4, 1, 16),
    tile(8, 1, 16),
    tile(16, 2, 16),
    tile(24, 4, 8),
    tile(32, 4, 8),
    tile(64, 8, 4),
];

/// The tiles of the gradient, of the same widths: `keys` are positions of the other side.
pub const GRADIENT: &[Tile] = &[
    tile(4, 1, 16),
    tile(8, 2, 16),
    tile(16, 4, 8),
    tile(24, 8, 8),
    tile(32, 8, 8),
    tile(64, 16, 4),
];

impl Tile {
    /// The narrowest tile for rows of `width` elements.
    pub fn of(width: usize) -> Option<&'static Self> {
        TILES.iter().find(|t| t.width() >= width)
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

    #[test]
    fn tiles_fit_every_adapter() {
        assert!(TILES.is_sorted_by_key(|t| t.vec4s));
        for t in TILES {
            assert!(t.vec4s.is_multiple_of(t.parts) && t.lanes.is_multiple_of(t.parts), "{t:?}");
            assert!(t.keys.is_multiple_of(t.step), "{t:?}");
            let bytes = 2 * t.keys * t.vec4s * 16 + t.keys * t.lanes * 4;
            assert!(bytes <= 16 << 10, "{t:?}: {bytes} bytes");
        }
    }

    #[test]
    fn gradients_have_tiles_of_every_width() {
        assert!(TILES.iter().map(|t| t.vec4s).eq(GRADIENT.iter().map(|t| t.vec4s)));
        for t in GRADIENT {
            assert!(t.vec4s.is_multiple_of(t.parts) && t.lanes.is_multiple_of(t.parts), "{t:?}");
            assert!(t.keys.is_multiple_of(t.step), "{t:?}");
            let bytes = 2 * t.keys * t.vec4s * 16 + 2 * t.keys * t.lanes * 4;
            assert!(bytes <= 16 << 10, "{t:?}: {bytes} bytes");
        }
    }

    #[test]
    fn rows_get_the_narrowest_tile() {
        assert_eq!(Tile::of(64).unwrap().vec4s, 16);
        assert_eq!(Tile::of(65).unwrap().vec4s, 24);
        assert_eq!(Tile::of(257), None);
    }
}
