//! The properties of scalar functions that a generator needs: their domains, their ranges, and how
//! they magnify errors.

/// The range of a tensor's elements, and the bound of their rounding errors.
#[derive(Debug, Clone, Copy)]
pub struct Range {
    pub low: f64,
    pub high: f64,
    /// Absolute error.
    pub error: f64,
}

impl Range {
    pub const fn exact(low: f64, high: f64) -> Self {
        Self { low, high, error: 0.0 }
    }

    /// The largest absolute value.
    pub fn size(self) -> f64 {
        self.low.abs().max(self.high.abs())
    }

    /// The range of the sum of `n` elements.
    pub fn times(self, n: f64) -> Self {
        Self { low: self.low * n, high: self.high * n, error: self.error * n }
    }
}

/// Functions of one float.
pub const UNARY: &[&str] = &[
    "Abs",
    "Cos",
    "Erf",
    "Exp",
    "Inv",
    "LeakyRelu",
    "Log",
    "Neg",
    "Reciprocal",
    "Relu",
    "Relu6",
    "Rsqrt",
    "Sigmoid",
    "Sin",
    "Softplus",
    "Sqrt",
    "Square",
    "Tanh",
];

/// Functions of two floats.
pub const BINARY: &[&str] = &[
    "AddV2",
    "Maximum",
    "Minimum",
    "Mul",
    "Mul",
    "RealDiv",
    "SquaredDifference",
    "Sub",
    "ReluGrad",
    "TanhGrad",
];

/// Below this, functions with a pole at 0 are not used.
const POSITIVE: f64 = 0.05;

/// The range of `op` of `x`, without its own rounding; `None` if `op` must not be used on it.
pub fn unary(op: &str, x: Range) -> Option<Range> {
    let Range { low, high, error } = x;
    let size = x.size();
    let monotone =
        |f: fn(f64) -> f64, slope: f64| Range { low: f(low), high: f(high), error: error * slope };
    let nearest = if low <= 0.0 && high >= 0.0 { 0.0 } else { low.abs().min(high.abs()) };
    Some(match op {
        "Abs" => Range { low: nearest, high: size, error },
        "Cos" | "Sin" if size <= 30.0 => Range { low: -1.0, high: 1.0, error },
        "Erf" => Range { low: -1.0, high: 1.0, error: error * 1.13 },
        "Exp" if high <= 3.0 => monotone(f64::exp, high.exp()),
        "Inv" | "Reciprocal" if low >= POSITIVE => {
            Range { low: 1.0 / high, high: 1.0 / low, error: error / (low * low) }
        }
        "LeakyRelu" | "Relu" => Range { low: low.min(0.0), high: high.max(0.0), error },
        "Log" if low >= POSITIVE => monotone(f64::ln, 1.0 / low),
        "Neg" => Range { low: -high, high: -low, error },
        "Relu6" => Range { low: 0.0, high: high.clamp(0.0, 6.0), error },
        "Rsqrt" if low >= POSITIVE => Range {
            low: high.powf(-0.5),
            high: low.powf(-0.5),
            error: error * 0.5 * low.powf(-1.5),
        },
        "Sigmoid" => Range { low: 0.0, high: 1.0, error: error * 0.25 },
        "Softplus" => Range { low: 0.0, high: high.max(0.0) + 0.7, error },
        "Sqrt" if low >= POSITIVE => monotone(f64::sqrt, 0.5 / low.sqrt()),
        "Square" => Range { low: nearest * nearest, high: size * size, error: 2.0 * size * error },
        "Tanh" => monotone(f64::tanh, 1.0),
        _ => return None,
    })
}

/// The range of `op` of `x` and `y`, without its own rounding; `None` if `op` must not be used on
/// them.
pub fn binary(op: &str, x: Range, y: Range) -> Option<Range> {
    let error = x.error + y.error;
    let corners = |f: fn(f64, f64) -> f64, error: f64| {
        let all = [f(x.low, y.low), f(x.low, y.high), f(x.high, y.low), f(x.high, y.high)];
        let low = all.iter().copied().fold(f64::INFINITY, f64::min);
        Range { low, high: all.iter().copied().fold(f64::NEG_INFINITY, f64::max), error }
    };
    Some(match op {
        "AddV2" => Range { low: x.low + y.low, high: x.high + y.high, error },
        "Maximum" => Range { low: x.low.max(y.low), high: x.high.max(y.high), error },
        "Minimum" => Range { low: x.low.min(y.low), high: x.high.min(y.high), error },
        "Mul" => corners(|a, b| a * b, x.error * y.size() + y.error * x.size()),
        "RealDiv" if y.low >= POSITIVE => {
            corners(|a, b| a / b, x.error / y.low + x.size() * y.error / (y.low * y.low))
        }
        // A step at 0 in the second argument.
        "ReluGrad" if y.error == 0.0 => {
            Range { low: x.low.min(0.0), high: x.high.max(0.0), error: x.error }
        }
        "SquaredDifference" => {
            let size = (x.high - y.low).abs().max((y.high - x.low).abs());
            Range { low: 0.0, high: size * size, error: 2.0 * size * error }
        }
        "Sub" => Range { low: x.low - y.high, high: x.high - y.low, error },
        // The op's arguments are y and dy, the result is dy (1 - y²).
        "TanhGrad" if x.size() <= 1.0 => {
            Range { low: -y.size(), high: y.size(), error: y.error + 2.0 * y.size() * x.error }
        }
        _ => return None,
    })
}
