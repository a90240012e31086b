//! SparseToDense and SparseTensorDenseMatMul. Coordinates out of range are ignored, as in scatters:
//! to find them the host would have to wait for the device.

use crate::device::{Binding, Grid, declare_program};
use crate::dtype::types::INDEX;
use crate::dtype::{
    DType::{self, *},
    types, union,
};
use crate::error::Result;
use crate::kernels::gather::index::Indices;
use crate::kernels::movement::remap::{Background, fill_element};
use crate::kernels::movement::walk::copy_strided;
use crate::kernels::movement::{host_shape, shape};
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::registry::Registry;
use crate::kernels::scalar::cast::cast;
use crate::kernels::scatter::chains::{Fold, Scatter};
use crate::layout::Iteration;
use crate::require;
use crate::shader::Shader;
use crate::tensor::shape_text;

const DENSE: &[DType] = union!(types::REALS, &[Bool]);
const PRODUCTS: &[DType] = union!(types::FLOATS_BUT_BF16, types::COMPLEX);

/// Registers the ops.
pub fn register(registry: &mut Registry) {
    let to_dense = registry.op("SparseToDense").types("T", DENSE).types("Tindices", INDEX);
    to_dense
        .host(&["default_value", "output_shape"])
        .note(
            "`validate_indices` is not looked at: coordinates out of range are ignored, and the \
             last of equal ones wins",
        )
        .kernel(|_| Ok(to_dense_kernel as fn(&mut dyn OpContext) -> Result<()>));
    let product =
        registry.op("SparseTensorDenseMatMul").types("T", PRODUCTS).types("Tindices", INDEX);
    product.host(&["a_shape"]).kernel(Product::new);
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    PRODUCTS.iter().flat_map(|t| INDEX.iter().map(|i| ScaledRows::shader(*t, *i))).collect()
}

/// Inputs sparse_indices (0), output_shape (1, host), sparse_values (2) and default_value (3,
/// host).
fn to_dense_kernel(ctx: &mut dyn OpContext) -> Result<()> {
    let (indices, values) = (ctx.input(0)?, ctx.input(2)?);
    let default = ctx.host_input(3)?;
    require!(
        indices.rank() <= 2,
        "sparse_indices should be a scalar, vector, or matrix, got shape {}",
        shape(&indices.dims)
    );
    let dims = host_shape(ctx, 1, "output_shape")?;
    let count = if indices.rank() > 0 { indices.dims[0] } else { 1 };
    let depth = if indices.rank() > 1 { indices.dims[1] } else { 1 };
    require!(
        dims.len() == depth,
        "output_shape has incorrect number of elements: {} should be: {depth}",
        dims.len()
    );
    require!(
        values.rank() == 0 || (values.rank() == 1 && values.dims[0] == count),
        "sparse_values has incorrect shape {}, should be [] or [{count}]",
        shape(&values.dims)
    );
    require!(default.dims.is_empty(), "default_value should be a scalar.");
    let Some(dst) = ctx.some_output(0, values.dtype, &dims)? else { return Ok(()) };
    if let Background::Element(bytes) = Background::element(&default.bytes) {
        fill_element(ctx.device(), &dst, &bytes)?;
    }
    let indices = &Indices::new(&indices, &dims)?;
    Scatter { fold: Fold::Update, indices, count, updates: &values, inner: 1 }.enqueue(ctx, &dst)
}

/// Inputs a_indices (0), a_values (1), a_shape (2, host) and b (3).
struct Product {
    adjoint_a: bool,
    adjoint_b: bool,
}

impl Product {
    fn new(attrs: &dyn Attrs) -> Result<Self> {
        Ok(Self { adjoint_a: attrs.bool("adjoint_a")?, adjoint_b: attrs.bool("adjoint_b")? })
    }
}

impl Kernel for Product {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let (indices, values, b) = (ctx.input(0)?, ctx.input(1)?, ctx.input(3)?);
        require!(b.rank() == 2, "Tensor 'b' is not a matrix");
        let dims = ctx.host_input(2)?;
        require!(dims.dims[..] == [2], "Tensor 'a_shape' must have 2 elements");
        require!(values.rank() == 1, "Tensor 'a_values' is not a vector");
        require!(indices.rank() == 2, "Tensor 'a_indices' is not a matrix");
        let count = values.dims[0];
        require!(
            indices.dims[0] == count,
            "Number of rows of a_indices does not match number of entries in a_values"
        );
        require!(
            indices.dims[1] == 2,
            "Number of columns of a_indices does not match number of entries in a_shape"
        );
        let dims = dims.to_i64()?;
        require!(dims.iter().all(|d| *d >= 0), "a_shape must not be negative: {dims:?}");
        let (rows, inner) = if self.adjoint_a { (dims[1], dims[0]) } else { (dims[0], dims[1]) };
        let (rows, inner) = (rows as usize, inner as usize);
        let [b_rows, b_cols] =
            if self.adjoint_b { [b.dims[1], b.dims[0]] } else { [b.dims[0], b.dims[1]] };
        require!(
            inner == b_rows,
            "Cannot multiply A and B because inner dimension does not match: {inner} vs. \
             {b_rows}.  Did you forget a transpose?  Dimensions of A: [{rows}, {inner}).  \
             Dimensions of B: {}",
            shape_text(&b.dims)
        );
        let y = ctx.output(0, values.dtype, &[rows, b_cols])?;
        ctx.device().fill(y.address, y.bytes(), 0)?;
        if y.is_empty() || count == 0 {
            return Ok(());
        }
        // Each element of a takes a scaled row of b; rows of the result then gather their rows.
        let accumulated = values.dtype.accumulator();
        let scaled = ctx.temp(accumulated, &[count, b_cols])?;
        let own = ctx.temp(indices.dtype, &[count])?;
        let (row, column) = if self.adjoint_a { (1, 0) } else { (0, 1) };
        let walk = Iteration::over(&[count]).operand(&[2], row).operand(&[1], 0);
        let device = ctx.device();
        copy_strided(device, &walk, &indices, &own)?;
        let (row_step, column_step) = if self.adjoint_b { (1, b.dims[1]) } else { (b.dims[1], 1) };
        let (dtype, index) = (values.dtype, indices.dtype);
        device.enqueue_counted(
            &ScaledRows {
                indices: Binding::from(&indices),
                a: Binding::from(&values),
                b: Binding::from(&b),
                y: Binding::from(&scaled),
                count: device.check_extent(scaled.len())?,
                cols: b_cols,
                inner,
                column: column as u32,
                row_step,
                column_step,
                conjugate_a: self.adjoint_a,
                conjugate_b: self.adjoint_b,
            }
            .program(&ScaledRows::of(dtype, index), Grid::map(scaled.len(), accumulated)),
            dtype.product_flops(scaled.len()) / 2,
        )?;
        let sums = if accumulated == y.dtype { y.clone() } else { ctx.temp(accumulated, &y.dims)? };
        if sums.address != y.address {
            ctx.device().fill(sums.address, sums.bytes(), 0)?;
        }
        let indices = &Indices::new(&own, &[rows])?;
        Scatter { fold: Fold::Add, indices, count, updates: &scaled, inner: b_cols }
            .enqueue(ctx, &sums)?;
        if sums.address == y.address { Ok(()) } else { cast(ctx.device(), &sums, &y) }
    }
}

declare_program! {
    /// Element `t` = (element of a, column of b) of the scaled rows. Grid: one invocation for each
    /// element.
    struct ScaledRows = "sparse rows"(dtype: DType, index: DType);
    bindings { indices: index, a: dtype, b: dtype, y: dtype.accumulator() }
    params {
        count: u32, cols: usize, inner: usize, column: u32, row_step: usize,
        column_step: usize, conjugate_a: bool, conjugate_b: bool,
    }
}

impl ScaledRows {
    fn shader(dtype: DType, index: DType) -> Shader {
        // Both words of an int64 are compared, so that huge and negative coordinates are out of
        // range, too.
        let inside = if index == I64 {
            "k >= 0li && k < i64(p.inner)"
        } else {
            "k >= 0 && u32(k) < p.inner"
        };
        let part = if dtype.part() == F64 { "f64" } else { "f32" };
        let (zero, product) = if dtype.is_complex() {
            (format!("vec2<{part}>({part}(0.0), {part}(0.0))"), COMPLEX_PRODUCT)
        } else {
            (format!("{part}(0.0)"), "    return a * b;")
        };
        let text = format!(
            "fn value(t: u32) -> {} {{
    let i = t / p.cols;
    let k = load_indices(2u * i + p.column);
    if !({inside}) {{
        return {zero};
    }}
    let a = load_a(i);
    let b = load_b(u32(k) * p.row_step + t % p.cols * p.column_step);
{product}
}}",
            dtype.value()
        );
        Self::declare("sparse rows", dtype, index).body(&text).map("y")
    }
}

/// An adjoint operand is conjugated.
const COMPLEX_PRODUCT: &str = "    let x = select(a.y, -a.y, p.conjugate_a != 0u);
    let y = select(b.y, -b.y, p.conjugate_b != 0u);
    return vec2(a.x * b.x - x * y, a.x * y + x * b.x);";
