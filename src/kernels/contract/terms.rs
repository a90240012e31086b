//! Sums of products as one contraction: `x0 y0 + x1 y1 + …` has one contracted index, as long as
//! those of all its terms together. Each of its outer steps is a term, whose operands are tensors
//! of their own. So the gradient of the tensor that query, key and value are computed from takes
//! one program, and no intermediate result is stored.

use smallvec::SmallVec;

use super::epilogue::Bound;
use super::plan::ProductPlan;
use super::{ALayout, BLayout, Contraction, Lanes, TileVariant, parts};
use crate::device::Profile;
use crate::kernels::windows::limit;
use crate::shader::Shader;
use crate::tensor::Tensor;

/// The most terms: each binds two tensors.
pub const MOST: usize = A.len();

/// The names of the terms' left operands.
pub(super) const A: [&str; 3] = ["a_0", "a_1", "a_2"];
/// The names of the terms' right operands.
pub(super) const B: [&str; 3] = ["b_0", "b_1", "b_2"];

/// Bindings of a program of `terms` terms with `extras` further operands of an epilogue.
pub const fn bindings(terms: usize, extras: usize) -> usize {
    2 * terms + 1 + extras
}

/// Operands of each term behind the first one.
pub type Others = SmallVec<[[Tensor; 2]; MOST - 1]>;

/// One contraction for all plans, each of which is a product without an epilogue. `epilogue`
/// applies to their sum. None if the plans do not fit together.
pub fn plan<'p, 'e>(
    plans: &'p [ProductPlan<'_>],
    profile: &Profile,
    epilogue: Option<Bound<'e>>,
) -> Option<ProductPlan<'e>> {
    let term = |plan: &'p ProductPlan<'_>| match plan.contraction()? {
        (c, None) => Some(c),
        _ => None,
    };
    let terms: Vec<&Contraction> = plans.iter().map(term).collect::<Option<_>>()?;
    let (first, others) = terms.split_first()?;
    let ALayout::Dense { stride } = first.a_layout else { return None };
    let extras = epilogue.as_ref().map_or(0, Bound::tensors);
    let limit = limit(&profile.capabilities);
    let goes = terms.len() <= MOST
        && bindings(terms.len(), extras) <= profile.capabilities.max_bindings as usize
        && first.fits(limit, epilogue.as_ref())
        && others.iter().all(|other| are_alike(first, other));
    if !goes {
        return None;
    }
    let others = others.iter().map(|c| [c.a.clone(), c.b.clone()]).collect();
    let sum = Contraction {
        outer: terms.len(),
        a_layout: ALayout::Terms { stride, others },
        b_layout: BLayout::Strided(0),
        ..(*first).clone()
    };
    if !sum.fits(limit, epilogue.as_ref()) {
        return None;
    }
    let mut plan = ProductPlan::new();
    plan.contract(sum, epilogue).ok()?;
    Some(plan)
}

/// Whether terms differ in nothing but their operands' tensors.
fn are_alike(x: &Contraction, y: &Contraction) -> bool {
    let rows = match (&x.a_layout, &y.a_layout) {
        (ALayout::Dense { stride: x }, ALayout::Dense { stride: y }) => x == y,
        _ => false,
    };
    let extents = |c: &Contraction| {
        [c.m, c.n, c.outer, c.inner, c.a_step, c.b_step, c.b_column, c.batch.len()]
    };
    rows && extents(x) == extents(y)
        && (x.outer, x.batch.len()) == (1, 1)
        && (x.b_layout, y.b_layout) == (BLayout::Dense, BLayout::Dense)
        && (x.a.dtype, x.b.dtype, x.c.dtype) == (y.a.dtype, y.b.dtype, y.c.dtype)
        && (x.store, x.conjugated) == (y.store, y.conjugated)
}

/// The way to load the operands of all terms: theirs if they agree, else element by element.
pub(super) fn common(lanes: impl Iterator<Item = Lanes>) -> Lanes {
    let mut lanes = lanes;
    let first = lanes.next().unwrap_or(Lanes::One);
    if lanes.all(|other| other == first) { first } else { Lanes::One }
}

/// Declares `part`, the term that the next loads belong to.
pub(super) fn declare(shader: Shader) -> Shader {
    shader.body("var<private> part: u32;\n")
}

/// The functions that load operand `name` from the tensor of the term.
pub(super) fn load(v: &TileVariant, name: &str) -> String {
    let (source, names) = if name == "a" { (v.a, &A) } else { (v.b, &B) };
    let value = source.0.value();
    match source.1 {
        Lanes::One => parts::load("load", name, &names[..v.terms], value),
        _ => parts::load("load4", name, &names[..v.terms], &format!("vec4<{value}>")),
    }
}
