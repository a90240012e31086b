//! Moves that no stride describes: each element of a dense output finds its source coordinate by
//! coordinate, and elements without a source get a background.
//!
//! A box placed into a background (Pad, StridedSliceGrad, a part of Concat), a rotation (Roll) and
//! a reflection (MirrorPad) differ only in the map from an output coordinate to a source
//! coordinate.

use std::fmt::Write;

use smallvec::SmallVec;

use super::unit::Unit;
use super::walk::{copy_strided, window_limit};
use crate::device::{Device, Grid, declare_program, enum_key_parts};
use crate::error::Result;
use crate::kernels::windows;
use crate::layout::{Iteration, Strides, dense_strides};
use crate::shader::{Shader, WORKGROUP};
use crate::tensor::{Dims, Tensor};

/// How an output coordinate `c` becomes a source coordinate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// `(c - begin) / step` where that is whole and within `extent`, else the background.
    Place,
    /// `(c + begin) mod out`.
    Roll,
    /// `c - begin`, reflected at the edges of the source; the edge element itself is repeated.
    Symmetric,
    /// `c - begin`, reflected at the edges of the source; the edge element is not repeated.
    Reflect,
}

/// The value of an output element without a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Background {
    /// One element's bytes, repeated to 16 bytes.
    Element([u8; 16]),
    /// The element that the output already holds.
    Keep,
}

impl Background {
    /// All bits zero.
    pub const ZERO: Self = Self::Element([0; 16]);

    /// The element whose bytes are `element` (1, 2, 4, 8 or 16 of them).
    pub fn element(element: &[u8]) -> Self {
        let mut bytes = [0; 16];
        for (i, b) in bytes.iter_mut().enumerate() {
            *b = element[i % element.len()];
        }
        Self::Element(bytes)
    }
}

/// One dimension of a [`Remap`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Axis {
    /// Extent of the output.
    pub out: usize,
    /// Extent of the source.
    pub extent: usize,
    /// First output coordinate of the source, or the shift of [`Rule::Roll`].
    pub begin: usize,
    /// Output coordinates from one source element to the next, for [`Rule::Place`].
    pub step: usize,
    /// Source elements from one source coordinate to the next.
    pub stride: i64,
}

impl Axis {
    /// Whether output and source coordinates are the same.
    pub fn is_identity(&self) -> bool {
        self.begin == 0 && self.step == 1 && self.extent == self.out
    }
}

/// A move of `source`, whose first coordinate's element is at `offset`, into a dense output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remap {
    /// The coordinate map.
    pub rule: Rule,
    /// Dimensions, outermost first.
    pub axes: SmallVec<[Axis; 6]>,
    /// Element of the source at source coordinate 0 in every dimension.
    pub offset: i64,
    /// The value of elements without a source.
    pub background: Background,
}

impl Remap {
    /// A map between dense tensors of `source` and `out` dims with `begin` in each dimension.
    pub fn dense(
        rule: Rule,
        source: &[usize],
        out: &[usize],
        begin: &[usize],
        background: Background,
    ) -> Self {
        let strides = dense_strides(source);
        let axes = (0..out.len())
            .map(|d| Axis {
                out: out[d],
                extent: source[d],
                begin: begin[d],
                step: 1,
                stride: strides[d],
            })
            .collect();
        Self { rule, axes, offset: 0, background }
    }

    /// Extents of the output.
    pub fn dims(&self) -> Dims {
        self.axes.iter().map(|a| a.out).collect()
    }

    /// Enqueues the move into the dense `dst`.
    pub fn enqueue(&self, device: &Device, src: &Tensor, dst: &Tensor) -> Result<()> {
        if self.axes.iter().any(|a| a.out == 0) {
            return Ok(());
        }
        let unit = Unit::of(src.dtype);
        let source_empty = self.axes.iter().any(|a| a.extent == 0);
        let too_large = dst.bytes().max(src.bytes()) > window_limit(device);
        let keeps = self.background == Background::Keep;
        if self.rule != Rule::Place {
            return self.dispatch(device, src, dst);
        }
        let map = self.collapsed();
        if source_empty || (too_large || keeps) && (!unit.is_packed() || map.is_run()) {
            return self.place_box(device, src, dst);
        }
        if too_large || keeps {
            return map.in_windows(device, src, dst);
        }
        map.dispatch(device, src, dst)
    }

    fn dispatch(&self, device: &Device, src: &Tensor, dst: &Tensor) -> Result<()> {
        let mut map =
            Mapped { unit: Unit::of(src.dtype), remap: self.collapsed(), src: src.address };
        map.widen(dst.address);
        map.dispatch(device, src, dst)
    }

    /// Whether a collapsed box lies in one piece, in the source and in the output.
    fn is_run(&self) -> bool {
        let mut moving = self.axes.iter().filter(|a| a.extent > 1);
        match (moving.next(), moving.next()) {
            (None, _) => true,
            (Some(axis), None) => {
                let is_last = self.axes.last().is_some_and(|last| std::ptr::eq(last, axis));
                is_last && axis.step == 1 && axis.stride == 1
            }
            _ => false,
        }
    }

    /// Enqueues a collapsed placement of packed elements in windows of outermost coordinates, each
    /// of which is a range of whole words of the output. Where the output keeps its elements, there
    /// are no windows before and behind the box.
    fn in_windows(&self, device: &Device, src: &Tensor, dst: &Tensor) -> Result<()> {
        let (outer, inner) = (self.axes[0], &self.axes[1..]);
        let row = inner.iter().map(|a| a.out).product::<usize>() * dst.dtype.size();
        let lanes = Unit::of(dst.dtype).lanes() as usize;
        let fitting = window_limit(device) as usize / row / lanes * lanes;
        let box_end = outer.begin + (outer.extent - 1) * outer.step + 1;
        let (first, end) = match self.background {
            Background::Keep => {
                (outer.begin / lanes * lanes, box_end.next_multiple_of(lanes).min(outer.out))
            }
            Background::Element(_) => (0, outer.out),
        };
        for (first, count) in
            windows::ranges(end - first, fitting.max(lanes)).map(|(at, count)| (first + at, count))
        {
            let skipped = first.saturating_sub(outer.begin).div_ceil(outer.step);
            let begin = outer.begin + skipped * outer.step;
            let inside = (first + count).saturating_sub(begin).div_ceil(outer.step);
            let extent = inside.min(outer.extent.saturating_sub(skipped));
            let mut axes = SmallVec::from_slice(&self.axes);
            axes[0] = Axis { out: count, extent, begin: begin.saturating_sub(first), ..outer };
            let mut window = Self { axes, offset: self.offset, ..*self };
            if extent > 0 {
                window.offset += skipped as i64 * outer.stride;
            } else if self.background == Background::Keep {
                continue;
            }
            let (source, offset) = window.source(src);
            window.offset = offset;
            let into =
                windows::part(dst, first * row / dst.dtype.size(), count * row / dst.dtype.size());
            window.dispatch(device, &source, &into)?;
        }
        Ok(())
    }

    /// The range of the source that a box of at least one element takes, and the offset there.
    fn source(&self, src: &Tensor) -> (Tensor, i64) {
        let reach = |sign: i64| -> i64 {
            let parts = self.axes.iter().map(|a| (a.extent as i64 - 1).max(0) * a.stride * sign);
            parts.filter(|part| *part > 0).sum()
        };
        let (before, behind) = (reach(-1), reach(1));
        let first = self.offset - before;
        (windows::part(src, first as usize, (before + behind + 1) as usize), before)
    }

    /// Fills the background first, then makes a strided copy of the box; both handle windows.
    fn place_box(&self, device: &Device, src: &Tensor, dst: &Tensor) -> Result<()> {
        if let Background::Element(bytes) = self.background {
            fill_element(device, dst, &bytes)?;
        }
        let to = dense_strides(&self.dims());
        let dims: Dims = self.axes.iter().map(|a| a.extent).collect();
        let from: Strides = self.axes.iter().map(|a| a.stride).collect();
        let offset = self.axes.iter().zip(&to).map(|(a, s)| a.begin as i64 * s).sum();
        let to: Strides = self.axes.iter().zip(&to).map(|(a, s)| a.step as i64 * s).collect();
        let walk = Iteration::over(&dims).operand(&from, self.offset).operand(&to, offset);
        copy_strided(device, &walk, src, dst)
    }

    /// The same map with neighbouring dimensions merged where the map leaves the inner one
    /// unchanged.
    fn collapsed(&self) -> Self {
        let mut axes: SmallVec<[Axis; 6]> = SmallVec::new();
        for axis in &self.axes {
            if axis.is_identity() && axis.out == 1 {
                continue;
            }
            match axes.last_mut() {
                Some(outer)
                    if axis.is_identity()
                        && outer.step == 1
                        && outer.stride == axis.stride * axis.out as i64
                        && (outer.is_identity()
                            || matches!(self.rule, Rule::Place | Rule::Roll)) =>
                {
                    let n = axis.out;
                    *outer = Axis {
                        out: outer.out * n,
                        extent: outer.extent * n,
                        begin: outer.begin * n,
                        step: 1,
                        stride: axis.stride,
                    };
                }
                _ => axes.push(*axis),
            }
        }
        Self { axes, ..self.clone() }
    }
}

/// Fills `dst` with the element that `bytes` repeats.
pub fn fill_element(device: &Device, dst: &Tensor, bytes: &[u8; 16]) -> Result<()> {
    let words: [u32; 4] = bytemuck::pod_read_unaligned(bytes);
    if words.iter().all(|w| *w == words[0]) {
        return device.fill(dst.address, dst.bytes(), words[0]);
    }
    // The words of these elements of 8 or 16 bytes differ: the first element is uploaded, then
    // copies of growing length follow.
    let element = dst.dtype.size() as u64;
    device.upload(dst.address, &bytes[..element as usize])?;
    let mut done = element;
    while done < dst.bytes() {
        let count = done.min(dst.bytes() - done);
        device.copy(dst.address + done, dst.address, count)?;
        done += count;
    }
    Ok(())
}

/// A map of widened elements.
struct Mapped {
    unit: Unit,
    remap: Remap,
    src: u64,
}

impl Mapped {
    fn widen(&mut self, dst: u64) {
        let Some(last) = self.remap.axes.len().checked_sub(1) else { return };
        while let Some(unit) = self.unit.doubled() {
            let r = &self.remap;
            let inner = r.axes[last];
            let whole = inner.is_identity()
                || (inner.step == 1 && matches!(r.rule, Rule::Place | Rule::Roll));
            let even = inner.stride == 1
                && [inner.out, inner.extent, inner.begin].iter().all(|n| n % 2 == 0)
                && r.axes[..last].iter().all(|a| a.stride % 2 == 0)
                && r.offset % 2 == 0
                && self.src.is_multiple_of(unit.bytes())
                && dst.is_multiple_of(unit.bytes());
            if !whole || !even {
                break;
            }
            self.unit = unit;
            let r = &mut self.remap;
            r.offset /= 2;
            r.axes[..last].iter_mut().for_each(|a| a.stride /= 2);
            r.axes[last] = Axis {
                out: inner.out / 2,
                extent: inner.extent / 2,
                begin: inner.begin / 2,
                ..inner
            };
        }
    }

    fn dispatch(&self, device: &Device, src: &Tensor, dst: &Tensor) -> Result<()> {
        let Self { unit, remap, .. } = self;
        let count = device.check_extent(remap.axes.iter().map(|a| a.out).product())?;
        let (rank, keep) = (remap.axes.len(), remap.background == Background::Keep);
        let steps = remap.axes.iter().any(|a| a.step != 1);
        let list = |f: fn(&Axis) -> u32| -> Numbers { remap.axes.iter().map(f).collect() };
        let bytes = unit.bytes();
        let call = RemapProgram {
            src: unit.binding(src.address, src.bytes() / bytes),
            dst: unit.binding(dst.address, dst.bytes() / bytes),
            count,
            offset: remap.offset as u32,
            background: match remap.background {
                Background::Element(bytes) => bytemuck::pod_read_unaligned(&bytes),
                Background::Keep => [0; 4],
            },
            out_dims: list(|a| a.out as u32),
            extents: list(|a| a.extent as u32),
            begins: list(|a| a.begin as u32),
            steps: list(|a| a.step as u32),
            strides: list(|a| a.stride as u32),
        };
        let grid = Grid::linear(unit.invocations(count as usize), WORKGROUP);
        let of = RemapProgram::of(*unit, remap.rule, rank, keep, steps);
        // Neighbouring elements are read together, each for one that is written. With steps the
        // elements between are read, too.
        let read = if steps { src.bytes() } else { src.bytes().min(dst.bytes()) };
        let touched = read + dst.bytes();
        device.enqueue_touching(&call.program(&of, grid), touched)
    }
}

/// A number for each dimension.
type Numbers = SmallVec<[u32; 8]>;

enum_key_parts!(Rule);

declare_program! {
    /// A map of `rank` dimensions. If it `has_steps`, any of them may have a step above 1.
    pub struct RemapProgram = "remap"(
        unit: Unit, rule: Rule, rank: usize, keep: bool, has_steps: bool
    );
    bindings { src: unit, dst: unit }
    params {
        count: u32, offset: u32, background: [u32; 4], out_dims: Numbers = rank,
        extents: Numbers = rank, begins: Numbers = rank, steps: Numbers = rank,
        strides: Numbers = rank,
    }
}

impl RemapProgram {
    pub fn shader(unit: Unit, rule: Rule, rank: usize, keep: bool, has_steps: bool) -> Shader {
        let label = format!("remap {rule:?} {} rank {rank} {has_steps}", unit.bytes());
        let shader = Self::declare(label, unit, rule, rank, keep, has_steps);
        let background = match (keep, unit.bytes()) {
            (true, _) => "load_dst(i)",
            (_, 8) => "p.background[0].xy",
            (_, 16) => "p.background[0]",
            _ => "p.background[0].x",
        };
        let mut text = format!(
            "fn value(i: u32) -> {} {{\n    var rest = i;\n    var at = p.offset;\n    var inside \
             = true;\n",
            unit.wgsl()
        );
        for d in (0..rank).rev() {
            let lane = |list: &str| format!("p.{list}[{}].{}", d / 4, ["x", "y", "z", "w"][d % 4]);
            let (out, extent, begin) = (lane("out_dims"), lane("extents"), lane("begins"));
            let _ = writeln!(
                text,
                "    let q{d} = quotient(rest, {out});\n    let c{d} = rest - q{d} * {out};\n    \
                 rest = q{d};"
            );
            let _ = match rule {
                // Coordinates before the first one wrap and become large.
                Rule::Place if !has_steps => {
                    writeln!(text, "    let k{d} = c{d} - {begin};\n    inside &= k{d} < {extent};")
                }
                Rule::Place => writeln!(
                    text,
                    "    let s{d} = c{d} - {begin};\n    let k{d} = quotient(s{d}, {step});\n    \
                     inside &= (c{d} >= {begin}) & (s{d} == k{d} * {step}) & (k{d} < {extent});",
                    step = lane("steps")
                ),
                Rule::Roll => {
                    writeln!(
                        text,
                        "    let s{d} = c{d} + {begin};\n    let k{d} = select(s{d}, s{d} - {out}, \
                         s{d} >= {out});"
                    )
                }
                Rule::Symmetric | Rule::Reflect => {
                    // Distances from the edge start at 1 outside; the edge element itself is
                    // skipped by Reflect.
                    let (low, high) = if rule == Rule::Symmetric { (1, 1) } else { (0, 2) };
                    writeln!(
                        text,
                        "    var k{d} = c{d} - {begin};\n    if c{d} < {begin} {{\n        k{d} = \
                         {begin} - c{d} - {low}u;\n    }} else if k{d} >= {extent} {{\n        \
                         k{d} = 2u * {extent} - {high}u - k{d};\n    }}",
                    )
                }
            };
            let _ = writeln!(text, "    at += k{d} * {};", lane("strides"));
        }
        if rule == Rule::Place {
            let _ = writeln!(text, "    if !inside {{\n        return {background};\n    }}");
        }
        text.push_str("    return load_src(at);\n}\n");
        unit.map(shader.body(&text))
    }
}
