//! The elements that `ScaleAndTranslate` reads along one axis: each position of the result has a
//! span of the image and its weights, by a sampling kernel. All computation is in float32 and in
//! TensorFlow's order, since a position that is rounded differently may lie in another span.

use std::f32::consts::PI;

use crate::error::Result;
use crate::invalid;

/// A sampling kernel: a weight for each distance, up to a radius.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sampling {
    /// A windowed sinc of this radius.
    Lanczos(f32),
    /// Three deviations of 0.5.
    Gaussian,
    /// The nearest position, or the mean of two.
    Box,
    /// Linear interpolation.
    Triangle,
    /// Keys' cubic.
    KeysCubic,
    /// Mitchell's and Netravali's cubic.
    MitchellCubic,
}

impl Sampling {
    /// The kernel of the attribute `kernel_type`.
    pub fn of(name: &str) -> Result<Self> {
        Ok(match name {
            "lanczos1" => Self::Lanczos(1.0),
            "lanczos3" => Self::Lanczos(3.0),
            "lanczos5" => Self::Lanczos(5.0),
            "gaussian" => Self::Gaussian,
            "box" => Self::Box,
            "triangle" => Self::Triangle,
            "keyscubic" => Self::KeysCubic,
            "mitchellcubic" => Self::MitchellCubic,
            _ => invalid!("Unrecognized kernel type: {name}"),
        })
    }

    const fn radius(self) -> f32 {
        match self {
            Self::Lanczos(radius) => radius,
            Self::Gaussian => 1.5,
            Self::Box | Self::Triangle => 1.0,
            Self::KeysCubic | Self::MitchellCubic => 2.0,
        }
    }

    /// The weight at distance `x`, which is not negative.
    fn weight(self, x: f32) -> f32 {
        match self {
            Self::Lanczos(radius) if x > radius => 0.0,
            Self::Lanczos(_) if x <= 1e-3 => 1.0,
            Self::Lanczos(radius) => {
                radius * (PI * x).sin() * (PI * x / radius).sin() / (PI * PI * x * x)
            }
            Self::Gaussian if x >= 1.5 => 0.0,
            Self::Gaussian => (f64::from(-x * x) / 0.5).exp() as f32,
            Self::Box if x < 0.5 => 1.0,
            Self::Box => f32::from(u8::from(x == 0.5)) * 0.5,
            Self::Triangle if x < 1.0 => 1.0 - x,
            Self::Triangle => 0.0,
            Self::KeysCubic | Self::MitchellCubic if x >= 2.0 => 0.0,
            Self::KeysCubic if x >= 1.0 => ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0,
            Self::KeysCubic => ((1.5 * x - 2.5) * x) * x + 1.0,
            Self::MitchellCubic if x >= 1.0 => {
                (((-7.0 / 18.0) * x + 2.0) * x - 10.0 / 3.0) * x + 16.0 / 9.0
            }
            Self::MitchellCubic => (((7.0 / 6.0) * x - 2.0) * x) * x + 8.0 / 9.0,
        }
    }
}

/// The spans of one axis, which all have the same length.
#[derive(Debug, Clone, PartialEq)]
pub struct Spans {
    /// The number of weights of each span.
    pub size: usize,
    /// The start of each span.
    pub starts: Vec<u32>,
    /// Their weights.
    pub weights: Vec<f32>,
}

/// One axis.
#[derive(Debug, Clone, Copy)]
pub struct Axis {
    /// The image's extent.
    pub extent: usize,
    /// The result's extent.
    pub resized: usize,
    /// Positions of the result for a position of the image.
    pub scale: f32,
    /// The number that is added to a scaled position.
    pub translation: f32,
}

impl Axis {
    /// Positions of the image for a position of the result, and the factor by which a kernel is
    /// stretched.
    fn inverse(&self, antialias: bool) -> [f32; 2] {
        let inverse = (1.0 / f64::from(self.scale)) as f32;
        [inverse, if antialias { inverse.max(1.0) } else { 1.0 }]
    }

    /// The number of weights of a span.
    pub fn reach(&self, sampling: Sampling, antialias: bool) -> usize {
        let radius = sampling.radius() * self.inverse(antialias)[1];
        (2 * i64::from(radius.ceil() as i32) + 1).min(self.extent as i64) as usize
    }

    /// The span of the image that each position of the result reads.
    pub fn spans(&self, sampling: Sampling, antialias: bool) -> Spans {
        let last = self.extent as i64 - 1;
        let [inverse, stretch] = self.inverse(antialias);
        let shift = -inverse * self.translation;
        let reach = sampling.radius() * stretch;
        let size = self.reach(sampling, antialias);
        let squeeze = 1.0 / stretch;
        let mut starts = vec![0; self.resized];
        let mut weights = vec![0.0; size * self.resized];
        for (x, start) in starts.iter_mut().enumerate() {
            let sample = (x as f32 + 0.5) * inverse + shift;
            if sample < 0.0 || sample > self.extent as f32 {
                continue;
            }
            let first = ((sample - reach - 0.5).ceil() as i64).clamp(0, last);
            let end = ((sample + reach - 0.5).floor() as i64).clamp(0, last) + 1;
            let span = &mut weights[size * x..][..size];
            let mut total = 0.0;
            for (weight, source) in span.iter_mut().zip(first..end) {
                let distance = source as f32 + 0.5 - sample;
                *weight = sampling.weight((distance * squeeze).abs());
                total += *weight;
            }
            let scale = if total.abs() >= 1000.0 * f32::MIN_POSITIVE { 1.0 / total } else { 0.0 };
            span.iter_mut().for_each(|w| *w = if scale == 0.0 { 0.0 } else { *w * scale });
            *start = first as u32;
        }
        Spans { size, starts, weights }
    }
}

impl Spans {
    /// The positions of the result that each position of an image of `extent` contributes to, with
    /// the same weights. None if there are more than `most` of them.
    pub fn transposed(&self, extent: usize, most: usize) -> Option<Self> {
        let entries = || {
            self.starts.iter().enumerate().flat_map(|(at, start)| {
                let weights = self.weights[self.size * at..][..self.size].iter();
                let sources = *start as usize..extent;
                sources.zip(weights).filter(|(_, w)| **w != 0.0).map(move |(i, w)| (i, at, *w))
            })
        };
        // Positions come in order, so the first and the last reader of each position bound its
        // range.
        let mut ranges = vec![None; extent];
        for (i, at, _) in entries() {
            let first = ranges[i].map_or(at, |(first, _)| first);
            ranges[i] = Some((first, at));
        }
        let size = ranges.iter().flatten().map(|(first, last)| last - first + 1).max().unwrap_or(0);
        size.checked_mul(extent).filter(|n| *n <= most)?;
        let starts: Vec<u32> =
            ranges.iter().map(|r| r.map_or(0, |(first, _)| first as u32)).collect();
        let mut weights = vec![0.0; size * extent];
        for (i, at, w) in entries() {
            weights[size * i + at - starts[i] as usize] = w;
        }
        Some(Self { size, starts, weights })
    }

    /// The spans as a shader reads them: the starts, then the weights.
    pub fn words(&self) -> Vec<u32> {
        self.starts.iter().copied().chain(self.weights.iter().map(|w| w.to_bits())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: [&str; 8] = [
        "lanczos1",
        "lanczos3",
        "lanczos5",
        "gaussian",
        "box",
        "triangle",
        "keyscubic",
        "mitchellcubic",
    ];

    #[test]
    fn weights_of_a_span_add_up_to_one() {
        for name in EVERY {
            let sampling = Sampling::of(name).unwrap();
            for (extent, resized) in [(10, 10), (10, 3), (3, 17), (1, 4)] {
                let scale = resized as f32 / extent as f32;
                for antialias in [false, true] {
                    let axis = Axis { extent, resized, scale, translation: 0.0 };
                    let spans = axis.spans(sampling, antialias);
                    for span in spans.weights.chunks(spans.size) {
                        assert!((span.iter().sum::<f32>() - 1.0).abs() < 1e-5, "{name} {span:?}");
                    }
                }
            }
        }
        assert!(Sampling::of("cubic").is_err());
    }

    #[test]
    fn a_transpose_keeps_every_weight() {
        let axis = Axis { extent: 7, resized: 12, scale: 1.4, translation: -2.5 };
        let spans = axis.spans(Sampling::KeysCubic, true);
        let back = spans.transposed(7, 100).unwrap();
        assert_eq!(spans.transposed(7, 7 * back.size - 1), None);
        let at = |s: &Spans, from: usize, to: usize| {
            to.checked_sub(s.starts[from] as usize)
                .filter(|k| *k < s.size)
                .map_or(0.0, |k| s.weights[s.size * from + k])
        };
        for x in 0..12 {
            for i in 0..7 {
                assert_eq!(at(&spans, x, i), at(&back, i, x), "{x} {i}");
            }
        }
    }

    #[test]
    fn positions_outside_of_the_image_read_nothing() {
        let axis = Axis { extent: 4, resized: 4, scale: 1.0, translation: 1e10 };
        let spans = axis.spans(Sampling::Triangle, true);
        assert!(spans.weights.iter().all(|w| *w == 0.0));
        assert_eq!(spans.transposed(4, 0).unwrap().size, 0);
        let axis = Axis { translation: f32::NAN, ..axis };
        assert!(axis.spans(Sampling::Lanczos(3.0), true).weights.iter().all(|w| *w == 0.0));
    }
}
