//! Several parts of a tensor in one dispatch: the parts that Split and Unpack read, or that Concat
//! and Pack write. A dispatch for each part costs more than the bytes of a small one, and a GPU
//! waits at the barrier between any two dispatches that write to one buffer.

use smallvec::SmallVec;

use super::unit::Unit;
use super::walk::window_limit;
use crate::device::{Device, Grid, declare_program, enum_key_parts};
use crate::error::Result;
use crate::shader::{List, Shader, WORKGROUP};
use crate::tensor::Tensor;

/// The most parts of one dispatch: one of its eight bindings is the whole.
pub const MOST: usize = 7;

/// The direction in which elements move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the whole into parts.
    Split,
    /// From parts into the whole.
    Join,
}

/// One part: a dense tensor of rows of `row` elements, which lie in the whole's rows from element
/// `begin` on.
#[derive(Debug, Clone)]
pub struct Section {
    /// The dense tensor.
    pub tensor: Tensor,
    /// Its first element in a row of the whole.
    pub begin: usize,
    /// Elements of one of its rows.
    pub row: usize,
}

/// Enqueues the moves between `whole`, which has `outer` rows of `total` elements, and `sections`,
/// which follow one another in a row. Returns false, with nothing enqueued, if it is better or
/// necessary to move them one by one.
pub fn enqueue(
    device: &Device,
    direction: Direction,
    whole: &Tensor,
    (outer, total): (usize, usize),
    sections: &[Section],
) -> Result<bool> {
    let sections: Vec<&Section> = sections.iter().filter(|s| s.row > 0).collect();
    let size = whole.dtype.size() as u64;
    let bytes = outer as u64 * total as u64 * size;
    let limit = window_limit(device);
    if sections.len() < 2 || bytes == 0 || bytes > limit {
        return Ok(false);
    }
    // Every number that must be a multiple of the unit: addresses, and in bytes the rows and their
    // starts.
    let common = sections.iter().fold(whole.address | (total as u64 * size), |all, s| {
        all | s.tensor.address | (s.begin as u64 * size) | (s.row as u64 * size)
    });
    let Some(unit) =
        Unit::ALL.into_iter().rev().find(|u| !u.is_packed() && common.is_multiple_of(u.bytes()))
    else {
        return Ok(false);
    };
    let units = |n: usize| n as u64 * size / unit.bytes();
    for sections in sections.chunks(MOST) {
        let begin = sections[0].begin;
        let ends: SmallVec<[u64; 8]> =
            sections.iter().map(|s| units(s.begin + s.row - begin)).collect();
        let columns = ends[ends.len() - 1] as usize;
        let count = device.check_extent(outer * columns)? as usize;
        let part = |s: &&Section| unit.binding(s.tensor.address, outer as u64 * units(s.row));
        let call = Together {
            parts: NAMES.into_iter().zip(sections.iter().map(part)).collect(),
            whole: unit.binding(whole.address, outer as u64 * units(total)),
            count,
            columns,
            total: units(total) as usize,
            begin: units(begin) as usize,
            ends,
        };
        let of = Together::of(unit, sections.len(), direction);
        call.enqueue(device, &of, Grid::linear(count, WORKGROUP))?;
    }
    Ok(true)
}

enum_key_parts!(Direction);

declare_program! {
    /// Moves between a whole and `n` parts in elements of `unit`, which are not packed.
    pub struct Together = "together"(unit: Unit, n: usize, direction: Direction);
    lists { parts: List(NAMES[..n].iter().map(|name| (*name, unit))) }
    bindings { whole: unit }
    params {
        count: usize, columns: usize, total: usize, begin: usize, ends: SmallVec<[u64; 8]> = n,
    }
}

const NAMES: [&str; MOST] = ["part_0", "part_1", "part_2", "part_3", "part_4", "part_5", "part_6"];

impl Together {
    pub fn shader(unit: Unit, n: usize, direction: Direction) -> Shader {
        let end = |k: usize| format!("p.ends[{}].{}", k / 4, ["x", "y", "z", "w"][k % 4]);
        let moves: Vec<String> = NAMES[..n]
            .iter()
            .enumerate()
            .map(|(k, name)| {
                let at = match k {
                    0 => format!("row * {} + column", end(0)),
                    _ => format!("row * ({} - {}) + column - {}", end(k), end(k - 1), end(k - 1)),
                };
                let line = match direction {
                    Direction::Split => format!("store_{name}({at}, load_whole(at));"),
                    Direction::Join => format!("store_whole(at, load_{name}({at}));"),
                };
                let condition =
                    if k + 1 < n { format!("if column < {} ", end(k)) } else { String::new() };
                format!("{condition}{{\n        {line}\n    }}")
            })
            .collect();
        let label = format!("together {direction:?} {n} of {}", unit.bytes());
        Self::declare(label, unit, n, direction)
            .define("MOVES", moves.join(" else "))
            .body(include_str!("../../../shaders/movement/together.wgsl"))
    }
}
