//! An attention with its reference in f64, for the tests of the op and of its gradient.
#![allow(dead_code, reason = "not every test needs everything")]

use tensorflow_wgpu::DType::{self, Bool};
use tensorflow_wgpu::HostTensor;
use tensorflow_wgpu::device::Profile;
use tensorflow_wgpu::local::{Input, Node, Session};

use super::numeric::bindings::like;
use super::numeric::{Random, epsilon};

/// The properties that differ between cases.
#[derive(Debug, Clone)]
pub struct Case {
    /// The type of all operands except the mask.
    pub dtype: DType,
    /// The position of the heads.
    pub layout: &'static str,
    /// Batch, heads, rows, keys, depth, width.
    pub sizes: [usize; 6],
    /// The number of heads that share a head of key and value.
    pub group: usize,
    /// The effect of the mask.
    pub mask: &'static str,
    /// Type and shape of the mask, in the layout of scores.
    pub extra: Option<(DType, Vec<usize>)>,
    /// The boolean that keeps a score.
    pub keep: bool,
    /// The value of masked scores, or the amount that is subtracted from them.
    pub fill: f32,
    /// Whether later keys are masked.
    pub causal: bool,
    /// Whether masked weights are zero.
    pub zero_masked: bool,
    /// The bound of scores, or 0.
    pub soft_cap: f32,
}

impl Case {
    pub fn plain(dtype: DType, layout: &'static str, sizes: [usize; 6]) -> Self {
        let (mask, extra) = ("none", None);
        Self {
            dtype,
            layout,
            sizes,
            group: 1,
            mask,
            extra,
            keep: true,
            fill: -1e9,
            causal: false,
            zero_masked: false,
            soft_cap: 0.0,
        }
    }

    pub fn masked(self, mask: &'static str, dtype: DType, dims: &[usize]) -> Self {
        Self { mask, extra: Some((dtype, dims.to_vec())), ..self }
    }

    pub fn node(&self) -> Node {
        let extra: Vec<DType> = self.extra.iter().map(|(t, _)| *t).collect();
        Node::new("_WgpuFusedAttention")
            .attr("T", self.dtype)
            .attr("Textra", &extra[..])
            .attr("Tsaved", &[] as &[DType])
            .attr("layout", self.layout)
            .attr("scale", SCALE)
            .attr("mask", self.mask)
            .attr("keep", self.keep)
            .attr("fill", self.fill)
            .attr("causal", self.causal)
            .attr("zero_masked", self.zero_masked)
            .attr("broadcast", false)
            .attr("grouped", self.group > 1)
            .attr("soft_cap", self.soft_cap)
    }

    pub fn dims(&self, positions: usize, depth: usize) -> Vec<usize> {
        self.dims_of(self.sizes[1], positions, depth)
    }

    fn dims_of(&self, heads: usize, positions: usize, depth: usize) -> Vec<usize> {
        let batch = self.sizes[0];
        match self.layout {
            "BTNH" => vec![batch, positions, heads, depth],
            _ => vec![batch, heads, positions, depth],
        }
    }

    pub fn inputs(&self, random: &mut Random) -> Vec<HostTensor> {
        let [_, heads, rows, keys, depth, width] = self.sizes;
        let shared = heads / self.group;
        let mut inputs: Vec<_> =
            [(heads, rows, depth), (shared, keys, depth), (shared, keys, width)]
                .map(|(heads, positions, depth)| {
                    random.tensor(self.dtype, &self.dims_of(heads, positions, depth)).0
                })
                .into();
        inputs.extend(self.extra.iter().map(|(dtype, dims)| {
            let n = dims.iter().product();
            match dtype {
                Bool => HostTensor::of(
                    Bool,
                    dims,
                    &(0..n).map(|_| u8::from(random.below(3) > 0)).collect::<Vec<_>>(),
                ),
                _ => random.tensor(*dtype, dims).0,
            }
        }));
        inputs
    }

    pub fn reference(&self, inputs: &[HostTensor]) -> Vec<f64> {
        let [batch, heads, rows, keys, depth, width] = self.sizes;
        let values: Vec<_> = inputs[..3].iter().map(HostTensor::to_f64).collect();
        let place =
            |heads: usize, b: usize, h: usize, t: usize, positions: usize, depth: usize| match self
                .layout
            {
                "BTNH" => ((b * positions + t) * heads + h) * depth,
                _ => ((b * heads + h) * positions + t) * depth,
            };
        let at = |b, h, t, positions, depth| place(heads, b, h, t, positions, depth);
        let shared = |b, h: usize, t, positions, depth| {
            place(heads / self.group, b, h / self.group, t, positions, depth)
        };
        let extra = inputs.get(3).map(|t| {
            let dims: Vec<usize> =
                std::iter::repeat_n(1, 4 - t.dims.len()).chain(t.dims.iter().copied()).collect();
            let values: Vec<f64> = if t.dtype == Bool {
                t.bytes.iter().map(|b| f64::from(*b)).collect()
            } else {
                t.to_f64()
            };
            (dims, values)
        });
        let mut out = vec![0.0; batch * heads * rows * width];
        for (b, h, t) in
            (0..batch * heads * rows).map(|i| (i / rows / heads, i / rows % heads, i % rows))
        {
            let mut kept = vec![true; keys];
            let scores: Vec<f64> = (0..keys)
                .map(|s| {
                    let (q, k) = (at(b, h, t, rows, depth), shared(b, h, s, keys, depth));
                    let product: f64 =
                        (0..depth).map(|i| values[0][q + i] * values[1][k + i]).sum();
                    let cap = f64::from(self.soft_cap);
                    let score = match product * f64::from(SCALE) {
                        score if self.soft_cap == 0.0 => score,
                        score => cap * score.tanh(),
                    };
                    let mask = extra.as_ref().map(|(dims, values)| {
                        let index =
                            [b, h, t, s].iter().zip(dims).fold(0, |at, (i, n)| at * n + i % n);
                        values[index]
                    });
                    let bias = if self.mask == "bias" { mask.unwrap() } else { 0.0 };
                    let chosen =
                        self.mask == "bias" || mask.is_none_or(|m| (m != 0.0) == self.keep);
                    kept[s] = chosen && (!self.causal || s <= t);
                    match (kept[s], self.mask) {
                        (true, _) => score + bias,
                        (false, "penalty") => score + f64::from(self.fill),
                        (false, _) => f64::from(self.fill),
                    }
                })
                .collect();
            let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|x| (x - largest).exp()).collect();
            let total: f64 = weights.iter().sum();
            let y = at(b, h, t, rows, width);
            for (s, weight) in
                weights.iter().enumerate().filter(|(s, _)| kept[*s] || !self.zero_masked)
            {
                for i in 0..width {
                    out[y + i] += weight / total * values[2][shared(b, h, s, keys, width) + i];
                }
            }
        }
        out
    }

    #[track_caller]
    pub fn check(&self, session: &Session, inputs: &[HostTensor]) {
        for profile in Profile::DISTINCT {
            self.check_under(&mut like(session, profile), inputs, 4e-6);
        }
    }

    /// The same on this session's device alone. Results may be off by `absolute` and by a rounding.
    #[track_caller]
    pub fn check_under(&self, session: &mut Session, inputs: &[HostTensor], absolute: f64) {
        let wanted = self.reference(inputs);
        let inputs: Vec<Input> = inputs.iter().cloned().map(Input::Value).collect();
        let profile = session.device.profile();
        let got = session.run(&self.node(), &inputs).unwrap();
        let [_, _, rows, _, _, width] = self.sizes;
        assert_eq!(got[0].dims[..], self.dims(rows, width)[..], "{self:?}");
        for (i, (g, w)) in got[0].to_f64().iter().zip(&wanted).enumerate() {
            let near = (g - w).abs() <= epsilon(self.dtype) * w.abs() + absolute;
            assert!(
                near || (g.is_nan() && w.is_nan()),
                "{self:?} {profile}: element {i} is {g}, not {w}"
            );
        }
    }
}

/// The factor of the products.
pub const SCALE: f32 = 0.4;
