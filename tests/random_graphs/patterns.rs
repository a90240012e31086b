//! Patterns that Keras writes as many nodes, with the generator's facts about the values between
//! them.

use tensorflow_wgpu::DType::{BF16, F16, F32, I32, I64, U32};

use super::functions::Range;
use super::generate::{Generator, Value};

/// `0.5 x (1 + tanh(0.797 (x + 0.0447 x³)))`.
pub fn gelu(g: &mut Generator) -> Option<Value> {
    let x = g.any_value();
    let mut scalar = |value| g.constant(x.dtype, &[], value);
    let (half, one, cubic, slope) =
        (scalar(0.5), scalar(1.0), scalar(0.044_715), scalar(0.797_884));
    let square = g.apply("Square", &x)?;
    let cube = g.combine("Mul", &x, &square)?;
    let bent = g.combine("Mul", &cubic, &cube)?;
    let sum = g.combine("AddV2", &x, &bent)?;
    let inner = g.combine("Mul", &slope, &sum)?;
    let tanh = g.apply("Tanh", &inner)?;
    let raised = g.combine("AddV2", &one, &tanh)?;
    let halved = g.combine("Mul", &half, &x)?;
    g.combine("Mul", &halved, &raised)
}

/// A softmax over the last axis in five nodes, or with its logarithm.
pub fn softmax(g: &mut Generator) -> Option<Value> {
    let x = g.any_value();
    let n = *x.dims.last()?;
    let axis = x.dims.len() as i64 - 1;
    let largest = g.reduce("Max", &x, &[axis], true)?;
    let shifted = g.node(
        "Sub",
        &[&x, &largest],
        &format!("T: {}", x.dtype),
        x.dtype,
        &x.dims,
        Range { low: x.range.low - x.range.high, high: 0.0, error: 2.0 * x.range.error },
    )?;
    let powers = g.apply("Exp", &shifted)?;
    let mut sum = g.reduce("Sum", &powers, &[axis], true)?;
    // The largest element gives 1.
    sum.range.low = 1.0;
    if g.random.below(2) == 0 {
        let log = g.apply("Log", &sum)?;
        return g.combine("Sub", &shifted, &log);
    }
    let range =
        Range { low: 0.0, high: 1.0, error: powers.range.error + sum.range.error / n as f64 };
    g.node("RealDiv", &[&powers, &sum], &format!("T: {}", x.dtype), x.dtype, &x.dims, range)
}

/// Keras's layer normalization, or that of batches: moments over the last axis or over all others.
pub fn layer_norm(g: &mut Generator) -> Option<Value> {
    let x = g.any_value();
    let rank = x.dims.len() as i64;
    let channels = *x.dims.last()?;
    let axes: Vec<i64> =
        if g.random.below(2) == 0 { vec![rank - 1] } else { (0..rank - 1).collect() };
    let mean = g.reduce("Mean", &x, &axes, true)?;
    let stopped = g.node(
        "StopGradient",
        &[&mean],
        &format!("T: {}", x.dtype),
        x.dtype,
        &mean.dims,
        mean.range,
    )?;
    let squares = g.combine("SquaredDifference", &x, &stopped)?;
    let variance = g.reduce("Mean", &squares, &axes, true)?;
    let epsilon = g.constant(x.dtype, &[], 0.25);
    let raised = g.combine("AddV2", &variance, &epsilon)?;
    let mut inverse = g.apply("Rsqrt", &raised)?;
    if g.random.below(2) == 0 {
        let gamma = g.feed(x.dtype, &[channels], 1.0);
        inverse = g.combine("Mul", &inverse, &gamma)?;
    }
    let scaled = g.combine("Mul", &x, &inverse)?;
    let moved = g.combine("Mul", &mean, &inverse)?;
    let beta = g.feed(x.dtype, &[channels], 1.0);
    let shift = g.combine("Sub", &beta, &moved)?;
    g.combine("AddV2", &scaled, &shift)
}

/// A product with weights, a bias, an activation, perhaps a residual.
pub fn dense(g: &mut Generator) -> Option<Value> {
    let x = g.any_value();
    let [m, k] = x.dims[..] else { return None };
    let n = g.random.pick(&[1, 3, 4, 16]);
    let weights = g.feed(x.dtype, &[k, n], 1.0);
    let range = x.range.times(k as f64);
    let range = Range { low: -range.size(), high: range.size(), ..range };
    let attrs = format!("T: {}, transpose_a: false, transpose_b: false", x.dtype);
    let product = g.node("MatMul", &[&x, &weights], &attrs, x.dtype, &[m, n], range)?;
    let bias = g.feed(x.dtype, &[n], 1.0);
    let range =
        Range { low: product.range.low - 1.0, high: product.range.high + 1.0, ..product.range };
    let attrs = format!("T: {}, data_format: \"NHWC\"", x.dtype);
    let sum = g.node("BiasAdd", &[&product, &bias], &attrs, x.dtype, &[m, n], range)?;
    let op = g.random.pick(&["Relu", "Tanh", "Sigmoid", "Neg"]);
    let activated = g.apply(op, &sum)?;
    let residual = g.feed(x.dtype, &[m, n], 1.0);
    g.combine("AddV2", &activated, &residual)
}

/// A rotary embedding, which turns the halves of each row.
pub fn rotary(g: &mut Generator) -> Option<Value> {
    let x = g.any_value();
    let [low, high] = g.halves(&x)?;
    if g.random.pick(&[true, false]) {
        // The halves are exchanged before the arithmetic.
        let turned = g.apply("Neg", &high)?;
        let turned = joined(g, &turned, &low, &x.dims)?;
        let [cos, sin] = [0, 1].map(|_| g.feed(x.dtype, &x.dims[x.dims.len() - 1..], 1.0));
        let (a, b) = (g.combine("Mul", &x, &cos)?, g.combine("Mul", &turned, &sin)?);
        return g.combine("AddV2", &a, &b);
    }
    let extent = *low.dims.last()?;
    let [cos, sin] = [0, 1].map(|_| g.feed(x.dtype, &[extent], 1.0));
    let (a, b) = (g.combine("Mul", &low, &cos)?, g.combine("Mul", &high, &sin)?);
    let first = g.combine("Sub", &a, &b)?;
    let (a, b) = (g.combine("Mul", &low, &sin)?, g.combine("Mul", &high, &cos)?);
    let second = g.combine("AddV2", &a, &b)?;
    joined(g, &first, &second, &x.dims)
}

/// Two halves side by side along the last of the axes of `dims`.
fn joined(g: &mut Generator, first: &Value, second: &Value, dims: &[usize]) -> Option<Value> {
    let axis = g.axis(dims.len() - 1);
    let range = Range {
        low: first.range.low.min(second.range.low),
        high: first.range.high.max(second.range.high),
        error: first.range.error.max(second.range.error),
    };
    let attrs = format!("N: 2, T: {}, Tidx: int32", first.dtype);
    g.node("ConcatV2", &[first, second, &axis], &attrs, first.dtype, dims, range)
}

/// The gradients of two layers' weights and biases, from rows that one node makes.
pub fn layers(g: &mut Generator) -> Option<()> {
    let (rows, k, n) =
        (g.random.between(1, 9), g.random.pick(&[1, 4, 5]), g.random.pick(&[2, 4, 8]));
    let x = g.feed(F32, &[rows, k], 1.0);
    let y = g.feed(F32, &[rows, 2 * n], 1.0);
    let parts = g.halves(&y)?;
    let size = rows as f64;
    for part in &parts {
        let range = Range::exact(-size, size);
        let attrs = "T: float32, transpose_a: true, transpose_b: false";
        g.node("MatMul", &[&x, part], attrs, F32, &[k, n], range)?;
    }
    for part in &parts {
        g.reduce("Sum", part, &[0], false)?;
    }
    Some(())
}

/// Low-rank adapters, added to weights of heads that a product reads by a view, with the gradients
/// of the product's left operand and of the adapters.
pub fn adapters(g: &mut Generator) -> Option<Value> {
    let (n, depth) = (g.random.between(1, 5), g.random.pick(&[16, 32]));
    let (heads, width) = (g.random.pick(&[1, 2]), g.random.pick(&[16, 20]));
    let (rows, columns) = (heads * depth, heads * width);
    let is_moved = g.random.below(2) == 0;
    let stored = if is_moved { [heads, depth, width] } else { [depth, heads, width] };
    let viewed = [depth, heads, width];
    let x = g.feed(F32, &[n, depth], 1.0);
    let y = g.feed(F32, &[n, columns], 1.0);
    let weights = g.feed(F32, &stored, 0.5);
    let (a, b) = (g.feed(F32, &[rows, 1], 0.5), g.feed(F32, &[1, width], 0.5));
    let scale = g.constant(F32, &[], 0.5);
    let is_scaled = g.random.below(2) == 0;
    let scaled = |g: &mut Generator, x: Value| {
        if is_scaled { g.combine("Mul", &scale, &x) } else { Some(x) }
    };
    let ab = matmul(g, [&a, &b], [false, false], [rows, width], Range::exact(-0.25, 0.25))?;
    let ab = scaled(g, ab)?;
    let ab = changed(g, "Reshape", &ab, &stored.map(|n| n as i64), &stored);
    let sum = g.combine("AddV2", &weights, &ab)?;
    let moved = if is_moved { changed(g, "Transpose", &sum, &[1, 0, 2], &viewed) } else { sum };
    let view = changed(g, "Reshape", &moved, &[depth as i64, -1], &[depth, columns]);
    let within = |size: f64, error: f64| Range { low: -size, high: size, error };
    let range = within(depth as f64, view.range.error * depth as f64);
    let result = matmul(g, [&x, &view], [false, false], [n, columns], range)?;
    let range = within(columns as f64, view.range.error * columns as f64);
    let of_x = matmul(g, [&y, &view], [false, true], [n, depth], range)?;
    let of_sum = matmul(g, [&x, &y], [true, false], [depth, columns], within(n as f64, 0.0))?;
    let cut = changed(g, "Reshape", &of_sum, &viewed.map(|n| n as i64), &viewed);
    let back = if is_moved { changed(g, "Transpose", &cut, &[1, 0, 2], &stored) } else { cut };
    let flat = changed(g, "Reshape", &back, &[-1, width as i64], &[rows, width]);
    let flat = scaled(g, flat)?;
    let range = within(0.5 * (n * width) as f64, flat.range.error * width as f64);
    let of_a = matmul(g, [&flat, &b], [false, true], [rows, 1], range)?;
    let range = within(0.5 * (n * rows) as f64, flat.range.error * rows as f64);
    let of_b = matmul(g, [&a, &flat], [true, false], [1, width], range)?;
    // One value needs all results.
    let mut total = g.reduce("Mean", &of_b, &[0], true)?;
    for result in [result, of_x, of_a] {
        let mean = g.reduce("Mean", &result, &[0, 1], false)?;
        total = g.combine("AddV2", &total, &mean)?;
    }
    Some(total)
}

/// A product of two matrices, which are transposed if `flags` say so.
fn matmul(
    g: &mut Generator,
    operands: [&Value; 2],
    flags: [bool; 2],
    dims: [usize; 2],
    range: Range,
) -> Option<Value> {
    let attrs = format!("T: float32, transpose_a: {}, transpose_b: {}", flags[0], flags[1]);
    g.node("MatMul", &operands, &attrs, F32, &dims, range)
}

/// A tensor with the same elements in other places.
fn changed(g: &mut Generator, op: &str, x: &Value, how: &[i64], dims: &[usize]) -> Value {
    let how = g.indices(how);
    let types = if op == "Reshape" { "Tshape" } else { "Tperm" };
    let attrs = format!("T: float32, {types}: int32");
    let name = g.emit(op, &[&x.name, &how], &attrs, F32, dims);
    g.value(name, F32, dims, x.range)
}

/// The index of the number of each row that is farthest from zero, found in the numbers' bits.
pub fn farthest(g: &mut Generator) -> Option<Value> {
    let dims = [g.random.between(1, 5), g.random.pick(&[3, 16, 64])];
    let narrow = g.random.pick(&[F32, F16, BF16]);
    let mut x = g.feed(narrow, &dims, 1.0).name;
    if narrow != F32 {
        let attrs = format!("SrcT: {narrow}, DstT: float32, Truncate: false");
        x = g.emit("Cast", &[&x], &attrs, F32, &dims);
    }
    let attrs = "dtype: uint32, value: tensor uint32[] [2147483647]";
    let all_but_the_sign = g.emit("Const", &[], attrs, U32, &[]);
    let bits = g.emit("Bitcast", &[&x], "T: float32, type: uint32", U32, &dims);
    let bits = g.emit("BitwiseAnd", &[&bits, &all_but_the_sign], "T: uint32", U32, &dims);
    let size = g.emit("Bitcast", &[&bits], "T: uint32, type: float32", F32, &dims);
    let axis = g.axis(1).name;
    let attrs = "T: float32, Tidx: int32, output_type: int64";
    let index = g.emit("ArgMax", &[&size, &axis], attrs, I64, &dims[..1]);
    let attrs = "SrcT: int64, DstT: float32, Truncate: false";
    let index = g.emit("Cast", &[&index], attrs, F32, &dims[..1]);
    Some(g.value(index, F32, &dims[..1], Range::exact(0.0, dims[1] as f64)))
}

/// Scaled dot products, a softmax, and a weighted sum.
pub fn attention(g: &mut Generator) -> Option<Value> {
    let (heads, queries, keys, width) = (
        g.random.between(1, 2),
        g.random.between(1, 5),
        g.random.between(1, 9),
        g.random.pick(&[4, 8, 5]),
    );
    let query = g.feed(F32, &[2, heads, queries, width], 1.0);
    let key = g.feed(F32, &[2, heads, keys, width], 1.0);
    let values = g.feed(F32, &[2, heads, keys, width], 1.0);
    let scale = g.constant(F32, &[], 0.5);
    let query = g.combine("Mul", &query, &scale)?;
    let dims = [2, heads, queries, keys];
    let size = 0.5 * width as f64;
    let attrs = |y: bool| format!("T: float32, adj_x: false, adj_y: {y}");
    let scores = g.node(
        "BatchMatMulV2",
        &[&query, &key],
        &attrs(true),
        F32,
        &dims,
        Range { low: -size, high: size, error: query.range.error * width as f64 },
    )?;
    let range = Range { low: 0.0, high: 1.0, error: 2.0 * scores.range.error };
    let weights = g.node("Softmax", &[&scores], "T: float32", F32, &dims, range)?;
    let range = Range { low: -1.0, high: 1.0, error: 2.0 * weights.range.error };
    g.node(
        "BatchMatMulV2",
        &[&weights, &values],
        &attrs(false),
        F32,
        &[2, heads, queries, width],
        range,
    )
}

/// Keras's Adam for one to three variables.
pub fn adam(g: &mut Generator) -> Option<()> {
    let mut scalar = |value| g.constant(F32, &[], value);
    let (rate, slow, slower, epsilon) = (scalar(0.01), scalar(0.1), scalar(0.001), scalar(0.25));
    for _ in 0..g.random.between(1, 3) {
        let dims = g.any_value().dims;
        let gradient = g.feed(F32, &dims, 1.0);
        let [weights, momentum, velocity] = [1.0, 0.5, 0.0].map(|size| g.new_variable(&dims, size));
        let old = g.read(momentum);
        let difference = g.combine("Sub", &gradient, &old)?;
        let step = g.combine("Mul", &difference, &slow)?;
        g.write("AssignAddVariableOp", momentum, &step)?;
        let old = g.read(velocity);
        let square = g.apply("Square", &gradient)?;
        let difference = g.combine("Sub", &square, &old)?;
        let step = g.combine("Mul", &difference, &slower)?;
        g.write("AssignAddVariableOp", velocity, &step)?;
        let momentum = g.read(momentum);
        let velocity = g.read(velocity);
        let raised = g.combine("AddV2", &velocity, &epsilon)?;
        let root =
            g.apply("Sqrt", &Value { range: Range { low: 0.25, ..raised.range }, ..raised })?;
        let scaled = g.combine("Mul", &momentum, &rate)?;
        let step = g.combine("RealDiv", &scaled, &root)?;
        g.write("AssignSubVariableOp", weights, &step)?;
    }
    Some(())
}

/// The gradient of a mean: a tensor that is repeated along some of its axes of extent 1, a part of
/// it, and perhaps the tensor that it is added to.
pub fn repeat(g: &mut Generator) -> Option<Value> {
    let x = g.any_value();
    let full = g.any_value();
    let shared = x.dims.len().min(full.dims.len());
    let above = full.dims[full.dims.len() - shared..].to_vec();
    let mut multiples = vec![1; x.dims.len()];
    let at = x.dims.len() - shared;
    for (multiple, (own, wanted)) in multiples[at..].iter_mut().zip(x.dims[at..].iter().zip(&above))
    {
        if *own == 1 && g.random.below(4) > 0 {
            *multiple = *wanted;
        }
    }
    let dims: Vec<usize> = x.dims.iter().zip(&multiples).map(|(d, m)| d * m).collect();
    let name = g.indices(&multiples.iter().map(|m| *m as i64).collect::<Vec<_>>());
    let multiples = Value { name, dtype: I32, dims: vec![dims.len()], range: x.range };
    let tile = g.node(
        "Tile",
        &[&x, &multiples],
        &format!("T: {}, Tmultiples: int32", x.dtype),
        x.dtype,
        &dims,
        x.range,
    )?;
    let part = g.constant(x.dtype, &[], 0.25);
    let scaled = g.combine("Mul", &tile, &part)?;
    if full.dtype == x.dtype { g.combine("AddV2", &full, &scaled) } else { Some(scaled) }
}

/// A condition, two branches of one value, and the result of the branch that runs.
pub fn branch(g: &mut Generator) -> Option<Value> {
    let x = g.any_value();
    if x.dtype != F32 {
        return None;
    }
    let condition = g.condition();
    let switch = g.switch(&x, &condition);
    let [a, b] = [0, 1].map(|port| g.in_branch(&x, &switch, port));
    let range = Range {
        low: a.range.low.min(b.range.low),
        high: a.range.high.max(b.range.high),
        error: a.range.error.max(b.range.error),
    };
    g.node("Merge", &[&a, &b], "N: 2, T: float32", F32, &x.dims, range)
}

/// A check or a message.
pub fn effect(g: &mut Generator) -> Option<Value> {
    let x = g.any_value();
    if x.dtype != F32 {
        return None;
    }
    match g.random.below(3) {
        0 => {
            let condition = g.condition();
            g.effect("Assert", &[&condition, &x.name], "T: [float32], summarize: 3");
            None
        }
        1 => g.node(
            "Print",
            &[&x, &x],
            "T: float32, U: [float32], message: \"m\"",
            F32,
            &x.dims,
            x.range,
        ),
        _ => g.node("CheckNumerics", &[&x], "T: float32, message: \"m\"", F32, &x.dims, x.range),
    }
}
