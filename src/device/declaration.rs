//! Declarations of programs. One declaration lists the bindings and the parameters of a program, in
//! their order and with their types. The declarations in WGSL, the order of a call's arguments and
//! the key are all made from it, so that none of them can disagree with another.

use std::marker::PhantomData;

use smallvec::{Array, SmallVec};

use super::program::{Binding, Grid, Key, Params, Program};
use crate::dtype::DType;
use crate::shader::{Field, Shader};

/// A value that a shader's text depends on. The program's key holds it.
pub trait KeyPart {
    /// Adds the value to `key`.
    fn add_to(&self, key: Key) -> Key;
}

impl KeyPart for DType {
    fn add_to(&self, key: Key) -> Key {
        key.dtype(*self)
    }
}

impl KeyPart for u32 {
    fn add_to(&self, key: Key) -> Key {
        key.number(*self)
    }
}

impl KeyPart for usize {
    fn add_to(&self, key: Key) -> Key {
        key.number(u32::try_from(*self).expect("part of a key beyond 32 bits"))
    }
}

impl KeyPart for bool {
    fn add_to(&self, key: Key) -> Key {
        key.number(u32::from(*self))
    }
}

impl KeyPart for char {
    fn add_to(&self, key: Key) -> Key {
        key.number(u32::from(*self))
    }
}

impl KeyPart for &str {
    fn add_to(&self, key: Key) -> Key {
        key.name(self)
    }
}

impl<T: KeyPart> KeyPart for Option<T> {
    fn add_to(&self, key: Key) -> Key {
        match self {
            Some(part) => part.add_to(key.number(1)),
            None => key.number(0),
        }
    }
}

/// Makes [`KeyPart`]s of enums without fields.
macro_rules! enum_key_parts {
    ($($Enum:ty),+) => {
        $(impl $crate::device::KeyPart for $Enum {
            fn add_to(&self, key: $crate::device::Key) -> $crate::device::Key {
                key.number(*self as u32)
            }
        })+
    };
}
pub(crate) use enum_key_parts;

/// A parameter of a program, or several parameters that programs share. Its declaration may depend
/// on an `Of`, such as the length of a list.
pub trait Parameter<Of = ()> {
    /// Declares it in `shader`. Several parameters bring names of their own.
    #[must_use]
    fn declare(of: Of, shader: Shader, name: &'static str) -> Shader;

    /// Appends its value.
    #[must_use]
    fn append_to(self, params: Params) -> Params;
}

impl Parameter for u32 {
    fn declare((): (), shader: Shader, name: &'static str) -> Shader {
        shader.param(name, Field::U32)
    }

    fn append_to(self, params: Params) -> Params {
        params.u32(self)
    }
}

/// A `u32` in WGSL. A call panics beyond 2^32: callers check extents with
/// [`crate::device::Device::check_extent`].
impl Parameter for usize {
    fn declare((): (), shader: Shader, name: &'static str) -> Shader {
        shader.param(name, Field::U32)
    }

    fn append_to(self, params: Params) -> Params {
        params.u32(self)
    }
}

/// A `u32` in WGSL: 0 or 1.
impl Parameter for bool {
    fn declare((): (), shader: Shader, name: &'static str) -> Shader {
        shader.param(name, Field::U32)
    }

    fn append_to(self, params: Params) -> Params {
        params.u32(u32::from(self))
    }
}

impl Parameter for i32 {
    fn declare((): (), shader: Shader, name: &'static str) -> Shader {
        shader.param(name, Field::I32)
    }

    fn append_to(self, params: Params) -> Params {
        params.i32(self)
    }
}

impl Parameter for f32 {
    fn declare((): (), shader: Shader, name: &'static str) -> Shader {
        shader.param(name, Field::F32)
    }

    fn append_to(self, params: Params) -> Params {
        params.f32(self)
    }
}

/// Two words in WGSL: `NAME` and `NAME_high`.
impl Parameter for u64 {
    fn declare((): (), shader: Shader, name: &'static str) -> Shader {
        shader.param(name, Field::U32).param(format!("{name}_high"), Field::U32)
    }

    fn append_to(self, params: Params) -> Params {
        params.u32(self as u32).u32(self >> 32)
    }
}

/// A parameter that only some texts have.
impl<T: Parameter> Parameter<bool> for Option<T> {
    fn declare(is_given: bool, shader: Shader, name: &'static str) -> Shader {
        if is_given { T::declare((), shader, name) } else { shader }
    }

    fn append_to(self, params: Params) -> Params {
        self.into_iter().fold(params, |params, given| given.append_to(params))
    }
}

/// An `array<vec4<u32>, …>` in WGSL, for a list of the given length.
impl<A: Array<Item: TryInto<u32> + Copy>> Parameter<usize> for SmallVec<A> {
    fn declare(len: usize, shader: Shader, name: &'static str) -> Shader {
        shader.param(name, Field::Vec4s(len.div_ceil(4)))
    }

    fn append_to(self, params: Params) -> Params {
        params.list(&self)
    }
}

/// An `array<vec4<u32>, …>` in WGSL.
impl<T: TryInto<u32> + Copy, const N: usize> Parameter for [T; N] {
    fn declare((): (), shader: Shader, name: &'static str) -> Shader {
        shader.param(name, Field::Vec4s(N.div_ceil(4)))
    }

    fn append_to(self, params: Params) -> Params {
        params.list(&self)
    }
}

/// A number for each axis: `NAME0`, `NAME1` and so on in WGSL.
#[derive(Debug, Clone, Copy)]
pub struct Axes<const N: usize>(pub [usize; N]);

impl<const N: usize> Parameter for Axes<N> {
    fn declare((): (), shader: Shader, name: &'static str) -> Shader {
        (0..N).fold(shader, |shader, axis| shader.param(format!("{name}{axis}"), Field::U32))
    }

    fn append_to(self, params: Params) -> Params {
        self.0.into_iter().fold(params, Params::u32)
    }
}

/// Bindings with the names that the section `lists` of a declaration gives them.
pub type NamedBindings = SmallVec<[(&'static str, Binding); 8]>;

/// The shader of the program `P` for certain values of its key. `F` makes it from these values
/// alone, so equal keys have equal texts.
pub struct Specialization<P, F> {
    key: Key,
    shader: F,
    /// The names of the bindings in lists. Debug builds compare the names in each call with them.
    listed: Vec<&'static str>,
    program: PhantomData<P>,
}

impl<P, F: Fn() -> Shader> Specialization<P, F> {
    /// Only [`declare_program!`] calls it.
    pub fn new(key: Key, shader: F, lists: impl FnOnce(Shader) -> Shader) -> Self {
        let listed = match cfg!(debug_assertions) {
            true => lists(Shader::new("lists")).binding_names().collect(),
            false => Vec::new(),
        };
        Self { key, shader, listed, program: PhantomData }
    }

    /// The bindings of lists, in the order of the declaration. Only [`declare_program!`] calls it.
    pub fn in_order(
        &self,
        bindings: impl Iterator<Item = (&'static str, Binding)>,
    ) -> impl Iterator<Item = Binding> {
        let mut listed = self.listed.iter();
        bindings.map(move |(name, binding)| {
            debug_assert_eq!(Some(&name), listed.next(), "a binding of {:?}", self.key);
            binding
        })
    }

    /// A dispatch with values in the order of the declaration. Only [`declare_program!`] calls it.
    pub fn program(
        &self,
        bindings: SmallVec<[Binding; 8]>,
        params: Params,
        grid: Grid,
    ) -> Program<'_> {
        Program { key: self.key.clone(), shader: &self.shader, bindings, params, grid }
    }
}

/// Declares a program: a struct of its bindings and parameters.
///
/// ```text
/// declare_program! {
///     /// Multiplies each element by a number.
///     struct Scale = "scale"(dtype: DType);
///     bindings { x: dtype, y: dtype }
///     params { count: usize, factor: f32 }
///     shader format!("scale {dtype}") => .body(…).map("y")
/// }
///
/// Scale { x: (&x).into(), y: (&y).into(), count: y.len(), factor: 2.0 }
///     .enqueue(device, &Scale::of(dtype), Grid::map(y.len(), dtype))
/// ```
///
/// The text depends on the values in parentheses, which are the key, and on nothing else: the
/// function `shader` gets them alone. The section `shader` has the text's label, and what follows
/// the declarations. A text that needs more than one expression has an `impl` with a function
/// `shader`, which begins with `Self::declare(label, …)`.
///
/// Behind the name of a binding stands its [`Element`](crate::shader::Element), behind the name of
/// a parameter its [`Parameter`], and `= …` if its declaration depends on a value of the key. A
/// section `optional` may follow the bindings: its elements are options, and a call gives an option
/// of a binding for each. A section `lists` may precede the bindings: its elements declare several
/// bindings each, such as [`List`](crate::shader::List), and a call gives them with their names,
/// which debug builds compare. `table NAME;` in front of all bindings declares the table of
/// [`Device::enqueue_table`](crate::device::Device::enqueue_table).
macro_rules! declare_program {
    (@shader [$vis:vis] [$($of:ident: $Of:ty),*]) => {};
    (@shader [$vis:vis] [$($of:ident: $Of:ty),*] $label:expr => $($text:tt)+) => {
        $vis fn shader($($of: $Of),*) -> $crate::shader::Shader {
            Self::declare($label, $($of),*)$($text)+
        }
    };
    (
        $(#[$about:meta])*
        $vis:vis struct $Program:ident = $family:literal($($of:ident: $Of:ty),*);
        $(table $table:ident;)?
        $(lists { $($list:ident: $listed:expr),* $(,)? })?
        bindings { $($binding:ident: $element:expr),* $(,)? }
        $(optional { $($option:ident: $given:expr),* $(,)? })?
        params { $($param:ident: $Param:ty $(= $of_param:expr)?),* $(,)? }
        $(shader $label:expr => $($text:tt)+)?
    ) => {
        $(#[$about])*
        $vis struct $Program {
            $($($vis $list: $crate::device::NamedBindings,)*)?
            $($vis $binding: $crate::device::Binding,)*
            $($($vis $option: Option<$crate::device::Binding>,)*)?
            $($vis $param: $Param,)*
        }

        impl $Program {
            /// The shader's declarations, without a body.
            fn declare(label: impl Into<String>, $($of: $Of),*) -> $crate::shader::Shader {
                let shader = $crate::shader::Shader::new(label);
                $(let _ = $of;)*
                $(let shader = shader.bind(stringify!($table), $crate::dtype::DType::U32);)?
                $($(let shader =
                    $crate::shader::Element::bind($listed, shader, stringify!($list));)*)?
                $(let shader =
                    $crate::shader::Element::bind($element, shader, stringify!($binding));)*
                $($(let shader =
                    $crate::shader::Element::bind($given, shader, stringify!($option));)*)?
                $(let shader = <$Param as $crate::device::Parameter<_>>::declare(
                    { $($of_param)? },
                    shader,
                    stringify!($param),
                );)*
                shader
            }

            $crate::device::declare_program! {
                @shader [$vis] [$($of: $Of),*] $($label => $($text)+)?
            }

            /// The program for these values of its key.
            $vis fn of(
                $($of: $Of),*
            ) -> $crate::device::Specialization<Self, impl Fn() -> $crate::shader::Shader> {
                let key = $crate::device::Key::new($family);
                $(let key = $crate::device::KeyPart::add_to(&$of, key);)*
                $crate::device::Specialization::new(
                    key,
                    move || Self::shader($($of),*),
                    |shader| {
                        $($(let shader =
                            $crate::shader::Element::bind($listed, shader, stringify!($list));)*)?
                        shader
                    },
                )
            }

            /// A dispatch with these arguments.
            $vis fn program<F: Fn() -> $crate::shader::Shader>(
                self,
                of: &$crate::device::Specialization<Self, F>,
                grid: $crate::device::Grid,
            ) -> $crate::device::Program<'_> {
                let listed = std::iter::empty();
                $($(let listed = listed.chain(self.$list);)*)?
                let bindings = of.in_order(listed);
                $(let bindings = bindings.chain([self.$binding]);)*
                $($(let bindings = bindings.chain(self.$option);)*)?
                let params = $crate::device::Params::new();
                $(let params = $crate::device::Parameter::append_to(self.$param, params);)*
                of.program(bindings.collect(), params, grid)
            }

            /// Enqueues a dispatch with these arguments.
            #[allow(dead_code, reason = "some programs are only enqueued with their operations")]
            $vis fn enqueue<F: Fn() -> $crate::shader::Shader>(
                self,
                device: &$crate::device::Device,
                of: &$crate::device::Specialization<Self, F>,
                grid: $crate::device::Grid,
            ) -> $crate::error::Result<()> {
                device.enqueue(&self.program(of, grid))
            }
        }
    };
}
pub(crate) use declare_program;

/// A number for each axis of an image: `NAME1` and `NAME2` in WGSL.
#[derive(Debug, Clone, Copy)]
pub struct Plane(pub [usize; 2]);

impl Parameter for Plane {
    fn declare((): (), shader: Shader, name: &'static str) -> Shader {
        shader.param(format!("{name}1"), Field::U32).param(format!("{name}2"), Field::U32)
    }

    fn append_to(self, params: Params) -> Params {
        params.u32(self.0[0]).u32(self.0[1])
    }
}

/// Declares parameters that several programs share, as one [`Parameter`] of each.
macro_rules! declare_params {
    (
        $(#[$about:meta])*
        $vis:vis struct $Params:ident { $($param:ident: $Param:ty),* $(,)? }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy)]
        $vis struct $Params {
            $($vis $param: $Param,)*
        }

        impl $crate::device::Parameter for $Params {
            fn declare(
                (): (),
                shader: $crate::shader::Shader,
                _: &'static str,
            ) -> $crate::shader::Shader {
                $(let shader = <$Param as $crate::device::Parameter>::declare(
                    (),
                    shader,
                    stringify!($param),
                );)*
                shader
            }

            fn append_to(self, params: $crate::device::Params) -> $crate::device::Params {
                $(let params = $crate::device::Parameter::append_to(self.$param, params);)*
                params
            }
        }
    };
}
pub(crate) use declare_params;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType::{F32, I32};
    use crate::shader::{List, Raw};

    declare_params! {
        struct Extents { rows: usize, columns: u32 }
    }

    declare_program! {
        struct Example = "example"(dtype: DType, masked: bool);
        table starts;
        lists { parts: List([("first", I32), ("second", dtype)]) }
        bindings { x: dtype, y: Raw("vec4<f32>", 16) }
        optional { mask: masked.then_some(I32) }
        params {
            count: usize, extents: Extents, list: [usize; 3], low: i32, scale: f32,
            seed: Option<u64> = masked, steps: SmallVec<[u32; 4]> = 1 + usize::from(masked),
        }
    }

    impl Example {
        fn shader(dtype: DType, masked: bool) -> Shader {
            Self::declare("example", dtype, masked)
        }
    }

    fn example(mask: Option<Binding>) -> Example {
        let binding = |unit| Binding { address: 256, bytes: 64, unit };
        let extents = Extents { rows: 3, columns: 4 };
        let (x, y) = (binding(4), binding(16));
        let parts = ["first", "second"].map(|name| (name, binding(4))).into_iter().collect();
        let (seed, steps) = (mask.map(|_| 8 + (9 << 32)), SmallVec::from_slice(&[1, 2]));
        let list = [5, 6, 7];
        Example { parts, x, y, mask, count: 12, extents, list, low: -1, scale: 0.5, seed, steps }
    }

    #[test]
    fn text_and_call_have_one_order() {
        let of = Example::of(F32, true);
        let mask = Binding { address: 0, bytes: 4, unit: 4 };
        let program = example(Some(mask)).program(&of, Grid::groups(1));
        let text = (program.shader)().render(0);
        let declared = "struct Params {
    off_starts: u32,
    off_first: u32,
    off_second: u32,
    off_x: u32,
    off_y: u32,
    off_mask: u32,
    count: u32,
    rows: u32,
    columns: u32,
    low: i32,
    scale: f32,
    seed: u32,
    seed_high: u32,
    list: array<vec4<u32>, 1>,
    steps: array<vec4<u32>, 1>,
}
";
        assert!(text.contains(declared), "{text}");
        let scale = 0.5_f32.to_bits();
        assert_eq!(&program.params.scalars[..], [12, 3, 4, u32::MAX, scale, 8, 9]);
        assert_eq!(&program.params.vec4s[..], [5, 6, 7, 0, 1, 2, 0, 0]);
        // The table travels with the submission.
        assert_eq!((program.shader)().units(), [4, 4, 4, 4, 16, 4]);
        assert_eq!(program.bindings.iter().map(|b| b.unit).collect::<Vec<_>>(), [4, 4, 4, 16, 4]);
        assert_eq!(program.key, Key::new("example").dtype(F32).number(1));
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "a binding of")]
    fn a_list_in_another_order_is_refused() {
        let call = example(None);
        let parts = call.parts.iter().rev().copied().collect();
        let _ = Example { parts, ..call }.program(&Example::of(F32, false), Grid::groups(1));
    }

    #[test]
    fn an_optional_binding_may_be_left_out() {
        let of = Example::of(F32, false);
        let program = example(None).program(&of, Grid::groups(1));
        assert_eq!((program.shader)().units(), [4, 4, 4, 4, 16]);
        assert_eq!(program.bindings.len(), 4);
    }
}
