//! Elementwise ops, conversions, changes of shape and reductions.

use tensorflow_wgpu::DType::*;
use tensorflow_wgpu::layout::broadcast_dims;

use super::super::functions::{BINARY, Range, UNARY, binary, unary};
use super::{Generator, Value};

impl Generator {
    pub(super) fn unary(&mut self) {
        let x = self.any_value();
        let op = self.random.pick(UNARY);
        self.apply(op, &x);
    }

    pub fn apply(&mut self, op: &str, x: &Value) -> Option<Value> {
        let attrs =
            format!("T: {}{}", x.dtype, if op == "LeakyRelu" { ", alpha: 0.25" } else { "" });
        self.node(op, &[x], &attrs, x.dtype, &x.dims, unary(op, x.range)?)
    }

    pub(super) fn binary(&mut self) {
        let x = self.any_value();
        let fitting: Vec<Value> =
            self.values.iter().filter(|y| y.dtype == x.dtype).cloned().collect();
        let at = self.random.below(fitting.len());
        let op = self.random.pick(BINARY);
        self.combine(op, &x, &fitting[at]);
    }

    pub fn combine(&mut self, op: &str, x: &Value, y: &Value) -> Option<Value> {
        let dims = broadcast_dims(&x.dims, &y.dims).ok()?;
        if op.ends_with("Grad") && x.dims != y.dims {
            return None;
        }
        self.node(
            op,
            &[x, y],
            &format!("T: {}", x.dtype),
            x.dtype,
            &dims,
            binary(op, x.range, y.range)?,
        )
    }

    /// `SelectV2` by a comparison of exact values, because different rounding must not change the
    /// choice.
    pub(super) fn choice(&mut self) {
        let exact: Vec<Value> =
            self.values.iter().filter(|v| v.range.error == 0.0).cloned().collect();
        if exact.is_empty() {
            return;
        }
        let x = exact[self.random.below(exact.len())].clone();
        let y = exact[self.random.below(exact.len())].clone();
        let (Ok(dims), true) = (broadcast_dims(&x.dims, &y.dims), x.dtype == y.dtype) else {
            return;
        };
        let op = self.random.pick(&["Less", "GreaterEqual", "Equal"]);
        let attrs = format!(
            "T: {}{}",
            x.dtype,
            if op == "Equal" { ", incompatible_shape_error: true" } else { "" }
        );
        let test = self.emit(op, &[&x.name, &y.name], &attrs, Bool, &dims);
        let (a, b) = (self.any_value(), self.any_value());
        let all = broadcast_dims(&a.dims, &b.dims).and_then(|d| broadcast_dims(&d, &dims));
        if let (Ok(all), true) = (all, a.dtype == b.dtype) {
            let range = Range {
                low: a.range.low.min(b.range.low),
                high: a.range.high.max(b.range.high),
                error: a.range.error.max(b.range.error),
            };
            let test = Value {
                name: test,
                dtype: Bool,
                dims: dims.to_vec(),
                range: Range::exact(0.0, 1.0),
            };
            self.node(
                "SelectV2",
                &[&test, &a, &b],
                &format!("T: {}", a.dtype),
                a.dtype,
                &all,
                range,
            );
        }
    }

    pub(super) fn cast(&mut self) {
        let x = self.any_value();
        let to = self.random.pick(&[F32, F16, BF16]);
        let attrs = format!("SrcT: {}, DstT: {to}, Truncate: false", x.dtype);
        self.node("Cast", &[&x], &attrs, to, &x.dims, x.range);
    }

    /// A small constant: a scalar, or a tensor of equal elements.
    pub(super) fn scalar(&mut self) {
        let dtype = self.any_value().dtype;
        let dims = if self.random.below(3) == 0 { self.dims() } else { Vec::new() };
        let value = self.random.pick(&[0.5, 2.0, -1.0, 1.0, 0.044_715, 0.0]);
        self.constant(dtype, &dims, value);
    }

    /// Nodes that do not change values: other ops, or another device.
    pub(super) fn pass(&mut self) {
        let x = self.any_value();
        let op = self.random.pick(&["Identity", "StopGradient", "Neg"]);
        let range = if op == "Neg" { unary(op, x.range) } else { Some(x.range) };
        let Some(made) = self.node(
            op,
            &[&x],
            &format!("T: {}", x.dtype),
            x.dtype,
            &x.dims,
            range.unwrap_or(x.range),
        ) else {
            return;
        };
        if self.random.below(2) == 0 {
            let line = format!("{} = {op}({}) {{T: {}}}", made.name, x.name, x.dtype);
            self.case.text = self.case.text.replace(&line, &format!("{line} @CPU:0"));
        }
    }

    pub(super) fn reshape(&mut self) {
        let x = self.any_value();
        let count: usize = x.dims.iter().product();
        let dims =
            if self.random.below(2) == 0 { vec![count] } else { [&[1], &x.dims[..]].concat() };
        let shape = self.indices(&dims.iter().map(|d| *d as i64).collect::<Vec<_>>());
        let attrs = format!("T: {}, Tshape: int32", x.dtype);
        let shape = Value { name: shape, dtype: I32, dims: vec![dims.len()], range: x.range };
        self.node("Reshape", &[&x, &shape], &attrs, x.dtype, &dims, x.range);
    }

    pub(super) fn reduction(&mut self) {
        let x = self.any_value();
        let axes: Vec<i64> =
            (0..x.dims.len() as i64).filter(|_| self.random.below(2) == 0).collect();
        let op = self.random.pick(&["Sum", "Mean", "Max", "Min"]);
        let keep = self.random.below(2) == 0;
        self.reduce(op, &x, &axes, keep);
    }

    pub fn reduce(&mut self, op: &str, x: &Value, axes: &[i64], keep: bool) -> Option<Value> {
        if x.dims.contains(&0) {
            return None;
        }
        let reduced = |i: usize| axes.contains(&(i as i64));
        let count: usize = (0..x.dims.len()).filter(|i| reduced(*i)).map(|i| x.dims[i]).product();
        let dims: Vec<usize> = (0..x.dims.len())
            .filter(|i| keep || !reduced(*i))
            .map(|i| if reduced(i) { 1 } else { x.dims[i] })
            .collect();
        // Sums are rounded on the way; 16-bit types are summed in f32.
        let sum = x.range.times(count as f64);
        let sum = Range { error: sum.error + 1e-6 * sum.size(), ..sum };
        let range = match op {
            "Sum" => sum,
            "Mean" => sum.times(1.0 / count as f64),
            _ => x.range,
        };
        let axes: Vec<i64> = axes
            .iter()
            .map(|a| if self.random.below(2) == 0 { *a } else { a - x.dims.len() as i64 })
            .collect();
        let name = self.indices(&axes);
        let index = Value { name, dtype: I32, dims: vec![axes.len()], range };
        let attrs = format!("T: {}, Tidx: int32, keep_dims: {keep}", x.dtype);
        self.node(op, &[x, &index], &attrs, x.dtype, &dims, range)
    }
}
