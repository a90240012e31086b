//! Row programs in plain f64: the scalar functions are the references of their rows, everything
//! else is written out. Values of 16-bit floats are rounded to their type after every step.

use tensorflow_wgpu::HostTensor;
use tensorflow_wgpu::dtype::DType;
use tensorflow_wgpu::kernels::expression::{Call, Expression, Value};
use tensorflow_wgpu::kernels::fused::rowwise::program::{Action, Output, RowProgram};
use tensorflow_wgpu::kernels::reduce::table::Reduction;
use tensorflow_wgpu::kernels::scalar::row;

/// Extents and elements.
pub type Array = (Vec<usize>, Vec<f64>);

fn broadcast(a: &[usize], b: &[usize]) -> Vec<usize> {
    let rank = a.len().max(b.len());
    let at = |dims: &[usize], d: usize| (d + dims.len()).checked_sub(rank).map_or(1, |i| dims[i]);
    (0..rank).map(|d| if at(a, d) == 1 { at(b, d) } else { at(a, d) }).collect()
}

/// Indices of every element of `dims`.
fn indices(dims: &[usize]) -> impl Iterator<Item = Vec<usize>> + '_ {
    (0..dims.iter().product::<usize>()).map(|i| {
        let mut rest = i;
        let mut index: Vec<usize> = dims.iter().rev().map(|d| (rest % d, rest /= d).0).collect();
        index.reverse();
        index
    })
}

fn element(array: &Array, index: &[usize]) -> f64 {
    let lead = index.len() - array.0.len();
    let at = array
        .0
        .iter()
        .zip(&index[lead..])
        .fold(0, |at, (d, i)| at * d + if *d == 1 { 0 } else { *i });
    array.1[at]
}

/// `value` as memory holds one of a 16-bit float.
fn rounded(dtype: DType, value: f64) -> f64 {
    match dtype {
        DType::F16 | DType::BF16 => HostTensor::floats(dtype, &[], &[value]).to_f64()[0],
        _ => value,
    }
}

fn apply(call: Call, args: &[&Array]) -> Array {
    let dims = args.iter().fold(Vec::new(), |dims, a| broadcast(&dims, &a.0));
    let of = |index: Vec<usize>| {
        let values: Vec<f64> = args.iter().map(|a| element(a, &index)).collect();
        let Call::Row(row, dtype) = call else { return rounded(call.output(), values[0]) };
        let typed: Vec<row::Value> =
            (values.iter().zip(row.input_types(dtype)))
                .map(|(v, t)| {
                    if t == DType::Bool {
                        row::Value::Int(*v as i128)
                    } else {
                        row::Value::Float(*v)
                    }
                })
                .collect();
        match row.case(dtype).unwrap().reference.evaluate(dtype, &typed) {
            row::Value::Float(v) => rounded(call.output(), v),
            row::Value::Int(v) => v as f64,
        }
    };
    let values = indices(&dims).map(of).collect();
    (dims, values)
}

fn run(expression: &Expression, inputs: &[Array], constants: &[f32]) -> Vec<Array> {
    let constants: Vec<Array> = constants.iter().map(|c| (vec![], vec![f64::from(*c)])).collect();
    let mut steps: Vec<Array> = Vec::new();
    for step in expression.steps() {
        let of = |value: &Value| match value {
            Value::Input(i) => &inputs[*i as usize],
            Value::Constant(i) => &constants[*i as usize],
            Value::Step(i) => &steps[*i as usize],
        };
        let value = apply(step.call, &step.args.iter().map(of).collect::<Vec<_>>());
        steps.push(value);
    }
    let of = |value: &Value| match value {
        Value::Input(i) => inputs[*i as usize].clone(),
        Value::Constant(i) => constants[*i as usize].clone(),
        Value::Step(i) => steps[*i as usize].clone(),
    };
    expression.outputs().iter().map(of).collect()
}

fn reduce(reduction: &Reduction, dtype: DType, array: &Array, axes: &[i64]) -> Array {
    let rank = array.0.len() as i64;
    let is_axis = |d: usize| axes.contains(&(d as i64 - rank));
    let kept: Vec<usize> =
        array.0.iter().enumerate().map(|(d, n)| if is_axis(d) { 1 } else { *n }).collect();
    let mut rows: Vec<Vec<f64>> = vec![Vec::new(); kept.iter().product()];
    for index in indices(&array.0) {
        let row =
            kept.iter().zip(&index).fold(0, |at, (d, i)| at * d + if *d == 1 { 0 } else { *i });
        rows[row].push(element(array, &index));
    }
    (kept, rows.iter().map(|row| rounded(dtype, (reduction.reference)(row))).collect())
}

/// The outputs of the program.
pub fn evaluate(
    program: &RowProgram,
    constants: &[f32],
    axes: &[i64],
    inputs: &[HostTensor],
) -> Vec<Array> {
    let mut known: Vec<Array> = inputs.iter().map(|t| (t.dims.to_vec(), t.to_f64())).collect();
    let mut full = Vec::new();
    for stage in program.stages() {
        let values = run(&stage.expression, &known, constants);
        match &stage.action {
            Action::Reduce(reductions) => {
                let types = stage.expression.output_types();
                let each = reductions.iter().zip(types).zip(&values);
                known.extend(each.map(|((r, t), v)| reduce(r, t, v, axes)));
            }
            Action::Row => known.extend(values),
            Action::Full => full = values,
        }
    }
    let of = |output: &Output| match output {
        Output::Full(value) => full[*value as usize].clone(),
        Output::Row { value, flat } => {
            let (dims, values) = known[inputs.len() + *value as usize].clone();
            let rank = dims.len() as i64;
            let keep = |d: usize| !*flat || !axes.contains(&(d as i64 - rank));
            let dims = dims.iter().enumerate().filter(|(d, _)| keep(*d)).map(|(_, n)| *n).collect();
            (dims, values)
        }
    };
    program.outputs().iter().map(of).collect()
}
