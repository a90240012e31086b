//! Networks of recurrent layers in plain Rust in f64: shapes, values, and the nodes that compute
//! them.

use super::cells::dot;
use tensorflow_wgpu::local::Node;
use tensorflow_wgpu::{DType, HostTensor};

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// A network and its inputs' extents.
#[derive(Clone)]
pub struct Network {
    pub mode: &'static str,
    pub layers: usize,
    pub directions: usize,
    pub steps: usize,
    pub batch: usize,
    pub inputs: usize,
    pub units: usize,
    /// The number of elements of a projected output, or 0.
    pub projection: usize,
    pub skips: bool,
    pub time_major: bool,
    /// Whether the op is ours also for kinds of layers that CudnnRNN has.
    pub keras: bool,
    pub lengths: Option<Vec<i32>>,
}

pub const SMALL: Network = Network {
    mode: "lstm",
    layers: 1,
    directions: 1,
    steps: 3,
    batch: 2,
    inputs: 3,
    units: 2,
    projection: 0,
    skips: false,
    time_major: true,
    keras: false,
    lengths: None,
};

impl Network {
    pub fn gates(&self) -> usize {
        match self.mode {
            "lstm" => 4,
            "gru" | "gru_reset_before" => 3,
            _ => 1,
        }
    }

    /// Whether the op is ours, whose weights are as Keras has them.
    pub fn is_ours(&self) -> bool {
        self.keras || matches!(self.mode, "gru_reset_before" | "rnn_linear" | "rnn_sigmoid")
    }

    /// Whether the gates have a bias of their own for the previous outputs.
    fn has_two_biases(&self) -> bool {
        !self.is_ours() || self.mode == "gru"
    }

    /// The network in the form that its op supports: ours is one layer.
    pub fn fitted(&self) -> Self {
        match self.is_ours() {
            true => Self { layers: 1, projection: 0, skips: false, ..self.clone() },
            false => self.clone(),
        }
    }

    /// The newest op that supports the network, or its gradient.
    pub fn op(&self, gradient: bool) -> &'static str {
        match (self.is_ours(), self.has_lengths(), gradient) {
            (true, _, false) => "_WgpuRecurrentLayer",
            (true, _, true) => "_WgpuRecurrentLayerGrad",
            (false, true, false) => "CudnnRNNV3",
            (false, true, true) => "CudnnRNNBackpropV3",
            (false, false, false) => "CudnnRNNV2",
            (false, false, true) => "CudnnRNNBackpropV2",
        }
    }

    /// Whether the op takes lengths.
    pub fn has_lengths(&self) -> bool {
        self.is_ours() || !self.time_major || self.lengths.is_some() || self.projection > 0
    }

    pub fn has_cells(&self) -> bool {
        self.mode == "lstm"
    }

    pub fn pseudo_layers(&self) -> usize {
        self.layers * self.directions
    }

    /// The number of elements of a layer's input, 0 if it has no weights.
    pub fn weighted(&self, layer: usize) -> usize {
        match layer {
            0 if self.skips => 0,
            0 => self.inputs,
            _ => self.directions * self.outputs(),
        }
    }

    /// The number of elements of a direction's output.
    pub fn outputs(&self) -> usize {
        if self.projects() { self.projection } else { self.units }
    }

    /// Whether there is a matrix that projects.
    pub fn projects(&self) -> bool {
        self.projection > 0 && self.projection < self.units && self.has_cells()
    }

    pub fn params(&self) -> usize {
        let projection = if self.projects() { self.projection * self.units } else { 0 };
        let of = |p: usize| {
            let columns = self.weighted(p / self.directions) + self.outputs() + 2;
            self.gates() * self.units * columns + projection
        };
        (0..self.pseudo_layers()).map(of).sum()
    }

    fn bias_start(&self) -> usize {
        self.params() - self.pseudo_layers() * 2 * self.gates() * self.units
    }

    /// Values of `params` that the op takes: zeros stand for biases that it does not have.
    pub fn fitting(&self, mut params: Vec<f64>) -> Vec<f64> {
        if !self.has_two_biases() {
            let gates = self.gates() * self.units;
            for biases in params[self.bias_start()..].chunks_mut(2 * gates) {
                biases[gates..].fill(0.0);
            }
        }
        params
    }

    /// The op's tensors of parameters, or of their gradients, with the values of `params`.
    pub fn tensors(&self, params: &[f64]) -> Vec<(Vec<usize>, Vec<f64>)> {
        if !self.is_ours() {
            return vec![(vec![params.len()], params.to_vec())];
        }
        let gates = self.gates() * self.units;
        // From [gate, unit, column] to [column, gate, unit], with a GRU's update gate first.
        let of = |at: usize, columns: usize| -> Vec<f64> {
            let mut all = Vec::new();
            for column in 0..columns {
                for gate in 0..self.gates() {
                    let from = match (self.gates(), gate) {
                        (3, 0 | 1) => 1 - gate,
                        _ => gate,
                    };
                    let unit_at = |unit| at + (from * self.units + unit) * columns + column;
                    all.extend((0..self.units).map(|unit| params[unit_at(unit)]));
                }
            }
            all
        };
        let (mut kernels, mut recurrent, mut biases) = (vec![], vec![], vec![]);
        for direction in 0..self.directions {
            let at = direction * gates * (self.inputs + self.units);
            kernels.push((vec![self.inputs, gates], of(at, self.inputs)));
            let at = at + gates * self.inputs;
            recurrent.push((vec![self.units, gates], of(at, self.units)));
            let at = self.bias_start() + direction * 2 * gates;
            biases.push(match self.has_two_biases() {
                true => (vec![2, gates], [of(at, 1), of(at + gates, 1)].concat()),
                false => (vec![gates], of(at, 1)),
            });
        }
        [kernels, recurrent, biases].concat()
    }

    /// The op's inputs before the lengths, of the values of input, input_h, input_c and params.
    pub fn op_inputs(&self, dtype: DType, values: &[Vec<f64>]) -> Vec<HostTensor> {
        let shapes = self.shapes().into_iter().zip(values.iter().cloned());
        let tensors = shapes.take(3).chain(self.tensors(&values[3]));
        tensors.map(|(dims, values)| HostTensor::floats(dtype, &dims, &values)).collect()
    }

    pub fn ordered(&self, outer: usize, inner: usize, last: usize) -> Vec<usize> {
        if self.time_major { vec![outer, inner, last] } else { vec![inner, outer, last] }
    }

    /// States have sequences first in our op.
    fn of_states(&self) -> Self {
        Self { time_major: self.time_major && !self.is_ours(), ..self.clone() }
    }

    pub fn state_shape(&self) -> Vec<usize> {
        self.of_states().ordered(self.pseudo_layers(), self.batch, self.outputs())
    }

    pub fn cell_shape(&self) -> Vec<usize> {
        match self.has_cells() {
            true => self.of_states().ordered(self.pseudo_layers(), self.batch, self.units),
            false => vec![],
        }
    }

    pub fn output_shape(&self) -> Vec<usize> {
        self.ordered(self.steps, self.batch, self.directions * self.outputs())
    }

    /// Shapes of input, input_h, input_c and params.
    pub fn shapes(&self) -> Vec<Vec<usize>> {
        let input = self.ordered(self.steps, self.batch, self.inputs);
        vec![input, self.state_shape(), self.cell_shape(), vec![self.params()]]
    }

    pub fn at(&self, extents: [usize; 3], outer: usize, inner: usize, i: usize) -> usize {
        let [outers, inners, last] = extents;
        let row = if self.time_major { outer * inners + inner } else { inner * outers + outer };
        row * last + i
    }

    pub fn length(&self, b: usize) -> usize {
        self.lengths.as_ref().map_or(self.steps, |lengths| lengths[b] as usize)
    }

    /// Outputs, and states after the last step.
    pub fn run(&self, p: &[Vec<f64>]) -> [Vec<f64>; 3] {
        let Self { steps, batch, units, directions, .. } = *self;
        let (outputs, gates) = (self.outputs(), self.gates());
        let width = directions * outputs;
        let states = [self.pseudo_layers(), batch, outputs];
        let cells = [self.pseudo_layers(), batch, units];
        let (mut last_h, mut last_c) = (p[1].clone(), p[2].clone());
        let mut x = p[0].clone();
        let mut weights_at = 0;
        let bias_start = self.bias_start();
        let of_states = self.of_states();
        for layer in 0..self.layers {
            let columns = if layer == 0 { self.inputs } else { width };
            let weighted = self.weighted(layer);
            let mut y = vec![0.0; steps * batch * width];
            for direction in 0..directions {
                let pseudo = layer * directions + direction;
                let recurrent_at = weights_at + gates * units * weighted;
                let bias_at = bias_start + pseudo * 2 * gates * units;
                for b in 0..batch {
                    let length = self.length(b);
                    for s in 0..length {
                        let t = if direction == 1 { length - 1 - s } else { s };
                        let before: Vec<f64> = (0..outputs)
                            .map(|k| last_h[of_states.at(states, pseudo, b, k)])
                            .collect();
                        // The part for gate g and unit j.
                        let x_at = self.at([steps, batch, columns], t, b, 0);
                        let x = &x[x_at..x_at + columns];
                        let input_part = |g: usize, j: usize| {
                            let row = weights_at + (g * units + j) * weighted;
                            let sum = match weighted {
                                0 => x[j],
                                _ => dot(&p[3][row..row + weighted], x),
                            };
                            sum + p[3][bias_at + g * units + j]
                        };
                        let recurrent_part = |g: usize, j: usize, before: &[f64]| {
                            let row = recurrent_at + (g * units + j) * outputs;
                            dot(&p[3][row..row + outputs], before)
                                + p[3][bias_at + (gates + g) * units + j]
                        };
                        let gate_of = |g: usize, j: usize, before: &[f64]| {
                            input_part(g, j) + recurrent_part(g, j, before)
                        };
                        let reset: Vec<f64> = if self.mode == "gru_reset_before" {
                            let of = |k| sigmoid(gate_of(0, k, &before)) * before[k];
                            (0..units).map(of).collect()
                        } else {
                            vec![]
                        };
                        let mut given = vec![0.0; units];
                        for j in 0..units {
                            let from_input = |g: usize| input_part(g, j);
                            let from_before = |g: usize| recurrent_part(g, j, &before);
                            let gate = |g: usize| gate_of(g, j, &before);
                            given[j] = match self.mode {
                                "rnn_relu" => gate(0).max(0.0),
                                "rnn_tanh" => gate(0).tanh(),
                                "rnn_linear" => gate(0),
                                "rnn_sigmoid" => sigmoid(gate(0)),
                                "gru_reset_before" => {
                                    let u = sigmoid(gate(1));
                                    (1.0 - u) * gate_of(2, j, &reset).tanh() + u * before[j]
                                }
                                "gru" => {
                                    let (r, u) = (sigmoid(gate(0)), sigmoid(gate(1)));
                                    let c = (from_input(2) + r * from_before(2)).tanh();
                                    (1.0 - u) * c + u * before[j]
                                }
                                _ => {
                                    let at = of_states.at(cells, pseudo, b, j);
                                    last_c[at] = sigmoid(gate(1)) * last_c[at]
                                        + sigmoid(gate(0)) * gate(2).tanh();
                                    sigmoid(gate(3)) * last_c[at].tanh()
                                }
                            };
                        }
                        for i in 0..outputs {
                            let row = recurrent_at + gates * units * outputs + i * units;
                            let h = match self.projects() {
                                true => dot(&p[3][row..row + units], &given),
                                false => given[i],
                            };
                            last_h[of_states.at(states, pseudo, b, i)] = h;
                            y[self.at([steps, batch, width], t, b, direction * outputs + i)] = h;
                        }
                    }
                }
                let projection = if self.projects() { outputs * units } else { 0 };
                weights_at = recurrent_at + gates * units * outputs + projection;
            }
            x = y;
        }
        if !self.has_cells() {
            last_c = vec![0.0];
        }
        [x, last_h, last_c]
    }

    pub fn node(&self, op: &str, dtype: DType) -> Node {
        let v3 = op.ends_with("V3");
        let node = Node::new(op).attr("T", dtype).attr("rnn_mode", self.mode);
        let gradient = op.contains("Backprop") || op.ends_with("Grad");
        let node = if gradient { node } else { node.attr("is_training", true) };
        if op.starts_with("_Wgpu") {
            return node
                .attr("directions", self.directions as i64)
                .attr("time_major", self.time_major);
        }
        let node = node
            .attr("direction", ["unidirectional", "bidirectional"][self.directions - 1])
            .attr("input_mode", if self.skips { "skip_input" } else { "linear_input" })
            .attr("dropout", 0.0)
            .attr("seed", 7i64)
            .attr("seed2", 8i64);
        match v3 {
            true => {
                node.attr("num_proj", self.projection as i64).attr("time_major", self.time_major)
            }
            false => node,
        }
    }

    pub fn lengths_input(&self) -> HostTensor {
        let all: Vec<i32> = (0..self.batch).map(|b| self.length(b) as i32).collect();
        HostTensor::i32(&[self.batch], &all)
    }
}
