//! The programs that the decompositions share: element-wise matrix maps and `C -= A B`.

use smallvec::smallvec;

use super::number::{NUMBERS, Numbers};
use crate::device::{Binding, Device, Grid, Key, Params, Program};
use crate::dtype::DType::{self, F32, I32};
use crate::error::Result;
use crate::shader::{Field, Shader};
use crate::tensor::Tensor;

/// Matrices up to this size are decomposed in one dispatch.
pub const SMALL: usize = 64;
/// Width of a panel or block of larger matrices.
pub const BLOCK: usize = 32;

/// The width of a panel for matrices of `n` rows, never zero.
pub const fn block(n: usize) -> usize {
    match n {
        0 => 1,
        1..=SMALL => n,
        _ => BLOCK,
    }
}

/// A batch of matrices inside a tensor: the place of element (0, 0) of the first matrix, and the
/// steps to the next matrix, row and column.
#[derive(Debug, Clone, Copy)]
pub struct Part<'t> {
    /// The tensor that holds them.
    pub tensor: &'t Tensor,
    /// Elements before the first matrix.
    pub at: usize,
    /// Elements from a matrix to the next.
    pub matrix: usize,
    /// Elements from a row to the next.
    pub row: usize,
    /// Elements from a column to the next.
    pub col: usize,
}

impl<'t> Part<'t> {
    /// Dense matrices of `rows` x `cols`.
    pub const fn dense(tensor: &'t Tensor, rows: usize, cols: usize) -> Self {
        Self { tensor, at: 0, matrix: rows * cols, row: cols, col: 1 }
    }

    /// The same matrix, shared by the whole batch.
    pub const fn shared(self) -> Self {
        Self { matrix: 0, ..self }
    }

    /// The part from row `i` and column `j` on.
    pub const fn from(self, i: usize, j: usize) -> Self {
        Self { at: self.at + i * self.row + j * self.col, ..self }
    }

    /// Whether four neighbours in each row can be read at once, and belong to one matrix.
    pub fn is_in_vec4s(&self) -> bool {
        let whole = [self.at, self.matrix, self.row].iter().all(|n| n.is_multiple_of(4));
        self.col == 1 && whole && self.tensor.dtype == F32 && self.tensor.address.is_multiple_of(16)
    }

    /// The transposed part, if `yes`.
    pub const fn transposed(self, yes: bool) -> Self {
        if yes { Self { row: self.col, col: self.row, ..self } } else { self }
    }
}

/// Extents of a product `C -= A B`.
#[derive(Debug, Clone, Copy)]
pub struct Extents {
    /// Matrices.
    pub batch: usize,
    /// Rows of C.
    pub m: usize,
    /// Columns of C.
    pub n: usize,
    /// Columns of A.
    pub k: usize,
}

/// Edge of the tile of C that an invocation computes.
const TILE: usize = 4;
/// Invocations in a workgroup of [`update`].
const UPDATERS: u32 = 64;

/// Computes `C -= A B`. With `lower`, for updates of a Hermitian matrix, it is `C -= A conj(B)`,
/// and tiles above C's diagonal are left unchanged.
pub fn update(
    device: &Device,
    c: Part<'_>,
    a: Part<'_>,
    b: Part<'_>,
    extents: Extents,
    lower: bool,
) -> Result<()> {
    let Extents { batch, m, n, k } = extents;
    if batch * m * n * k == 0 {
        return Ok(());
    }
    let (tiles_m, tiles_n) = (m.div_ceil(TILE), n.div_ceil(TILE));
    let count = batch * tiles_m * tiles_n;
    let params = Params::new().u32(device.check_extent(count)?).u32(tiles_m).u32(tiles_n);
    let dtype = c.tensor.dtype;
    let flops = dtype.product_flops(batch * m * n * k) / if lower { 2 } else { 1 };
    // Whether b is stored transposed: then a product is four dot products.
    let transposed = b.col != 1;
    let in_vec4s = [n, k].iter().all(|n| n.is_multiple_of(4))
        && [a, b.transposed(transposed), c].iter().all(Part::is_in_vec4s);
    if in_vec4s {
        let params = params.u32(m).u32(k / 4).u32(a.at / 4).u32(a.matrix / 4).u32(a.row / 4);
        let step = if transposed { b.col } else { b.row };
        let params = params.u32(b.at / 4).u32(b.matrix / 4).u32(step / 4);
        return device.enqueue_counted(
            &Program {
                key: Key::new("linalg update vec4s").number(u32::from(transposed)),
                shader: &|| update_vec4s_shader(transposed),
                bindings: [a, b, c].iter().map(|part| Binding::raw(part.tensor, 16)).collect(),
                params: params.u32(c.at / 4).u32(c.matrix / 4).u32(c.row / 4).u32(u32::from(lower)),
                grid: Grid::linear(count, UPDATERS),
            },
            flops,
        );
    }
    let params = params.u32(m).u32(n).u32(k);
    let params = params.u32(a.at).u32(a.matrix).u32(a.row).u32(a.col);
    let params = params.u32(b.at).u32(b.matrix).u32(b.row).u32(b.col);
    device.enqueue_counted(
        &Program {
            key: Key::new("linalg update").dtype(dtype),
            shader: &|| update_shader(dtype),
            bindings: smallvec![a.tensor.into(), b.tensor.into(), c.tensor.into()],
            params: params.u32(c.at).u32(c.matrix).u32(c.row).u32(u32::from(lower)),
            grid: Grid::linear(count, UPDATERS),
        },
        flops,
    )
}

fn update_vec4s_shader(transposed: bool) -> Shader {
    let product = |r: usize| {
        if transposed {
            format!("vec4(dot(a{r}, b0), dot(a{r}, b1), dot(a{r}, b2), dot(a{r}, b3))")
        } else {
            format!("a{r}.x * b0 + a{r}.y * b1 + a{r}.z * b2 + a{r}.w * b3")
        }
    };
    Shader::new("linalg update vec4s")
        .bind_raw("a", "vec4<f32>", 16)
        .bind_raw("b", "vec4<f32>", 16)
        .bind_raw("c", "vec4<f32>", 16)
        .u32s(&["count", "tiles_m", "tiles_n", "m", "k", "a_at", "a_matrix", "a_row"])
        .u32s(&["b_at", "b_matrix", "b_step", "c_at", "c_matrix", "c_row", "lower"])
        .define("FIRST_B", if transposed { "4u * j * p.b_step" } else { "j" })
        .define("NEXT_B", if transposed { "1u" } else { "4u * p.b_step" })
        .define("PRODUCT_0", product(0))
        .define("PRODUCT_1", product(1))
        .define("PRODUCT_2", product(2))
        .define("PRODUCT_3", product(3))
        .workgroup([UPDATERS, 1, 1])
        .body(include_str!("../../../shaders/linalg/update_vec4s.wgsl"))
}

fn update_shader(dtype: DType) -> Shader {
    Shader::new("linalg update")
        .bind("a", dtype)
        .bind("b", dtype)
        .bind("c", dtype)
        .u32s(&["count", "tiles_m", "tiles_n", "m", "n", "k"])
        .u32s(&["a_at", "a_matrix", "a_row", "a_col", "b_at", "b_matrix", "b_row", "b_col"])
        .u32s(&["c_at", "c_matrix", "c_row", "lower"])
        .numbers(dtype)
        .workgroup([UPDATERS, 1, 1])
        .body(if dtype.is_complex() {
            include_str!("../../../shaders/linalg/update_complex.wgsl")
        } else {
            include_str!("../../../shaders/linalg/update.wgsl")
        })
}

/// How [`map`] computes an element of its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Map {
    /// The source's element.
    Copy,
    /// Its complex conjugate.
    Conjugate,
    /// The source's element below the diagonal, its real part on the diagonal, else zero, for
    /// matrices of `others` rows; behind them the identity.
    LowerPadded,
    /// The source's element below the diagonal, its real part on the diagonal, else zero; but NaN
    /// in place of each element if the int32 `other[matrix]` is not zero.
    LowerIfOk,
    /// The source's matrix `other[matrix]`.
    Pick,
    /// The source's row `other[matrix, i]`.
    Permuted,
    /// Row `other[matrix, i]` of the identity.
    PermutedIdentity,
    /// The identity.
    Identity,
    /// On the diagonal `other[matrix, i, 0]`, above it the source, else zero; `other` is a
    /// decomposition's side table.
    Triangle,
}

impl Map {
    const ALL: [Self; 9] = [
        Self::Copy,
        Self::Conjugate,
        Self::LowerPadded,
        Self::LowerIfOk,
        Self::Pick,
        Self::Permuted,
        Self::PermutedIdentity,
        Self::Identity,
        Self::Triangle,
    ];

    const fn element(self) -> &'static str {
        match self {
            Self::Copy => "    return source(matrix, i, j);",
            Self::Conjugate => "    return conjugate(source(matrix, i, j));",
            Self::LowerPadded => {
                "    if max(i, j) >= p.others {\n        return number_of(select(real(0.0), \
                 real(1.0), i == j));\n    }\n    return lower(source(matrix, i, j), i, j);"
            }
            Self::LowerIfOk => {
                "    let failed = load_other(matrix) != 0;\n    return lower(select(source(matrix, \
                 i, j), number_of(real(p.nan)), failed), i, j);"
            }
            Self::Pick => "    return source(u32(load_other(matrix)), i, j);",
            Self::Permuted => "    return source(matrix, u32(load_other(matrix * p.rows + i)), j);",
            Self::PermutedIdentity => {
                "    let place = u32(load_other(matrix * p.rows + i));\n    return \
                 number_of(select(real(0.0), real(1.0), place == j));"
            }
            Self::Identity => "    return number_of(select(real(0.0), real(1.0), i == j));",
            Self::Triangle => {
                "    if i > j {
        return number_of(real(0.0));
    }
    if i == j {
        return load_other(3u * (matrix * p.others + i));
    }
    return source(matrix, i, j);"
            }
        }
    }

    fn shader(self, dtype: DType) -> Shader {
        Shader::new(format!("linalg map {self:?}"))
            .bind("x", dtype)
            .bind("other", if self == Self::Triangle { dtype } else { I32 })
            .bind("y", dtype)
            .u32s(&["count", "rows", "cols", "x_matrix", "x_row", "x_col", "others"])
            .param("nan", Field::F32)
            .numbers(dtype)
            .define("ELEMENT", self.element())
            .body(include_str!("../../../shaders/linalg/map.wgsl"))
            .map("y")
    }
}

/// Fills the matrices `y` of `rows` x `cols` from `x`, and from `other` if the map reads it
/// (`others` of its rows for each matrix).
#[expect(clippy::too_many_arguments, reason = "a source, a table and a result with their extents")]
pub fn map(
    device: &Device,
    kind: Map,
    x: Part<'_>,
    other: &Tensor,
    others: usize,
    y: &Tensor,
    rows: usize,
    cols: usize,
) -> Result<()> {
    let count = y.len();
    if count == 0 {
        return Ok(());
    }
    let dtype = y.dtype;
    let params = Params::new().u32(device.check_extent(count)?).u32(rows).u32(cols);
    device.enqueue(&Program {
        key: Key::new("linalg map").dtype(dtype).number(kind as u32),
        shader: &|| kind.shader(dtype),
        bindings: smallvec![x.tensor.into(), Binding::from(other), Binding::from(y)],
        params: params.u32(x.matrix).u32(x.row).u32(x.col).u32(others).f32(f32::NAN),
        grid: Grid::map(count, dtype),
    })
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    let each =
        |t: &DType| [vec![update_shader(*t)], Map::ALL.map(|m| m.shader(*t)).to_vec()].concat();
    let vec4s = [update_vec4s_shader(false), update_vec4s_shader(true)];
    NUMBERS.iter().flat_map(each).chain(vec4s).collect()
}
