//! Every row of the scalar tables, for every type, against the row's own reference on the device:
//! special values, random values, all access classes, in place and not. One test for each row and
//! type: `cargo test --test scalar "Exp float32"`. 64-bit integers once more in pairs of words.

#[path = "scalar/checks.rs"]
mod checks;
#[path = "scalar/values.rs"]
mod values;

use libtest_mimic::{Arguments, Failed, Trial};
use tensorflow_wgpu::device::Profile;
use tensorflow_wgpu::kernels::scalar::{
    self,
    row::{Row, Value},
};
use tensorflow_wgpu::local::{Node, Session};
use tensorflow_wgpu::{DType, Error, HostTensor};

fn main() {
    let mut arguments = Arguments::from_args();
    // Drivers compile on several threads; the rest is one queue.
    arguments.test_threads = arguments.test_threads.or(Some(2));
    let mut trials: Vec<Trial> = scalar::rows()
        .flat_map(|row| row.types().map(move |dtype| (row, dtype)))
        .map(|(row, dtype)| {
            Trial::test(format!("{} {dtype}", row.op), move || {
                row_matches_its_reference(&mut shared()?, row, dtype)
            })
        })
        .collect();
    for (row, dtype) in scalar::rows().flat_map(|row| row.types().map(move |t| (row, t))) {
        if is_wide(dtype) {
            trials.push(Trial::test(format!("{} {dtype} in words", row.op), move || {
                row_matches_its_reference(&mut in_words()?, row, dtype)
            }));
        }
    }
    let floats = [DType::F16, DType::BF16];
    for from in scalar::cast::TYPES {
        for to in scalar::cast::TYPES {
            trials.push(Trial::test(format!("Cast {from} to {to}"), || {
                cast(shared()?, *from, *to, false)
            }));
            if is_wide(*from) || is_wide(*to) {
                trials.push(Trial::test(format!("Cast {from} to {to} in words"), || {
                    cast(in_words()?, *from, *to, false)
                }));
            }
            if from.is_float() && (floats.contains(to) || (*from, *to) == (DType::F64, DType::F32))
            {
                trials.push(Trial::test(format!("Cast {from} to {to} truncated"), || {
                    cast(shared()?, *from, *to, true)
                }));
            }
        }
    }
    trials.extend([
        Trial::test("AddN", add_n),
        Trial::test("Pow float64 of bases near one", pow_near_one),
        Trial::test("ClipByValue of shapes", clip_shapes),
        Trial::test("tables are sorted and complete", tables),
        Trial::test("errors", errors),
        Trial::test("windows", windows),
    ]);
    libtest_mimic::run(&arguments, trials).exit();
}

fn shared() -> Result<Session, Failed> {
    Session::shared().map_err(|e| e.to_string().into())
}

/// A session on an adapter without 64-bit integers, whose shaders have pairs of words instead.
fn in_words() -> Result<Session, Failed> {
    Session::under(Profile::WEBGPU).map_err(|e| e.to_string().into())
}

const fn is_wide(dtype: DType) -> bool {
    matches!(dtype, DType::I64 | DType::U64)
}

fn row_matches_its_reference(
    session: &mut Session,
    row: &'static Row,
    dtype: DType,
) -> Result<(), Failed> {
    if !session.runs(dtype) {
        return Ok(());
    }
    let case = row.case(dtype).ok_or("no case")?;
    let columns = values::columns(row, case, dtype);
    let n = columns[0].len();
    checks::compare(session, row, dtype, &vec![vec![n]; columns.len()], &columns)?;
    for shapes in values::shapes(row) {
        let picked: Vec<_> = shapes
            .iter()
            .zip(&columns)
            .map(|(dims, column)| values::cycle(column, dims.iter().product()))
            .collect();
        checks::compare(session, row, dtype, &shapes, &picked)?;
    }
    session.misalign = 1;
    checks::compare(
        session,
        row,
        dtype,
        &vec![vec![37]; columns.len()],
        &columns.iter().map(|c| values::cycle(c, 37)).collect::<Vec<_>>(),
    )
}

fn tables() -> Result<(), Failed> {
    let mut ops = Vec::new();
    for table in scalar::TABLES {
        let names: Vec<_> = table.iter().map(|r| r.op).collect();
        if !names.is_sorted() {
            return Err(format!("not sorted: {names:?}").into());
        }
        ops.extend(names);
    }
    ops.sort_unstable();
    if let Some(twice) = ops.windows(2).find(|w| w[0] == w[1]) {
        return Err(format!("{} has two rows", twice[0]).into());
    }
    for row in scalar::rows() {
        let types: Vec<_> = row.types().collect();
        for (i, t) in types.iter().enumerate() {
            if types[..i].contains(t) {
                return Err(format!("{} defines {t} twice", row.op).into());
            }
        }
        for case in row.cases {
            for name in row.inputs.iter().map(|i| i.name).chain(row.attr) {
                if !case.wgsl.contains(name) {
                    return Err(format!("{}: {} does not use {name}", row.op, case.wgsl).into());
                }
            }
        }
    }
    Ok(())
}

fn errors() -> Result<(), Failed> {
    let mut session = Session::shared().map_err(|e| e.to_string())?;
    let f = |dims: &[usize]| HostTensor::f32(dims, &vec![1.0; dims.iter().product()]);
    let mut message = |node: Node, inputs: &[HostTensor]| {
        let inputs: Vec<_> = inputs.iter().cloned().map(Into::into).collect();
        match session.run(&node, &inputs) {
            Err(Error::InvalidArgument(m)) => m,
            other => format!("{other:?}"),
        }
    };
    let typed = |op: &str| Node::new(op).attr("T", DType::F32);
    let cases = [
        (message(typed("AddV2"), &[f(&[1, 3]), f(&[2])]), "Incompatible shapes: [1,3] vs. [2]"),
        (
            message(typed("Equal").attr("incompatible_shape_error", true), &[f(&[3]), f(&[2])]),
            "Incompatible shapes: [3] vs. [2]",
        ),
        (
            message(typed("ClipByValue"), &[f(&[2]), f(&[3]), f(&[])]),
            "clip_value_min and clip_value_max must be either of the same shape as input, or a \
             scalar. input shape: [2] clip_value_min shape: [3] clip_value_max shape: []",
        ),
    ];
    for (got, expected) in cases {
        if !got.contains(expected) {
            return Err(format!("expected {expected:?}, got {got:?}").into());
        }
    }
    for (op, value) in [("Equal", 0u8), ("NotEqual", 1)] {
        let node = typed(op).attr("incompatible_shape_error", false);
        let z = session.run(&node, &[f(&[3]).into(), f(&[2]).into()]).map_err(|e| e.to_string())?;
        if z[0] != HostTensor::of(DType::Bool, &[], &[value]) {
            return Err(format!("{op} of shapes that do not broadcast: {z:?}").into());
        }
    }
    Ok(())
}

/// Tensors larger than one binding: linear with a splat, packed bytes, and a strided broadcast; and
/// bytes for more than 65,535 workgroups.
fn windows() -> Result<(), Failed> {
    let limit = 1 << 20;
    let small = || Session::binding(limit as u64).map_err(|e| e.to_string());
    let run_on = |session: &mut Session, op: &str, dtype, x: HostTensor, y: HostTensor| {
        session
            .run(&Node::new(op).attr("T", dtype), &[x.into(), y.into()])
            .map_err(|e| e.to_string())
    };
    let mut session = small()?;
    let mut run = |op: &str, dtype, x, y| run_on(&mut session, op, dtype, x, y);
    let n = limit / 4 + 1001;
    let x: Vec<f32> = (0..n).map(|i| (i % 9973) as f32).collect();
    let z = run("AddV2", DType::F32, HostTensor::f32(&[n], &x), HostTensor::f32(&[], &[0.5]))?[0]
        .values::<f32>();
    if let Some(i) = (0..n).find(|&i| z[i] != x[i] + 0.5) {
        return Err(format!("float32 element {i}: {} + 0.5 = {}", x[i], z[i]).into());
    }
    let whole = Session::shared().map_err(|e| e.to_string())?;
    for (mut session, n) in [(small()?, limit + 77), (whole, 65_536 * 1024 + 77)] {
        let x: Vec<u8> = (0..n).map(|i| (i % 251) as u8).collect();
        let (many, nine) =
            (HostTensor::of(DType::U8, &[n], &x), HostTensor::of(DType::U8, &[], &[9u8]));
        let z = run_on(&mut session, "AddV2", DType::U8, many, nine)?[0].values::<u8>();
        if let Some(i) = (0..n).find(|&i| z[i] != x[i].wrapping_add(9)) {
            return Err(format!("uint8 element {i}: {} + 9 = {}", x[i], z[i]).into());
        }
    }
    let (rows, columns) = (1003, limit / 4 / 1000);
    let x: Vec<f32> = (0..rows).map(|i| i as f32).collect();
    let y: Vec<f32> = (0..columns).map(|i| (i % 1021) as f32).collect();
    let z =
        run("Mul", DType::F32, HostTensor::f32(&[rows, 1], &x), HostTensor::f32(&[columns], &y))?
            [0]
        .values::<f32>();
    if let Some(i) = (0..rows * columns).find(|&i| z[i] != x[i / columns] * y[i % columns]) {
        return Err(format!("broadcast element {i}: {}", z[i]).into());
    }
    Ok(())
}

/// Every pair of types of `Cast`, with and without truncation, against Rust's `as`.
fn cast(mut session: Session, from: DType, to: DType, truncate: bool) -> Result<(), Failed> {
    if !session.runs(from) || !session.runs(to) {
        return Ok(());
    }
    let node = Node::new("Cast").attr("SrcT", from).attr("DstT", to).attr("Truncate", truncate);
    for misalign in [0, 1] {
        session.misalign = misalign;
        let column = values::cast_arguments(from);
        let inputs = [checks::tensor(from, &[column.len()], &column).into()];
        let y = session.run(&node, &inputs).map_err(|e| e.to_string())?;
        let outcome = checks::cast(from, to, truncate, &column, &y[0]);
        match (driver_bug(&session, from, to), outcome) {
            (None, outcome) => outcome?,
            (Some(bug), Err(_)) => println!("the driver is wrong, as known: {bug}"),
            (Some(bug), Ok(())) => return Err(format!("no longer so, remove it: {bug}").into()),
        }
    }
    Ok(())
}

/// Known errors of drivers: a part of the adapter's name, the types, a description.
const DRIVER_BUGS: [(&str, DType, DType, &str); 1] = [(
    "SwiftShader",
    DType::U32,
    DType::F32,
    "SwiftShader rounds a uint32 twice on the way to float32",
)];

fn driver_bug(session: &Session, from: DType, to: DType) -> Option<&'static str> {
    let name = &session.device.info().name;
    let known = DRIVER_BUGS.iter().find(|b| name.contains(b.0) && (b.1, b.2) == (from, to));
    known.map(|b| b.3)
}

/// Shapes, which live in host memory.
fn clip_shapes() -> Result<(), Failed> {
    let mut session = Session::shared().map_err(|e| e.to_string())?;
    let mut run = |x: HostTensor, low: HostTensor, high: HostTensor| {
        session.run(
            &Node::new("ClipByValue").attr("T", DType::I32),
            &[x.into(), low.into(), high.into()],
        )
    };
    let x = HostTensor::i32(&[2, 2], &[-5, 1, 7, 3]);
    let clipped =
        run(x.clone(), HostTensor::i32(&[], &[0]), HostTensor::i32(&[2, 2], &[1, 0, 6, 9]))
            .map_err(|e| e.to_string())?;
    if clipped[0] != HostTensor::i32(&[2, 2], &[0, 0, 6, 3]) {
        return Err(format!("{clipped:?}").into());
    }
    match run(x, HostTensor::i32(&[3], &[0; 3]), HostTensor::i32(&[], &[0])) {
        Err(Error::InvalidArgument(m)) if m.contains("clip_value_min shape: [3]") => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}

/// Large powers of numbers near one, which multiply every error of the logarithm.
fn pow_near_one() -> Result<(), Failed> {
    let mut session = Session::shared().map_err(|e| e.to_string())?;
    if !session.runs(DType::F64) {
        return Ok(());
    }
    let row = scalar::find("Pow").ok_or("no row")?;
    let n = 400;
    let distance = |i: usize| {
        f64::powf(10.0, -13.0 + 7.3 * i as f64 / n as f64)
            * if i.is_multiple_of(2) { 1.0 } else { -1.0 }
    };
    let columns = [
        (0..n).map(|i| Value::Float(1.0 + distance(i))).collect::<Vec<_>>(),
        (0..n).map(|i| Value::Float((500.0 + 0.3 * i as f64) / distance(n - 1 - i))).collect(),
    ];
    let paired: Vec<Vec<Value>> =
        vec![columns[0].iter().rev().copied().collect(), columns[1].clone()];
    checks::compare(&mut session, row, DType::F64, &[vec![n], vec![n]], &paired)
}

/// Sums of 1 to 13 tensors. The first dispatch takes 6, the later ones 5 each.
fn add_n() -> Result<(), Failed> {
    let mut session = Session::shared().map_err(|e| e.to_string())?;
    for n in [1usize, 2, 6, 7, 11, 13] {
        let types = [DType::F32, DType::F64, DType::F16, DType::BF16, DType::U32];
        for dtype in session.supported(types) {
            let column =
                |k: usize| -> Vec<f64> { (0..7).map(|i| ((i + k * k) % 5) as f64).collect() };
            let tensor = |v: &[f64]| match dtype {
                DType::U32 => {
                    HostTensor::of(dtype, &[7], &v.iter().map(|x| *x as u32).collect::<Vec<_>>())
                }
                _ => HostTensor::floats(dtype, &[7], v),
            };
            let inputs: Vec<_> = (0..n).map(|k| tensor(&column(k)).into()).collect();
            let node = Node::new("AddN").attr("T", dtype).attr("N", n as i64);
            let z = session.run(&node, &inputs).map_err(|e| e.to_string())?[0].to_f64();
            let expected: Vec<f64> = (0..7).map(|i| (0..n).map(|k| column(k)[i]).sum()).collect();
            if z != expected {
                return Err(
                    format!("{n} tensors of {dtype}: expected {expected:?}, got {z:?}").into()
                );
            }
        }
    }
    Ok(())
}
