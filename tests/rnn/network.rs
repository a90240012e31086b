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

    /// Whether the op is ours: CudnnRNN has no layers of this kind.
    pub fn is_ours(&self) -> bool {
        matches!(self.mode, "gru_reset_before" | "rnn_linear" | "rnn_sigmoid")
    }

    /// The network in the form that its op supports: ours is one layer with sequences before steps.
    pub fn fitted(&self) -> Self {
        match self.is_ours() {
            true => {
                Self { layers: 1, projection: 0, skips: false, time_major: false, ..self.clone() }
            }
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

    pub fn ordered(&self, outer: usize, inner: usize, last: usize) -> Vec<usize> {
        if self.time_major { vec![outer, inner, last] } else { vec![inner, outer, last] }
    }

    pub fn state_shape(&self) -> Vec<usize> {
        self.ordered(self.pseudo_layers(), self.batch, self.outputs())
    }

    pub fn cell_shape(&self) -> Vec<usize> {
        match self.has_cells() {
            true => self.ordered(self.pseudo_layers(), self.batch, self.units),
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
        let bias_start = self.params() - self.pseudo_layers() * 2 * gates * units;
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
                        let before: Vec<f64> =
                            (0..outputs).map(|k| last_h[self.at(states, pseudo, b, k)]).collect();
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
                                    let at = self.at(cells, pseudo, b, j);
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
                            last_h[self.at(states, pseudo, b, i)] = h;
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
        let node = Node::new(op)
            .attr("T", dtype)
            .attr("rnn_mode", self.mode)
            .attr("direction", ["unidirectional", "bidirectional"][self.directions - 1]);
        let gradient = op.contains("Backprop") || op.ends_with("Grad");
        let node = if gradient { node } else { node.attr("is_training", true) };
        if op.starts_with("_Wgpu") {
            return node;
        }
        let node = node
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
