//! The strided copy: element `i` of a walk goes from `src[index(i)]` to `dst[index(i)]`.
//!
//! A walk is an [`Iteration`] with two operands, the source and the destination. It is collapsed;
//! its element is widened up to 16 bytes where rows allow it; it becomes a plain copy if both sides
//! are dense; and it is cut into windows if a side exceeds the adapter's largest binding.

use super::blocks::Blocks;
use super::unit::Unit;
use super::vec4s::Four;
use crate::device::{Device, Grid, declare_program};
use crate::error::{Error, Result};
use crate::layout::{Access, AccessClass, Iteration, Strides, dense_strides};
use crate::shader::{Shader, WORKGROUP};
use crate::tensor::{Dims, Tensor};

/// The program that serves transposes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tiling {
    /// Through registers where the sides are whole blocks, else through workgroup memory where that
    /// pays.
    Auto,
    /// An element at a time.
    Never,
    /// Through registers wherever possible, for tests.
    Blocks,
    /// Through workgroup memory wherever possible, for tests.
    Always,
}

/// Enqueues `walk`, whose operand 0 reads `src` and whose operand 1 writes `dst`; both hold
/// elements of the same size. No element of `dst` may be written twice. Where elements have less
/// than 4 bytes, `dst` must be walked densely from a multiple of 4 bytes, unless the whole walk is
/// one dense copy.
pub fn copy_strided(device: &Device, walk: &Iteration, src: &Tensor, dst: &Tensor) -> Result<()> {
    copy_strided_with(device, walk, src, dst, Tiling::Auto)
}

/// [`copy_strided`] with a choice of the program.
pub fn copy_strided_with(
    device: &Device,
    walk: &Iteration,
    src: &Tensor,
    dst: &Tensor,
    tiling: Tiling,
) -> Result<()> {
    if walk.is_empty() {
        return Ok(());
    }
    debug_assert_eq!(src.dtype.size(), dst.dtype.size());
    let unit = Unit::of(src.dtype);
    let side = |k: usize, t: &Tensor| Side {
        address: t.address.wrapping_add_signed(walk.offset(k) * unit.bytes() as i64),
        strides: walk.strides(k).into(),
    };
    StridedWalk { unit, dims: walk.dims().into(), src: side(0, src), dst: side(1, dst) }
        .run(device, tiling)
}

/// One side of a walk: where its first element lies, and its strides in elements.
#[derive(Debug, Clone)]
struct Side {
    address: u64,
    strides: Strides,
}

impl Side {
    /// Elements that lie before the first element, and all elements of the range that the walk
    /// touches.
    fn span(&self, dims: &[usize]) -> (u64, u64) {
        let reach = |sign: i64| -> u64 {
            let parts = dims.iter().zip(&self.strides).map(|(n, s)| (*n as i64 - 1) * s * sign);
            parts.filter(|part| *part > 0).sum::<i64>() as u64
        };
        (reach(-1), reach(-1) + reach(1) + 1)
    }

    /// Whether the walk is dense on this side.
    fn is_dense(&self, dims: &[usize]) -> bool {
        self.strides == dense_strides(dims)
    }
}

#[derive(Debug, Clone)]
struct StridedWalk {
    unit: Unit,
    dims: Dims,
    src: Side,
    dst: Side,
}

impl StridedWalk {
    fn run(self, device: &Device, tiling: Tiling) -> Result<()> {
        let walk = self.collapsed();
        let bytes = walk.unit.bytes();
        if walk.dims.is_empty() || (walk.src.is_dense(&walk.dims) && walk.dst.is_dense(&walk.dims))
        {
            let count = walk.dims.iter().product::<usize>() as u64;
            return device.copy(walk.dst.address, walk.src.address, count * bytes);
        }
        let walk = walk.widened();
        let (tiles, blocks) = match tiling {
            Tiling::Auto => (true, true),
            Tiling::Never => (false, false),
            Tiling::Blocks => (false, true),
            Tiling::Always => (true, false),
        };
        let limit = window_limit(device);
        for side in [&walk.dst, &walk.src] {
            if side.span(&walk.dims).1 * walk.unit.bytes() > limit {
                let (first, second) = walk.halves(side, blocks && walk.blocks().is_some())?;
                first.run(device, tiling)?;
                return second.run(device, tiling);
            }
        }
        // A walk that repeats elements along rows gains nothing from reading several rows.
        let repeats = walk.unit.bytes() == 4 && walk.src.strides.last() == Some(&0);
        let by_blocks = walk.blocks().filter(|_| blocks && !repeats);
        let by_tiles = walk.transposed().filter(|_| tiles);
        if let Some(transpose) = by_tiles
            && !by_blocks.as_ref().is_some_and(Blocks::is_transpose)
        {
            return walk.dispatch_tiled(device, transpose);
        }
        match by_blocks {
            Some(blocks) => blocks.enqueue(device),
            None => walk.dispatch(device, blocks),
        }
    }

    fn blocks(&self) -> Option<Blocks> {
        let (src, dst) = (&self.src, &self.dst);
        let (strides, addresses) = ([&*src.strides, &*dst.strides], [src.address, dst.address]);
        Blocks::of(self.unit, &self.dims, strides, addresses)
    }

    fn collapsed(self) -> Self {
        let walk = Iteration::over(&self.dims)
            .operand(&self.src.strides, 0)
            .operand(&self.dst.strides, 0)
            .collapse();
        let side = |k: usize, address| Side { address, strides: walk.strides(k).into() };
        Self {
            unit: self.unit,
            dims: walk.dims().into(),
            src: side(0, self.src.address),
            dst: side(1, self.dst.address),
        }
    }

    /// The same walk with the widest element that rows, strides and addresses allow.
    fn widened(mut self) -> Self {
        while let Some(unit) = self.unit.doubled() {
            let last = self.dims.len() - 1;
            let even = |side: &Side| {
                side.strides[last] == 1
                    && side.strides[..last].iter().all(|s| s % 2 == 0)
                    && side.address.is_multiple_of(unit.bytes())
            };
            if !self.dims[last].is_multiple_of(2) || !even(&self.src) || !even(&self.dst) {
                break;
            }
            self.unit = unit;
            self.dims[last] /= 2;
            for side in [&mut self.src, &mut self.dst] {
                side.strides[..last].iter_mut().for_each(|s| *s /= 2);
            }
        }
        self
    }

    /// The walk cut in two along the dimension that contributes most to the range of `side`. The
    /// parts of a move by blocks are moves by blocks.
    fn halves(&self, side: &Side, by_blocks: bool) -> Result<(Self, Self)> {
        let too_large = || {
            Error::ResourceExhausted(format!(
                "a strided copy of {:?} elements of {} bytes exceeds this adapter's largest \
                 storage binding and cannot be cut into windows",
                self.dims,
                self.unit.bytes()
            ))
        };
        let reach = |d: usize| (self.dims[d] as i64 - 1) * side.strides[d].abs();
        let widest = (0..self.dims.len())
            .max_by_key(|d| reach(*d))
            .filter(|d| self.dims[*d] > 1)
            .ok_or_else(too_large)?;
        let (d, unit) = if by_blocks {
            (widest, Blocks::side(self.unit))
        } else if self.unit.is_packed() {
            // Whole words have one owner only when the windows are dense and start at words.
            let d = (0..self.dims.len()).find(|d| self.dims[*d] > 1).ok_or_else(too_large)?;
            let lanes = self.unit.lanes() as usize;
            (d, if self.dst.strides[d] % lanes as i64 == 0 { 1 } else { lanes })
        } else {
            (widest, 1)
        };
        let at = (self.dims[d] / 2).next_multiple_of(unit);
        if at >= self.dims[d] {
            return Err(too_large());
        }
        let (mut first, mut second) = (self.clone(), self.clone());
        first.dims[d] = at;
        second.dims[d] -= at;
        for side in [&mut second.src, &mut second.dst] {
            side.address = side
                .address
                .wrapping_add_signed(side.strides[d] * at as i64 * self.unit.bytes() as i64);
        }
        Ok((first, second))
    }

    fn count(&self, device: &Device) -> Result<u32> {
        device.check_extent(self.dims.iter().product())
    }

    /// Enqueues the walk element by element, or by vec4s if these are asked for and fit.
    fn dispatch(&self, device: &Device, vec4s: bool) -> Result<()> {
        let count = self.count(device)?;
        let (src_before, src_span) = self.src.span(&self.dims);
        let (dst_before, dst_span) = self.dst.span(&self.dims);
        let walk = Iteration::over(&self.dims)
            .operand(&self.src.strides, src_before as i64)
            .operand(&self.dst.strides, dst_before as i64);
        let class = walk.class();
        let unit = self.unit;
        if unit.is_packed()
            && (class.access(1) != Access::Linear || !self.dst.address.is_multiple_of(4))
        {
            return Err(Error::Internal(format!(
                "a packed destination must be dense and start at a word: {self:?}"
            )));
        }
        let bytes = unit.bytes();
        let src = unit.binding(self.src.address - src_before * bytes, src_span);
        let dst = unit.binding(self.dst.address - dst_before * bytes, dst_span);
        let four =
            Four::of(unit, &walk, src.address).filter(|_| vec4s && dst.address.is_multiple_of(16));
        if let Some(four) = four {
            return four.enqueue(device, &walk, count, src, dst);
        }
        let grid = Grid::linear(unit.invocations(count as usize), WORKGROUP);
        Strided { src, dst, count, walk }.enqueue(device, &Strided::of(unit, &class), grid)
    }

    /// The walk as a batch of matrix transposes, if it is one and would fill the tiles.
    fn transposed(&self) -> Option<Transpose> {
        const TILED: usize = 32;
        let (batches, batch_stride, rest) = match self.dims[..] {
            [b, _, _] => (b, self.src.strides[0], 1),
            [_, _] => (1, 0, 0),
            _ => return None,
        };
        let (rows, columns) = (self.dims[rest], self.dims[rest + 1]);
        let (across, row_stride) = (self.src.strides[rest], self.src.strides[rest + 1]);
        let fits =
            across == 1 && row_stride > 0 && batch_stride >= 0 && rows >= TILED && columns >= TILED;
        let side = |side: &Side| self.unit.binding(side.address, side.span(&self.dims).1);
        (fits && !self.unit.is_packed() && self.dst.is_dense(&self.dims)).then(|| Transpose {
            src: side(&self.src),
            dst: side(&self.dst),
            batches,
            rows,
            columns,
            batch_stride: batch_stride as usize,
            row_stride: row_stride as usize,
        })
    }

    fn dispatch_tiled(&self, device: &Device, transpose: Transpose) -> Result<()> {
        self.count(device)?;
        let side = tile(self.unit) as usize;
        let matrix = transpose.rows.div_ceil(side) * transpose.columns.div_ceil(side);
        let grid = Grid::groups(matrix * transpose.batches);
        transpose.enqueue(device, &Transpose::of(self.unit), grid)
    }
}

/// The side of a tile, whose elements must fit 16 KiB of workgroup memory.
const fn tile(unit: Unit) -> u32 {
    if unit.bytes() == 16 { 16 } else { 32 }
}

/// Bytes that one window of a move may span.
pub fn window_limit(device: &Device) -> u64 {
    // The difference leaves room for an offset rounded down and an end rounded up, and for 32-bit
    // element indices.
    (device.capabilities().max_binding - 512).min(1 << 31)
}

declare_program! {
    /// The strided copy of elements of `unit`.
    pub struct Strided = "strided"(unit: Unit, class: &AccessClass);
    bindings { src: unit, dst: unit }
    params { count: u32, walk: Iteration = (class, &["src", "dst"]) }
}

impl Strided {
    pub fn shader(unit: Unit, class: &AccessClass) -> Shader {
        let shader = Self::declare(format!("strided {}", unit.bytes()), unit, class);
        if unit.is_packed() {
            return shader
                .body("fn value(i: u32) -> u32 {\n    return load_src(index_src(i));\n}\n")
                .map("dst");
        }
        shader.body(include_str!("../../../shaders/movement/strided.wgsl"))
    }
}

declare_program! {
    /// The tiled transpose of elements of `unit`, which is not packed:
    /// `dst[b, r, c] = src[b * batch_stride + c * row_stride + r]`.
    pub struct Transpose = "transpose"(unit: Unit);
    bindings { src: unit, dst: unit }
    params { batches: usize, rows: usize, columns: usize, batch_stride: usize, row_stride: usize }
    shader format!("transpose {}", unit.bytes()) =>
        .define("TILE", tile(unit).to_string())
        .define("ELEMENT", unit.wgsl())
        .body(include_str!("../../../shaders/movement/transpose.wgsl"))
}
