//! `Cast` between any two of the types, and `Bitcast`.
//!
//! A float becomes an integer by truncation. Beyond the range of int32, uint32, int64 or uint64 it
//! becomes the nearest end of the range, and NaN becomes 0, as in TensorFlow's GPU kernels (its CPU
//! kernels give the result of the x86 instruction). 8- and 16-bit integers are the low bits of the
//! 32-bit result.

use super::map::Signature;
use super::row::Function;
use crate::device::Device;
use crate::dtype::{
    DType::{self, *},
    types, union,
};
use crate::error::Result;
use crate::invalid;
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::registry::Registry;
use crate::shader::Shader;
use crate::tensor::{Tensor, shape_text};

/// The types of `Cast`.
pub const TYPES: &[DType] = union!(types::REALS, &[Bool]);

/// The WGSL function that converts one element, as in `Cast_f32_to_i32`.
pub fn function(from: DType, to: DType, truncate: bool) -> Function {
    if from.is_complex() || to.is_complex() {
        return complex(from, to, truncate);
    }
    let narrows = truncate && from.is_float() && to.is_float() && from.size() >= to.size();
    let (value, suffix) = match (narrows, to) {
        (true, F16 | BF16 | F32) if from != to => {
            (format!("truncate_{}_to_{}(x)", short(from), short(to)), "_truncated")
        }
        _ => (convert(from.value(), to.value()), ""),
    };
    let value = match to {
        I8 | I16 | U8 | U16 => format!("extractBits({value}, 0u, {}u)", 8 * to.size()),
        _ => value,
    };
    let name = format!("Cast_{from}_to_{to}{suffix}");
    let text =
        format!("fn {name}(x: {}) -> {} {{\n    return {value};\n}}\n", from.value(), to.value());
    Function { name, text }
}

/// Whether a shader holds a value of this type in the bits that memory has. Narrower values are
/// 32 bits wide in a shader, complex ones are vectors.
pub fn has_bits(dtype: DType) -> bool {
    matches!(dtype, F32 | F64 | I32 | I64 | U32 | U64)
}

/// The WGSL function that reads the bits of one type as another one of the same size. Both are of
/// [`has_bits`].
pub fn bits(from: DType, to: DType) -> Function {
    let name = format!("Bitcast_{from}_to_{to}");
    let (x, y) = (from.value(), to.value());
    let value = if x == y { "x".to_owned() } else { format!("bitcast<{y}>(x)") };
    let text = format!("fn {name}(x: {x}) -> {y} {{\n    return {value};\n}}\n");
    Function { name, text }
}

/// The conversion to or from a complex type, part by part: a real number has an imaginary part of
/// 0, and a complex number loses its imaginary part when it becomes real.
fn complex(from: DType, to: DType, truncate: bool) -> Function {
    let part = function(from.part(), to.part(), truncate);
    let value = match (from.is_complex(), to.is_complex()) {
        (true, true) => format!("vec2({0}(x.x), {0}(x.y))", part.name),
        (true, false) => format!("{}(x.x)", part.name),
        _ => format!("vec2({}(x), {}(0))", part.name, to.part().value()),
    };
    let name = format!("{}_of_{from}_to_{to}", part.name);
    let text = format!(
        "{}\nfn {name}(x: {}) -> {} {{\n    return {value};\n}}\n",
        part.text,
        from.value(),
        to.value()
    );
    Function { name, text }
}

const fn short(dtype: DType) -> &'static str {
    match dtype {
        F16 => "f16",
        BF16 => "bf16",
        F64 => "f64",
        _ => "f32",
    }
}

/// `x` of the WGSL type `from` as `to`. Conversions change the width or the sign of an integer,
/// never both at once: otherwise WGSL's drivers disagree.
fn convert(from: &str, to: &str) -> String {
    match (from, to) {
        _ if from == to => "x".to_owned(),
        ("f32", "bool") => "(bitcast<u32>(x) & 0x7fffffffu) != 0u".to_owned(),
        ("f64", "bool") => "(bitcast<u64>(x) & 0x7ffffffffffffffflu) != 0lu".to_owned(),
        (_, "bool") => format!("x != {from}(0)"),
        ("bool", _) => format!("select({to}(0), {to}(1), x)"),
        ("f32" | "f64", "i32" | "u32" | "i64" | "u64") => format!("{from}_to_{to}(x)"),
        ("i32", "u64") => "u64(i64(x))".to_owned(),
        ("u32", "i64") => "i64(u64(x))".to_owned(),
        ("i64", "u32") => "u32(u64(x) & 0xfffffffflu)".to_owned(),
        ("u64", "i32") => "bitcast<i32>(u32(x & 0xfffffffflu))".to_owned(),
        ("u64", "u32") => "u32(x & 0xfffffffflu)".to_owned(),
        ("i64", "i32") => "bitcast<i32>(u32(u64(x) & 0xfffffffflu))".to_owned(),
        _ => format!("{to}(x)"),
    }
}

/// Calls `f` with the program of the conversion.
pub fn signature<R>(
    from: DType,
    to: DType,
    truncate: bool,
    f: impl FnOnce(&Signature<'_>) -> R,
) -> R {
    let op = if truncate { "CastTruncate" } else { "Cast" };
    f(&Signature {
        op,
        inputs: &[from],
        outputs: &[to],
        attrs: &[],
        function: &|| function(from, to, truncate),
        operations: 0,
    })
}

/// Converts the elements of `x` to the type of `y`, which has as many. They are not empty.
pub fn cast(device: &Device, x: &Tensor, y: &Tensor) -> Result<()> {
    let [x, y] = [x, y].map(|t| t.reshaped(&[t.len()]));
    signature(x.dtype, y.dtype, false, |program| program.run(device, &[x], &[y], &[]))
}

/// The kernel of a node.
pub struct Cast {
    from: DType,
    to: DType,
    truncate: bool,
}

impl Cast {
    /// Reads the node's attributes.
    pub fn new(attrs: &dyn Attrs) -> Result<Self> {
        Ok(Self {
            from: attrs.dtype("SrcT")?,
            to: attrs.dtype("DstT")?,
            truncate: attrs.bool("Truncate")?,
        })
    }
}

impl Kernel for Cast {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let x = ctx.input(0)?;
        if self.from == self.to {
            return ctx.forward_input(0, 0, &x.dims);
        }
        let y = ctx.output(0, self.to, &x.dims)?;
        signature(self.from, self.to, self.truncate, |s| s.run(ctx.device(), &[x], &[y], &[]))
    }
}

struct Bitcast {
    from: DType,
    to: DType,
}

impl Kernel for Bitcast {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let x = ctx.input(0)?;
        let (from, to) = (self.from.size(), self.to.size());
        let mut dims = x.dims.clone();
        if from > to {
            dims.push(from / to);
        } else if from < to && dims.pop() != Some(to / from) {
            invalid!(
                "Cannot bitcast from {} to {}: the last dimension of {} is not {}",
                self.from,
                self.to,
                shape_text(&x.dims),
                to / from
            );
        }
        // A slice may start at an address that the wider type does not allow.
        if x.is_empty() || x.address.is_multiple_of(to as u64) {
            return ctx.forward_input(0, 0, &dims);
        }
        let y = ctx.output(0, self.to, &dims)?;
        ctx.device().copy(y.address, x.address, x.bytes())
    }
}

/// Registers both ops.
pub fn register(registry: &mut Registry) {
    registry.op("Cast").types("SrcT", TYPES).types("DstT", TYPES).kernel(Cast::new);
    registry.op("Bitcast").types("T", TYPES_OF_BITCAST).types("type", TYPES_OF_BITCAST).kernel(
        |attrs: &dyn Attrs| Ok(Bitcast { from: attrs.dtype("T")?, to: attrs.dtype("type")? }),
    );
}

/// The types of `Bitcast`: all of `Cast`'s except bool.
const TYPES_OF_BITCAST: &[DType] = types::REALS;

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    let mut shaders = Vec::new();
    for from in TYPES {
        for to in TYPES.iter().filter(|t| *t != from) {
            shaders.extend(signature(*from, *to, false, |s| s.linear_shaders()));
            if from.is_float() && (to.is_narrow_float() || (*from, *to) == (F64, F32)) {
                shaders.extend(signature(*from, *to, true, |s| s.linear_shaders()));
            }
        }
    }
    shaders
}
