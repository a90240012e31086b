//! Moves that exchange two dimensions, such as transposes, by blocks: an invocation reads whole
//! vectors along the dimension that is contiguous in the source, transposes them in registers and
//! writes whole vectors along the dimension that is contiguous in the destination.
//!
//! Other dimensions may lie in any order. Where there is at most one, the move is a batch of matrix
//! transposes, and the grid has a dimension for each of theirs, so that no index is divided. Unlike
//! tiles in workgroup memory, blocks also serve packed elements, and software adapters, where an
//! access costs about the same for a vector as for a word.

use super::unit::Unit;
use crate::device::{Binding, Device, Grid, declare_params, declare_program};
use crate::error::Result;
use crate::layout::{AccessClass, Iteration, Strides};
use crate::shader::{Raw, Shader, Storage, WORKGROUP};
use crate::tensor::Dims;

/// Blocks that lie side by side are visited together, along both dimensions, so that both sides
/// touch whole cache lines.
const NEIGHBOURS: usize = 4;
/// Blocks along both sides of the matrix that a workgroup of a transpose moves: it touches runs of
/// 128 bytes of elements of four bytes on both sides.
const SIDE_OF_WORKGROUP: u32 = 8;
/// The most workgroups along a dimension of a grid.
const MOST_GROUPS: u32 = 65_535;

/// A move by blocks.
#[derive(Debug)]
pub struct Blocks {
    unit: Unit,
    /// Over blocks, in vectors: operand 0 reads and operand 1 writes.
    walk: Iteration,
    /// Vectors from one line of a block to the next.
    steps: [usize; 2],
    /// Vectors in the range that each side touches.
    spans: [u64; 2],
    addresses: [u64; 2],
    matrices: Option<Matrices>,
}

/// A batch of transposes with enough blocks for whole workgroups.
#[derive(Debug, Clone, Copy)]
struct Matrices {
    /// Blocks along the source's and along the destination's rows, and matrices.
    extents: [u32; 3],
    /// Vectors from a matrix to the next one in source and destination.
    batch_steps: [u32; 2],
}

impl Matrices {
    fn grid(&self) -> Grid {
        let [rows, columns, batches] = self.extents;
        Grid([rows.div_ceil(SIDE_OF_WORKGROUP), columns.div_ceil(SIDE_OF_WORKGROUP), batches])
    }
}

impl Blocks {
    /// Elements along a side of a block; a vector of them has at most 16 bytes.
    pub const fn side(unit: Unit) -> usize {
        match unit.bytes() {
            1 | 2 | 4 => 4,
            8 => 2,
            _ => 1,
        }
    }

    /// The move of elements of `unit` over `dims` by strides from and to `addresses`, if its
    /// destination is dense and blocks fit.
    pub fn of(
        unit: Unit,
        dims: &[usize],
        strides: [&[i64]; 2],
        addresses: [u64; 2],
    ) -> Option<Self> {
        let side = Self::side(unit);
        let last = dims.len().checked_sub(1)?;
        let across = (0..last).find(|d| strides[0][*d] == 1)?;
        let (whole, vector) = (side as i64, side as u64 * unit.bytes());
        let fits = side > 1
            && strides[1][last] == 1
            && dims[across].is_multiple_of(side)
            && dims[last].is_multiple_of(side)
            && addresses.iter().all(|a| a.is_multiple_of(vector))
            && (0..=last).all(|d| strides[0][d] >= 0 && strides[1][d] >= 0)
            && (0..=last).all(|d| {
                (d == across || strides[0][d] % whole == 0)
                    && (d == last || strides[1][d] % whole == 0)
            });
        if !fits {
            return None;
        }
        // Strides count vectors. Along the two dimensions a step of the walk is a block: the number
        // of its vectors is the stride in elements.
        let in_vectors = |d: usize| {
            let each = if d == across || d == last { 1 } else { whole };
            (strides[0][d] / each, strides[1][d] / each)
        };
        let (mut extents, mut from, mut to) = (Dims::new(), Strides::new(), Strides::new());
        let mut push = |n: usize, (s, t): (i64, i64)| {
            extents.push(n);
            from.push(s);
            to.push(t);
        };
        let others: Vec<usize> = (0..last).filter(|d| *d != across).collect();
        for d in &others {
            push(dims[*d], in_vectors(*d));
        }
        let matrices = || {
            let (batches, (from, to)) = match others[..] {
                [] => (1, (0, 0)),
                [d] => (dims[d], in_vectors(d)),
                _ => return None,
            };
            let extents = [dims[across] / side, dims[last] / side, batches].map(u32::try_from);
            let [Ok(rows), Ok(columns), Ok(batches)] = extents else { return None };
            let found = Matrices {
                extents: [rows, columns, batches],
                batch_steps: [from, to].map(|n| n as u32),
            };
            let fills = rows.min(columns) >= SIDE_OF_WORKGROUP;
            (fills && found.grid().0.iter().all(|n| *n <= MOST_GROUPS)).then_some(found)
        };
        let matrices = matrices();
        let times = |(s, t): (i64, i64), n: usize| (s * n as i64, t * n as i64);
        let split = |d: usize| {
            let blocks = dims[d] / side;
            let inner = if blocks.is_multiple_of(NEIGHBOURS) { NEIGHBOURS } else { 1 };
            (blocks / inner, inner)
        };
        for d in [last, across] {
            let (outer, inner) = split(d);
            push(outer, times(in_vectors(d), inner));
        }
        for d in [last, across] {
            push(split(d).1, in_vectors(d));
        }
        let span = |k: usize| {
            let reach: i64 = dims.iter().zip(strides[k]).map(|(n, s)| (*n as i64 - 1) * s).sum();
            (reach as u64 + 1) / side as u64
        };
        Some(Self {
            unit,
            walk: Iteration::over(&extents).operand(&from, 0).operand(&to, 0).collapse(),
            steps: [(strides[0][last] / whole) as usize, (strides[1][across] / whole) as usize],
            spans: [span(0), span(1)],
            addresses,
            matrices,
        })
    }

    /// Whether the move is a batch of transposes of matrices that fill workgroups.
    pub const fn is_transpose(&self) -> bool {
        self.matrices.is_some()
    }

    /// Enqueues the move.
    pub fn enqueue(&self, device: &Device) -> Result<()> {
        let class = self.walk.class();
        let unit = self.unit;
        let vector = Self::side(unit) as u32 * unit.bytes() as u32;
        let binding = |k: usize| Binding {
            address: self.addresses[k],
            bytes: self.spans[k] * u64::from(vector),
            unit: vector,
        };
        let (src, dst) = (binding(0), binding(1));
        let [src_step, dst_step] = self.steps;
        let steps = StepParams { src_step, dst_step };
        if let Some(matrices) = self.matrices {
            let ([rows, columns, _], [src_batch, dst_batch]) =
                (matrices.extents, matrices.batch_steps);
            let call = TransposeBlocks { src, dst, rows, columns, src_batch, dst_batch, steps };
            return call.enqueue(device, &TransposeBlocks::of(unit), matrices.grid());
        }
        let (count, walk) = (device.check_extent(self.walk.len())?, self.walk.clone());
        let grid = Grid::linear(count as usize, WORKGROUP);
        let call = MoveBlocks { src, dst, count, steps, walk };
        call.enqueue(device, &MoveBlocks::of(unit, &class), grid)
    }
}

declare_params! {
    /// Vectors from one line of a block to the next.
    pub struct StepParams { src_step: usize, dst_step: usize }
}

declare_program! {
    /// Moves by blocks of elements of `unit`, which has less than 16 bytes.
    pub struct MoveBlocks = "blocks"(unit: Unit, class: &AccessClass);
    bindings { src: vector(unit), dst: vector(unit) }
    params { count: u32, steps: StepParams, walk: Iteration = (class, &["src", "dst"]) }
}

impl MoveBlocks {
    pub fn shader(unit: Unit, class: &AccessClass) -> Shader {
        define_block(Self::declare(format!("blocks {}", unit.bytes()), unit, class), unit)
            .body(include_str!("../../../shaders/movement/blocks.wgsl"))
    }
}

declare_program! {
    /// Batches of transposes by blocks of elements of `unit`, which has less than 16 bytes.
    pub struct TransposeBlocks = "transpose blocks"(unit: Unit);
    bindings { src: vector(unit), dst: vector(unit) }
    params { rows: u32, columns: u32, src_batch: u32, dst_batch: u32, steps: StepParams }
}

impl TransposeBlocks {
    pub fn shader(unit: Unit) -> Shader {
        define_block(Self::declare(format!("transpose blocks {}", unit.bytes()), unit), unit)
            .workgroup([SIDE_OF_WORKGROUP * SIDE_OF_WORKGROUP, 1, 1])
            .define("WORKGROUP_SIDE", SIDE_OF_WORKGROUP.to_string())
            .define("BLOCK", Blocks::side(unit).to_string())
            .body(include_str!("../../../shaders/movement/transpose_blocks.wgsl"))
    }
}

/// Defines how a block's vectors are read and written.
fn define_block(shader: Shader, unit: Unit) -> Shader {
    let reads: String = (0..Blocks::side(unit))
        .map(|j| format!("    let v{j} = src[from_block + {j}u * p.src_step];\n"))
        .collect();
    let writes: String = lines(unit)
        .iter()
        .enumerate()
        .map(|(m, v)| format!("    dst[to_block + {m}u * p.dst_step] = {v};\n"))
        .collect();
    shader.define("READS", reads).define("WRITES", writes)
}

/// The binding of vectors.
const fn vector(unit: Unit) -> Storage {
    match unit.bytes() {
        1 => Raw("u32", 4),
        2 => Raw("vec2<u32>", 8),
        _ => Raw("vec4<u32>", 16),
    }
}

/// The lines of a block from its columns, which are `v0` to `v3`.
fn lines(unit: Unit) -> Vec<String> {
    let all = |text: &dyn Fn(usize) -> String| (0..4).map(text).collect::<Vec<_>>();
    let joined = |text: &dyn Fn(usize) -> String, by: &str| all(text).join(by);
    match unit.bytes() {
        1 => {
            let byte =
                |m: usize, j: usize| format!("(extractBits(v{j}, {}u, 8u) << {}u)", 8 * m, 8 * j);
            all(&|m| joined(&|j| byte(m, j), " | "))
        }
        2 => all(&|m| {
            let part = ["x", "y"][m / 2];
            let half = |j: usize| format!("extractBits(v{j}.{part}, {}u, 16u)", 16 * (m % 2));
            let [a, b, c, d] = [0, 1, 2, 3].map(half);
            format!("vec2({a} | ({b} << 16u), {c} | ({d} << 16u))")
        }),
        4 => {
            let parts = ["x", "y", "z", "w"];
            all(&|m| format!("vec4({})", joined(&|j| format!("v{j}.{}", parts[m]), ", ")))
        }
        _ => {
            let pair = |part: &str| format!("vec4(v0.{part}, v1.{part})");
            vec![pair("xy"), pair("zw")]
        }
    }
}
