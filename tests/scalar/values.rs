//! Arguments for the rows: every pair of special values, then random ones; and the shapes in which
//! they come.

use tensorflow_wgpu::DType;
use tensorflow_wgpu::kernels::scalar::row::{Case, Row, Shapes, Value};
use tensorflow_wgpu::tensor::HostTensor;

/// A small deterministic generator (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// One column of arguments for each input, all of the same length.
pub fn columns(row: &Row, case: &Case, dtype: DType) -> Vec<Vec<Value>> {
    let types = row.input_types(dtype);
    let mut random =
        Random(row.op.bytes().fold(1, |h, b| h.wrapping_mul(131).wrapping_add(u64::from(b))));
    let lists: Vec<Vec<Value>> = types.iter().map(|t| specials(*t, case)).collect();
    let combinations: usize = lists.iter().map(Vec::len).product();
    let mut columns: Vec<Vec<Value>> = vec![Vec::new(); types.len()];
    for c in 0..combinations.min(4000) {
        let mut rest =
            if combinations > 4000 { (random.bits() % combinations as u64) as usize } else { c };
        for (column, list) in columns.iter_mut().zip(&lists) {
            column.push(list[rest % list.len()]);
            rest /= list.len();
        }
    }
    for _ in 0..3001 {
        for (column, t) in columns.iter_mut().zip(&types) {
            column.push(sample(*t, case, &mut random));
        }
    }
    columns
}

/// Values of `column`, repeated to `n`.
pub fn cycle(column: &[Value], n: usize) -> Vec<Value> {
    column.iter().rev().copied().cycle().take(n).collect()
}

/// Shapes of the inputs beyond equal vectors.
pub fn shapes(row: &Row) -> Vec<Vec<Vec<usize>>> {
    let same = |dims: &[usize]| vec![dims.to_vec(); row.inputs.len()];
    let mut shapes = vec![same(&[]), same(&[0, 3]), same(&[1]), same(&[2, 3, 1, 5])];
    match (row.shapes, row.inputs.len()) {
        (Shapes::Broadcast | Shapes::BroadcastOr(_), 2) => shapes.extend([
            vec![vec![41], vec![]],
            vec![vec![1], vec![2, 19]],
            vec![vec![3, 1, 5], vec![7, 1]],
            vec![vec![0], vec![1]],
            vec![vec![2, 1, 2, 1, 2, 1, 3], vec![1, 3, 1, 2, 1, 2, 3]],
        ]),
        (Shapes::Broadcast | Shapes::BroadcastOr(_), 3) => shapes.extend([
            vec![vec![], vec![33], vec![33]],
            vec![vec![5, 1], vec![5, 7], vec![7]],
            vec![vec![3, 1, 1], vec![1, 4, 1], vec![]],
        ]),
        (Shapes::Select, _) => shapes.extend([
            vec![vec![], vec![4, 5], vec![4, 5]],
            vec![vec![4], vec![4, 5, 3], vec![4, 5, 3]],
        ]),
        (Shapes::Bounds, _) => {
            shapes.extend([vec![vec![3, 7], vec![], vec![]], vec![vec![3, 7], vec![3, 7], vec![]]])
        }
        _ => {}
    }
    shapes
}

fn specials(dtype: DType, case: &Case) -> Vec<Value> {
    if dtype.is_float() {
        let mut list =
            vec![0.0, 1.0, 2.0, 0.5, 3.0, 1.5, 2.5, 0.1, 7.0, 100.0, 1e-4, 6.0, 1e4, f64::INFINITY];
        match dtype {
            DType::F16 => list.extend([65504.0, 6.2e-5]),
            DType::F64 => list.extend([
                1e300,
                1e-300,
                1e30,
                f64::MAX,
                2.5e-308,
                9_007_199_254_740_992.0,
                709.7,
                1e10,
                4_294_967_295.5,
            ]),
            _ => list.extend([1e30, 1e-30, 3.4028234e38, 1.3e-38, 16_777_216.0, 88.8, 1e10]),
        }
        if case.narrow {
            list.retain(|v| *v == 0.0 || (1e-6..1e6).contains(v));
        }
        let negative: Vec<f64> = list.iter().map(|v| -v).collect();
        list.extend(negative);
        list.push(f64::NAN);
        return list.into_iter().map(|v| Value::Float(round(dtype, v))).collect();
    }
    if dtype == DType::Bool {
        return vec![Value::Int(0), Value::Int(1)];
    }
    let (low, high) = range(dtype);
    let list = [low, low + 1, -8, -3, -2, -1, 0, 1, 2, 3, 5, 7, 8, 31, 63, 100, high - 1, high];
    list.into_iter().filter(|v| (low..=high).contains(v)).map(Value::Int).collect()
}

/// A random value: within the case's domain, of any magnitude or near 1, in turn.
fn sample(dtype: DType, case: &Case, random: &mut Random) -> Value {
    if dtype.is_float() {
        let (low, high) = case.domain;
        let sign = if random.bits() & 1 == 0 { 1.0 } else { -1.0 };
        let v = match random.bits() % 3 {
            0 => low + (high - low) * random.unit(),
            1 => sign * f64::powf(10.0, 14.0 * random.unit() - 9.0),
            _ => sign * f64::powf(2.0, 4.0 * random.unit() - 2.0),
        };
        return Value::Float(round(dtype, v));
    }
    let (low, high) = range(dtype);
    let wide = i128::from(random.bits()) + low;
    Value::Int(if random.bits() & 1 == 0 {
        wide.clamp(low, high)
    } else {
        (wide.rem_euclid(23) - 11).clamp(low, high)
    })
}

/// The least and the largest integer.
pub fn range(dtype: DType) -> (i128, i128) {
    match dtype {
        DType::Bool => (0, 1),
        _ if dtype.is_signed_integer() => {
            (-(1 << (8 * dtype.size() - 1)), (1 << (8 * dtype.size() - 1)) - 1)
        }
        _ => (0, (1 << (8 * dtype.size())) - 1),
    }
}

/// `v` rounded to a float type.
pub fn round(dtype: DType, v: f64) -> f64 {
    HostTensor::floats(dtype, &[], &[v]).to_f64()[0]
}

/// Values of `dtype` that are hard to convert.
pub fn cast_arguments(dtype: DType) -> Vec<Value> {
    let mut random = Random(7);
    if !dtype.is_float() {
        let (low, high) = range(dtype);
        let mut list: Vec<i128> = vec![
            low,
            low + 1,
            -129,
            -128,
            -1,
            0,
            1,
            127,
            128,
            255,
            256,
            32767,
            65504,
            65520,
            65535,
            65536,
        ];
        list.extend([
            16_777_217,
            2_147_483_647,
            2_147_483_648,
            4_294_967_295,
            4_294_967_296,
            high - 1,
            high,
        ]);
        list.extend((0..500).map(|_| i128::from(random.bits()) >> (random.bits() % 64)));
        return list.into_iter().filter(|v| (low..=high).contains(v)).map(Value::Int).collect();
    }
    let mut list = vec![
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        0.0,
        -0.0,
        0.5,
        0.999,
        1.5,
        254.9,
        300.7,
        128.0,
        65519.0,
        65520.0,
    ];
    list.extend([
        2147483520.0,
        2147483648.0,
        4294967040.0,
        4294967296.0,
        9.2e18,
        f64::powi(2.0, 63),
        1.8e19,
        1.9e19,
        1e30,
    ]);
    list.extend([
        9_007_199_254_740_991.5,
        1.0 + f64::EPSILON,
        16_777_217.0,
        3.4028235677973366e38,
        1e39,
        1.4e-45,
    ]);
    list.extend([1.00390625, 1.001, 6e-8, 5.9e-5, 1.1e-7, 3.0e38]);
    list.extend((0..500).map(|_| f64::powf(2.0, 90.0 * random.unit() - 24.0)));
    let negative: Vec<f64> = list.iter().map(|v| -v).collect();
    list.extend(negative);
    list.into_iter().map(|v| Value::Float(round(dtype, v))).collect()
}
