//! Sums of products as one contraction: `x0 y0 + x1 y1 + …` has a contracted index as long as those
//! of all its terms. An outer step of it is a term, whose operands are tensors of their own. So the
//! gradient of what query, key and value are computed from is one program, and nothing is stored in
//! between.

use smallvec::SmallVec;

use super::epilogue::Bound;
use super::plan::{Plan, Step};
use super::{Contraction, Lanes, Lines, Rows, Variant, parts};
use crate::device::Profile;
use crate::kernels::windows::limit;
use crate::shader::Shader;
use crate::tensor::Tensor;

/// Most terms: each binds two tensors.
pub const MOST: usize = A.len();

/// The names of the terms' left operands.
pub(super) const A: [&str; 3] = ["a_0", "a_1", "a_2"];
/// Those of the right ones.
pub(super) const B: [&str; 3] = ["b_0", "b_1", "b_2"];

/// Bindings of a program of so many terms with so many further operands of an epilogue.
pub const fn bindings(terms: usize, extras: usize) -> usize {
    2 * terms + 1 + extras
}

/// Operands of the terms behind the first one.
pub type Others = SmallVec<[[Tensor; 2]; MOST - 1]>;

/// The contraction of all plans, each of a product without an epilogue, and with an epilogue on
/// their sum; none where that does not go.
pub fn plan<'e>(
    plans: &[Plan<'_>],
    profile: &Profile,
    epilogue: Option<Bound<'e>>,
) -> Option<Plan<'e>> {
    let terms: Vec<&Contraction> = plans.iter().map(term).collect::<Option<_>>()?;
    let (first, others) = terms.split_first()?;
    let Rows::Dense { stride } = first.rows else { return None };
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
        rows: Rows::Terms { stride, others },
        lines: Lines::Strided(0),
        ..(*first).clone()
    };
    if !sum.fits(limit, epilogue.as_ref()) {
        return None;
    }
    let mut plan = Plan::new();
    plan.contract(sum, epilogue).ok()?;
    Some(plan)
}

/// The contraction that a plan is, if it is nothing else.
fn term<'p>(plan: &'p Plan<'_>) -> Option<&'p Contraction> {
    match plan.steps() {
        [Step::Contract(c, None)] if plan.temporaries().is_empty() => Some(c),
        _ => None,
    }
}

/// Whether terms differ in nothing but their operands' tensors.
fn are_alike(x: &Contraction, y: &Contraction) -> bool {
    let rows = match (&x.rows, &y.rows) {
        (Rows::Dense { stride: x }, Rows::Dense { stride: y }) => x == y,
        _ => false,
    };
    let extents = |c: &Contraction| {
        [c.m, c.n, c.outer, c.inner, c.a_step, c.b_step, c.b_column, c.batch.len()]
    };
    rows && extents(x) == extents(y)
        && (x.outer, x.batch.len()) == (1, 1)
        && (x.lines, y.lines) == (Lines::Dense, Lines::Dense)
        && (x.a.dtype, x.b.dtype, x.c.dtype) == (y.a.dtype, y.b.dtype, y.c.dtype)
        && (x.store, x.conjugated) == (y.store, y.conjugated)
}

/// How a term's operand is loaded, given how the others' are.
pub(super) fn common(lanes: impl Iterator<Item = Lanes>) -> Lanes {
    let mut lanes = lanes;
    let first = lanes.next().unwrap_or(Lanes::One);
    if lanes.all(|other| other == first) { first } else { Lanes::One }
}

/// Declares which term the next loads are of.
pub(super) fn declare(shader: Shader) -> Shader {
    shader.body("var<private> part: u32;\n")
}

/// Loads of the operand `name` from that of the term.
pub(super) fn load(v: &Variant, name: &str) -> String {
    let (source, names) = if name == "a" { (v.a, &A) } else { (v.b, &B) };
    let value = source.0.value();
    match source.1 {
        Lanes::One => parts::load("load", name, &names[..v.terms], value),
        _ => parts::load("load4", name, &names[..v.terms], &format!("vec4<{value}>")),
    }
}
