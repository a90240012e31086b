//! Loops and branches of TensorFlow 1, as TensorFlow lowers `while_loop`, `cond` and `switch_case`.
//!
//! Integers and bools that are exact decide how often a loop runs, and which branch runs. The range
//! of a loop's value includes the result of each step and its error. So a bound of the error in one
//! step is a bound in all steps.

use tensorflow_wgpu::DType::{Bool, F16, F32, I32};
use tensorflow_wgpu::HostTensor;
use tensorflow_wgpu::layout::broadcast_dims;

use super::functions::{Range, UNARY};
use super::generate::{Generator, Profile, Value};
use super::patterns;
use super::scopes::Kind;

/// The largest depth of nested scopes.
const DEPTH: usize = 3;

/// The most steps of a loop.
const STEPS: usize = 4;

/// A loop or a branch; inside one, also what is brought in from outside.
pub fn any(g: &mut Generator, profile: Profile) {
    let depth = g.scopes.depth();
    match g.random.below(6) {
        0 | 1 if depth > 0 => {
            let value = g.captured();
            if profile.device {
                product(g, &value);
            } else {
                let op = g.random.pick(UNARY);
                g.apply(op, &value);
            }
        }
        0..=3 if depth < DEPTH => repeated(g, profile),
        4 | 5 if depth < DEPTH => drop(decided(g, profile)),
        _ => drop(patterns::effect(g)),
    }
}

/// A product that may be the same in every step.
fn product(g: &mut Generator, x: &Value) -> Option<Value> {
    let count: usize = x.dims.iter().product();
    let k = x.dims.last().copied().unwrap_or(1);
    let m = count.checked_div(k)?;
    let rows = if x.dims.len() == 2 { Some(x.clone()) } else { reshaped(g, x, &[m, k]) };
    let x = &rows?;
    let n = g.random.pick(&[1, 3, 8]);
    let weights = g.feed(x.dtype, &[k, n], 1.0);
    let size = x.range.size() * k as f64;
    let range = Range { low: -size, high: size, error: x.range.error * k as f64 };
    let attrs = format!("T: {}, transpose_a: false, transpose_b: false", x.dtype);
    let product = g.node("MatMul", &[x, &weights], &attrs, x.dtype, &[m, n], range)?;
    if g.random.below(2) == 0 {
        return Some(product);
    }
    g.apply("Tanh", &product)
}

fn reshaped(g: &mut Generator, x: &Value, dims: &[usize]) -> Option<Value> {
    let name = g.indices(&dims.iter().map(|d| *d as i64).collect::<Vec<_>>());
    let shape = Value { name, dtype: I32, dims: vec![dims.len()], range: x.range };
    let attrs = format!("T: {}, Tshape: int32", x.dtype);
    g.node("Reshape", &[x, &shape], &attrs, x.dtype, dims, x.range)
}

/// A value of the type and shape of `wanted` that the scope computes from late values.
fn made_of(g: &mut Generator, wanted: &Value) -> Value {
    let mut made = wanted.clone();
    for _ in 0..g.random.between(1, 4) {
        let fits = |v: &&Value| {
            v.dtype == wanted.dtype
                && v.name != made.name
                && broadcast_dims(&v.dims, &wanted.dims)
                    .is_ok_and(|dims| dims[..] == wanted.dims[..])
        };
        let fitting: Vec<Value> = g.values.iter().filter(fits).cloned().collect();
        let Some(at) =
            (0..3).filter(|_| !fitting.is_empty()).map(|_| g.random.below(fitting.len())).max()
        else {
            continue;
        };
        let next = &fitting[at];
        if next.dims == wanted.dims && g.random.below(3) == 0 {
            made = next.clone();
            continue;
        }
        let op = g.random.pick(&["AddV2", "Sub", "Mul", "Maximum", "SquaredDifference"]);
        if let Some(combined) = g.combine(op, &made, next) {
            made = combined;
        }
    }
    made
}

/// Some nodes of a scope.
fn body(g: &mut Generator, profile: Profile, twins: &[(&'static str, Value, usize)]) {
    for (op, value, depth) in twins {
        let inner = g.bring(value.clone(), *depth);
        g.apply(op, &inner);
    }
    for _ in 0..g.random.between(1, 5) {
        g.any(profile);
    }
}

/// The scope's result, at a node that waits for the statements and runs if the scope does.
fn result(g: &mut Generator, value: Value) -> Value {
    let pivot = g.scopes.pivot().expect("a scope is open").to_owned();
    let waits: Vec<String> = std::mem::take(&mut g.statements);
    let waits: Vec<String> = waits.iter().map(|name| format!("^{name}")).chain([pivot]).collect();
    let inputs: Vec<&str> =
        std::iter::once(&value.name).chain(&waits).map(String::as_str).collect();
    let name =
        g.emit("Identity", &inputs, &format!("T: {}", value.dtype), value.dtype, &value.dims);
    Value { name, ..value }
}

/// The same function of the same value in front of a scope, inside it and behind it.
fn twins(g: &mut Generator) -> Vec<(&'static str, Value, usize)> {
    let count = g.random.below(3);
    let depth = g.scopes.depth();
    (0..count)
        .filter_map(|_| {
            let value = g.any_value();
            let op = g.random.pick(UNARY);
            let fits = g.random.below(2) == 0 || g.apply(op, &value).is_some();
            fits.then_some((op, value, depth))
        })
        .collect()
}

/// A value that a loop carries from step to step.
struct Carried {
    /// The value in each step.
    value: Value,
    merge: String,
    switch: String,
}

/// A loop of up to four steps.
pub fn repeated(g: &mut Generator, profile: Profile) {
    let shared = twins(g);
    let mut carries: Vec<Value> = Vec::new();
    for _ in 0..g.random.between(1, 3) {
        // More often a large one, to which more values can be added.
        let (one, other) = (g.any_value(), g.any_value());
        let first = if other.dims.len() > one.dims.len() { other } else { one };
        let least = match first.dtype {
            F32 => 1e-4,
            F16 => 0.02,
            _ => continue,
        };
        if first.range.error <= 0.05 {
            let range = Range {
                low: first.range.low.min(-1.0),
                high: first.range.high.max(1.0),
                error: first.range.error.max(least),
            };
            carries.push(Value { range, ..first });
        }
    }
    let zero = g.axis(0);
    let limit = limit(g);
    g.scopes.is_frame = true;
    let frame = format!("loop_{}", zero.name);
    let entered = |g: &mut Generator, value: &Value| {
        let enter = g.enter(value, &frame, false);
        g.merge_with_next(&enter, value)
    };
    let counter = entered(g, &zero);
    let merges: Vec<String> = carries.iter().map(|value| entered(g, value)).collect();
    let condition = condition(g, &counter, &limit, &frame);
    let switched = |g: &mut Generator, merge: &str, value: &Value| {
        let attrs = format!("T: {}", value.dtype);
        g.emit_all("Switch", &[merge, &condition], &attrs, value.dtype, &value.dims, 2)
    };
    let counter_switch = switched(g, &counter, &zero);
    let carries: Vec<Carried> = merges
        .into_iter()
        .zip(carries)
        .map(|(merge, value)| {
            let switch = switched(g, &merge, &value);
            let name = format!("{switch}:1");
            let value = Value { name, ..value };
            Carried { merge, switch, value }
        })
        .collect();
    let step = format!("{counter_switch}:1");
    let pivot = g.emit("Identity", &[&step], "T: int32", I32, &[]);
    g.scopes.is_frame = false;
    let values = carries.iter().map(|carried| carried.value.clone()).collect();
    let now = Value { name: if g.random.below(2) == 0 { step } else { pivot.clone() }, ..zero };
    let kind = Kind::Loop(frame.clone(), condition.clone());
    g.open(format!("^{pivot}"), kind, values, vec![now.clone()]);
    if carries.is_empty() || g.random.below(2) == 0 {
        g.counted(&now);
    }
    body(g, profile, &shared);
    let nexts: Vec<Option<Value>> = carries.iter().map(|c| handed_on(g, &c.value)).collect();
    let one = g.axis(1);
    let waits: Vec<String> =
        std::mem::take(&mut g.statements).iter().map(|name| format!("^{name}")).collect();
    let inputs: Vec<&str> =
        [&now.name, &one.name].into_iter().chain(&waits).map(String::as_str).collect();
    let increased = g.emit("AddV2", &inputs, "T: int32", I32, &[]);
    g.scopes.is_frame = true;
    g.next(&counter, &increased, &now);
    for (carried, next) in carries.iter().zip(&nexts) {
        let from = next.as_ref().map_or(&carried.value.name, |next| &next.name);
        g.next(&carried.merge, from, &carried.value);
    }
    g.scopes.is_frame = false;
    g.close();
    leave(g, &carries, &counter_switch);
    for (op, value, _) in shared {
        g.apply(op, &value);
    }
}

/// The values behind a loop.
fn leave(g: &mut Generator, carries: &[Carried], counter: &str) {
    for Carried { value, switch, .. } in carries {
        if g.random.below(4) > 0 {
            g.scopes.is_frame = true;
            let attrs = format!("T: {}", value.dtype);
            let name = g.emit("Exit", &[switch], &attrs, value.dtype, &value.dims);
            g.scopes.is_frame = false;
            g.value(name, value.dtype, &value.dims, value.range);
        }
    }
    if carries.is_empty() || g.random.below(3) == 0 {
        g.scopes.is_frame = true;
        let name = g.emit("Exit", &[counter], "T: int32", I32, &[]);
        g.scopes.is_frame = false;
        let steps =
            Value { name, dtype: I32, dims: Vec::new(), range: Range::exact(0.0, STEPS as f64) };
        g.counted(&steps);
    }
}

/// The number of steps of a loop: fed, or None for a constant in the loop.
fn limit(g: &mut Generator) -> Option<Value> {
    let steps = g.random.below(STEPS + 1);
    let depth = g.scopes.depth();
    if g.random.below(3) == 0 {
        return None;
    }
    let made = |g: &mut Generator| {
        let name = g.emit("Placeholder", &[], "dtype: int32", I32, &[]);
        g.case.feeds.push((name.clone(), HostTensor::i32(&[], &[steps as i32])));
        Value { name, dtype: I32, dims: Vec::new(), range: Range::exact(0.0, STEPS as f64) }
    };
    Some(if depth == 0 { made(g) } else { g.read_outside(made) })
}

/// Whether there is another step.
fn condition(g: &mut Generator, counter: &str, limit: &Option<Value>, frame: &str) -> String {
    let limit = match limit {
        Some(limit) => g.enter(limit, frame, true),
        None => {
            let steps = g.random.below(STEPS + 1);
            let attrs = format!("dtype: int32, value: tensor int32[] [{steps}]");
            g.emit("Const", &[&format!("^{counter}")], &attrs, I32, &[])
        }
    };
    let mut test = g.emit("Less", &[counter, &limit], "T: int32", Bool, &[]);
    if g.random.below(3) == 0 {
        let attrs = format!("dtype: int32, value: tensor int32[] [{STEPS}]");
        let most = g.emit("Const", &[&format!("^{counter}")], &attrs, I32, &[]);
        let other = g.emit("Less", &[counter, &most], "T: int32", Bool, &[]);
        test = g.emit("LogicalAnd", &[&test, &other], "", Bool, &[]);
    }
    g.emit("LoopCond", &[&test], "", Bool, &[])
}

/// A step's new value, within the range and error of the old one. None if it stays the same.
fn handed_on(g: &mut Generator, value: &Value) -> Option<Value> {
    if g.random.below(8) == 0 {
        return None;
    }
    let fits = |next: &Value| {
        next.range.low >= value.range.low
            && next.range.high <= value.range.high
            && next.range.error <= value.range.error
    };
    let made = made_of(g, value);
    let result = |g: &mut Generator, made| Some(result(g, made));
    if fits(&made) {
        return result(g, made);
    }
    let bent = g.apply("Tanh", &made)?;
    if fits(&bent) {
        return result(g, bent);
    }
    let part = g.constant(value.dtype, &[], 0.25);
    let scaled = g.combine("Mul", &bent, &part)?;
    if fits(&scaled) {
        return result(g, scaled);
    }
    let scaled = g.combine("Mul", value, &part)?;
    fits(&scaled).then(|| result(g, scaled)).flatten()
}

/// Two or three branches, of which one runs.
fn decided(g: &mut Generator, profile: Profile) -> Option<()> {
    let shared = twins(g);
    let x = g.any_value();
    let branches = g.random.between(2, 3);
    let mut decision = if branches == 2 {
        let name = g.condition();
        Value { name, dtype: Bool, dims: Vec::new(), range: Range::exact(0.0, 1.0) }
    } else {
        index(g, branches)
    };
    // A value that enters a loop as a constant is still there after the last step. TensorFlow makes
    // nodes without other inputs wait for the step, and so must the first node of a decision.
    if let Some(pivot) = g.scopes.pivot().map(str::to_owned) {
        let attrs = format!("T: {}", decision.dtype);
        let inputs = [decision.name.as_str(), &pivot];
        decision.name = g.emit("Identity", &inputs, &attrs, decision.dtype, &[]);
    }
    let depth = g.scopes.depth();
    let mut results: Vec<Value> = Vec::new();
    for at in 0..branches {
        g.scopes.is_frame = true;
        let chosen = g.decide(&decision, &decision, at, branches);
        let attrs = format!("T: {}", decision.dtype);
        let pivot = g.emit("Identity", &[&chosen], &attrs, decision.dtype, &[]);
        g.scopes.is_frame = false;
        let kind = Kind::Branch(decision.clone(), at, branches);
        g.open(format!("^{pivot}"), kind, Vec::new(), Vec::new());
        let inner = g.bring(x.clone(), depth);
        body(g, profile, &shared);
        let made = made_of(g, &inner);
        let made =
            if g.random.below(2) == 0 || !g.statements.is_empty() { result(g, made) } else { made };
        results.push(made);
        g.close();
    }
    let range = results.iter().skip(1).fold(results[0].range, |all, one| Range {
        low: all.low.min(one.range.low),
        high: all.high.max(one.range.high),
        error: all.error.max(one.range.error),
    });
    let inputs: Vec<&Value> = results.iter().collect();
    g.node("Merge", &inputs, &format!("N: {branches}, T: {}", x.dtype), x.dtype, &x.dims, range)?;
    Some(())
}

/// The index of a branch: fed, or a loop's counter.
fn index(g: &mut Generator, branches: usize) -> Value {
    let counters = g.scopes.innermost().map(|scope| scope.counters.clone()).unwrap_or_default();
    if !counters.is_empty() && g.random.below(2) == 0 {
        return g.random.pick_of(&counters);
    }
    let chosen = g.random.below(branches + 1);
    let made = |g: &mut Generator| {
        let name = g.emit("Placeholder", &[], "dtype: int32", I32, &[]);
        g.case.feeds.push((name.clone(), HostTensor::i32(&[], &[chosen as i32])));
        Value { name, dtype: I32, dims: Vec::new(), range: Range::exact(0.0, 4.0) }
    };
    if g.scopes.is_outside() { made(g) } else { g.read_outside(made) }
}
