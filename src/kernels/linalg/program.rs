//! The programs that the decompositions share: element-wise matrix maps and `C -= A B`.

use super::number::{NUMBERS, Numbers};
use crate::device::{Binding, Device, Grid, declare_program, enum_key_parts};
use crate::dtype::DType::{self, F32, I32};
use crate::error::Result;
use crate::shader::{Raw, Shader};
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
pub struct MatrixSlice<'t> {
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

impl<'t> MatrixSlice<'t> {
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
    c: MatrixSlice<'_>,
    a: MatrixSlice<'_>,
    b: MatrixSlice<'_>,
    extents: Extents,
    lower: bool,
) -> Result<()> {
    let Extents { batch, m, n, k } = extents;
    if batch * m * n * k == 0 {
        return Ok(());
    }
    let (tiles_m, tiles_n) = (m.div_ceil(TILE), n.div_ceil(TILE));
    let count = batch * tiles_m * tiles_n;
    device.check_extent(count)?;
    let dtype = c.tensor.dtype;
    let flops = dtype.product_flops(batch * m * n * k) / if lower { 2 } else { 1 };
    // Whether b is stored transposed: then a product is four dot products.
    let transposed = b.col != 1;
    let in_vec4s = [n, k].iter().all(|n| n.is_multiple_of(4))
        && [a, b.transposed(transposed), c].iter().all(MatrixSlice::is_in_vec4s);
    if in_vec4s {
        let step = if transposed { b.col } else { b.row };
        return device.enqueue_counted(
            &UpdateVec4s {
                a: Binding::raw(a.tensor, 16),
                b: Binding::raw(b.tensor, 16),
                c: Binding::raw(c.tensor, 16),
                count,
                tiles_m,
                tiles_n,
                m,
                k: k / 4,
                a_at: a.at / 4,
                a_matrix: a.matrix / 4,
                a_row: a.row / 4,
                b_at: b.at / 4,
                b_matrix: b.matrix / 4,
                b_step: step / 4,
                c_at: c.at / 4,
                c_matrix: c.matrix / 4,
                c_row: c.row / 4,
                lower,
            }
            .program(&UpdateVec4s::of(transposed), Grid::linear(count, UPDATERS)),
            flops,
        );
    }
    device.enqueue_counted(
        &Update {
            a: a.tensor.into(),
            b: b.tensor.into(),
            c: c.tensor.into(),
            count,
            tiles_m,
            tiles_n,
            m,
            n,
            k,
            a_at: a.at,
            a_matrix: a.matrix,
            a_row: a.row,
            a_col: a.col,
            b_at: b.at,
            b_matrix: b.matrix,
            b_row: b.row,
            b_col: b.col,
            c_at: c.at,
            c_matrix: c.matrix,
            c_row: c.row,
            lower,
        }
        .program(&Update::of(dtype), Grid::linear(count, UPDATERS)),
        flops,
    )
}

declare_program! {
    /// `C -= A B` by tiles, four elements at a time.
    struct UpdateVec4s = "linalg update vec4s"(transposed: bool);
    bindings { a: Raw("vec4<f32>", 16), b: Raw("vec4<f32>", 16), c: Raw("vec4<f32>", 16) }
    params {
        count: usize, tiles_m: usize, tiles_n: usize, m: usize, k: usize, a_at: usize,
        a_matrix: usize, a_row: usize, b_at: usize, b_matrix: usize, b_step: usize, c_at: usize,
        c_matrix: usize, c_row: usize, lower: bool,
    }
}

impl UpdateVec4s {
    fn shader(transposed: bool) -> Shader {
        let product = |r: usize| {
            if transposed {
                format!("vec4(dot(a{r}, b0), dot(a{r}, b1), dot(a{r}, b2), dot(a{r}, b3))")
            } else {
                format!("a{r}.x * b0 + a{r}.y * b1 + a{r}.z * b2 + a{r}.w * b3")
            }
        };
        Self::declare("linalg update vec4s", transposed)
            .define("FIRST_B", if transposed { "4u * j * p.b_step" } else { "j" })
            .define("NEXT_B", if transposed { "1u" } else { "4u * p.b_step" })
            .define("PRODUCT_0", product(0))
            .define("PRODUCT_1", product(1))
            .define("PRODUCT_2", product(2))
            .define("PRODUCT_3", product(3))
            .workgroup([UPDATERS, 1, 1])
            .body(include_str!("../../../shaders/linalg/update_vec4s.wgsl"))
    }
}

declare_program! {
    /// `C -= A B` by tiles.
    struct Update = "linalg update"(dtype: DType);
    bindings { a: dtype, b: dtype, c: dtype }
    params {
        count: usize, tiles_m: usize, tiles_n: usize, m: usize, n: usize, k: usize, a_at: usize,
        a_matrix: usize, a_row: usize, a_col: usize, b_at: usize, b_matrix: usize, b_row: usize,
        b_col: usize, c_at: usize, c_matrix: usize, c_row: usize, lower: bool,
    }
    shader "linalg update" =>
        .numbers(dtype).workgroup([UPDATERS, 1, 1]).body(
            if dtype.is_complex() {
                include_str!("../../../shaders/linalg/update_complex.wgsl")
            } else {
                include_str!("../../../shaders/linalg/update.wgsl")
            },
        )
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

enum_key_parts!(Map);

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
}

declare_program! {
    /// Fills matrices element by element.
    struct MapMatrices = "linalg map"(dtype: DType, kind: Map);
    bindings { x: dtype, other: if kind == Map::Triangle { dtype } else { I32 }, y: dtype }
    params {
        count: u32, rows: usize, cols: usize, x_matrix: usize, x_row: usize, x_col: usize,
        others: usize, nan: f32,
    }
    shader format!("linalg map {kind:?}") =>
        .numbers(dtype)
        .define("ELEMENT", kind.element())
        .body(include_str!("../../../shaders/linalg/map.wgsl"))
        .map("y")
}

/// Fills the matrices `y` of `rows` x `cols` from `x`, and from `other` if the map reads it
/// (`others` of its rows for each matrix).
#[expect(clippy::too_many_arguments, reason = "a source, a table and a result with their extents")]
pub fn map(
    device: &Device,
    kind: Map,
    x: MatrixSlice<'_>,
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
    MapMatrices {
        x: x.tensor.into(),
        other: Binding::from(other),
        y: Binding::from(y),
        count: device.check_extent(count)?,
        rows,
        cols,
        x_matrix: x.matrix,
        x_row: x.row,
        x_col: x.col,
        others,
        nan: f32::NAN,
    }
    .enqueue(device, &MapMatrices::of(dtype, kind), Grid::map(count, dtype))
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    let each = |t: &DType| {
        [vec![Update::shader(*t)], Map::ALL.map(|m| MapMatrices::shader(*t, m)).to_vec()].concat()
    };
    let vec4s = [UpdateVec4s::shader(false), UpdateVec4s::shader(true)];
    NUMBERS.iter().flat_map(each).chain(vec4s).collect()
}
