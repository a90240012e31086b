//! Cooperative matrices in WGSL: their types, loads, products and stores, and the text that
//! replaces them where an adapter has none.
//!
//! The left matrix of a product lies in workgroup memory by rows, the right one by columns: both
//! have lines along the index that is summed over, which drivers load in few wide accesses.

use crate::device::{Cooperative, MatrixSize, Means};
use crate::dtype::DType;
use crate::shader::Shader;

const EMULATED: &str = include_str!("../../../shaders/contract/emulated.wgsl");
const EMULATED_PRODUCT: &str = include_str!("../../../shaders/contract/emulated_product.wgsl");

/// An array in workgroup memory, and the WGSL constant with the number of elements from one of its
/// lines to the next.
pub type Lines = (&'static str, &'static str);

/// The arrays of a product's factors.
#[derive(Debug, Clone, Copy)]
pub struct Factors {
    /// The product's name, for the function of an emulation.
    pub name: &'static str,
    /// Rows of the left matrices.
    pub a: Lines,
    /// Columns of the right matrices.
    pub b: Lines,
}

/// The text for the matrices of one adapter.
#[derive(Debug, Clone, Copy)]
pub struct MatrixText {
    size: MatrixSize,
    element: DType,
    means: Means,
}

impl MatrixText {
    /// The text for these matrices.
    pub const fn new(Cooperative { size, element, means, .. }: Cooperative) -> Self {
        Self { size, element, means }
    }

    /// The type of the factors. Emulations compute in f32, which holds values of f16 exactly.
    pub const fn value(&self) -> &'static str {
        match (self.means, self.element) {
            (Means::Adapter, DType::F16) => "f16",
            _ => "f32",
        }
    }

    /// The bytes of a factor.
    pub fn bytes(&self) -> u32 {
        if self.value() == "f16" { 2 } else { 4 }
    }

    /// The left matrix of `factors` at element `at`.
    pub fn load_a(&self, factors: &Factors, at: &str) -> String {
        self.load("coopLoadT", "A", factors.a, at)
    }

    /// The right matrix of `factors` at element `at`.
    pub fn load_b(&self, factors: &Factors, at: &str) -> String {
        self.load("coopLoad", "B", factors.b, at)
    }

    /// The sums number `i` of a subgroup, which begin as zeros: an adapter loads them from `lines`
    /// at `at`, where zeros lie.
    pub fn zeros(&self, lines: Lines, at: &str, i: u32) -> String {
        match self.means {
            Means::Adapter => self.load("coopLoadT", "C", lines, at),
            _ => format!("zeros({}u, local_index)", i * self.size.sums() / 8),
        }
    }

    fn load(&self, function: &str, role: &str, (array, line): Lines, at: &str) -> String {
        match self.means {
            Means::Adapter => format!("{function}<Matrix{role}>(&{array}[{at}], {line})"),
            _ => at.to_owned(),
        }
    }

    /// `c + a * b` of `factors`.
    pub fn multiply_add(&self, factors: &Factors, [a, b, c]: [&str; 3]) -> String {
        match self.means {
            Means::Adapter => format!("coopMultiplyAdd({a}, {b}, {c})"),
            Means::Nonsense => format!("no_such_function({a}, {b}, {c}, local_index)"),
            _ => format!("multiply_add_{}({a}, {b}, {c}, local_index)", factors.name),
        }
    }

    /// Stores sums by rows in the array `staged`, at `at`. `line` is the constant with the distance
    /// of its lines.
    pub fn store(&self, c: &str, at: &str, line: &str) -> String {
        match self.means {
            Means::Adapter => format!("coopStoreT({c}, &staged[{at}], {line});"),
            _ => format!("store_matrix({c}, {at}, {line}, local_index);"),
        }
    }

    /// The number of subgroups that share a workgroup's blocks.
    pub const fn subgroups(&self) -> &'static str {
        match self.means {
            Means::TwoSubgroups => "2u",
            _ => "num_subgroups",
        }
    }

    /// Declares the types and the sizes `M`, `N` and `K`. An emulation gets the functions of these
    /// products, for `matrices` matrices of sums at a time.
    pub fn declare(&self, shader: Shader, products: &[Factors], matrices: u32) -> Shader {
        let MatrixSize { m, n, k } = self.size;
        let shader = shader
            .builtin("subgroup_id", "subgroup_id")
            .builtin("num_subgroups", "num_subgroups")
            .body(&format!("const M = {m}u;\nconst N = {n}u;\nconst K = {k}u;\n"));
        if self.means != Means::Adapter {
            return shader.body(&self.emulated(products, matrices));
        }
        let shader = if self.value() == "f16" { shader.enable("f16") } else { shader };
        let shader = shader.enable("wgpu_cooperative_matrix");
        let shader = if self.size.is_square() { shader } else { shader.matrices([m, n, k]) };
        // WGSL has no name for matrices that are not square: they get their extents later.
        let edge = if self.size.is_square() { m } else { 16 };
        let types = [("A", self.value(), m, k), ("B", self.value(), k, n), ("C", "f32", m, n)];
        types.into_iter().fold(shader, |shader, (role, scalar, rows, columns)| {
            shader.body(&format!(
                "// {rows} rows and {columns} columns.\nalias Matrix{role} = \
                 coop_mat{edge}x{edge}<{scalar}, {role}>;\n"
            ))
        })
    }

    fn emulated(&self, products: &[Factors], matrices: u32) -> String {
        let steps = if self.means == Means::WrongEmulation { "K - 1u" } else { "K" };
        let functions = products.iter().map(|Factors { name, a, b }| {
            [("NAME", *name), ("STEPS", steps)]
                .into_iter()
                .chain([("A", a.0), ("LINE_A", a.1), ("B", b.0), ("LINE_B", b.1)])
                .fold(EMULATED_PRODUCT.to_owned(), |text, (name, value)| {
                    text.replace(&format!("{{{{{name}}}}}"), value)
                })
        });
        EMULATED.replace("{{MATRICES}}", &format!("{matrices}u")) + &functions.collect::<String>()
    }
}
