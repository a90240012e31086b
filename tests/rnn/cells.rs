//! Recurrent cells against plain Rust in f64: values of all outputs, and gradients against
//! difference quotients of the reference.

use super::close::assert_within;
use super::numeric::{Random, session};
use tensorflow_wgpu::local::{Input, Node, Session};
use tensorflow_wgpu::{DType, Error, HostTensor};

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Extents and attributes of a sequence.
#[derive(Clone, Copy)]
struct Case {
    steps: usize,
    batch: usize,
    width: usize,
    cells: usize,
    /// Positions of the cell input and of the forget gate.
    order: [usize; 2],
    peephole: bool,
    forget_bias: f64,
    cell_clip: f64,
}

impl Case {
    /// Shapes of x, cs_prev, h_prev, w, wci, wcf, wco and b.
    fn shapes(&self) -> Vec<Vec<usize>> {
        let Self { steps, batch, width, cells, .. } = *self;
        let state = vec![batch, cells];
        let peephole = vec![cells];
        let weights = vec![width + cells, 4 * cells];
        vec![
            vec![steps, batch, width],
            state.clone(),
            state,
            weights,
            peephole.clone(),
            peephole.clone(),
            peephole,
            vec![4 * cells],
        ]
    }

    /// i, cs, f, o, ci, co and h of all steps.
    fn run(&self, p: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let Self { steps, batch, width, cells, order, peephole, .. } = *self;
        let mut out = vec![vec![0.0; steps * batch * cells]; 7];
        let (mut cs, mut h) = (p[1].clone(), p[2].clone());
        for t in 0..steps {
            let (before_cs, before_h) = (cs.clone(), h.clone());
            for b in 0..batch {
                for j in 0..cells {
                    let gate = |k: usize| {
                        let column = k * cells + j;
                        let x = |i: usize| match i.checked_sub(width) {
                            None => p[0][(t * batch + b) * width + i],
                            Some(i) => before_h[b * cells + i],
                        };
                        (0..width + cells).map(|i| x(i) * p[3][i * 4 * cells + column]).sum::<f64>()
                            + p[7][column]
                    };
                    let at = b * cells + j;
                    let peep = |k: usize, c: f64| if peephole { c * p[4 + k][j] } else { 0.0 };
                    let i = sigmoid(gate(0) + peep(0, before_cs[at]));
                    let f = sigmoid(gate(order[1]) + self.forget_bias + peep(1, before_cs[at]));
                    let ci = gate(order[0]).tanh();
                    let c = i * ci + f * before_cs[at];
                    let c = if self.cell_clip > 0.0 {
                        c.clamp(-self.cell_clip, self.cell_clip)
                    } else {
                        c
                    };
                    let o = sigmoid(gate(3) + peep(2, c));
                    (cs[at], h[at]) = (c, o * c.tanh());
                    for (out, v) in out.iter_mut().zip([i, c, f, o, ci, c.tanh(), h[at]]) {
                        out[t * batch * cells + at] = v;
                    }
                }
            }
        }
        out
    }
}

/// Difference quotients of `loss` by every element of every parameter.
pub fn slopes(parameters: &[Vec<f64>], loss: impl Fn(&[Vec<f64>]) -> f64) -> Vec<Vec<f64>> {
    let step = 1e-5;
    let slope = |k: usize, i: usize| {
        let at = |delta: f64| {
            let mut moved = parameters.to_vec();
            moved[k][i] += delta;
            loss(&moved)
        };
        (at(step) - at(-step)) / (2.0 * step)
    };
    (0..parameters.len()).map(|k| (0..parameters[k].len()).map(|i| slope(k, i)).collect()).collect()
}

pub fn random(
    r: &mut Random,
    dtype: DType,
    shapes: &[Vec<usize>],
) -> (Vec<HostTensor>, Vec<Vec<f64>>) {
    shapes.iter().map(|s| r.tensor(dtype, s)).unzip()
}

pub fn close(got: &HostTensor, want: &[f64], bound: f64, what: &str) {
    assert_within(got, want, |w| bound * w.abs().max(1.0), what);
}

pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn run(session: &mut Session, node: &Node, inputs: Vec<HostTensor>) -> Vec<HostTensor> {
    session.run(node, &inputs.into_iter().map(Input::from).collect::<Vec<_>>()).unwrap()
}

fn length(steps: usize) -> HostTensor {
    HostTensor::i64(&[], &[steps as i64])
}

const CASES: [Case; 3] = [
    Case {
        steps: 3,
        batch: 3,
        width: 5,
        cells: 3,
        order: [1, 2],
        peephole: true,
        forget_bias: 0.5,
        cell_clip: 0.0,
    },
    Case {
        steps: 2,
        batch: 2,
        width: 4,
        cells: 4,
        order: [2, 1],
        peephole: false,
        forget_bias: 0.0,
        cell_clip: 0.0,
    },
    Case {
        steps: 1,
        batch: 1,
        width: 1,
        cells: 5,
        order: [1, 2],
        peephole: true,
        forget_bias: 0.0,
        cell_clip: 0.1,
    },
];

#[test]
fn sequences_and_their_gradients() {
    let (mut session, mut r) = (session(), Random::new(7));
    for case in CASES {
        for dtype in [DType::F32, DType::F16] {
            for misalign in [0, 1] {
                session.misalign = misalign;
                let bound = if dtype == DType::F32 { 2e-5 } else { 4e-3 };
                let version = if case.order == [1, 2] { "" } else { "V2" };
                let common = |op: String| {
                    Node::new(&op).attr("T", dtype).attr("use_peephole", case.peephole)
                };
                let forward =
                    common(format!("BlockLSTM{version}")).attr("cell_clip", case.cell_clip as f32);
                let forward = match version {
                    "" => forward.attr("forget_bias", case.forget_bias as f32),
                    _ => forward,
                };
                let (inputs, values) = random(&mut r, dtype, &case.shapes());
                let mut given = vec![length(case.steps)];
                given.extend(inputs);
                let outputs = run(&mut session, &forward, given.clone());
                let want = case.run(&values);
                for (k, (got, want)) in outputs.iter().zip(&want).enumerate() {
                    close(got, want, bound, &format!("{dtype} output {k}"));
                }
                if case.cell_clip > 0.0 || dtype != DType::F32 {
                    // TensorFlow's gradient ignores the clipping; half is too coarse for
                    // differences.
                    continue;
                }
                let state = vec![case.steps, case.batch, case.cells];
                let (seeds, by) = random(&mut r, dtype, &[state.clone(), state]);
                given.extend(outputs);
                given.extend(seeds);
                let gradients =
                    run(&mut session, &common(format!("BlockLSTMGrad{version}")), given);
                let slopes = slopes(&values, |p| {
                    let out = case.run(p);
                    dot(&out[1], &by[0]) + dot(&out[6], &by[1])
                });
                for (k, (got, want)) in gradients.iter().zip(&slopes).enumerate() {
                    close(got, want, 1e-4, &format!("gradient {k}"));
                }
            }
        }
    }
}

/// r, u, c and h of a cell whose parameters are x, h_prev, w_ru, w_c, b_ru and b_c.
fn gru(batch: usize, width: usize, cells: usize, p: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let mut out = vec![vec![0.0; batch * cells]; 4];
    for b in 0..batch {
        let x = |i: usize| p[0][b * width + i];
        let h = |j: usize| p[1][b * cells + j];
        let gate = |column: usize| {
            let row = |i: usize| if i < width { x(i) } else { h(i - width) };
            sigmoid(
                (0..width + cells).map(|i| row(i) * p[2][i * 2 * cells + column]).sum::<f64>()
                    + p[4][column],
            )
        };
        for j in 0..cells {
            let row = |i: usize| if i < width { x(i) } else { h(i - width) * gate(i - width) };
            let c = ((0..width + cells).map(|i| row(i) * p[3][i * cells + j]).sum::<f64>()
                + p[5][j])
                .tanh();
            let (r, u) = (gate(j), gate(cells + j));
            for (out, v) in out.iter_mut().zip([r, u, c, u * h(j) + (1.0 - u) * c]) {
                out[b * cells + j] = v;
            }
        }
    }
    out
}

#[test]
fn gru_cells_and_their_gradients() {
    let (mut session, mut r) = (session(), Random::new(8));
    for (batch, width, cells) in [(3, 5, 4), (1, 1, 1), (2, 8, 7)] {
        let shapes = [
            vec![batch, width],
            vec![batch, cells],
            vec![width + cells, 2 * cells],
            vec![width + cells, cells],
            vec![2 * cells],
            vec![cells],
        ];
        let (inputs, values) = random(&mut r, DType::F32, &shapes);
        let outputs =
            run(&mut session, &Node::new("GRUBlockCell").attr("T", DType::F32), inputs.clone());
        for (got, want) in outputs.iter().zip(gru(batch, width, cells, &values)) {
            close(got, &want, 1e-5, "output");
        }
        let (seed, by) = r.tensor(DType::F32, &[batch, cells]);
        let given = [inputs, outputs[..3].to_vec(), vec![seed]].concat();
        let gradients =
            run(&mut session, &Node::new("GRUBlockCellGrad").attr("T", DType::F32), given);
        let slopes = slopes(&values, |p| dot(&gru(batch, width, cells, p)[3], &by));
        close(&gradients[0], &slopes[0], 1e-4, "gradient of x");
        close(&gradients[1], &slopes[1], 1e-4, "gradient of h_prev");
        // The pre-activations of the gates and of the candidate, summed over the batch, have the
        // gradient of the biases.
        for (gradient, bias) in [(&gradients[3], &slopes[4]), (&gradients[2], &slopes[5])] {
            let values = gradient.to_f64();
            let sums: Vec<f64> =
                (0..bias.len()).map(|j| values.iter().skip(j).step_by(bias.len()).sum()).collect();
            for (s, b) in sums.iter().zip(bias.iter()) {
                assert!((s - b).abs() < 1e-4, "{sums:?} {bias:?}");
            }
        }
    }
}

#[test]
fn errors_use_tensorflows_words() {
    let mut session = session();
    let ones =
        |dims: &[usize]| Input::from(HostTensor::f32(dims, &vec![1.0; dims.iter().product()]));
    let node = Node::new("BlockLSTMV2")
        .attr("T", DType::F32)
        .attr("use_peephole", false)
        .attr("cell_clip", 0.0_f32);
    let mut fails = |steps: usize, w: &[usize]| {
        let inputs = [
            length(steps).into(),
            ones(&[2, 3, 4]),
            ones(&[3, 5]),
            ones(&[3, 5]),
            ones(w),
            ones(&[5]),
            ones(&[5]),
            ones(&[5]),
            ones(&[20]),
        ];
        match session.run(&node, &inputs).unwrap_err() {
            Error::InvalidArgument(m) => m,
            other => panic!("{other:?}"),
        }
    };
    assert!(fails(3, &[9, 20]).contains("seq_len_max must be between 0 and 2 but is 3"));
    assert!(fails(2, &[8, 20]).contains("w.dim_size(0) != input_size + cell_size: 8 vs. 9"));
    assert!(fails(2, &[20]).contains("w must be 2D"));
}
