//! The optimizers: their inputs, the WGSL of one step of one element, and the same step in Rust.
//!
//! A step sees the element of each variable by the variable's name (`w` for the first, since `var`
//! is a word of WGSL), the gradient as `g`, the scalars by their names and the op's attribute as a
//! constant. If the op has complex types, it is written with `mul`, `div`, `root` and `square`,
//! which `shaders/training/complex.wgsl` defines for them.

use crate::dtype::types::{COMPLEX, FLOATS_BUT_BF16};
use crate::dtype::{DType, union};

/// Real and complex types: those of TensorFlow's GPU kernels of this op.
pub const ALL: &[DType] = union!(FLOATS_BUT_BF16, COMPLEX);

/// The definition of an optimizer's step.
pub struct Rule {
    /// Inputs of the dense op after the variables, in order; `g` is the gradient.
    pub dense: &'static [&'static str],
    /// The op that updates whole variables.
    pub op: &'static str,
    /// Inputs of the sparse op after the variables, in order; `g` is the gradient.
    pub sparse: &'static [&'static str],
    /// The op that updates the rows that an index tensor names.
    pub sparse_op: Option<&'static str>,
    /// Types of both ops.
    pub types: &'static [DType],
    /// Types of the sparse op.
    pub sparse_types: &'static [DType],
    /// The variables' names.
    pub variables: &'static [&'static str],
    /// The attribute that a step depends on.
    pub flag: Option<&'static str>,
    /// Whether the step calls `powers_of`.
    pub has_powers: bool,
    /// The step.
    pub step: &'static str,
    /// The step in Rust, for tests: variables, scalars in the dense op's order, gradient, flag.
    pub reference: Reference,
}

/// A step in f64: variables (changed), scalars in the dense op's order, gradient and flag.
pub type Reference = fn(&mut [f64], &[f64], f64, bool);

impl Rule {
    /// Names of the scalars, in the dense op's order.
    pub fn scalars(&self) -> impl Iterator<Item = &'static str> {
        self.dense.iter().copied().filter(|n| *n != "g")
    }

    /// Operations on an element: the operators and calls of the step, which has no loops.
    /// Conversions and selections do not count.
    pub fn operations(&self) -> usize {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let is_call = |before: &str| {
            let name = before.rsplit(|c| !is_name(c)).next().unwrap_or_default();
            !matches!(name, "" | "T" | "select" | "vec2")
        };
        let operators = [" + ", " - ", " * ", " / ", " += ", " -= "];
        let operators: usize = operators.iter().map(|o| self.step.matches(o).count()).sum();
        operators
            + self.step.match_indices('(').filter(|(at, _)| is_call(&self.step[..*at])).count()
    }
}

const FTRL_STEP: &str = "let new_accum = accum + g * g;
    let powers = powers_of(vec2(new_accum, accum), -lr_power);
    let power = powers.x;
    let growth = power - powers.y;
    let scale = select(T(1.0), lr, multiply_linear_by_lr);
    let unscale = select(lr, T(1.0), multiply_linear_by_lr);
    linear += g * scale - growth / unscale * w;
    let bound = l1 * scale;
    w = select(T(0.0), (bound * sign_of(linear) - linear) / (power / unscale + T(2.0) * l2 * \
                         scale), abs(linear) > bound);
    accum = new_accum;";

const FTRL_V2_STEP: &str = "let new_accum = accum + g * g;
    let powers = powers_of(vec2(new_accum, accum), -lr_power);
    let power = powers.x;
    let growth = power - powers.y;
    let scale = select(T(1.0), lr, multiply_linear_by_lr);
    let unscale = select(lr, T(1.0), multiply_linear_by_lr);
    linear += (g + T(2.0) * l2_shrinkage * w) * scale - growth / unscale * w;
    let bound = l1 * scale;
    w = select(T(0.0), (bound * sign_of(linear) - linear) / (power / unscale + T(2.0) * l2 * \
                            scale), abs(linear) > bound);
    accum = new_accum;";

/// Every optimizer, alphabetically.
pub const RULES: &[Rule] = &[
    Rule {
        op: "ResourceApplyAdaMax",
        dense: &["beta1_power", "lr", "beta1", "beta2", "epsilon", "g"],
        types: FLOATS_BUT_BF16,
        variables: &["var", "m", "v"],
        step: "m += (T(1.0) - beta1) * (g - m);
    v = max(beta2 * v, abs(g));
    w -= lr / (T(1.0) - beta1_power) * (m / (v + epsilon));",
        reference: |x, s, g, _| {
            let [power, lr, beta1, beta2, epsilon] = s[..] else { unreachable!() };
            x[1] += (1.0 - beta1) * (g - x[1]);
            x[2] = (beta2 * x[2]).max(g.abs());
            x[0] -= lr / (1.0 - power) * (x[1] / (x[2] + epsilon));
        },
        ..NONE
    },
    Rule {
        op: "ResourceApplyAdadelta",
        dense: &["lr", "rho", "epsilon", "g"],
        sparse_op: Some("ResourceSparseApplyAdadelta"),
        sparse: &["lr", "rho", "epsilon", "g", "indices"],
        types: ALL,
        sparse_types: ALL,
        variables: &["var", "accum", "accum_update"],
        step: "accum = mul(accum, rho) + mul(square(g), ONE - rho);
    let update = mul(div(root(accum_update + epsilon), root(accum + epsilon)), g);
    w -= mul(update, lr);
    accum_update = mul(accum_update, rho) + mul(square(update), ONE - rho);",
        reference: |x, s, g, _| {
            let [lr, rho, epsilon] = s[..] else { unreachable!() };
            x[1] = x[1] * rho + g * g * (1.0 - rho);
            let update = ((x[2] + epsilon) / (x[1] + epsilon)).sqrt() * g;
            x[0] -= update * lr;
            x[2] = x[2] * rho + update * update * (1.0 - rho);
        },
        ..NONE
    },
    Rule {
        op: "ResourceApplyAdagrad",
        dense: &["lr", "g"],
        sparse_op: Some("ResourceSparseApplyAdagrad"),
        sparse: &["lr", "g", "indices"],
        types: ALL,
        sparse_types: FLOATS_BUT_BF16,
        variables: &["var", "accum"],
        flag: Some("update_slots"),
        step: "if update_slots {
        accum += square(g);
    }
    w -= div(mul(lr, g), root(accum));",
        reference: |x, s, g, update_slots| {
            x[1] += if update_slots { g * g } else { 0.0 };
            x[0] -= s[0] * g / x[1].sqrt();
        },
        ..NONE
    },
    Rule {
        op: "ResourceApplyAdagradV2",
        dense: &["lr", "epsilon", "g"],
        sparse_op: Some("ResourceSparseApplyAdagradV2"),
        sparse: &["lr", "epsilon", "g", "indices"],
        types: ALL,
        sparse_types: FLOATS_BUT_BF16,
        variables: &["var", "accum"],
        flag: Some("update_slots"),
        step: "if update_slots {
        accum += square(g);
    }
    w -= div(mul(lr, g), root(accum) + epsilon);",
        reference: |x, s, g, update_slots| {
            x[1] += if update_slots { g * g } else { 0.0 };
            x[0] -= s[0] * g / (x[1].sqrt() + s[1]);
        },
        ..NONE
    },
    Rule {
        op: "ResourceApplyAdam",
        dense: &["beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon", "g"],
        types: ALL,
        variables: &["var", "m", "v"],
        flag: Some("use_nesterov"),
        step: "let rate = div(mul(lr, root(ONE - beta2_power)), ONE - beta1_power);
    m += mul(ONE - beta1, g - m);
    v += mul(ONE - beta2, square(g) - v);
    var direction = m;
    if use_nesterov {
        direction = mul(m, beta1) + mul(ONE - beta1, g);
    }
    w -= div(mul(rate, direction), epsilon + root(v));",
        reference: |x, s, g, nesterov| {
            let [power1, power2, lr, beta1, beta2, epsilon] = s[..] else { unreachable!() };
            x[1] += (1.0 - beta1) * (g - x[1]);
            x[2] += (1.0 - beta2) * (g * g - x[2]);
            let direction = if nesterov { x[1] * beta1 + (1.0 - beta1) * g } else { x[1] };
            x[0] -=
                lr * (1.0 - power2).sqrt() / (1.0 - power1) * direction / (epsilon + x[2].sqrt());
        },
        ..NONE
    },
    Rule {
        op: "ResourceApplyAdamWithAmsgrad",
        dense: &["beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon", "g"],
        types: FLOATS_BUT_BF16,
        variables: &["var", "m", "v", "vhat"],
        step: "m += (T(1.0) - beta1) * (g - m);
    v += (T(1.0) - beta2) * (g * g - v);
    vhat = max(vhat, v);
    w -= lr * sqrt(T(1.0) - beta2_power) / (T(1.0) - beta1_power) * m / (epsilon + sqrt(vhat));",
        reference: |x, s, g, _| {
            let [power1, power2, lr, beta1, beta2, epsilon] = s[..] else { unreachable!() };
            x[1] += (1.0 - beta1) * (g - x[1]);
            x[2] += (1.0 - beta2) * (g * g - x[2]);
            x[3] = x[3].max(x[2]);
            x[0] -= lr * (1.0 - power2).sqrt() / (1.0 - power1) * x[1] / (epsilon + x[3].sqrt());
        },
        ..NONE
    },
    Rule {
        op: "ResourceApplyAddSign",
        dense: &["lr", "alpha", "sign_decay", "beta", "g"],
        types: FLOATS_BUT_BF16,
        variables: &["var", "m"],
        step: "m = m * beta + g * (T(1.0) - beta);
    w -= lr * (alpha + sign_decay * sign_of(g) * sign_of(m)) * g;",
        reference: |x, s, g, _| {
            let [lr, alpha, sign_decay, beta] = s[..] else { unreachable!() };
            x[1] = x[1] * beta + g * (1.0 - beta);
            x[0] -= lr * (alpha + sign_decay * sign(g) * sign(x[1])) * g;
        },
        ..NONE
    },
    Rule {
        op: "ResourceApplyCenteredRMSProp",
        dense: &["lr", "rho", "momentum", "epsilon", "g"],
        types: ALL,
        variables: &["var", "mg", "ms", "mom"],
        step: "ms += mul(ONE - rho, square(g) - ms);
    mg += mul(ONE - rho, g - mg);
    mom = mul(mom, momentum) + div(mul(lr, g), root(ms - square(mg) + epsilon));
    w -= mom;",
        reference: |x, s, g, _| {
            let [lr, rho, momentum, epsilon] = s[..] else { unreachable!() };
            x[2] += (1.0 - rho) * (g * g - x[2]);
            x[1] += (1.0 - rho) * (g - x[1]);
            x[3] = x[3] * momentum + lr * g / (x[2] - x[1] * x[1] + epsilon).sqrt();
            x[0] -= x[3];
        },
        ..NONE
    },
    Rule {
        op: "ResourceApplyFtrl",
        dense: &["g", "lr", "l1", "l2", "lr_power"],
        sparse_op: Some("ResourceSparseApplyFtrl"),
        sparse: &["g", "indices", "lr", "l1", "l2", "lr_power"],
        types: FLOATS_BUT_BF16,
        sparse_types: FLOATS_BUT_BF16,
        variables: &["var", "accum", "linear"],
        flag: Some("multiply_linear_by_lr"),
        has_powers: true,
        step: FTRL_STEP,
        reference: |x, s, g, scaled| ftrl(x, [s[0], s[1], s[2], 0.0, s[3]], g, scaled),
    },
    Rule {
        op: "ResourceApplyFtrlV2",
        dense: &["g", "lr", "l1", "l2", "l2_shrinkage", "lr_power"],
        sparse_op: Some("ResourceSparseApplyFtrlV2"),
        sparse: &["g", "indices", "lr", "l1", "l2", "l2_shrinkage", "lr_power"],
        types: FLOATS_BUT_BF16,
        sparse_types: FLOATS_BUT_BF16,
        variables: &["var", "accum", "linear"],
        flag: Some("multiply_linear_by_lr"),
        has_powers: true,
        step: FTRL_V2_STEP,
        reference: |x, s, g, scaled| ftrl(x, [s[0], s[1], s[2], s[3], s[4]], g, scaled),
    },
    Rule {
        op: "ResourceApplyGradientDescent",
        dense: &["alpha", "g"],
        types: ALL,
        variables: &["var"],
        step: "w -= mul(alpha, g);",
        reference: |x, s, g, _| x[0] -= s[0] * g,
        ..NONE
    },
    Rule {
        op: "ResourceApplyKerasMomentum",
        dense: &["lr", "g", "momentum"],
        sparse_op: Some("ResourceSparseApplyKerasMomentum"),
        sparse: &["lr", "g", "indices", "momentum"],
        types: ALL,
        sparse_types: ALL,
        variables: &["var", "accum"],
        flag: Some("use_nesterov"),
        step: "accum = mul(accum, momentum) - mul(g, lr);
    if use_nesterov {
        w += mul(accum, momentum) - mul(g, lr);
    } else {
        w += accum;
    }",
        reference: |x, s, g, nesterov| {
            x[1] = x[1] * s[1] - g * s[0];
            x[0] += if nesterov { x[1] * s[1] - g * s[0] } else { x[1] };
        },
        ..NONE
    },
    Rule {
        op: "ResourceApplyMomentum",
        dense: &["lr", "g", "momentum"],
        types: ALL,
        variables: &["var", "accum"],
        flag: Some("use_nesterov"),
        step: "accum = mul(accum, momentum) + g;
    if use_nesterov {
        w -= mul(g, lr) + mul(mul(accum, momentum), lr);
    } else {
        w -= mul(accum, lr);
    }",
        reference: |x, s, g, nesterov| {
            x[1] = x[1] * s[1] + g;
            x[0] -= if nesterov { g * s[0] + x[1] * s[1] * s[0] } else { x[1] * s[0] };
        },
        ..NONE
    },
    Rule {
        op: "ResourceApplyPowerSign",
        dense: &["lr", "logbase", "sign_decay", "beta", "g"],
        types: FLOATS_BUT_BF16,
        variables: &["var", "m"],
        step: "m = m * beta + g * (T(1.0) - beta);
    w -= lr * exp_{{SUFFIX}}(logbase * sign_decay * sign_of(g) * sign_of(m)) * g;",
        reference: |x, s, g, _| {
            let [lr, logbase, sign_decay, beta] = s[..] else { unreachable!() };
            x[1] = x[1] * beta + g * (1.0 - beta);
            x[0] -= lr * (logbase * sign_decay * sign(g) * sign(x[1])).exp() * g;
        },
        ..NONE
    },
    Rule {
        op: "ResourceApplyProximalAdagrad",
        dense: &["lr", "l1", "l2", "g"],
        sparse_op: Some("ResourceSparseApplyProximalAdagrad"),
        sparse: &["lr", "l1", "l2", "g", "indices"],
        types: FLOATS_BUT_BF16,
        sparse_types: FLOATS_BUT_BF16,
        variables: &["var", "accum"],
        step: "accum += g * g;
    let rate = lr / sqrt(accum);
    let moved = w - g * rate;
    w = sign_of(moved) * max(abs(moved) - rate * max(l1, T(0.0)), T(0.0)) / (T(1.0) + l2 * rate);",
        reference: |x, s, g, _| {
            let [lr, l1, l2] = s[..] else { unreachable!() };
            x[1] += g * g;
            let rate = lr / x[1].sqrt();
            let moved = x[0] - g * rate;
            x[0] = sign(moved) * (moved.abs() - rate * l1.max(0.0)).max(0.0) / (1.0 + l2 * rate);
        },
        ..NONE
    },
    Rule {
        op: "ResourceApplyRMSProp",
        dense: &["lr", "rho", "momentum", "epsilon", "g"],
        types: ALL,
        variables: &["var", "ms", "mom"],
        step: "ms += mul(ONE - rho, square(g) - ms);
    mom = mul(mom, momentum) + div(mul(lr, g), root(epsilon + ms));
    w -= mom;",
        reference: |x, s, g, _| {
            let [lr, rho, momentum, epsilon] = s[..] else { unreachable!() };
            x[1] += (1.0 - rho) * (g * g - x[1]);
            x[2] = x[2] * momentum + lr * g / (epsilon + x[1]).sqrt();
            x[0] -= x[2];
        },
        ..NONE
    },
];

/// The fields that most rows leave out.
const NONE: Rule = Rule {
    dense: &[],
    op: "",
    sparse: &[],
    sparse_op: None,
    types: &[],
    sparse_types: &[],
    variables: &[],
    flag: None,
    has_powers: false,
    step: "",
    reference: |_, _, _, _| {},
};

fn sign(x: f64) -> f64 {
    if x == 0.0 { 0.0 } else { x.signum() }
}

fn ftrl(x: &mut [f64], [lr, l1, l2, l2_shrinkage, lr_power]: [f64; 5], g: f64, scaled: bool) {
    let new_accum = x[1] + g * g;
    let (scale, unscale) = if scaled { (lr, 1.0) } else { (1.0, lr) };
    let (old, new) = (x[1].powf(-lr_power), new_accum.powf(-lr_power));
    x[2] += (g + 2.0 * l2_shrinkage * x[0]) * scale - (new - old) / unscale * x[0];
    let bound = l1 * scale;
    let y = new / unscale + 2.0 * l2 * scale;
    x[0] = if x[2].abs() > bound { (bound * sign(x[2]) - x[2]) / y } else { 0.0 };
    x[1] = new_accum;
}
