//! The dispatches that an update takes: runs of elements that share a few windows of memory go
//! together.

use std::ops::Range;

use smallvec::SmallVec;

use super::shader::{MAX_WINDOWS, WindowType};
use crate::dtype::DType;
use crate::error::Result;

/// Windows start and end at multiples of this, so that each training step binds the same ranges.
const GRAIN: u64 = 1 << 16;

/// Where an input of the expression lies.
#[derive(Debug, Clone)]
pub struct Place {
    /// Address of its first element.
    pub address: u64,
    /// Its type.
    pub dtype: DType,
    /// Whether one element serves all.
    pub splat: bool,
}

/// A run of elements of one variable, no longer than a window.
#[derive(Debug, Clone)]
pub struct Piece {
    /// Number of elements.
    pub count: u32,
    /// The expression's inputs.
    pub places: SmallVec<[Place; 8]>,
}

impl Piece {
    /// Bytes of its inputs.
    pub fn bytes(&self) -> u64 {
        self.places.iter().map(|place| self.range(place)).map(|range| range.end - range.start).sum()
    }

    fn range(&self, place: &Place) -> Range<u64> {
        let elements = if place.splat { 1 } else { u64::from(self.count) };
        place.address..place.address + elements * place.dtype.size() as u64
    }
}

/// A range of a block, with the type of its window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// How its memory is declared.
    pub window_type: WindowType,
    /// Addresses.
    pub range: Range<u64>,
    block: Range<u64>,
}

/// The windows of a dispatch.
pub type Windows = SmallVec<[Window; MAX_WINDOWS]>;

/// The window of each input, by its index in [`UpdateDispatch::windows`].
pub type Homes = SmallVec<[usize; 8]>;

/// Windows by their index in [`UpdateDispatch::windows`], in the order of a dispatch's bindings.
pub type Bound = SmallVec<[usize; MAX_WINDOWS]>;

/// One dispatch.
#[derive(Debug, Clone, Default)]
pub struct UpdateDispatch {
    /// Windows, sorted by type.
    pub windows: Windows,
    /// The pieces that it updates.
    pub pieces: Vec<Piece>,
}

impl UpdateDispatch {
    /// The pieces, by the windows in which their inputs lie.
    pub fn by_homes(&self) -> Vec<(Homes, Vec<&Piece>)> {
        let mut groups: Vec<(Homes, Vec<&Piece>)> = Vec::new();
        for piece in &self.pieces {
            let homes: Homes =
                piece.places.iter().map(|p| self.locate(piece, p).0 as usize).collect();
            match groups.iter_mut().find(|(h, _)| *h == homes) {
                Some((_, pieces)) => pieces.push(piece),
                None => groups.push((homes, vec![piece])),
            }
        }
        groups
    }

    /// The window of a place, and its offset there in elements of its type.
    pub fn locate(&self, piece: &Piece, place: &Place) -> (u32, u32) {
        let (window_type, range) = (WindowType::of(place.dtype), piece.range(place));
        let inside = |w: &Window| {
            Some(w.window_type) == window_type
                && w.range.start <= range.start
                && range.end <= w.range.end
        };
        let index =
            self.windows.iter().position(inside).expect("a part has windows for its places");
        let offset = (place.address - self.windows[index].range.start) / place.dtype.size() as u64;
        (index as u32, offset as u32)
    }
}

/// Bytes of the longest run that is certain to fit a window.
pub fn longest_run(max_binding: u64) -> u64 {
    limit(max_binding) - 2 * GRAIN
}

/// Bytes of the largest window; words are counted in 32 bits.
fn limit(max_binding: u64) -> u64 {
    (max_binding & !(GRAIN - 1)).min(1 << 31)
}

/// Distributes pieces over dispatches. A piece that needs more windows than a dispatch has is
/// returned as an error.
pub fn plan(
    pieces: Vec<Piece>,
    max_binding: u64,
    block: &dyn Fn(u64) -> Result<Range<u64>>,
) -> Result<(Vec<UpdateDispatch>, Vec<Piece>)> {
    let (mut parts, mut scattered) = (Vec::<UpdateDispatch>::new(), Vec::new());
    // Most places lie in the block of the place before.
    let mut known = 0..0;
    for piece in pieces {
        let mut needs: SmallVec<[Window; 8]> = SmallVec::new();
        for place in &piece.places {
            let window_type = WindowType::of(place.dtype).expect("the kernel checked the types");
            if !known.contains(&place.address) {
                known = block(place.address)?;
            }
            needs.push(Window { window_type, range: piece.range(place), block: known.clone() });
        }
        if let Some(part) = parts.last_mut()
            && let Some(windows) = cover(part.windows.clone(), &needs, limit(max_binding))
        {
            part.windows = windows;
            part.pieces.push(piece);
        } else if let Some(windows) = cover(Windows::new(), &needs, limit(max_binding)) {
            parts.push(UpdateDispatch { windows, pieces: vec![piece] });
        } else {
            scattered.push(piece);
        }
    }
    for part in &mut parts {
        part.windows.sort_by_key(|w| w.window_type);
    }
    Ok((parts, scattered))
}

/// The windows that a dispatch binds, and the binding of each input, from the window of each input
/// in `homes`. The first `own` inputs are a member's variables and tensors; scalars follow.
///
/// Each distinct result is a pipeline, so there must be few. While all inputs of a type share a
/// window, it is bound once. As soon as they lie in several blocks, each of the first `own` inputs
/// gets a binding of its own, whatever window it shares: otherwise every distribution of k inputs
/// over two blocks would be a pipeline, 2^(k-1) of them.
pub fn bindings(homes: &[usize], own: usize, windows: &[Window]) -> (Bound, Homes) {
    let first_uses = |homes: &[usize]| {
        let mut used = Bound::new();
        homes.iter().for_each(|home| {
            if !used.contains(home) {
                used.push(*home);
            }
        });
        used
    };
    let index = |used: &Bound, home: &usize| {
        used.iter().position(|u| u == home).expect("a window that is used")
    };
    let used = first_uses(homes);
    let is_split = used
        .iter()
        .enumerate()
        .any(|(k, w)| used[..k].iter().any(|v| windows[*v].window_type == windows[*w].window_type));
    let (tensors, scalars) = homes.split_at(own);
    let shared = first_uses(scalars);
    if !is_split || own + shared.len() > MAX_WINDOWS {
        let places = homes.iter().map(|home| index(&used, home)).collect();
        return (used, places);
    }
    let places = (0..own).chain(scalars.iter().map(|home| own + index(&shared, home))).collect();
    (tensors.iter().copied().chain(shared).collect(), places)
}

/// `windows`, grown so that they also cover `needs`.
fn cover(mut windows: Windows, needs: &[Window], limit: u64) -> Option<Windows> {
    for Window { window_type, range, block } in needs {
        let start = range.start & !(GRAIN - 1);
        let end = range.end.next_multiple_of(GRAIN).min(block.end);
        let grown = |w: &Window| w.range.start.min(start)..w.range.end.max(end);
        let fits = |w: &Window| {
            let grown = grown(w);
            w.window_type == *window_type && w.block == *block && grown.end - grown.start <= limit
        };
        let growth = |w: &Window| grown(w).end - grown(w).start - (w.range.end - w.range.start);
        match (0..windows.len()).filter(|k| fits(&windows[*k])).min_by_key(|k| growth(&windows[*k]))
        {
            Some(k) => windows[k].range = grown(&windows[k]),
            None if windows.len() < MAX_WINDOWS => {
                windows.push(Window {
                    window_type: *window_type,
                    range: start..end,
                    block: block.clone(),
                });
            }
            None => return None,
        }
    }
    Some(windows)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 1 << 30;

    fn block(address: u64) -> Result<Range<u64>> {
        let start = address / BLOCK * BLOCK;
        Ok(start..start + BLOCK)
    }

    fn piece(count: u32, places: &[(u64, DType, bool)]) -> Piece {
        let places = places.iter().map(|(address, dtype, splat)| Place {
            address: *address,
            dtype: *dtype,
            splat: *splat,
        });
        Piece { count, places: places.collect() }
    }

    /// Every place lies in its window, and no window exceeds the limit or its block.
    fn check(parts: &[UpdateDispatch], max_binding: u64) {
        for part in parts {
            assert!(part.windows.len() <= MAX_WINDOWS);
            for w in &part.windows {
                assert!(
                    w.range.end - w.range.start <= max_binding && w.range.end <= w.block.end,
                    "{w:?}"
                );
            }
            for piece in &part.pieces {
                for place in &piece.places {
                    let (window, offset) = part.locate(piece, place);
                    let window = &part.windows[window as usize];
                    assert_eq!(
                        window.range.start + u64::from(offset) * place.dtype.size() as u64,
                        place.address
                    );
                    assert!(
                        piece.range(place).end <= window.range.end
                            && Some(window.window_type) == WindowType::of(place.dtype)
                    );
                }
            }
        }
    }

    #[test]
    fn many_members_of_one_block_are_one_dispatch() {
        let pieces = (0..300u64)
            .map(|k| {
                piece(
                    1000,
                    &[
                        (k * 4096, DType::F32, false),
                        ((1 << 26) + k * 2048, DType::F16, false),
                        (256, DType::F32, true),
                    ],
                )
            })
            .collect();
        let (parts, scattered) = plan(pieces, 1 << 27, &block).unwrap();
        check(&parts, 1 << 27);
        assert_eq!((parts.len(), scattered.len(), parts[0].pieces.len()), (1, 0, 300));
    }

    #[test]
    fn distant_members_take_several_dispatches() {
        let pieces: Vec<Piece> = (0..10u64)
            .map(|k| {
                piece(
                    16,
                    &[(k * BLOCK, DType::F32, false), (k * BLOCK + (1 << 29), DType::F64, false)],
                )
            })
            .collect();
        let (parts, scattered) = plan(pieces, 1 << 27, &block).unwrap();
        check(&parts, 1 << 27);
        assert_eq!((parts.len(), scattered.len()), (4, 0));
    }

    #[test]
    fn blocks_make_few_pipelines() {
        let window = |k: u64, window_type| Window {
            window_type,
            range: k * BLOCK..k * BLOCK + 1024,
            block: k * BLOCK..(k + 1) * BLOCK,
        };
        let windows = [
            window(0, WindowType::Word),
            window(1, WindowType::Word),
            window(1, WindowType::Double(DType::I64)),
        ];
        let of = |homes: &[usize]| {
            let (used, places) = bindings(homes, 4, &windows);
            let bound: Vec<usize> = places.iter().map(|k| used[*k]).collect();
            assert_eq!(bound, homes, "each input is bound to its window");
            let window_types: Vec<WindowType> =
                used.iter().map(|w| windows[*w].window_type).collect();
            (window_types, places)
        };
        let one_block = of(&[0, 0, 0, 0, 0]);
        assert_eq!(
            (&one_block.0[..], &one_block.1[..]),
            (&[WindowType::Word][..], &[0, 0, 0, 0, 0][..])
        );
        assert_eq!(of(&[1, 1, 1, 1, 1]), one_block);
        // Several types are no reason to bind a window twice.
        assert_eq!(&of(&[2, 0, 0, 0, 0]).1[..], &[0, 1, 1, 1, 1]);
        let mut pipelines = std::collections::HashSet::new();
        for homes in 0..1_usize << 5 {
            let homes: Vec<usize> = (0..5).map(|k| homes >> k & 1).collect();
            pipelines.insert(of(&homes));
        }
        assert_eq!(pipelines.len(), 2, "{pipelines:?}");
        // Five tensors and scalars in two blocks would take more bindings than a dispatch has.
        let (used, places) = bindings(&[0, 0, 1, 0, 1, 0, 1], 5, &windows);
        assert_eq!((&used[..], &places[..]), (&[0, 1][..], &[0, 0, 1, 0, 1, 0, 1][..]));
    }

    #[test]
    fn a_piece_that_is_scattered_too_widely_comes_back() {
        let places: Vec<_> = (0..7u64).map(|k| (k * BLOCK, DType::F32, k > 3)).collect();
        let (parts, scattered) = plan(vec![piece(16, &places)], 1 << 27, &block).unwrap();
        assert_eq!((parts.len(), scattered.len()), (0, 1));
    }
}
