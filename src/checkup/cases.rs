//! The cases: ops, their operands and their exact results. Each case tests another way in which
//! kernels use a driver's compiler. The operands of sums are whole numbers, so that every order of
//! the summands gives the same sum.

use crate::dtype::DType;
use crate::error::Result;
use crate::local::{Input, Node, Session};
use crate::tensor::HostTensor;

/// A case: its name for messages, and the check, which describes the first wrong element.
pub(super) struct Case {
    pub name: &'static str,
    pub run: fn(&mut Session) -> Result<Option<String>>,
}

/// All cases.
pub(super) const CASES: &[Case] = &[
    Case { name: "a matrix product", run: |s| product(s, DType::F32, [37, 129, 65]) },
    Case { name: "a matrix product of float16", run: |s| product(s, DType::F16, [64, 64, 64]) },
    Case { name: "a vector times a matrix", run: |s| product(s, DType::F32, [1, 300, 200]) },
    Case { name: "a long product", run: |s| product(s, DType::F32, [8, 20_000, 8]) },
    Case { name: "a convolution", run: convolution },
    Case { name: "sums of rows", run: |s| sums(s, [7, 3001], 1) },
    Case { name: "sums of columns", run: |s| sums(s, [2001, 9], 0) },
    Case { name: "maxima of −∞ and NaN", run: maxima },
    Case { name: "exponentials at their edges", run: exponentials },
    Case { name: "logarithms at their edges", run: logarithms },
    Case { name: "softmax with −∞", run: softmax },
    Case { name: "tests for NaN and infinity", run: tests_for_nan },
    Case { name: "float16 in memory", run: |s| rounding(s, DType::F16) },
    Case { name: "bfloat16 in memory", run: |s| rounding(s, DType::BF16) },
    Case { name: "products of 64-bit integers", run: |s| integers(s, "Mul", i64::wrapping_mul) },
    Case { name: "quotients of 64-bit integers", run: |s| integers(s, "FloorDiv", floor_div) },
    Case { name: "running sums", run: running_sums },
    Case { name: "the largest elements", run: largest },
    Case { name: "a transposition", run: transposition },
    Case { name: "sums by segment", run: segments },
];

/// `n` whole numbers from -3 to 3.
fn wholes(n: usize, seed: usize) -> Vec<f64> {
    (0..n).map(|i| ((i * 5 + i / 7 + seed * 3) % 7) as f64 - 3.0).collect()
}

/// Runs an op that has one result.
fn result(session: &mut Session, node: &Node, inputs: &[HostTensor]) -> Result<HostTensor> {
    let inputs: Vec<Input> = inputs.iter().cloned().map(Input::from).collect();
    Ok(session.run(node, &inputs)?.swap_remove(0))
}

/// A description of the first element that `is_right` refuses.
fn first_wrong(
    got: &HostTensor,
    wanted: &[f64],
    is_right: impl Fn(f64, f64) -> bool,
) -> Option<String> {
    let got = got.to_f64();
    if got.len() != wanted.len() {
        return Some(format!("{} elements, not {}", got.len(), wanted.len()));
    }
    let wrong = (0..got.len()).find(|i| !is_right(got[*i], wanted[*i]))?;
    Some(format!("element {wrong} is {}, not {}", got[wrong], wanted[wrong]))
}

fn is_same(got: f64, wanted: f64) -> bool {
    got == wanted || got.is_nan() && wanted.is_nan()
}

/// Equal to within 1e-5 of the value. A subnormal number of float32 may be flushed to zero.
fn is_close(got: f64, wanted: f64) -> bool {
    let is_flushed = got == 0.0 && wanted.abs() < f64::from(f32::MIN_POSITIVE);
    is_same(got, wanted) || is_flushed || (got - wanted).abs() <= 1e-5 * wanted.abs()
}

fn product(session: &mut Session, t: DType, [m, k, n]: [usize; 3]) -> Result<Option<String>> {
    let (a, b) = (wholes(m * k, 1), wholes(k * n, 2));
    let node =
        Node::new("MatMul").attr("T", t).attr("transpose_a", false).attr("transpose_b", false);
    let operands = [HostTensor::floats(t, &[m, k], &a), HostTensor::floats(t, &[k, n], &b)];
    let got = result(session, &node, &operands)?;
    let wanted: Vec<f64> = (0..m * n)
        .map(|i| (0..k).map(|step| a[i / n * k + step] * b[step * n + i % n]).sum())
        .collect();
    Ok(first_wrong(&got, &wanted, is_same))
}

/// A 3 x 3 filter with stride 1 and zeros around the image.
fn convolution(session: &mut Session) -> Result<Option<String>> {
    const IMAGE: [usize; 4] = [2, 9, 10, 3];
    const FILTERS: usize = 5;
    let [images, rows, columns, channels] = IMAGE;
    let x = wholes(IMAGE.iter().product(), 3);
    let filter = wholes(9 * channels * FILTERS, 4);
    let node = Node::new("Conv2D")
        .attr("T", DType::F32)
        .attr("strides", &[1_i64; 4][..])
        .attr("dilations", &[1_i64; 4][..])
        .attr("explicit_paddings", &[] as &[i64])
        .attr("padding", "SAME")
        .attr("data_format", "NHWC");
    let operands = [
        HostTensor::floats(DType::F32, &IMAGE, &x),
        HostTensor::floats(DType::F32, &[3, 3, channels, FILTERS], &filter),
    ];
    let got = result(session, &node, &operands)?;
    let mut wanted = Vec::new();
    for at in 0..images * rows * columns * FILTERS {
        let (place, f) = (at / FILTERS, at % FILTERS);
        let (image, row, column) =
            (place / columns / rows, place / columns % rows, place % columns);
        let mut sum = 0.0;
        for tap in 0..9 {
            let (r, c) = (row + tap / 3, column + tap % 3);
            // With the border of zeros, the image begins at 1.
            if (1..=rows).contains(&r) && (1..=columns).contains(&c) {
                let pixel = (image * rows + r - 1) * columns + c - 1;
                sum += (0..channels)
                    .map(|d| x[pixel * channels + d] * filter[(tap * channels + d) * FILTERS + f])
                    .sum::<f64>();
            }
        }
        wanted.push(sum);
    }
    Ok(first_wrong(&got, &wanted, is_same))
}

fn reduction(op: &str, t: DType) -> Node {
    Node::new(op).attr("T", t).attr("Tidx", DType::I32).attr("keep_dims", false)
}

fn sums(session: &mut Session, dims: [usize; 2], axis: i32) -> Result<Option<String>> {
    let [rows, columns] = dims;
    let x = wholes(rows * columns, 5);
    let operands = [HostTensor::floats(DType::F32, &dims, &x), HostTensor::i32(&[1], &[axis])];
    let got = result(session, &reduction("Sum", DType::F32), &operands)?;
    let wanted: Vec<f64> = if axis == 1 {
        x.chunks(columns).map(|row| row.iter().sum()).collect()
    } else {
        (0..columns).map(|column| x.iter().skip(column).step_by(columns).sum()).collect()
    };
    Ok(first_wrong(&got, &wanted, is_same))
}

fn maxima(session: &mut Session) -> Result<Option<String>> {
    let mut x = vec![f64::NEG_INFINITY; 3 * 300];
    x[300 + 77] = f64::NAN;
    x[600 + 299] = -5.0;
    let operands = [HostTensor::floats(DType::F32, &[3, 300], &x), HostTensor::i32(&[1], &[1])];
    let got = result(session, &reduction("Max", DType::F32), &operands)?;
    Ok(first_wrong(&got, &[f64::NEG_INFINITY, f64::NAN, -5.0], is_same))
}

fn function(
    session: &mut Session,
    op: &str,
    x: &[f32],
    of: impl Fn(f64) -> f64,
) -> Result<Option<String>> {
    let node = Node::new(op).attr("T", DType::F32);
    let got = result(session, &node, &[HostTensor::f32(&[x.len()], x)])?;
    // A value beyond the range of float32 is infinite.
    let wanted: Vec<f64> = x.iter().map(|v| f64::from(of(f64::from(*v)) as f32)).collect();
    Ok(first_wrong(&got, &wanted, is_close))
}

fn exponentials(session: &mut Session) -> Result<Option<String>> {
    let x = [
        f32::NEG_INFINITY,
        f32::INFINITY,
        f32::NAN,
        0.0,
        -0.0,
        1.0,
        -1.0,
        20.5,
        -20.5,
        88.5,
        89.0,
        -87.0,
        -104.5,
        // The result is subnormal.
        -90.0,
        1e-6,
    ];
    function(session, "Exp", &x, f64::exp)
}

fn logarithms(session: &mut Session) -> Result<Option<String>> {
    let x = [0.0, -0.0, -1.0, f32::INFINITY, f32::NAN, 1.0, 0.5, 2.0, 1e-30, 3e38, 1.000_1];
    if let Some(wrong) = function(session, "Log", &x, f64::ln)? {
        return Ok(Some(wrong));
    }
    // Subnormal numbers, which count as zeros where the device flushes them.
    let x = [1e-40, -1e-40, 1e-45_f32];
    let node = Node::new("Log").attr("T", DType::F32);
    let got = result(session, &node, &[HostTensor::f32(&[x.len()], &x)])?;
    let wanted = x.map(|v| f64::from(v).ln());
    Ok(first_wrong(&got, &wanted, |got, wanted| got == f64::NEG_INFINITY || is_close(got, wanted)))
}

fn softmax(session: &mut Session) -> Result<Option<String>> {
    const COLUMNS: usize = 301;
    let mut x = wholes(4 * COLUMNS, 6);
    x[..COLUMNS / 2].fill(f64::NEG_INFINITY);
    // All elements of this row but one are far below the maximum.
    x[COLUMNS..2 * COLUMNS].fill(-1e30);
    x[COLUMNS + 5] = 1e30;
    let node = Node::new("Softmax").attr("T", DType::F32);
    let got = result(session, &node, &[HostTensor::floats(DType::F32, &[4, COLUMNS], &x)])?;
    let mut wanted = Vec::new();
    for row in x.chunks(COLUMNS) {
        let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = row.iter().map(|v| (v - most).exp()).sum();
        wanted.extend(row.iter().map(|v| (v - most).exp() / sum));
    }
    Ok(first_wrong(&got, &wanted, is_close))
}

fn tests_for_nan(session: &mut Session) -> Result<Option<String>> {
    let x = [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, 1.0, f32::MAX];
    for (op, is) in [
        ("IsNan", f32::is_nan as fn(f32) -> bool),
        ("IsInf", f32::is_infinite),
        ("IsFinite", f32::is_finite),
    ] {
        let got = result(
            session,
            &Node::new(op).attr("T", DType::F32),
            &[HostTensor::f32(&[x.len()], &x)],
        )?;
        let wanted: Vec<f64> = x.iter().map(|v| f64::from(u8::from(is(*v)))).collect();
        if let Some(wrong) = first_wrong(&got, &wanted, is_same) {
            return Ok(Some(format!("{op}: {wrong}")));
        }
    }
    Ok(None)
}

/// An odd number of elements, two to a word. Among them are values halfway between two others,
/// values that overflow, subnormal numbers, and zeros of both signs.
fn rounding(session: &mut Session, t: DType) -> Result<Option<String>> {
    let x = [
        1.0,
        -2.5,
        0.333_333_34,
        2049.0,
        2051.0,
        65_504.0,
        65_519.0,
        65_520.0,
        6e-8,
        3e-6,
        -0.0,
        257.0,
        259.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        3.4e38,
        1e-4,
        7.0,
    ];
    let node = Node::new("Cast").attr("SrcT", DType::F32).attr("DstT", t).attr("Truncate", false);
    let got = result(session, &node, &[HostTensor::f32(&[x.len()], &x)])?;
    let x: Vec<f64> = x.iter().map(|v| f64::from(*v)).collect();
    let wanted = HostTensor::floats(t, &[x.len()], &x).to_f64();
    let is_right = |got: f64, wanted: f64| {
        is_same(got, wanted) && got.is_sign_negative() == wanted.is_sign_negative()
            || got.is_nan() && wanted.is_nan()
    };
    Ok(first_wrong(&got, &wanted, is_right))
}

fn floor_div(a: i64, b: i64) -> i64 {
    a.div_euclid(b) - i64::from(b < 0 && a.rem_euclid(b) != 0)
}

fn integers(session: &mut Session, op: &str, of: fn(i64, i64) -> i64) -> Result<Option<String>> {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for x in [1, -1, 7, -7, 1 << 33, -(1 << 33) - 5, 0x0123_4567_89ab_cdef, i64::MAX, i64::MIN + 1]
    {
        for y in [1, 3, -3, 1 << 31, (1 << 32) + 7, -0x0123_4567_89ab, i64::MAX] {
            a.push(x);
            b.push(y);
        }
    }
    let operands = [HostTensor::i64(&[a.len()], &a), HostTensor::i64(&[b.len()], &b)];
    let got = result(session, &Node::new(op).attr("T", DType::I64), &operands)?.values::<i64>();
    let wrong = (0..a.len()).find(|i| got[*i] != of(a[*i], b[*i]));
    Ok(wrong.map(|i| format!("of {} and {} it is {}, not {}", a[i], b[i], got[i], of(a[i], b[i]))))
}

fn running_sums(session: &mut Session) -> Result<Option<String>> {
    const COLUMNS: usize = 4099;
    let x = wholes(3 * COLUMNS, 7);
    let node = Node::new("Cumsum")
        .attr("T", DType::F32)
        .attr("Tidx", DType::I32)
        .attr("exclusive", false)
        .attr("reverse", false);
    let operands = [HostTensor::floats(DType::F32, &[3, COLUMNS], &x), HostTensor::i32(&[], &[1])];
    let got = result(session, &node, &operands)?;
    let mut wanted = Vec::new();
    for row in x.chunks(COLUMNS) {
        wanted.extend(row.iter().scan(0.0, |sum, v| {
            *sum += v;
            Some(*sum)
        }));
    }
    Ok(first_wrong(&got, &wanted, is_same))
}

fn largest(session: &mut Session) -> Result<Option<String>> {
    const COLUMNS: usize = 1021;
    const COUNT: usize = 9;
    // All elements differ: 7 and the number of columns have no common divisor.
    let x: Vec<f64> = (0..2 * COLUMNS).map(|i| (i * 7 % COLUMNS) as f64).collect();
    let node = Node::new("TopKV2").attr("T", DType::F32).attr("index_type", DType::I32);
    let operands =
        [HostTensor::floats(DType::F32, &[2, COLUMNS], &x), HostTensor::i32(&[], &[COUNT as i32])];
    let got = result(session, &node, &operands)?;
    let wanted: Vec<f64> = (0..2 * COUNT).map(|i| (COLUMNS - 1 - i % COUNT) as f64).collect();
    Ok(first_wrong(&got, &wanted, is_same))
}

fn transposition(session: &mut Session) -> Result<Option<String>> {
    const A: usize = 33;
    const B: usize = 65;
    const C: usize = 3;
    let x: Vec<f64> = (0..A * B * C).map(|i| i as f64).collect();
    let node = Node::new("Transpose").attr("T", DType::F32).attr("Tperm", DType::I32);
    let operands =
        [HostTensor::floats(DType::F32, &[A, B, C], &x), HostTensor::i32(&[3], &[2, 1, 0])];
    let got = result(session, &node, &operands)?;
    let at = |i: usize| x[(i % A * B + i / A % B) * C + i / A / B];
    Ok(first_wrong(&got, &(0..x.len()).map(at).collect::<Vec<_>>(), is_same))
}

/// The kernel uses atomic additions, or sorts.
fn segments(session: &mut Session) -> Result<Option<String>> {
    const ROWS: usize = 500;
    const COLUMNS: usize = 5;
    const SEGMENTS: usize = 7;
    let x = wholes(ROWS * COLUMNS, 8);
    let ids: Vec<i32> = (0..ROWS).map(|i| (i * i % SEGMENTS) as i32).collect();
    let node = Node::new("UnsortedSegmentSum")
        .attr("T", DType::F32)
        .attr("Tindices", DType::I32)
        .attr("Tnumsegments", DType::I32);
    let operands = [
        HostTensor::floats(DType::F32, &[ROWS, COLUMNS], &x),
        HostTensor::i32(&[ROWS], &ids),
        HostTensor::i32(&[], &[SEGMENTS as i32]),
    ];
    let got = result(session, &node, &operands)?;
    let mut wanted = vec![0.0; SEGMENTS * COLUMNS];
    for (i, v) in x.iter().enumerate() {
        wanted[ids[i / COLUMNS] as usize * COLUMNS + i % COLUMNS] += v;
    }
    Ok(first_wrong(&got, &wanted, is_same))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_are_rounded_down() {
        for (a, b, wanted) in [(7, 3, 2), (-7, 3, -3), (7, -3, -3), (-7, -3, 2), (6, -3, -2)] {
            assert_eq!(floor_div(a, b), wanted, "{a} / {b}");
        }
    }

    #[test]
    fn elements_are_compared_one_by_one() {
        let got = HostTensor::f32(&[3], &[1.0, f32::NAN, 3.0]);
        assert_eq!(first_wrong(&got, &[1.0, f64::NAN, 3.0], is_same), None);
        let wrong = first_wrong(&got, &[1.0, 2.0, 3.0], is_same);
        assert_eq!(wrong.as_deref(), Some("element 1 is NaN, not 2"));
        assert!(first_wrong(&got, &[1.0], is_same).is_some());
        assert!(is_close(0.0, 1e-40) && !is_close(0.0, 1e-30) && is_close(1.000_001, 1.0));
    }

    #[test]
    fn names_are_different() {
        let names: std::collections::BTreeSet<_> = CASES.iter().map(|case| case.name).collect();
        assert_eq!(names.len(), CASES.len());
    }
}
