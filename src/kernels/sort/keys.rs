//! Elements of any type as unsigned keys of one or two words, and the stable order of a tensor by
//! these keys.
//!
//! Keys are made from an element's bits, so no shader here needs 64-bit integers or floats, and few
//! variants serve all types.

use super::radix::{self, Pairs, bits_below};
use crate::device::{Binding, Grid, Key, KeyPart, declare_program};
use crate::dtype::DType::{self, *};
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::shader::{Element, Shader, WORKGROUP};
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
pub struct KeyType {
    order: BitOrder,
    size: usize,
}

impl KeyType {
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

    /// The tensor as a binding of this element.
    pub fn binding(self, x: &Tensor) -> Binding {
        debug_assert_eq!(Self::of(x.dtype), self);
        x.into()
    }
}

impl KeyPart for KeyType {
    fn add_to(&self, key: Key) -> Key {
        key.number(self.order as u32 * 16 + self.size as u32)
    }
}

/// The binding `x` with `order_key`.
impl Element for KeyType {
    fn bind(self, shader: Shader, name: &'static str) -> Shader {
        let sign = 1u32 << ((self.bits() - 1) % 32);
        let mask = if self.size < 4 { (1u32 << self.bits()) - 1 } else { u32::MAX };
        let (shader, load) = match self.size {
            1 => (shader.bind(name, U8), "vec2(load_x(i), 0u)"),
            2 => (shader.bind(name, U16), "vec2(load_x(i), 0u)"),
            4 => (shader.bind(name, U32), "vec2(load_x(i), 0u)"),
            _ => (shader.bind_raw(name, "vec2<u32>", 8), "x[p.off_x + i]"),
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
    let kind = KeyType::of(x.dtype);
    let keys = ctx.temp(U32, &[x.len()])?;
    let mut pairs: Option<Pairs> = None;
    for word in 0..if kind.is_wide() { 2 } else { 1 } {
        let permutation = pairs.as_ref().map(|p| p.values.clone());
        enqueue(ctx, KeySource::Words { x, word, descending }, permutation.as_ref(), &keys)?;
        pairs = Some(radix::sort(ctx, &keys, permutation.as_ref(), kind.bits().min(32))?);
    }
    let Some(sorted) = pairs else { unreachable!("one word at least") };
    let rows = x.len() / n.max(1);
    if rows <= 1 {
        return Ok(sorted);
    }
    let keys = ctx.temp(U32, &[x.len()])?;
    enqueue(ctx, KeySource::Rows { n }, Some(&sorted.values), &keys)?;
    radix::sort(ctx, &keys, Some(&sorted.values), bits_below(rows))
}

/// The source of keys.
enum KeySource<'a> {
    /// Word `word` of the elements.
    Words { x: &'a Tensor, word: u32, descending: bool },
    /// Rows of `n` elements.
    Rows { n: usize },
}

/// Writes `keys[i]`, the key of position `permutation[i]`, or of `i`.
fn enqueue(
    ctx: &dyn OpContext,
    source: KeySource<'_>,
    permutation: Option<&Tensor>,
    keys: &Tensor,
) -> Result<()> {
    let grid = Grid::linear(keys.len(), WORKGROUP);
    match source {
        KeySource::Words { x, word, descending } => {
            let kind = KeyType::of(x.dtype);
            let mask = if descending { u32::MAX >> (32 - kind.bits().min(32)) } else { 0 };
            WordKeys {
                x: kind.binding(x),
                permutation: permutation.unwrap_or(keys).into(),
                keys: keys.into(),
                count: keys.len(),
                permuted: permutation.is_some(),
                word,
                mask,
            }
            .enqueue(ctx.device(), &WordKeys::of(kind), grid)
        }
        KeySource::Rows { n } => RowKeys {
            permutation: permutation.unwrap_or(keys).into(),
            keys: keys.into(),
            count: keys.len(),
            permuted: permutation.is_some(),
            n,
        }
        .enqueue(ctx.device(), &RowKeys::of(), grid),
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
    let mut all = vec![RowKeys::shader()];
    all.extend(KeyType::all().into_iter().map(WordKeys::shader));
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

declare_program! {
    /// The keys of a word of each element.
    struct WordKeys = "sort keys"(kind: KeyType);
    bindings { x: kind, permutation: U32, keys: U32 }
    params { count: usize, permuted: bool, word: u32, mask: u32 }
}

impl WordKeys {
    fn shader(kind: KeyType) -> Shader {
        map(Self::declare(format!("sort keys {kind:?}"), kind), "order_key(at)[p.word] ^ p.mask")
    }
}

declare_program! {
    /// The row of each element.
    struct RowKeys = "sort rows"();
    bindings { permutation: U32, keys: U32 }
    params { count: usize, permuted: bool, n: usize }
}

impl RowKeys {
    fn shader() -> Shader {
        map(Self::declare("sort rows"), "at / p.n")
    }
}
