//! Einsum against direct sums over all labels, with both tile tables.

#[path = "numeric/complex.rs"]
mod complex;
mod numeric;

use std::collections::HashMap;

use numeric::bindings::under;
use numeric::{Random, assert_close, session};
use tensorflow_wgpu::device::Profile;
use tensorflow_wgpu::local::{Input, Node};
use tensorflow_wgpu::{DType, Error, HostTensor};

type Complex = (f64, f64);

/// An operand's labels, its shape and its values.
type Operand<'a> = (&'a str, &'a [usize], &'a [Complex]);

fn einsum(dtype: DType, equation: &str) -> Node {
    Node::new("Einsum").attr("T", dtype).attr("equation", equation)
}

/// The sum for each place of the output, for an equation without ellipses. An operand with one
/// element along a label repeats it.
fn reference(operands: &[Operand<'_>], output: &str) -> (Vec<usize>, Vec<Complex>) {
    let mut labels: Vec<char> = Vec::new();
    let mut extents: HashMap<char, usize> = HashMap::new();
    for (subscript, shape, _) in operands {
        for (label, extent) in subscript.chars().zip(*shape) {
            if !labels.contains(&label) {
                labels.push(label);
            }
            let known = extents.entry(label).or_insert(*extent);
            *known = if *known == 1 { *extent } else { *known };
        }
    }
    let shape: Vec<usize> = output.chars().map(|l| extents[&l]).collect();
    let mut y = vec![(0.0, 0.0); shape.iter().product()];
    for i in 0..labels.iter().map(|l| extents[l]).product::<usize>() {
        let mut at = HashMap::new();
        let mut rest = i;
        for label in labels.iter().rev() {
            at.insert(*label, rest % extents[label]);
            rest /= extents[label];
        }
        let place = |subscript: &str, shape: &[usize]| {
            subscript
                .chars()
                .zip(shape)
                .fold(0, |place, (l, n)| place * n + if *n == 1 { 0 } else { at[&l] })
        };
        let term = operands.iter().fold((1.0, 0.0), |t: Complex, (subscript, shape, values)| {
            let v = values[place(subscript, shape)];
            (t.0 * v.0 - t.1 * v.1, t.0 * v.1 + t.1 * v.0)
        });
        let sum = &mut y[place(output, &shape)];
        *sum = (sum.0 + term.0, sum.1 + term.1);
    }
    (shape, y)
}

/// Runs `equation`. `plain` is the same equation without ellipses.
fn check(dtype: DType, equation: &str, plain: &str, shapes: &[&[usize]]) {
    if !session().runs(dtype) {
        return;
    }
    let mut random = Random::new(
        equation.len() as u64 * 31 + shapes.iter().flat_map(|s| s.iter()).sum::<usize>() as u64,
    );
    let (inputs, output) = plain.split_once("->").expect("an output");
    let tensors: Vec<_> =
        shapes.iter().map(|s| complex::complex_or_real(&mut random, dtype, s)).collect();
    let operands: Vec<Operand<'_>> = inputs
        .split(',')
        .zip(shapes)
        .zip(&tensors)
        .map(|((l, s), (_, values))| (l, *s, &values[..]))
        .collect();
    let (shape, want) = reference(&operands, output);
    let terms = shapes.iter().flat_map(|s| s.iter()).product::<usize>().min(4096) as f64;
    for profile in Profile::DISTINCT {
        let what = format!("{dtype} {equation} {shapes:?} {profile}");
        let inputs: Vec<Input> = tensors.iter().map(|(t, _)| t.clone().into()).collect();
        let got = under(profile, || session().run(&einsum(dtype, equation), &inputs)).expect(&what);
        assert_eq!(got[0].dims[..], shape[..], "{what}");
        complex::assert_complex_close(&got[0], &want, terms.min(64.0), &what);
    }
}

const ONE: &[(&str, &[usize])] = &[
    ("ij->ji", &[3, 5]),
    ("ij->", &[3, 5]),
    ("ij->i", &[7, 300]),
    ("ij->j", &[300, 6]),
    ("iij->j", &[4, 4, 3]),
    ("ii->", &[9, 9]),
    ("ii->i", &[5, 5]),
    ("ijij->ji", &[2, 3, 2, 3]),
    ("i->ii", &[5]),
    ("ij->jiij", &[2, 3]),
    ("ii->ii", &[3, 3]),
    ("abc->cab", &[2, 1, 4]),
    ("->", &[]),
    ("abcde->bd", &[2, 3, 2, 3, 2]),
];

#[test]
fn one_operand() {
    for (i, dtype) in TYPES.iter().enumerate() {
        for (equation, shape) in ONE.iter().skip(i).step_by(if i == 0 { 1 } else { 4 }) {
            check(*dtype, equation, equation, &[shape]);
        }
    }
}

/// All equations run in the first type, some in each other type.
const TYPES: &[DType] = &[DType::F32, DType::F16, DType::BF16, DType::F64, DType::C64, DType::C128];

/// Equations with the extents of their labels in alphabetical order.
const TWO: &[(&str, &[usize])] = &[
    ("ab,bc->ac", &[5, 7, 6]),
    ("ab,bc->ca", &[8, 16, 12]),
    ("ba,bc->ac", &[5, 70, 6]),
    ("ab,cb->ac", &[33, 20, 17]),
    ("zab,zbc->zac", &[4, 5, 6, 3]),
    ("azb,zbc->zac", &[4, 5, 6, 3]),
    ("azb,zbc->acz", &[4, 5, 6, 3]),
    ("zab,zbc->azc", &[4, 8, 12, 3]),
    ("a,b->ab", &[4, 5]),
    ("a,a->", &[1000]),
    ("a,a->a", &[7]),
    ("ab,ab->a", &[70, 9]),
    ("ab,ab->b", &[9, 70]),
    ("ab,ab->a", &[3, 90]),
    ("abc,b->ac", &[3, 8, 4]),
    ("ab,->ab", &[3, 4]),
    ("ab,ac->", &[3, 4, 5]),
    ("aab,bcc->ca", &[3, 4, 5]),
    ("ab,bc->acca", &[2, 3, 2]),
    // Summed axes that no order walks with one stride.
    ("abcd,cbe->ade", &[2, 3, 4, 5, 6]),
    ("acbd,bcde->ae", &[2, 3, 4, 5, 6]),
    // Attention: scores, their use, and projections with their gradients.
    ("aecd,abcd->acbe", &[2, 5, 3, 8, 6]),
    ("acbe,aecd->abcd", &[2, 5, 3, 8, 6]),
    ("abc,cde->abde", &[2, 5, 8, 3, 4]),
    ("abcd,cde->abe", &[2, 5, 3, 4, 8]),
    ("abc,abde->cde", &[2, 5, 8, 3, 4]),
    ("abde,cde->abc", &[2, 5, 8, 3, 4]),
    ("abcd,abe->cde", &[2, 5, 3, 4, 7]),
    // Rows and columns of several blocks.
    ("abc,dce->dbae", &[3, 4, 5, 2, 6]),
    ("abc,dce->bdea", &[3, 4, 5, 2, 6]),
];

fn shapes_of(equation: &str, extents: &[usize]) -> Vec<Vec<usize>> {
    let (inputs, _) = equation.split_once("->").expect("an output");
    let mut labels: Vec<char> = inputs.chars().filter(|c| *c != ',').collect();
    labels.sort_unstable();
    labels.dedup();
    let extent = |l: char| extents[labels.iter().position(|k| *k == l).expect("a label")];
    inputs.split(',').map(|s| s.chars().map(extent).collect()).collect()
}

#[test]
fn two_operands() {
    for (i, dtype) in TYPES.iter().enumerate() {
        for (equation, extents) in TWO.iter().skip(i).step_by(if i == 0 { 1 } else { 9 }) {
            let shapes = shapes_of(equation, extents);
            check(*dtype, equation, equation, &shapes.iter().map(|s| &s[..]).collect::<Vec<_>>());
        }
    }
}

#[test]
fn ellipses_broadcast() {
    let cases: &[(&str, &str, &[&[usize]])] = &[
        ("...ij,...jk->...ik", "xyij,yjk->xyik", &[&[2, 3, 4, 5], &[3, 5, 6]]),
        ("...ij,...jk->...ik", "xyij,yjk->xyik", &[&[2, 1, 4, 5], &[3, 5, 6]]),
        ("...ij,jk->...ik", "xyij,jk->xyik", &[&[2, 3, 4, 5], &[5, 6]]),
        ("i...,...->i...", "ixy,xy->ixy", &[&[2, 3, 1], &[3, 4]]),
        ("...i->...", "xyi->xy", &[&[2, 3, 4]]),
        ("...->...", "xy->xy", &[&[2, 3]]),
        ("...ii->...i", "xii->xi", &[&[2, 3, 3]]),
        ("i...j,j...->...i", "ixj,jx->xi", &[&[2, 3, 4], &[4, 3]]),
    ];
    for (equation, plain, shapes) in cases {
        check(DType::F32, equation, plain, shapes);
    }
}

#[test]
fn empty_operands_give_empty_results_or_zeros() {
    let zeros =
        |dims: &[usize]| HostTensor::floats(DType::F32, dims, &vec![1.0; dims.iter().product()]);
    for (equation, shapes, want) in [
        ("ij,jk->ik", &[&[2, 0][..], &[0, 3]][..], &[2, 3][..]),
        ("ij,jk->ik", &[&[0, 2], &[2, 3]], &[0, 3]),
        ("i->", &[&[0]], &[]),
        ("i->ii", &[&[0]], &[0, 0]),
        ("ij->j", &[&[0, 3]], &[3]),
    ] {
        let inputs: Vec<Input> = shapes.iter().map(|s| zeros(s).into()).collect();
        let got = session().run(&einsum(DType::F32, equation), &inputs).expect(equation);
        assert_eq!(got[0].dims[..], *want, "{equation}");
        assert_close(&got[0], &vec![0.0; want.iter().product()], 1.0, equation);
    }
}

#[test]
fn errors_are_tensorflows() {
    let zeros =
        |dims: &[usize]| HostTensor::floats(DType::F32, dims, &vec![0.0; dims.iter().product()]);
    let cases: &[(&str, &[&[usize]], &str)] = &[
        ("ij", &[&[2, 3]], "Expecting exactly one '->' in einsum equation: ij"),
        (
            "i,j,k->ijk",
            &[&[1]],
            "Expecting 1 or 2 input subscripts in equation 'i,j,k->ijk' but got: 3",
        ),
        ("i,j->ij", &[&[2]], "Expected 2 inputs but got: 1"),
        ("ij->ji", &[&[3]], "Expected input 0 to have rank 2 but got: 1"),
        ("...ij->...", &[&[3]], "Expected input 0 to have rank at least 2 but got: 1"),
        (
            "ii->i",
            &[&[3, 2]],
            "Expected dimension 3 at axis 1 of the input shaped [3,2] but got dimension 2",
        ),
        (
            "i,i->i",
            &[&[3], &[1]],
            "Expected dimension 3 at axis 0 of the input shaped [1] but got dimension 1",
        ),
        (
            "...i->i",
            &[&[2, 3]],
            "Output contains 1 broadcasting dimension(s) but no ellipsis (...) was found in the \
             output subscripts.",
        ),
        ("...i,...->...i", &[&[2, 3], &[4]], "Invalid broadcasting dimensions: [2,3] vs. [4]"),
    ];
    for (equation, shapes, message) in cases {
        let inputs: Vec<Input> = shapes.iter().map(|s| zeros(s).into()).collect();
        match session().run(&einsum(DType::F32, equation), &inputs) {
            Err(Error::InvalidArgument(m)) => assert!(m.contains(message), "{m}"),
            other => panic!("{equation}: {other:?}"),
        }
    }
}

#[test]
fn operands_beyond_one_binding() {
    let refused = numeric::bindings::within(4096, || {
        for (equation, shapes) in [
            ("ab,bc->ac", [&[60, 70][..], &[70, 33]]),
            ("ab,bc->ca", [&[60, 8], &[8, 90]]),
            ("azb,zbc->azc", [&[20, 6, 16], &[6, 16, 24]]),
            ("aecd,abcd->acbe", [&[3, 20, 4, 12], &[3, 16, 4, 12]]),
            ("a,b->ab", [&[90], &[70]]),
        ] {
            for dtype in [DType::F32, DType::F16, DType::C64] {
                check(dtype, equation, equation, &shapes);
            }
        }
    });
    assert_eq!(refused, 0);
}
