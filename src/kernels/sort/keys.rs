//! Elements of any type as unsigned keys of one or two words, and the stable order of a tensor by
//! these keys.
//!
//! Keys are made from an element's bits, so no shader here needs 64-bit integers or floats, and few
//! variants serve all types.

use smallvec::smallvec;

use super::radix::{self, Pairs, bits_below};
use crate::device::{Binding, Grid, Key, Params, Program};
use crate::dtype::DType::{self, *};
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::shader::{Shader, WORKGROUP};
use crate::tensor::Tensor;

/// How the bits of an element are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BitOrder {
    Unsigned,
    Signed,
    Float,
}

/// The properties of an element type that a shader needs to order it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    order: BitOrder,
    size: usize,
}

impl Kind {
    /// Every kind.
    pub fn all() -> Vec<Self> {
        [U8, I8, U16, I16, F16, U32, I32, F32, U64, I64, F64].map(Self::of).into()
    }

    /// The kind of a real type.
    pub fn of(dtype: DType) -> Self {
        let order = match dtype {
            _ if dtype.is_float() => BitOrder::Float,
            _ if dtype.is_signed_integer() => BitOrder::Signed,
            _ => BitOrder::Unsigned,
        };
        debug_assert!(!dtype.is_complex() && dtype.size() > 0);
        Self { order, size: dtype.size() }
    }

    /// A number for the keys of pipelines.
    pub const fn key(self) -> u32 {
        self.order as u32 * 16 + self.size as u32
    }

    /// Bits of an element.
    pub const fn bits(self) -> u32 {
        8 * self.size as u32
    }

    /// Whether elements have two words.
    pub const fn is_wide(self) -> bool {
        self.size == 8
    }

    /// WGSL of a function body that tells whether `key` is that of a NaN. `p.infinity` is the key
    /// of infinity (for two words, the high one).
    pub fn is_nan(self) -> String {
        let mask = if self.size < 4 { (1u32 << self.bits()) - 1 } else { u32::MAX };
        match (self.order, self.is_wide()) {
            (BitOrder::Float, false) => {
                format!("    return key.x > p.infinity || key.x < {mask}u - p.infinity;")
            }
            (BitOrder::Float, true) => {
                "    let low = ~p.infinity;\n    return key.y > p.infinity || \
                                     (key.y == p.infinity && key.x > 0u) || key.y < low || (key.y \
                                     == low && key.x < 0xffffffffu);"
                    .to_owned()
            }
            _ => "    return false;".to_owned(),
        }
    }

    /// The tensor as the binding that [`Kind::declare`] declares.
    pub fn binding(self, x: &Tensor) -> Binding {
        debug_assert_eq!(Self::of(x.dtype), self);
        x.into()
    }

    /// Declares the binding `x` with `order_key`.
    #[must_use]
    pub fn declare(self, shader: Shader) -> Shader {
        let sign = 1u32 << ((self.bits() - 1) % 32);
        let mask = if self.size < 4 { (1u32 << self.bits()) - 1 } else { u32::MAX };
        let (shader, load) = match self.size {
            1 => (shader.bind("x", U8), "vec2(load_x(i), 0u)"),
            2 => (shader.bind("x", U16), "vec2(load_x(i), 0u)"),
            4 => (shader.bind("x", U32), "vec2(load_x(i), 0u)"),
            _ => (shader.bind_raw("x", "vec2<u32>", 8), "x[p.off_x + i]"),
        };
        let map = match (self.order, self.is_wide()) {
            (BitOrder::Unsigned, _) => "    return bits;".to_owned(),
            (BitOrder::Signed, false) => format!("    return bits ^ vec2({sign}u, 0u);"),
            (BitOrder::Signed, true) => format!("    return bits ^ vec2(0u, {sign}u);"),
            (BitOrder::Float, false) => format!(
                "    if bits.x >= {sign}u {{\n        return vec2(select(~bits.x & {mask}u, \
                 {sign}u, bits.x == {sign}u), 0u);\n    }}\n    return vec2(bits.x | {sign}u, 0u);"
            ),
            (BitOrder::Float, true) => format!(
                "    if bits.y >= {sign}u {{\n        return select(~bits, vec2(0u, {sign}u), \
                 bits.y == {sign}u && bits.x == 0u);\n    }}\n    return bits | vec2(0u, {sign}u);"
            ),
        };
        shader
            .body(&format!("fn bits_x(i: u32) -> vec2<u32> {{\n    return {load};\n}}\n"))
            .define("MAP", map)
            .body(include_str!("../../../shaders/sort/keys.wgsl"))
    }
}

/// The stable order of `x`, seen as rows of `n` elements: the elements of each row are sorted, and
/// rows keep their order. The result's `values` are positions in the whole of `x`.
pub fn order(ctx: &mut dyn OpContext, x: &Tensor, n: usize, descending: bool) -> Result<Pairs> {
    let kind = Kind::of(x.dtype);
    let keys = ctx.temp(U32, &[x.len()])?;
    let mut pairs: Option<Pairs> = None;
    for word in 0..if kind.is_wide() { 2 } else { 1 } {
        let permutation = pairs.as_ref().map(|p| p.values.clone());
        enqueue(ctx, Source::Words { x, word, descending }, permutation.as_ref(), &keys)?;
        pairs = Some(radix::sort(ctx, &keys, permutation.as_ref(), kind.bits().min(32))?);
    }
    let Some(sorted) = pairs else { unreachable!("one word at least") };
    let rows = x.len() / n.max(1);
    if rows <= 1 {
        return Ok(sorted);
    }
    let keys = ctx.temp(U32, &[x.len()])?;
    enqueue(ctx, Source::Rows { n }, Some(&sorted.values), &keys)?;
    radix::sort(ctx, &keys, Some(&sorted.values), bits_below(rows))
}

/// The source of keys.
enum Source<'a> {
    /// Word `word` of the elements.
    Words { x: &'a Tensor, word: u32, descending: bool },
    /// Rows of `n` elements.
    Rows { n: usize },
}

/// Writes `keys[i]`, the key of position `permutation[i]`, or of `i`.
fn enqueue(
    ctx: &dyn OpContext,
    source: Source<'_>,
    permutation: Option<&Tensor>,
    keys: &Tensor,
) -> Result<()> {
    let params = Params::new().u32(keys.len()).u32(u32::from(permutation.is_some()));
    let grid = Grid::linear(keys.len(), WORKGROUP);
    match source {
        Source::Words { x, word, descending } => {
            let kind = Kind::of(x.dtype);
            let mask = if descending { u32::MAX >> (32 - kind.bits().min(32)) } else { 0 };
            ctx.device().enqueue(&Program {
                key: Key::new("sort keys").number(kind.key()),
                shader: &|| words_shader(kind),
                bindings: smallvec![
                    kind.binding(x),
                    permutation.unwrap_or(keys).into(),
                    keys.into()
                ],
                params: params.u32(word).u32(mask),
                grid,
            })
        }
        Source::Rows { n } => ctx.device().enqueue(&Program {
            key: Key::new("sort rows"),
            shader: &rows_shader,
            bindings: smallvec![permutation.unwrap_or(keys).into(), keys.into()],
            params: params.u32(n),
            grid,
        }),
    }
}

/// The key of positive infinity (its high word if there are two). A key beyond it, or below its
/// negative counterpart, is NaN.
pub const fn infinity(dtype: DType) -> u32 {
    match dtype {
        F16 => 0xfc00,
        BF16 => 0xff80,
        F32 => 0xff80_0000,
        F64 => 0xfff0_0000,
        _ => 0,
    }
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    let mut all = vec![rows_shader()];
    all.extend(Kind::all().into_iter().map(words_shader));
    all
}

/// A program that maps each position `at` to its key.
fn map(shader: Shader, value: &str) -> Shader {
    shader
        .body(&format!(
            "fn value(i: u32) -> u32 {{\n    var at = i;\n    if p.permuted != 0u {{\n        at \
             = load_permutation(i);\n    }}\n    return {value};\n}}"
        ))
        .map("keys")
}

fn words_shader(kind: Kind) -> Shader {
    let shader = kind
        .declare(Shader::new(format!("sort keys {kind:?}")))
        .bind("permutation", U32)
        .bind("keys", U32);
    map(shader.u32s(&["count", "permuted", "word", "mask"]), "order_key(at)[p.word] ^ p.mask")
}

fn rows_shader() -> Shader {
    let shader = Shader::new("sort rows").bind("permutation", U32).bind("keys", U32);
    map(shader.u32s(&["count", "permuted", "n"]), "at / p.n")
}
