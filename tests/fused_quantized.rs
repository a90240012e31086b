//! `_WgpuFusedQuantizedMatMul`, products with quantized weights, against f64 sums over weights that
//! are decoded here: each packing and each kind of parameter, with the codes' rows and their
//! columns as the contracted index.

mod numeric;
#[path = "numeric/products.rs"]
#[expect(dead_code, reason = "there are no convolutions here")]
mod products;

use numeric::bindings::{dispatches, ran, under, within};
use numeric::{Random, assert_close, either, rounded, session};
use products::{fused, matmul};
use tensorflow_wgpu::device::{Profile, Schedule};
use tensorflow_wgpu::local::{Input, Node};
use tensorflow_wgpu::{DType, Error, HostTensor};

const PLAIN: &str = "x: T; c: 0; return x0";
const BIAS: &str = "x: T, T; c: 0; s0 = AddV2<T>(x0, x1); s1 = Relu<T>(s0); return s1";

/// Decoders and the type of each parameter.
const DECODERS: [(&str, &[DType]); 8] = [
    ("", &[]),
    ("/ c", &[DType::F32]),
    ("/ r", &[DType::F16]),
    ("- gc, * gc", &[DType::I8, DType::F32, DType::F32]),
    ("- cg, * cg", &[DType::U8, DType::F32, DType::F32]),
    ("- rg, * rg, / c", &[DType::U8, DType::F16, DType::F32, DType::F32]),
    ("- gr, * gr", &[DType::I8, DType::BF16, DType::BF16]),
    ("* gc", &[DType::F32, DType::I32]),
];

/// Codes of weights with `extents` rows and columns, and how they decode.
#[derive(Debug, Clone, Copy)]
struct Weights {
    packing: &'static str,
    codes: DType,
    decoder: usize,
    extents: [usize; 2],
    /// Rows or columns of a group.
    block: usize,
    by_columns: bool,
    /// The columns of a head, or 0: the codes are then a tensor `[heads, rows, width]`.
    head: usize,
}

impl Weights {
    /// The bytes of random codes, the parameters, and the weights.
    fn random(&self, random: &mut Random) -> (Vec<HostTensor>, Vec<f64>) {
        let [rows, columns] = self.extents;
        let bits = if self.packing == "bytes" { 8 } else { 4 };
        let patterns: Vec<u8> =
            (0..rows * columns).map(|_| random.below(1 << bits) as u8).collect();
        let signed = |pattern: u8| f64::from((pattern << (8 - bits)) as i8 >> (8 - bits));
        let mut weights: Vec<f64> = patterns
            .iter()
            .map(|p| if self.codes == DType::I8 { signed(*p) } else { f64::from(*p) })
            .collect();
        let at = |r: usize, c: usize| patterns.get(r * columns + c).copied().unwrap_or(0);
        let (dims, bytes): (_, Vec<u8>) = match self.packing {
            "rows" => {
                let dims = [rows.div_ceil(2), columns];
                let pair = |i: usize| {
                    let (r, c) = (i / columns * 2, i % columns);
                    at(r, c) | if r + 1 < rows { at(r + 1, c) << 4 } else { 0 }
                };
                (dims, (0..dims[0] * columns).map(pair).collect())
            }
            "columns" => {
                let dims = [rows, columns.div_ceil(2)];
                let pair = |i: usize| {
                    let (r, c) = (i / dims[1], i % dims[1] * 2);
                    at(r, c) | if c + 1 < columns { at(r, c + 1) << 4 } else { 0 }
                };
                (dims, (0..rows * dims[1]).map(pair).collect())
            }
            _ => ([rows, columns], patterns.clone()),
        };
        let mut tensors = vec![HostTensor::of(self.codes, &dims, &bytes)];
        let (text, types) = DECODERS[self.decoder];
        let by_rows = text.contains("gc") || text.contains("cg");
        let grouped = if by_rows { rows } else { columns };
        let groups = grouped.div_ceil(self.block).max(1);
        // Groups come in an order of their own.
        let group = |i: usize| (i / self.block * 5 + 3) % groups;
        for (step, dtype) in text.split(", ").filter(|step| !step.is_empty()).zip(types) {
            let (op, extents) = step.split_once(' ').expect("a step");
            let extent = |name| match name {
                'r' => rows,
                'c' => columns,
                _ => groups,
            };
            let dims: Vec<usize> = extents.chars().map(extent).collect();
            let values: Vec<f64> = (0..dims.iter().product())
                .map(|_| match dtype {
                    DType::I8 => random.below(15) as f64 - 7.0,
                    DType::U8 => random.below(16) as f64,
                    _ => 0.25 + random.below(32) as f64 / 64.0,
                })
                .collect();
            for (i, weight) in weights.iter_mut().enumerate() {
                let (r, c) = (i / columns, i % columns);
                let g = group(if by_rows { r } else { c });
                let index = extents.chars().fold(0, |index, name| match name {
                    'r' => index * rows + r,
                    'c' => index * columns + c,
                    _ => index * groups + g,
                });
                match op {
                    "-" => *weight -= values[index],
                    "*" => *weight *= values[index],
                    _ => *weight /= values[index],
                }
            }
            tensors.push(match dtype {
                DType::I8 | DType::U8 => {
                    let bytes: Vec<u8> = values.iter().map(|v| *v as i8 as u8).collect();
                    HostTensor::of(*dtype, &dims, &bytes)
                }
                _ => HostTensor::floats(*dtype, &dims, &values),
            });
        }
        if text.contains('g') {
            let dtype = types[types.len() - 1];
            // Negative groups count from the end. One beyond the last is the last.
            let value = |i: usize| match (group(i), i % 3) {
                (group, 1) if group + 1 == groups => 3 * groups as i32,
                (group, 2) => group as i32 - groups as i32,
                (group, _) => group as i32,
            };
            let index: Vec<i32> = (0..grouped).map(value).collect();
            let floats: Vec<f64> = index.iter().map(|i| f64::from(*i)).collect();
            tensors.push(match dtype {
                DType::I32 => HostTensor::i32(&[grouped], &index),
                _ => HostTensor::floats(dtype, &[grouped], &floats),
            });
        }
        if self.head > 0 {
            // Row r of head h, whose columns become columns of the matrix.
            let place = |r: usize, c: usize| {
                let (h, within) = (c / self.head, c % self.head);
                (h * rows + r) * self.head + within
            };
            let of = |i: usize| weights[place(i / columns, i % columns)];
            weights = (0..rows * columns).map(of).collect();
        }
        (tensors, weights)
    }

    /// Steps and columns of the product.
    const fn matrix(&self) -> [usize; 2] {
        let [rows, columns] = self.extents;
        if self.by_columns { [columns, rows] } else { [rows, columns] }
    }

    fn node(&self, dtype: DType, epilogue: &str) -> Node {
        self.node_of("_WgpuFusedQuantizedMatMul", dtype, epilogue)
    }

    fn node_of(&self, op: &str, dtype: DType, epilogue: &str) -> Node {
        let (decoder, types) = DECODERS[self.decoder];
        let [rows, columns] = self.extents;
        fused(op, dtype, epilogue, &[])
            .attr("T_codes", self.codes)
            .attr("T_parameters", types)
            .attr("decoder", decoder)
            .attr("packing", self.packing)
            .attr("extent", if self.packing == "rows" { rows } else { columns } as i64)
            .attr("adj_y", self.by_columns)
            .attr("head", self.head as i64)
    }
}

/// Runs a product of `rows` rows and compares it.
fn check(dtype: DType, rows: &[usize], weights: Weights, epilogue: &str) {
    check_at(0, dtype, rows, weights, epilogue);
}

/// The same with tensors that begin `shift` elements behind an aligned address.
fn check_at(shift: usize, dtype: DType, rows: &[usize], weights: Weights, epilogue: &str) {
    let [k, n] = weights.matrix();
    let m: usize = rows.iter().product();
    let mut random = Random::new((m * 100 + k * 10 + n + weights.decoder) as u64);
    let (x, xv) = random.tensor(dtype, &[rows, &[k]].concat());
    let (tensors, wv) = weights.random(&mut random);
    let mut inputs: Vec<Input> = vec![x.into()];
    inputs.extend(tensors.into_iter().map(Input::from));
    let bias = (epilogue == BIAS).then(|| random.tensor(dtype, &[n]));
    inputs.extend(bias.iter().map(|(bias, _)| bias.clone().into()));
    let what = format!("{rows:?} of {dtype} by {weights:?} {epilogue}");
    let mut session = session();
    session.misalign = shift;
    let Some(got) = ran(session.run(&weights.node(dtype, epilogue), &inputs), &what) else {
        return;
    };
    assert_eq!(got[0].dims[..], [rows, &[n]].concat(), "{what}");
    let mut want = matmul(&xv, &wv, [m, k, n], false, weights.by_columns);
    let largest = want.iter().fold(1.0, |most: f64, x| most.max(x.abs()));
    let sums = wv.iter().fold(1.0, |most: f64, w| most.max(w.abs())) * k as f64;
    if let Some((_, bias)) = bias {
        for (i, x) in want.iter_mut().enumerate() {
            *x = (rounded(dtype, *x) + bias[i % n]).max(0.0);
        }
    }
    assert_close(&got[0], &want, sums + 4.0 + either(dtype, largest), &what);
}

/// Rows of the left operand, steps and columns: one row, odd extents, blocks that divide nothing,
/// and parts of a contracted index.
const SHAPES: [(&[usize], [usize; 2], usize); 8] = [
    (&[1], [64, 48], 32),
    (&[1, 3], [33, 17], 8),
    (&[2, 5], [40, 12], 16),
    (&[4], [8, 1], 3),
    (&[7], [1, 8], 4),
    (&[65], [36, 68], 12),
    (&[1], [2052, 20], 100),
    (&[130], [96, 132], 33),
];

#[test]
fn every_packing_and_decoder() {
    let types = session().supported([DType::F32, DType::F16, DType::BF16]);
    for (at, (rows, [k, n], block)) in SHAPES.into_iter().enumerate() {
        for decoder in 0..DECODERS.len() {
            let turn = at * (DECODERS.len() + 1) + decoder;
            let by_columns = turn % 2 == 1;
            let weights = Weights {
                packing: ["bytes", "rows", "columns"][(at + decoder) % 3],
                codes: [DType::I8, DType::U8][turn / 2 % 2],
                decoder,
                extents: if by_columns { [n, k] } else { [k, n] },
                block,
                by_columns,
                head: 0,
            };
            let profile = Profile::DISTINCT[turn % Profile::DISTINCT.len()];
            let (dtype, epilogue) = (types[turn % types.len()], [PLAIN, BIAS][turn / 4 % 2]);
            under(profile, || check(dtype, rows, weights, epilogue));
        }
    }
}

/// Int4 as Keras packs it, by groups.
const KERAS: Weights = Weights {
    packing: "columns",
    codes: DType::I8,
    decoder: 3,
    extents: [64, 48],
    block: 16,
    by_columns: false,
    head: 0,
};

/// Heads of even and odd widths, whose codes are loaded in fours and one by one, by each decoder.
#[test]
fn heads_of_columns() {
    for (at, (extents, head)) in
        [([64, 48], 16), ([36, 30], 10), ([33, 24], 8), ([7, 15], 5), ([64, 48], 48)]
            .into_iter()
            .enumerate()
    {
        for decoder in 0..DECODERS.len() {
            let turn = at + decoder;
            let packing = ["columns", "bytes", "rows"][turn % 3];
            let by_columns = turn % 2 == 1;
            let weights = Weights { packing, decoder, extents, head, by_columns, ..KERAS };
            let profile = Profile::DISTINCT[turn % Profile::DISTINCT.len()];
            let rows = [1, 5, 70][turn % 3];
            under(profile, || check(DType::F32, &[rows], weights, [PLAIN, BIAS][turn / 2 % 2]));
        }
    }
}

#[test]
fn empty_products() {
    for (rows, extents) in [(0, [8, 4]), (3, [0, 4]), (3, [8, 0])] {
        check(DType::F32, &[rows], Weights { extents, ..KERAS }, PLAIN);
        check(DType::F32, &[rows], Weights { extents, ..KERAS }, BIAS);
    }
}

/// Weights, operands and results beyond one binding are computed in windows.
#[test]
fn windows() {
    let refused = within(4096, || {
        for (rows, extents) in [(1, [96, 260]), (1, [600, 40]), (90, [60, 52]), (2, [1000, 12])] {
            for packing in ["bytes", "rows", "columns"] {
                for (decoder, by_columns) in
                    [(0, false), (1, true), (3, false), (4, true), (6, true)]
                {
                    let [k, n] = extents;
                    let extents = if by_columns { [n, k] } else { [k, n] };
                    let block = 64;
                    let weights = Weights { packing, decoder, extents, block, by_columns, ..KERAS };
                    check(DType::F32, &[rows], weights, BIAS);
                }
            }
        }
    });
    assert_eq!(refused, 0);
}

/// The left operand and the result are cut, and the codes of heads are not.
#[test]
fn windows_of_heads() {
    let refused = within(8192, || {
        for (rows, extents, by_columns) in [(90, [60, 128], false), (200, [60, 128], true)] {
            let weights = Weights { extents, head: 32, by_columns, ..KERAS };
            check(DType::F32, &[rows], weights, BIAS);
        }
    });
    assert_eq!(refused, 0);
}

#[test]
fn an_einsum_has_several_dimensions_of_steps_and_columns() {
    let mut random = Random::new(9);
    let (x, xv) = random.tensor(DType::F32, &[2, 3, 4, 16]);
    let (tensors, wv) = KERAS.random(&mut random);
    let node = |columns: &[i64], epilogue: &str| {
        KERAS
            .node_of("_WgpuFusedQuantizedEinsum", DType::F32, epilogue)
            .attr("contracted", 2_i64)
            .attr("columns", columns)
    };
    let inputs: Vec<Input> = std::iter::once(x).chain(tensors).map(Input::from).collect();
    let got = session().run(&node(&[6, 8], PLAIN), &inputs).expect("an einsum");
    assert_eq!(got[0].dims[..], [2, 3, 6, 8]);
    assert_close(&got[0], &matmul(&xv, &wv, [6, 64, 48], false, false), 640.0, "an einsum");
    for (columns, epilogue) in [(&[6, 7][..], PLAIN), (&[6, 8][..], BIAS)] {
        let refused = session().run(&node(columns, epilogue), &inputs);
        assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{columns:?} {epilogue}");
    }
}

/// Codes and parameters that do not begin at words are loaded one by one.
#[test]
fn unaligned_tensors() {
    for (decoder, shift) in [(1, 1), (3, 2), (4, 3), (5, 1), (6, 4)] {
        for by_columns in [false, true] {
            let weights = Weights { decoder, by_columns, ..KERAS };
            check_at(shift, DType::F32, &[3], weights, PLAIN);
        }
    }
}

#[test]
fn a_product_is_one_dispatch() {
    // No other test uses a device with this profile.
    let profile = Profile { workgroups: 71, ..Profile::NVIDIA };
    for rows in [1, 4, 64] {
        let weights = Weights { extents: [256, 512], ..KERAS };
        assert_eq!(dispatches(profile, || check(DType::F32, &[rows], weights, BIAS)), 1, "{rows}");
    }
}

#[test]
fn every_schedule() {
    for schedule in [Schedule::Persistent, Schedule::StreamK] {
        let profile = Profile { schedule: Some(schedule), ..Profile::NVIDIA };
        let weights = Weights { extents: [128, 1028], ..KERAS };
        under(profile, || check(DType::F32, &[300], weights, BIAS));
    }
}

#[test]
fn operands_that_do_not_fit_are_errors() {
    let zeros = |dims: &[usize]| HostTensor::f32(dims, &vec![0.0; dims.iter().product()]);
    let codes_of =
        |dims: &[usize]| HostTensor::of(DType::I8, dims, &vec![0u8; dims.iter().product()]);
    let run = |node: &Node, x: &[usize], codes: &[usize], scale: &[usize]| {
        let scale = zeros(scale);
        let inputs = [zeros(x), codes_of(codes), scale.clone(), scale];
        session().run(node, &inputs.map(Input::from)).map(|_| ())
    };
    let node = |decoder: &str| {
        Weights { decoder: 7, ..KERAS }.node(DType::F32, PLAIN).attr("decoder", decoder)
    };
    let invalid = |result: Result<(), Error>| matches!(result, Err(Error::InvalidArgument(_)));
    let of_heads = node("* gc").attr("head", 20_i64);
    assert!(invalid(run(&of_heads, &[2, 64], &[64, 24], &[4, 48])), "columns of heads");
    assert!(invalid(run(&node("* gc"), &[2, 65], &[64, 24], &[4, 48])), "columns of x");
    assert!(invalid(run(&node("* gc"), &[2, 64], &[64, 23], &[4, 48])), "bytes of codes");
    assert!(invalid(run(&node("* gc"), &[2, 64], &[64, 24], &[4, 47])), "scales");
    assert!(invalid(run(&node("* gc"), &[2, 64], &[64, 24], &[4, 48])), "indices");
    assert!(invalid(run(&node("* c, / r"), &[2, 64], &[64, 24], &[48])), "the second scale");
    for decoder in ["+ c", "* x", "*", "* gc, * rg", "* c, * c, * c, * c, * c"] {
        assert!(invalid(run(&node(decoder), &[2, 64], &[64, 24], &[48])), "{decoder}");
    }
}
