//! Large graphs of one kind each.

use std::fmt::Write;

/// Makes a graph of about the given number of nodes, as text.
pub type Family = fn(usize) -> String;

/// The families by name.
pub const FAMILIES: &[(&str, Family)] = &[
    ("assignments to one variable", assignments),
    ("assignments and reads in turn", assignments_and_reads),
    ("assignments without an order", unordered_assignments),
    ("steps of many variables", training),
    ("reads of one variable", reads),
    ("different constants", constants),
    ("equal constants", equal_constants),
    ("reductions of one tensor", reductions),
    ("a chain of reductions", reduction_chain),
    ("steps, reductions and an assignment", steps),
    ("a chain of elementwise nodes", elementwise),
    ("a deep row of diamonds", diamonds),
    ("one tensor with many readers", fan_out),
    ("nodes with many inputs", fan_in),
    ("dense control edges", controls),
    ("changes of shape", views),
    ("squeezes and casts", copies),
    ("matrix products", products),
    ("low-rank adapters", adapters),
    ("normalizations", normalizations),
    ("attention", attention),
    ("list elements", list),
    ("many small loops", loops),
    ("branches within branches", branches),
    ("logical conditions", predicates),
    ("forwards and backwards", gradient),
    ("reads and assignments of several variables", interleaved_variables),
    ("reductions of one computed tensor", computed_reductions),
    ("different reductions of one computed tensor", different_reductions),
    ("products that one node adds", added_products),
    ("a product with many readers", read_product),
    ("shapes of scores", score_shapes),
    ("a chain of views", view_chain),
    ("a chain of repetitions", repetitions),
    ("one constant with many readers", shared_constant),
    ("a node with many constants", many_constants),
    ("rows with many readers", wide_rows),
];

const AXIS: &str = "axis = Const {dtype: int32, value: tensor int32[1] [-1]} -> int32[1]\n";
const X: &str = "x = Placeholder {dtype: float32} -> float32[8, 16]\n";
const VARIABLE: &str = "h = VarHandleOp {dtype: float32, shared_name: \"v\"} -> ?[]\n";
const T: &str = "{T: float32} -> float32[8, 16]";

fn add(text: &mut String, line: std::fmt::Arguments<'_>) {
    let _ = writeln!(text, "{line}");
}

macro_rules! add {
    ($text:expr, $($line:tt)*) => { add(&mut $text, format_args!($($line)*)) };
}

/// `v.assign_add(x)` again and again.
fn assignments(n: usize) -> String {
    let mut text = format!(
        "preserve a{}\n{X}{VARIABLE}a0 = AssignAddVariableOp(h, x) {{dtype: float32}}\n",
        n - 1
    );
    for i in 1..n {
        add!(text, "a{i} = AssignAddVariableOp(h, x, ^a{}) {{dtype: float32}}", i - 1);
    }
    text
}

fn assignments_and_reads(n: usize) -> String {
    let n = n / 3;
    let mut text = format!("preserve m{}\n{X}{VARIABLE}m0 = Neg(x) {T}\n", n);
    for i in 1..=n {
        let order = if i == 1 { String::new() } else { format!(", ^a{}", i - 1) };
        add!(text, "r{i} = ReadVariableOp(h{order}) {{dtype: float32}} -> float32[8, 16]");
        add!(text, "m{i} = Mul(r{i}, m{}) {T}", i - 1);
        add!(text, "a{i} = AssignAddVariableOp(h, m{i}, ^r{i}) {{dtype: float32}}");
    }
    text
}

fn unordered_assignments(n: usize) -> String {
    let mut text = format!("{X}{VARIABLE}");
    for i in 0..n / 2 {
        add!(text, "a{i} = AssignAddVariableOp(h, x) {{dtype: float32}}");
        add!(text, "r{i} = ReadVariableOp(h) {{dtype: float32}} -> float32[8, 16]");
    }
    text
}

/// Variables that are read at the beginning and stepped at the end, with everything else between.
fn training(n: usize) -> String {
    let n = n / 8;
    let mut text = format!("preserve done\n{X}y0 = Neg(x) {T}\n");
    for i in 1..=n {
        add!(text, "h{i} = VarHandleOp {{dtype: float32, shared_name: \"v{i}\"}} -> ?[]");
        add!(text, "r{i} = ReadVariableOp(h{i}) {{dtype: float32}} -> float32[8, 16]");
        add!(text, "y{i} = Mul(y{}, r{i}) {T}", i - 1);
    }
    add!(text, "g{n} = Square(y{n}) {T}");
    for i in (1..=n).rev() {
        add!(text, "d{i} = Mul(g{i}, y{}) {T}", i - 1);
        add!(text, "g{} = Mul(g{i}, r{i}) {T}", i - 1);
        add!(text, "s{i} = Mul(d{i}, d{i}) {T}");
        add!(text, "a{i} = AssignSubVariableOp(h{i}, s{i}) {{dtype: float32}}");
    }
    let all: Vec<String> = (1..=n).map(|i| format!("^a{i}")).collect();
    add!(text, "done = NoOp({})", all.join(", "));
    text
}

fn reads(n: usize) -> String {
    let mut text = format!("preserve done\n{X}{VARIABLE}");
    for i in 0..n / 2 {
        add!(text, "r{i} = ReadVariableOp(h) {{dtype: float32}} -> float32[8, 16]");
        add!(text, "y{i} = Mul(x, r{i}) {T}");
    }
    let all: Vec<String> = (0..n / 2).map(|i| format!("^y{i}")).collect();
    add!(text, "done = NoOp({})", all.join(", "));
    text
}

fn constants(n: usize) -> String {
    let n = n / 2;
    let mut text = format!("preserve y{n}\n{X}y0 = Neg(x) {T}\n");
    for i in 1..=n {
        add!(text, "c{i} = Const {{dtype: float32, value: tensor float32[] [{i}.0]}} -> float32[]");
        add!(text, "y{i} = Mul(y{}, c{i}) {T}", i - 1);
    }
    text
}

fn equal_constants(n: usize) -> String {
    let n = n / 2;
    let mut text = format!(
        "preserve y{n}\n{X}{VARIABLE}r = ReadVariableOp(h) {{dtype: float32}} -> float32[8, 16]\n"
    );
    text += &format!(
        "s = ReadVariableOp(h) {{dtype: float32}} -> float32[8, 16]\ny0 = Mul(r, s) {T}\n"
    );
    for i in 1..=n {
        add!(text, "c{i} = Const {{dtype: float32, value: tensor float32[] [2.0]}} -> float32[]");
        add!(text, "y{i} = Mul(y{}, c{i}) {T}", i - 1);
    }
    text
}

fn reductions(n: usize) -> String {
    let mut text = format!("preserve done\n{X}{AXIS}");
    for i in 0..n {
        add!(
            text,
            "m{i} = Mean(x, axis) {{T: float32, Tidx: int32, keep_dims: true}} -> float32[8, 1]"
        );
    }
    let all: Vec<String> = (0..n).map(|i| format!("^m{i}")).collect();
    add!(text, "done = NoOp({})", all.join(", "));
    text
}

fn reduction_chain(n: usize) -> String {
    let n = n / 2;
    let mut text = format!("preserve y{n}\n{X}{AXIS}y0 = Neg(x) {T}\n");
    for i in 1..=n {
        add!(
            text,
            "m{i} = Mean(y{}, axis) {{T: float32, Tidx: int32, keep_dims: true}} -> float32[8, 1]",
            i - 1
        );
        add!(text, "y{i} = AddV2(y{}, m{i}) {T}", i - 1);
    }
    text
}

/// `x = sin(x) * 2 + mean(x)`, then `v.assign(x)`.
fn steps(n: usize) -> String {
    let n = n / 4;
    let mut text = format!("preserve a\n{X}{AXIS}{VARIABLE}y0 = Neg(x) {T}\n");
    text += "two = Const {dtype: float32, value: tensor float32[] [2.0]} -> float32[]\n";
    for i in 1..=n {
        let y = i - 1;
        add!(text, "s{i} = Sin(y{y}) {T}");
        add!(text, "d{i} = Mul(s{i}, two) {T}");
        add!(
            text,
            "m{i} = Mean(y{y}, axis) {{T: float32, Tidx: int32, keep_dims: true}} -> float32[8, 1]"
        );
        add!(text, "y{i} = AddV2(d{i}, m{i}) {T}");
    }
    add!(text, "a = AssignVariableOp(h, y{n}) {{dtype: float32}}");
    text
}

fn elementwise(n: usize) -> String {
    let mut text = format!("preserve y{n}\n{X}y0 = Neg(x) {T}\n");
    (1..=n).for_each(|i| add!(text, "y{i} = Tanh(y{}) {T}", i - 1));
    text
}

fn diamonds(n: usize) -> String {
    let n = n / 3;
    let mut text = format!("preserve y{n}\n{X}y0 = Neg(x) {T}\n");
    for i in 1..=n {
        add!(
            text,
            "a{i} = Exp(y{}) {T}\nb{i} = Tanh(y{}) {T}\ny{i} = AddV2(a{i}, b{i}) {T}",
            i - 1,
            i - 1
        );
    }
    text
}

fn fan_out(n: usize) -> String {
    let mut text = format!("preserve done\n{X}y = Exp(x) {T}\n");
    let ops = ["Neg", "Tanh", "Square", "Cos", "Sin"];
    (0..n).for_each(|i| add!(text, "y{i} = {}(y) {T}", ops[i % ops.len()]));
    let all: Vec<String> = (0..n).map(|i| format!("^y{i}")).collect();
    add!(text, "done = NoOp({})", all.join(", "));
    text
}

fn fan_in(n: usize) -> String {
    let n = n / 3;
    let mut text = format!("preserve s, done\n{X}");
    for i in 0..n {
        add!(text, "y{i} = Exp(x) {T}\nz{i} = Tanh(y{i}) {T}\nw{i} = Identity(z{i}) {T}");
    }
    let all = |prefix: &str| (0..n).map(|i| format!("{prefix}{i}")).collect::<Vec<_>>().join(", ");
    add!(
        text,
        "s = AddN({}) {{N: {n}, T: float32}} -> float32[8, 16]\ndone = NoOp({})",
        all("y"),
        all("^w")
    );
    text
}

fn controls(n: usize) -> String {
    let width = 100.min(n / 2);
    let layers = n / width;
    let mut text = format!("preserve done\n{X}");
    for layer in 0..layers {
        let below = layer.checked_sub(1);
        let waits: String =
            below.map(|l| (0..width).map(|k| format!(", ^y{l}_{k}")).collect()).unwrap_or_default();
        (0..width).for_each(|k| add!(text, "y{layer}_{k} = Exp(x{waits}) {T}"));
    }
    add!(text, "done = NoOp(^y{}_0)", layers - 1);
    text
}

fn views(n: usize) -> String {
    let n = n / 2;
    let mut text = format!("preserve y{n}\n{X}y0 = Neg(x) {T}\n");
    text += "n0 = Const {dtype: int32, value: tensor int32[2] [8, 16]} -> int32[2]\n";
    text += "n1 = Const {dtype: int32, value: tensor int32[3] [1, 8, 16]} -> int32[3]\n";
    for i in 1..=n {
        let (dims, k) = if i % 2 == 0 { ("8, 16", 0) } else { ("1, 8, 16", 1) };
        // A node that waits keeps the views from being cancelled.
        add!(
            text,
            "v{i} = Reshape(y{}, n{k}) {{T: float32, Tshape: int32}} -> float32[{dims}]",
            i - 1
        );
        add!(text, "y{i} = Identity(v{i}, ^v{i}) {{T: float32}} -> float32[{dims}]");
    }
    text
}

fn copies(n: usize) -> String {
    let n = n / 3;
    let mut text = format!("preserve y{n}\n{X}y0 = Neg(x) {T}\n");
    for i in 1..=n {
        add!(text, "a{i} = Cast(y{}) {{SrcT: float32, DstT: float16}} -> float16[8, 16]", i - 1);
        add!(text, "b{i} = Squeeze(a{i}) {{T: float16, squeeze_dims: []}} -> float16[8, 16]");
        add!(text, "y{i} = Cast(b{i}) {{SrcT: float16, DstT: float32}} -> float32[8, 16]");
    }
    text
}

fn products(n: usize) -> String {
    let n = n / 4;
    let mut text = format!(
        "preserve y{n}\n{X}y0 = Neg(x) {T}\nw = Placeholder {{dtype: float32}} -> float32[16, \
         16]\n"
    );
    text += "b = Placeholder {dtype: float32} -> float32[16]\n";
    for i in 1..=n {
        let y = i - 1;
        add!(
            text,
            "p{i} = MatMul(y{y}, w) {{T: float32, transpose_a: false, transpose_b: false}} -> \
             float32[8, 16]"
        );
        add!(
            text,
            "c{i} = BiasAdd(p{i}, b) {{T: float32, data_format: \"NHWC\"}} -> float32[8, 16]"
        );
        add!(text, "e{i} = Relu(c{i}) {T}");
        add!(text, "y{i} = AddV2(e{i}, y{y}) {T}");
    }
    text
}

/// Layers with low-rank adapters, and the gradients of their first factors.
fn adapters(n: usize) -> String {
    let layers = n / 10;
    let mut text = String::from("preserve out");
    (0..layers).for_each(|i| text.push_str(&format!(", da{i}")));
    text.push_str("\nx0 = Placeholder -> float32[?2, 64]\n");
    let flags = |a, b| format!("{{T: float32, transpose_a: {a}, transpose_b: {b}}}");
    let (plain, left, right) = (flags(false, false), flags(true, false), flags(false, true));
    for i in 0..layers {
        add!(text, "w{i} = Placeholder -> float32[64, 64]");
        add!(text, "a{i} = Placeholder -> float32[64, 4]");
        add!(text, "b{i} = Placeholder -> float32[4, 64]");
        add!(text, "ab{i} = MatMul(a{i}, b{i}) {plain} -> float32[64, 64]");
        add!(text, "sum{i} = AddV2(w{i}, ab{i}) {{T: float32}} -> float32[64, 64]");
        add!(text, "x{} = MatMul(x{i}, sum{i}) {plain} -> float32[?2, 64]", i + 1);
    }
    add!(text, "dx{layers} = Neg(x{layers}) {{T: float32}} -> float32[?2, 64]");
    for i in (0..layers).rev() {
        let behind = i + 1;
        add!(text, "dx{i} = MatMul(dx{behind}, sum{i}) {right} -> float32[?2, 64]");
        add!(text, "dw{i} = MatMul(x{i}, dx{behind}) {left} -> float32[64, 64]");
        add!(text, "dab{i} = MatMul(dw{i}, b{i}) {right} -> float32[64, 4]");
        add!(text, "da{i} = Identity(dab{i}) {{T: float32}} -> float32[64, 4]");
    }
    add!(text, "out = Identity(dx0) {{T: float32}} -> float32[?2, 64]");
    text
}

fn normalizations(n: usize) -> String {
    let n = n / 9;
    let mut text = format!("preserve y{n}\n{X}{AXIS}y0 = Neg(x) {T}\n");
    text += "e = Const {dtype: float32, value: tensor float32[] [1e-5]} -> float32[]\n";
    let row = "{T: float32} -> float32[8, 1]";
    for i in 1..=n {
        let y = i - 1;
        add!(
            text,
            "m{i} = Mean(y{y}, axis) {{T: float32, Tidx: int32, keep_dims: true}} -> float32[8, 1]"
        );
        add!(text, "g{i} = StopGradient(m{i}) {row}");
        add!(text, "d{i} = SquaredDifference(y{y}, g{i}) {T}");
        add!(
            text,
            "v{i} = Mean(d{i}, axis) {{T: float32, Tidx: int32, keep_dims: true}} -> float32[8, 1]"
        );
        add!(text, "r{i} = AddV2(v{i}, e) {row}");
        add!(text, "q{i} = Rsqrt(r{i}) {row}");
        add!(text, "c{i} = Sub(y{y}, m{i}) {T}");
        add!(text, "s{i} = Mul(c{i}, q{i}) {T}");
        add!(text, "y{i} = Sin(s{i}) {T}");
    }
    text
}

fn attention(n: usize) -> String {
    let n = n / 5;
    let mut text = String::from("x = Placeholder {dtype: float32} -> float32[2, 2, 8, 16]\n");
    text += "y0 = Neg(x) {T: float32} -> float32[2, 2, 8, 16]\n";
    text += "k = Const {dtype: float32, value: tensor float32[] [0.25]} -> float32[]\n";
    for i in 1..=n {
        let y = i - 1;
        add!(text, "q{i} = Mul(y{y}, k) {{T: float32}} -> float32[2, 2, 8, 16]");
        add!(
            text,
            "s{i} = BatchMatMulV2(q{i}, y{y}) {{T: float32, adj_x: false, adj_y: true}} -> \
             float32[2, 2, 8, 8]"
        );
        add!(text, "w{i} = Softmax(s{i}) {{T: float32}} -> float32[2, 2, 8, 8]");
        add!(
            text,
            "p{i} = BatchMatMulV2(w{i}, y{y}) {{T: float32, adj_x: false, adj_y: false}} -> \
             float32[2, 2, 8, 16]"
        );
        add!(text, "y{i} = AddV2(p{i}, y{y}) {{T: float32}} -> float32[2, 2, 8, 16]");
    }
    format!("preserve y{n}\n{text}")
}

/// A list whose elements are all taken out again.
fn list(n: usize) -> String {
    let n = n / 3;
    let mut text = format!("preserve s{n}\n{X}s0 = Neg(x) {T}\n");
    text += "none = Const {dtype: int32, value: tensor int32[2] [8, 16]} -> int32[2]\n";
    text += "size = Const {dtype: int32, value: tensor int32[] [-1]} -> int32[]\n";
    text += "l0 = EmptyTensorList(none, size) {element_dtype: float32, shape_type: int32} -> ?[]\n";
    for i in 1..=n {
        add!(text, "l{i} = TensorListPushBack(l{}, x) {{element_dtype: float32}} -> ?[]", i - 1);
    }
    for i in 1..=n {
        let from = if i == 1 { format!("l{n}") } else { format!("p{}", i - 1) };
        add!(
            text,
            "p{i} = TensorListPopBack({from}, none) {{element_dtype: float32}} -> ?[], float32"
        );
        add!(text, "s{i} = AddV2(s{}, p{i}:1) {{T: float32}} -> float32", i - 1);
    }
    text
}

fn loops(n: usize) -> String {
    let n = n / 9;
    let mut text = format!(
        "preserve y{n}\n{X}y0 = Neg(x) {T}\nlimit = Placeholder {{dtype: bool}} -> bool[]\n"
    );
    for i in 1..=n {
        add!(
            text,
            "e{i} = Enter(y{}) {{T: float32, frame_name: \"f{i}\", is_constant: false}} -> \
             float32[8, 16]",
            i - 1
        );
        add!(text, "m{i} = Merge(e{i}, n{i}) {{N: 2, T: float32}} -> float32[8, 16], int32[]");
        add!(
            text,
            "t{i} = Enter(limit) {{T: bool, frame_name: \"f{i}\", is_constant: true}} -> bool[]"
        );
        add!(text, "c{i} = LoopCond(t{i}) -> bool[]");
        add!(text, "s{i} = Switch(m{i}, c{i}) {{T: float32}} -> float32[8, 16], float32[8, 16]");
        add!(text, "b{i} = Tanh(s{i}:1) {T}\nd{i} = Neg(b{i}) {T}");
        add!(text, "n{i} = NextIteration(d{i}) {T}\ny{i} = Exit(s{i}) {T}");
    }
    text
}

fn branches(n: usize) -> String {
    let n = n / 3;
    let mut text = format!("preserve y{n}\n{X}y0 = Neg(x) {T}\n");
    for i in 1..=n {
        add!(text, "c{i} = Placeholder {{dtype: bool}} -> bool[]");
        add!(
            text,
            "s{i} = Switch(y{}, c{i}) {{T: float32}} -> float32[8, 16], float32[8, 16]",
            i - 1
        );
        add!(text, "y{i} = Tanh(s{i}:1) {T}");
    }
    text
}

fn predicates(n: usize) -> String {
    let mut text = format!("preserve done\n{X}");
    text += "i = Placeholder {dtype: int32} -> int32[]\np0 = Less(i, i) {T: int32} -> bool[]\n";
    (1..=n).for_each(|i| add!(text, "p{i} = LogicalAnd(p{}, p0) -> bool[]", i - 1));
    add!(text, "done = NoOp(^p{n})");
    text
}

/// A chain whose values its gradient reads, in the opposite order.
fn gradient(n: usize) -> String {
    let n = n / 3;
    let mut text = format!("preserve g0\n{X}y0 = Neg(x) {T}\n");
    (1..=n).for_each(|i| add!(text, "y{i} = Tanh(y{}) {T}", i - 1));
    add!(text, "g{n} = Square(y{n}) {T}");
    for i in (1..=n).rev() {
        add!(text, "t{i} = TanhGrad(y{i}, g{i}) {T}\ng{} = AddV2(t{i}, x) {T}", i - 1);
    }
    text
}

/// Steps that read one variable, change another, and read that again.
fn interleaved_variables(n: usize) -> String {
    let n = n / 5;
    let mut text = format!("preserve a{n}\n{X}");
    for k in 0..4 {
        add!(text, "h{k} = VarHandleOp {{dtype: float32, shared_name: \"v{k}\"}} -> ?[]");
    }
    for i in 1..=n {
        let (from, to) = (i % 4, (i * 3 + 1) % 4);
        let order = if i == 1 { String::new() } else { format!(", ^a{}", i - 1) };
        add!(text, "r{i} = ReadVariableOp(h{from}{order}) {{dtype: float32}} -> float32[8, 16]");
        add!(text, "s{i} = ReadVariableOp(h{to}{order}) {{dtype: float32}} -> float32[8, 16]");
        add!(text, "m{i} = Mul(r{i}, s{i}) {T}\nn{i} = AddV2(m{i}, x) {T}");
        add!(text, "a{i} = AssignVariableOp(h{to}, n{i}, ^r{i}, ^s{i}) {{dtype: float32}}");
    }
    text
}

/// Rows that one node computes and many reductions read, each with an elementwise node behind it.
fn computed_reductions(n: usize) -> String {
    let n = n / 2;
    let mut text = format!("preserve done\n{X}{AXIS}y = Exp(x) {T}\n");
    for i in 0..n {
        add!(
            text,
            "m{i} = Mean(y, axis) {{T: float32, Tidx: int32, keep_dims: true}} -> float32[8, 1]"
        );
        add!(text, "z{i} = Sub(y, m{i}) {T}");
    }
    let all: Vec<String> = (0..n).map(|i| format!("^z{i}")).collect();
    add!(text, "done = NoOp({})", all.join(", "));
    text
}

/// Reductions of one tensor that also read another tensor each.
fn different_reductions(n: usize) -> String {
    let n = n / 3;
    let mut text = format!("preserve done\n{X}{AXIS}y = Exp(x) {T}\n");
    for i in 0..n {
        let op = ["Mean", "Sum", "Max"][i % 3];
        add!(
            text,
            "w{i} = Placeholder {{dtype: float32}} -> float32[8, 16]\nz{i} = Mul(y, w{i}) {T}"
        );
        add!(
            text,
            "m{i} = {op}(z{i}, axis) {{T: float32, Tidx: int32, keep_dims: true}} -> float32[8, 1]"
        );
    }
    let all: Vec<String> = (0..n).map(|i| format!("^m{i}")).collect();
    add!(text, "done = NoOp({})", all.join(", "));
    text
}

const PRODUCT: &str = "{T: float32, transpose_a: false, transpose_b: false} -> float32[8, 16]";

fn added_products(n: usize) -> String {
    let mut text =
        format!("preserve s\n{X}w = Placeholder {{dtype: float32}} -> float32[16, 16]\n");
    (0..n).for_each(|i| add!(text, "p{i} = MatMul(x, w) {PRODUCT}"));
    let all: Vec<String> = (0..n).map(|i| format!("p{i}")).collect();
    add!(
        text,
        "a = AddN({}) {{N: {n}, T: float32}} -> float32[8, 16]\ns = Exp(a) {T}",
        all.join(", ")
    );
    text
}

fn read_product(n: usize) -> String {
    let mut text =
        format!("preserve done\n{X}w = Placeholder {{dtype: float32}} -> float32[16, 16]\n");
    add!(text, "p = MatMul(x, w) {PRODUCT}");
    (0..n).for_each(|i| add!(text, "y{i} = Tanh(p) {T}"));
    let all: Vec<String> = (0..n).map(|i| format!("^y{i}")).collect();
    add!(text, "done = NoOp({})", all.join(", "));
    text
}

/// Attention whose scores' shapes are read.
fn score_shapes(n: usize) -> String {
    let n = n / 6;
    let mut text = String::from("x = Placeholder {dtype: float32} -> float32[2, 2, 8, 16]\n");
    text += "y0 = Neg(x) {T: float32} -> float32[2, 2, 8, 16]\n";
    let einsum = |equation: &str| {
        format!("{{T: float32, N: 2, equation: \"{equation}\"}} -> float32[2, 2, 8")
    };
    let (scores, products) = (einsum("bnth,bnsh->bnts"), einsum("bnts,bnsh->bnth"));
    for i in 1..=n {
        let y = i - 1;
        add!(text, "s{i} = Einsum(y{y}, y{y}) {scores}, 8]");
        add!(text, "z{i} = Shape(s{i}) {{T: float32, out_type: int32}} -> int32[4]");
        add!(text, "w{i} = Softmax(s{i}) {{T: float32}} -> float32[2, 2, 8, 8]");
        add!(text, "p{i} = Einsum(w{i}, y{y}) {products}, 16]");
        add!(text, "y{i} = AddV2(p{i}, y{y}) {{T: float32}} -> float32[2, 2, 8, 16]");
        add!(text, "u{i} = Fill(z{i}, x) {{T: int32}} -> float32");
    }
    let all: Vec<String> = (1..=n).map(|i| format!("^u{i}")).collect();
    add!(text, "done = NoOp({})", all.join(", "));
    format!("preserve y{n}, done\n{text}")
}

/// Views of views whose shape is not a constant.
fn view_chain(n: usize) -> String {
    let mut text = format!("preserve done\n{X}v0 = Neg(x) {T}\n");
    text += "n = Placeholder {dtype: int32} -> int32[2]\n";
    (1..n).for_each(|i| {
        add!(text, "v{i} = Reshape(v{}, n) {{T: float32, Tshape: int32}} -> float32[8, 16]", i - 1);
    });
    add!(text, "y = Exp(v{}) {T}\ndone = Neg(y) {T}", n - 1);
    text
}

fn repetitions(n: usize) -> String {
    let mut text = format!("preserve done\n{X}n = Placeholder {{dtype: int32}} -> int32[2]\n");
    text += "v0 = Const {dtype: float32, value: tensor float32[] [2.0]} -> float32[]\n";
    (1..n).for_each(|i| {
        add!(
            text,
            "v{i} = BroadcastTo(v{}, n) {{T: float32, Tidx: int32}} -> float32[8, 16]",
            i - 1
        );
    });
    add!(text, "y = Mul(x, v{}) {T}\nz = Exp(y) {T}\ndone = Neg(z) {T}", n - 1);
    text
}

fn shared_constant(n: usize) -> String {
    let mut text = format!("preserve y{n}\n{X}y0 = Neg(x) {T}\n");
    let values = (0..128).map(|_| "2.0").collect::<Vec<_>>().join(", ");
    add!(
        text,
        "c = Const {{dtype: float32, value: tensor float32[8, 16] [{values}]}} -> float32[8, 16]"
    );
    (1..=n).for_each(|i| add!(text, "y{i} = Mul(y{}, c) {T}", i - 1));
    text
}

fn many_constants(n: usize) -> String {
    let n = n / 2;
    let mut text = format!("preserve done\n{X}");
    for i in 0..n {
        add!(
            text,
            "c{i} = Const {{dtype: float32, value: tensor float32[1] [{i}.0]}} -> float32[8, 16]"
        );
        add!(text, "y{i} = Exp(x) {T}");
    }
    let all: Vec<String> = (0..n).map(|i| format!("c{i}, y{i}")).collect();
    add!(
        text,
        "s = AddN({}) {{N: {}, T: float32}} -> float32[8, 16]\ndone = Neg(s) {T}",
        all.join(", "),
        2 * n
    );
    text
}

/// A normalization with many readers, and with operands that have many readers.
fn wide_rows(n: usize) -> String {
    let n = n / 3;
    let mut text = format!("preserve done\n{X}{AXIS}y = Exp(x) {T}\n");
    text += "m = Mean(y, axis) {T: float32, Tidx: int32, keep_dims: true} -> float32[8, 1]\n";
    for i in 0..n {
        add!(text, "a{i} = Sub(y, m) {T}\nb{i} = Placeholder {{dtype: float32}} -> float32[8, 16]");
        add!(text, "c{i} = Mul(a{i}, b{i}) {T}");
    }
    let all: Vec<String> = (0..n).map(|i| format!("^c{i}")).collect();
    add!(text, "done = NoOp({})", all.join(", "));
    text
}
