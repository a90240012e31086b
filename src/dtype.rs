//! TensorFlow's element types, and how WGSL stores them and computes with them.
//!
//! A type narrower than 32 bits lives in packed `u32` words: a shader loads single lanes and stores
//! whole words. It is computed in a 32-bit type (`f32` for half and bfloat16), which is also how
//! TensorFlow's GPU kernels accumulate.

/// The types of several lists, one after the other.
macro_rules! union {
    ($($list:expr),+ $(,)?) => {
        const { &$crate::dtype::union_of::<{ 0 $(+ $list.len())+ }>(&[$($list),+]) }
    };
}
pub(crate) use union;

/// The expansion of `union!`: the `N` types of all lists.
pub(crate) const fn union_of<const N: usize>(lists: &[&[DType]]) -> [DType; N] {
    let mut all = [F32; N];
    let (mut list, mut at) = (0, 0);
    while list < lists.len() {
        let mut i = 0;
        while i < lists[list].len() {
            all[at] = lists[list][i];
            (i, at) = (i + 1, at + 1);
        }
        list += 1;
    }
    all
}

/// An element type. The discriminants are those of TensorFlow's `DataType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(i32)]
#[expect(missing_docs, reason = "the names say it")]
pub enum DType {
    F32 = 1,
    F64 = 2,
    I32 = 3,
    U8 = 4,
    I16 = 5,
    I8 = 6,
    C64 = 8,
    I64 = 9,
    Bool = 10,
    BF16 = 14,
    U16 = 17,
    C128 = 18,
    F16 = 19,
    /// A handle to a variable; never on the device.
    Resource = 20,
    /// A TensorList or a similar value; never on the device.
    Variant = 21,
    U32 = 22,
    U64 = 23,
}

use DType::*;

impl DType {
    /// Every type, in the order of TensorFlow's numbers.
    pub const ALL: [Self; 17] = [
        F32, F64, I32, U8, I16, I8, C64, I64, Bool, BF16, U16, C128, F16, Resource, Variant, U32,
        U64,
    ];

    /// The type with TensorFlow's number `n`; None for reference types (100 + n).
    pub fn from_tf(n: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|t| *t as i32 == n)
    }

    /// Bytes of one element in memory; 0 for handles.
    pub const fn size(self) -> usize {
        match self {
            U8 | I8 | Bool => 1,
            I16 | U16 | F16 | BF16 => 2,
            F32 | I32 | U32 => 4,
            F64 | I64 | U64 | C64 => 8,
            C128 => 16,
            Resource | Variant => 0,
        }
    }

    /// The list that holds only this type, for registration.
    pub fn alone(self) -> &'static [Self] {
        const ALL: &[DType] = &DType::ALL;
        ALL.iter().find(|t| **t == self).map_or(&[], std::slice::from_ref)
    }

    /// TensorFlow's name in Python, as in `tf.float32`.
    pub const fn name(self) -> &'static str {
        match self {
            F32 => "float32",
            F64 => "float64",
            I32 => "int32",
            U8 => "uint8",
            I16 => "int16",
            I8 => "int8",
            C64 => "complex64",
            I64 => "int64",
            Bool => "bool",
            BF16 => "bfloat16",
            U16 => "uint16",
            C128 => "complex128",
            F16 => "float16",
            Resource => "resource",
            Variant => "variant",
            U32 => "uint32",
            U64 => "uint64",
        }
    }

    /// Elements in one stored unit: 4 for bytes, 2 for 16-bit types, else 1.
    pub const fn lanes(self) -> u32 {
        match self.size() {
            1 => 4,
            2 => 2,
            _ => 1,
        }
    }

    /// The element type of the WGSL array that stores this type.
    pub const fn storage(self) -> &'static str {
        match self {
            F32 => "f32",
            F64 => "f64",
            I32 => "i32",
            I64 => "i64",
            U64 => "u64",
            C64 => "vec2<f32>",
            C128 => "vec2<f64>",
            _ => "u32",
        }
    }

    /// The WGSL type in which this type is computed.
    pub const fn value(self) -> &'static str {
        match self {
            F32 | F16 | BF16 => "f32",
            F64 => "f64",
            I32 | I16 | I8 => "i32",
            U32 | U16 | U8 => "u32",
            I64 => "i64",
            U64 => "u64",
            Bool => "bool",
            C64 => "vec2<f32>",
            C128 => "vec2<f64>",
            Resource | Variant => "u32",
        }
    }

    /// float16, bfloat16, float32 or float64.
    pub const fn is_float(self) -> bool {
        matches!(self, F16 | BF16 | F32 | F64)
    }

    /// A float of less than 32 bits, which is computed in float32 and rounded when it is stored.
    pub const fn is_narrow_float(self) -> bool {
        matches!(self, F16 | BF16)
    }

    /// A float that is computed in float32.
    pub const fn is_single(self) -> bool {
        self.is_narrow_float() || matches!(self, F32)
    }

    /// The type in which elements are accumulated, and kept between programs. Its elements are
    /// whole words.
    #[must_use]
    pub const fn accumulator(self) -> Self {
        match self {
            F16 | BF16 => F32,
            I8 | I16 => I32,
            U8 | U16 | Bool => U32,
            _ => self,
        }
    }

    /// A signed or unsigned integer; not bool.
    pub const fn is_integer(self) -> bool {
        matches!(self, I8 | I16 | I32 | I64 | U8 | U16 | U32 | U64)
    }

    /// A signed integer.
    pub const fn is_signed_integer(self) -> bool {
        matches!(self, I8 | I16 | I32 | I64)
    }

    /// The type of a complex type's parts; every other type is its own part.
    #[must_use]
    pub const fn part(self) -> Self {
        match self {
            C64 => F32,
            C128 => F64,
            t => t,
        }
    }

    /// The complex type whose parts are float32 or float64; every other type is left alone.
    #[must_use]
    pub const fn complex(self) -> Self {
        match self {
            F32 => C64,
            F64 => C128,
            t => t,
        }
    }

    /// The FLOPs of `operations` operations on elements in a profile: an operation on floats counts
    /// one, one on complex numbers counts one for each part, others count nothing.
    pub const fn flops(self, operations: usize) -> u64 {
        match self {
            F16 | BF16 | F32 | F64 => operations as u64,
            C64 | C128 => 2 * operations as u64,
            _ => 0,
        }
    }

    /// The FLOPs of `products` products that are added up. A product of complex numbers is four
    /// products and two sums of parts, its addition two sums.
    pub const fn product_flops(self, products: usize) -> u64 {
        if self.is_complex() { 8 * products as u64 } else { self.flops(2 * products) }
    }

    /// `operations` operations on elements, also on integers.
    pub const fn operations(self, operations: usize) -> Operations {
        let flops = self.flops(operations);
        Operations { flops, others: if flops == 0 { operations as u64 } else { 0 } }
    }

    /// `products` products that are added up, also of integers.
    pub const fn product_operations(self, products: usize) -> Operations {
        Operations { flops: self.product_flops(products), ..self.operations(2 * products) }
    }

    /// complex64 or complex128.
    pub const fn is_complex(self) -> bool {
        matches!(self, C64 | C128)
    }
}

/// What a program does besides moving bytes. How long it takes depends on all of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Operations {
    /// Operations on floats, which profiles report.
    pub flops: u64,
    /// Operations on integers and bits, and what random numbers take.
    pub others: u64,
}

impl Operations {
    /// Operations that profiles do not report.
    pub const fn unreported(others: usize) -> Self {
        Self { flops: 0, others: others as u64 }
    }

    /// All of them.
    pub const fn all(self) -> u64 {
        self.flops.saturating_add(self.others)
    }

    /// The operations of a part, if the work has `count` equal parts.
    pub const fn part(self, count: u64) -> Self {
        Self { flops: self.flops.div_ceil(count), others: self.others.div_ceil(count) }
    }
}

impl From<u64> for Operations {
    fn from(flops: u64) -> Self {
        Self { flops, others: 0 }
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Sets of types, for registration and tables. TensorFlow keeps int32 in host memory on devices.
/// Many ops therefore have no kernel for it: their sets end in `BUT_I32`.
pub mod types {
    use super::DType::{self, *};

    /// The floating-point types that every adapter can serve.
    pub const F32_F16: &[DType] = &[F32, F16];
    /// The types of linear algebra and of images with colors.
    pub const F32_F64: &[DType] = &[F32, F64];
    /// Floating-point types that are computed in 32 bits.
    pub const FLOATS_BUT_F64: &[DType] = &[F32, F16, BF16];
    /// Floating-point types of the older ops, which do not support bfloat16.
    pub const FLOATS_BUT_BF16: &[DType] = &[F32, F16, F64];
    /// Floating-point types.
    pub const FLOATS: &[DType] = &[F32, F16, BF16, F64];
    /// Complex types.
    pub const COMPLEX: &[DType] = &[C64, C128];
    /// Real and complex floating-point types.
    pub const INEXACT: &[DType] = union!(FLOATS, COMPLEX);
    /// Signed integers.
    pub const SIGNED: &[DType] = &[I8, I16, I32, I64];
    /// Signed integers except int32.
    pub const SIGNED_BUT_I32: &[DType] = &[I8, I16, I64];
    /// Unsigned integers.
    pub const UNSIGNED: &[DType] = &[U8, U16, U32, U64];
    /// Integers.
    pub const INTS: &[DType] = union!(SIGNED, UNSIGNED);
    /// Integers except int32.
    pub const INTS_BUT_I32: &[DType] = union!(SIGNED_BUT_I32, UNSIGNED);
    /// Types of indices.
    pub const INDEX: &[DType] = &[I32, I64];
    /// Numbers with an order.
    pub const REALS: &[DType] = union!(FLOATS, INTS);
    /// Numbers with an order, except int32.
    pub const REALS_BUT_I32: &[DType] = union!(FLOATS, INTS_BUT_I32);
    /// Numbers.
    pub const NUMBERS: &[DType] = union!(REALS, COMPLEX);
    /// Numbers except int32.
    pub const NUMBERS_BUT_I32: &[DType] = union!(REALS_BUT_I32, COMPLEX);
    /// All types that lie on a device.
    pub const ELEMENTS: &[DType] = union!(NUMBERS, &[Bool]);
    /// All types that lie on a device, except int32.
    pub const ELEMENTS_BUT_I32: &[DType] = union!(NUMBERS_BUT_I32, &[Bool]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_on_integers_take_time_and_are_not_reported() {
        for (dtype, flops, all) in [(F32, 20, 20), (C64, 80, 80), (I64, 0, 20), (U8, 0, 20)] {
            let products = dtype.product_operations(10);
            assert_eq!((products.flops, products.all()), (flops, all), "{dtype}");
            assert_eq!(products.part(3).all(), all.div_ceil(3), "{dtype}");
        }
        assert_eq!(F32.operations(7), Operations::from(7));
        assert_eq!(I32.operations(7), Operations::unreported(7));
        assert_eq!(Operations { flops: u64::MAX, others: 1 }.all(), u64::MAX);
    }
}
