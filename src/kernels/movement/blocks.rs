//! Moves that exchange two dimensions, such as transposes, by blocks: an invocation reads whole
//! vectors along the dimension that is contiguous in the source, transposes them in registers and
//! writes whole vectors along the dimension that is contiguous in the destination.
//!
//! Other dimensions may lie in any order. Unlike tiles in workgroup memory, this also serves packed
//! elements, and software adapters, where an access costs about the same for a vector as for a
//! word.

use smallvec::smallvec;

use super::unit::Unit;
use crate::device::{Binding, Device, Grid, Key, Params, Program};
use crate::error::Result;
use crate::layout::{AccessClass, Iteration, Strides};
use crate::shader::{Shader, WORKGROUP};
use crate::tensor::Dims;

/// Blocks that lie side by side are visited together, along both dimensions, so that both sides
/// touch whole cache lines.
const NEIGHBOURS: usize = 4;

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
        for d in (0..last).filter(|d| *d != across) {
            push(dims[d], in_vectors(d));
        }
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
        })
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
        let count = device.check_extent(self.walk.len())?;
        let params = Params::new().u32(count).u32(self.steps[0]).u32(self.steps[1]);
        device.enqueue(&Program {
            key: class.key(Key::new("blocks").number(unit.key())),
            shader: &|| shader(unit, &class),
            bindings: smallvec![binding(0), binding(1)],
            params: self.walk.params(params),
            grid: Grid::linear(count as usize, WORKGROUP),
        })
    }
}

/// The shader of moves by blocks of elements of `unit`, which has less than 16 bytes.
pub fn shader(unit: Unit, class: &AccessClass) -> Shader {
    let ((name, size), lines) = lines(unit);
    let reads: String = (0..Blocks::side(unit))
        .map(|j| format!("    let v{j} = src[from_block + {j}u * p.src_step];\n"))
        .collect();
    let writes: String = lines
        .iter()
        .enumerate()
        .map(|(m, v)| format!("    dst[to_block + {m}u * p.dst_step] = {v};\n"))
        .collect();
    let shader = Shader::new(format!("blocks {}", unit.bytes()))
        .bind_raw("src", name, size)
        .bind_raw("dst", name, size)
        .u32s(&["count", "src_step", "dst_step"]);
    class
        .declare(shader, &["src", "dst"])
        .define("READS", reads)
        .define("WRITES", writes)
        .body(include_str!("../../../shaders/movement/blocks.wgsl"))
}

/// The type and bytes of a vector, and the lines of the block whose columns are `v0` and so on.
fn lines(unit: Unit) -> ((&'static str, u32), Vec<String>) {
    let all = |text: &dyn Fn(usize) -> String| (0..4).map(text).collect::<Vec<_>>();
    let joined = |text: &dyn Fn(usize) -> String, by: &str| all(text).join(by);
    match unit.bytes() {
        1 => (("u32", 4), {
            let byte =
                |m: usize, j: usize| format!("(extractBits(v{j}, {}u, 8u) << {}u)", 8 * m, 8 * j);
            all(&|m| joined(&|j| byte(m, j), " | "))
        }),
        2 => (("vec2<u32>", 8), {
            all(&|m| {
                let part = ["x", "y"][m / 2];
                let half = |j: usize| format!("extractBits(v{j}.{part}, {}u, 16u)", 16 * (m % 2));
                let [a, b, c, d] = [0, 1, 2, 3].map(half);
                format!("vec2({a} | ({b} << 16u), {c} | ({d} << 16u))")
            })
        }),
        4 => (("vec4<u32>", 16), {
            let parts = ["x", "y", "z", "w"];
            all(&|m| format!("vec4({})", joined(&|j| format!("v{j}.{}", parts[m]), ", ")))
        }),
        _ => {
            let pair = |part: &str| format!("vec4(v0.{part}, v1.{part})");
            (("vec4<u32>", 16), vec![pair("xy"), pair("zw")])
        }
    }
}
