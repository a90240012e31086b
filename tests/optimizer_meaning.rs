//! Every scalar row, every change of shape and every reduction in every kind of fused op, against
//! the same graph without the optimizer.
//!
//! Inputs and reductions are such that their order makes no difference: products with a unit
//! matrix, maxima, sums of small integers. So the optimized graph must give the same bits, except
//! for the means of a few values.

#[expect(dead_code, reason = "the products' tests use the rest")]
mod numeric;
#[expect(dead_code, reason = "the random graphs' tests use the rest")]
mod random_graphs;

use std::collections::BTreeSet;
use std::fmt::Write;

use numeric::Random;
use random_graphs::executor::run;
use random_graphs::generate::Case;
use random_graphs::run::{OnDevice, assert_same};
use tensorflow_wgpu::DType::{self, Bool, F32, I64};
use tensorflow_wgpu::HostTensor;
use tensorflow_wgpu::kernels::reduce::table::REDUCTIONS;
use tensorflow_wgpu::kernels::scalar;
use tensorflow_wgpu::kernels::scalar::row::{Row, Shapes};
use tensorflow_wgpu::optimizer::graph::Graph;
use tensorflow_wgpu::optimizer::meaning::{self, Engine};
use tensorflow_wgpu::optimizer::passes::{PASSES, run_all};

/// The extent of rows and columns.
const N: usize = 8;

/// A graph under construction, with its feeds and variables.
struct Builder {
    case: Case,
    nodes: usize,
}

impl Builder {
    /// A graph with inputs of each type: `x0`, `x1` and `x2` are float32, `i0` and `i1` int64, `b0`
    /// and `b1` bool.
    fn new() -> Self {
        let mut builder = Self { case: Case::default(), nodes: 0 };
        let count = N * N;
        // Each input has the values of (0, 1] in another order.
        let float = |k: usize, at: usize| ((at * (2 * k + 5)) % count + 1) as f64 / count as f64;
        for k in 0..3 {
            let values: Vec<f64> = (0..count).map(|at| float(k, at)).collect();
            builder.feed(&format!("x{k}"), HostTensor::floats(F32, &[N, N], &values));
            let values: Vec<i64> = (0..count).map(|at| (at * (2 * k + 3) % 23) as i64).collect();
            builder.feed(&format!("i{k}"), HostTensor::i64(&[N, N], &values));
            let values: Vec<bool> = (0..count).map(|at| at * (k + 3) % 4 < 2).collect();
            builder.feed(&format!("b{k}"), HostTensor::bool(&[N, N], &values));
        }
        let unit: Vec<f64> = (0..count).map(|at| f64::from(u8::from(at % (N + 1) == 0))).collect();
        builder.feed("unit", HostTensor::floats(F32, &[N, N], &unit));
        builder.constant("last", &[1]);
        builder
    }

    fn feed(&mut self, name: &str, value: HostTensor) {
        let info = format!("{}{:?}", value.dtype, value.dims.to_vec());
        let _ =
            writeln!(self.case.text, "{name} = Placeholder {{dtype: {}}} -> {info}", value.dtype);
        self.case.feeds.push((name.to_owned(), value));
    }

    /// An int32 vector.
    fn constant(&mut self, name: &str, values: &[i64]) {
        let n = values.len();
        let _ = writeln!(
            self.case.text,
            "{name} = Const {{dtype: int32, value: tensor int32[{n}] {values:?}}} -> int32[{n}]"
        );
    }

    /// Adds a node and returns its name.
    fn node(
        &mut self,
        op: &str,
        inputs: &[&str],
        attrs: &str,
        dtype: DType,
        dims: &[usize],
    ) -> String {
        let name = format!("n{}", self.nodes);
        self.nodes += 1;
        let inputs = inputs.join(", ");
        let _ = writeln!(self.case.text, "{name} = {op}({inputs}) {{{attrs}}} -> {dtype}{dims:?}");
        name
    }

    /// A row's node: its first input of the row's own type is `first`.
    fn row(&mut self, case: &RowCase, first: &str, others: &[&str; 3], dims: &[usize]) -> String {
        let RowCase { row, dtype } = *case;
        let mut inputs: Vec<String> = Vec::new();
        let mut is_free = true;
        for (k, wanted) in row.input_types(dtype).into_iter().enumerate() {
            inputs.push(if wanted == dtype && is_free {
                is_free = false;
                first.to_owned()
            } else {
                let letter = match wanted {
                    Bool => others[2],
                    I64 => others[1],
                    _ => others[0],
                };
                format!("{letter}{k}")
            });
        }
        let mut attrs = if row.is_typed() { format!("T: {dtype}") } else { String::new() };
        if let Some(name) = row.attr {
            let _ = write!(attrs, ", {name}: 0.25");
        }
        if matches!(row.shapes, Shapes::BroadcastOr(_)) {
            attrs.push_str(", incompatible_shape_error: true");
        }
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        self.node(row.op, &inputs, &attrs, case.output(), dims)
    }

    /// A node of one input that every fused op with this type has.
    fn after(&mut self, x: &str, dtype: DType, dims: &[usize]) -> String {
        match dtype {
            Bool => self.node("LogicalNot", &[x], "", dtype, dims),
            _ => self.node("Neg", &[x], &format!("T: {dtype}"), dtype, dims),
        }
    }

    /// The reduction of rows.
    fn fold(&mut self, op: &str, x: &str, dtype: DType, keeps: bool) -> String {
        let typed = if dtype == Bool { String::new() } else { format!("T: {dtype}, ") };
        let attrs = format!("{typed}Tidx: int32, keep_dims: {keeps}");
        let dims = if keeps { vec![N, 1] } else { vec![N] };
        self.node(op, &[x, "last"], &attrs, dtype, &dims)
    }

    fn product(&mut self, x: &str) -> String {
        let attrs = "T: float32, transpose_a: false, transpose_b: false";
        self.node("MatMul", &[x, "unit"], attrs, F32, &[N, N])
    }

    /// Makes a value a fetch.
    fn fetch(&mut self, x: &str, dtype: DType, dims: &[usize], tolerance: f64) {
        let name = self.node("Identity", &[x], &format!("T: {dtype}"), dtype, dims);
        self.case.fetches.push((name, tolerance));
    }

    /// Compares the optimized graph with the graph itself. Returns the optimized graph.
    fn check(self, what: &str) -> Graph {
        self.check_after(what, &[])
    }

    /// Like [`Self::check`], with nodes that run for their effects.
    fn check_after(mut self, what: &str, effects: &[String]) -> Graph {
        let mut kept: Vec<&str> = self.case.fetches.iter().map(|(name, _)| &name[..]).collect();
        if !effects.is_empty() {
            let _ = writeln!(self.case.text, "done = NoOp({})", effects.join(", "));
            kept.push("done");
        }
        self.case.text = format!("preserve {}\n{}", kept.join(", "), self.case.text);
        let case = self.case;
        let before = Graph::from_text(&case.text).unwrap_or_else(|e| panic!("{what}: {e}"));
        let mut after = before.clone();
        run_all(&PASSES.iter().collect::<Vec<_>>(), &mut after).unwrap();
        let values = |graph: &Graph| {
            let mut device = OnDevice::new(numeric::session(), &case);
            let mut random = Random::new(1);
            let mut engine = |node: &_, inputs: &[_]| device.node(node, inputs);
            let fetched = run(graph, &case, &mut random, &mut engine);
            let variables = (0..case.variables.len()).map(|v| device.value(v));
            fetched.into_iter().chain(variables).collect::<Vec<_>>()
        };
        let variables = case.variables.iter().map(|(name, _)| (name, 0.0));
        let wanted = case.fetches.iter().map(|(name, tolerance)| (name, *tolerance));
        let (before_values, after_values) = (values(&before), values(&after));
        for ((got, want), (name, tolerance)) in
            after_values.iter().zip(&before_values).zip(wanted.chain(variables))
        {
            let told = || format!("{what}: {name}\n{}\n\n{}", case.text, after.to_text());
            assert_same(got, want, tolerance, &told);
        }
        after
    }
}

/// A row with the first of its types that fused ops hold.
#[derive(Clone, Copy)]
struct RowCase {
    row: &'static Row,
    dtype: DType,
}

impl RowCase {
    fn output(&self) -> DType {
        self.row.output_type(self.dtype)
    }

    /// Every row that a fused op may hold.
    fn all() -> impl Iterator<Item = Self> {
        scalar::rows().filter_map(|row| {
            let dtype = [F32, I64, Bool].into_iter().find(|t| row.case(*t).is_some())?;
            let known = |t: DType| [F32, I64, Bool].contains(&t);
            let types = row.input_types(dtype);
            (types.into_iter().all(known) && known(row.output_type(dtype)))
                .then_some(Self { row, dtype })
        })
    }

    /// The rows of float32 whose value is one, too.
    fn floats() -> impl Iterator<Item = Self> {
        Self::all().filter(|case| (case.dtype, case.output()) == (F32, F32))
    }

    /// The input that comes first.
    const fn first(&self) -> &'static str {
        match self.dtype {
            Bool => "b0",
            I64 => "i0",
            _ => "x0",
        }
    }
}

/// The further inputs of rows, by type: float32, int64, bool.
const OTHERS: [&str; 3] = ["x", "i", "b"];
const WHOLE: [usize; 2] = [N, N];

/// The ops of a graph.
fn ops(graph: &Graph) -> BTreeSet<String> {
    graph.ids().map(|id| graph.node(id).op().to_owned()).collect()
}

/// The rows of an optimized graph that a fused op could hold.
fn left(graph: &Graph, engine: Engine) -> Vec<&str> {
    let rows = graph.ids().filter(|id| scalar::find(graph.node(*id).op()).is_some());
    let held = rows.filter(|id| meaning::scalar(graph, graph, *id, engine).is_ok());
    held.map(|id| graph.node(id).op()).collect()
}

#[test]
fn every_row_in_a_loop() {
    let mut builder = Builder::new();
    for case in RowCase::all() {
        let value = builder.row(&case, case.first(), &OTHERS, &WHOLE);
        let next = builder.after(&value, case.output(), &WHOLE);
        builder.fetch(&next, case.output(), &WHOLE, 0.0);
    }
    let graph = builder.check("a loop");
    assert!(ops(&graph).contains("_WgpuFusedElementwise"));
    // Only what follows a function that loops too long is alone.
    let alone = left(&graph, Engine::Loop);
    assert!(alone.iter().all(|op| ["Neg", "LogicalNot"].contains(op)), "{alone:?} are left");
}

#[test]
fn every_row_before_a_reduction() {
    let mut builder = Builder::new();
    for case in RowCase::all() {
        let value = builder.row(&case, case.first(), &OTHERS, &WHOLE);
        let op = if case.output() == Bool { "Any" } else { "Max" };
        let largest = builder.fold(op, &value, case.output(), false);
        builder.fetch(&largest, case.output(), &[N], 0.0);
    }
    let graph = builder.check("before a reduction");
    assert_eq!(left(&graph, Engine::Reduce), [""; 0]);
}

#[test]
fn every_row_after_a_reduction() {
    for case in RowCase::floats() {
        let mut builder = Builder::new();
        // The other operands have the extents of the results.
        for k in 0..3 {
            let values: Vec<f64> = (0..N).map(|at| ((at + k) % N + 1) as f64 / N as f64).collect();
            builder.feed(&format!("r{k}"), HostTensor::floats(F32, &[N], &values));
            let values: Vec<bool> = (0..N).map(|at| (at + k) % 3 == 0).collect();
            builder.feed(&format!("q{k}"), HostTensor::bool(&[N], &values));
        }
        let largest = builder.fold("Max", "x0", F32, false);
        let value = builder.row(&case, &largest, &["r", "i", "q"], &[N]);
        builder.fetch(&value, F32, &[N], 0.0);
        let graph = builder.check("after a reduction");
        assert_eq!(left(&graph, Engine::Reduce), [""; 0]);
    }
}

#[test]
fn every_row_in_a_program_of_rows() {
    let mut builder = Builder::new();
    for case in RowCase::floats() {
        let value = builder.row(&case, "x0", &OTHERS, &WHOLE);
        let largest = builder.fold("Max", &value, F32, true);
        let centered = builder.node("Sub", &[&value, &largest], "T: float32", F32, &WHOLE);
        builder.fetch(&centered, F32, &WHOLE, 0.0);
    }
    let graph = builder.check("a program of rows");
    assert!(ops(&graph).contains("_WgpuFusedRowwise"));
}

#[test]
fn every_row_in_an_epilogue() {
    let mut builder = Builder::new();
    for case in RowCase::floats() {
        let product = builder.product("x0");
        let value = builder.row(&case, &product, &OTHERS, &WHOLE);
        builder.fetch(&value, F32, &WHOLE, 0.0);
    }
    let graph = builder.check("an epilogue");
    assert!(ops(&graph).contains("_WgpuFusedMatMul"));
}

#[test]
fn every_row_in_a_concatenation() {
    let mut builder = Builder::new();
    builder.constant("axis", &[0]);
    for case in RowCase::floats() {
        let [a, b] = ["x0", "x1"].map(|x| builder.row(&case, x, &OTHERS, &WHOLE));
        let attrs = "N: 2, T: float32, Tidx: int32";
        let both = builder.node("ConcatV2", &[&a, &b, "axis"], attrs, F32, &[2 * N, N]);
        builder.fetch(&both, F32, &[2 * N, N], 0.0);
    }
    let graph = builder.check("a concatenation");
    assert!(ops(&graph).contains("_WgpuFusedConcat"));
}

#[test]
fn every_row_in_an_update() {
    let mut builder = Builder::new();
    let mut written = Vec::new();
    for (k, case) in RowCase::floats().enumerate() {
        let attrs = format!("dtype: float32, shape: shape {WHOLE:?}, shared_name: \"v{k}\"");
        let handle = format!("v{k}");
        let _ = writeln!(builder.case.text, "{handle} = VarHandleOp {{{attrs}}} -> resource[]");
        builder.case.variables.push((handle.clone(), builder.case.feeds[0].1.clone()));
        let old = builder.node("ReadVariableOp", &[&handle], "dtype: float32", F32, &WHOLE);
        let value = builder.row(&case, &old, &OTHERS, &WHOLE);
        let name = format!("w{k}");
        let _ = writeln!(
            builder.case.text,
            "{name} = AssignSubVariableOp({handle}, {value}, ^{old}) {{dtype: float32}}"
        );
        written.push(format!("^{name}"));
    }
    let graph = builder.check_after("an update", &written);
    assert!(ops(&graph).contains("_WgpuFusedUpdate"));
}

#[test]
fn every_change_of_shape_between_fused_nodes() {
    let mut builder = Builder::new();
    builder.constant("zero", &[0]);
    builder.constant("split", &[N as i64, 2, N as i64 / 2]);
    builder.constant("wide", &[3, N as i64, N as i64]);
    builder.constant("thrice", &[3, 1, 1]);
    let shaped = "T: float32, Tshape: int32";
    for before in ["Exp", "MatMul", "Max"] {
        let start = |b: &mut Builder| match before {
            "MatMul" => (b.product("x0"), WHOLE.to_vec()),
            "Max" => (b.fold("Max", "x0", F32, true), vec![N, 1]),
            op => (b.node(op, &["x0"], "T: float32", F32, &WHOLE), WHOLE.to_vec()),
        };
        let changed = |b: &mut Builder, op: &str, attrs: &str, dims: Vec<usize>, more: &[&str]| {
            let (value, _) = start(b);
            let inputs = [&[value.as_str()], more].concat();
            let view = b.node(op, &inputs, attrs, F32, &dims);
            let next = b.node("Sigmoid", &[&view], "T: float32", F32, &dims);
            let last = b.node("Neg", &[&next], "T: float32", F32, &dims);
            b.fetch(&last, F32, &dims, 0.0);
        };
        let (_, dims) = start(&mut builder);
        let outer = [&[1], &dims[..]].concat();
        let b = &mut builder;
        changed(b, "ExpandDims", "T: float32, Tdim: int32", outer.clone(), &["zero"]);
        if before == "Max" {
            changed(b, "Squeeze", "T: float32, squeeze_dims: [1]", vec![N], &[]);
        } else {
            changed(b, "Reshape", shaped, vec![N, 2, N / 2], &["split"]);
        }
        let repeated = [&[3], &dims[..]].concat();
        if before != "Max" {
            let attrs = "T: float32, Tidx: int32";
            changed(b, "BroadcastTo", attrs, repeated.clone(), &["wide"]);
        }
        let (value, _) = start(b);
        let more = b.node("ExpandDims", &[&value, "zero"], "T: float32, Tdim: int32", F32, &outer);
        let attrs = "T: float32, Tmultiples: int32";
        let tiled = b.node("Tile", &[&more, "thrice"], attrs, F32, &repeated);
        let last = b.node("Neg", &[&tiled], "T: float32", F32, &repeated);
        b.fetch(&last, F32, &repeated, 0.0);
    }
    let graph = builder.check("a change of shape");
    assert!(ops(&graph).contains("_WgpuFusedElementwise"));
}

#[test]
fn every_reduction_alone_and_among_functions() {
    let mut builder = Builder::new();
    for reduction in REDUCTIONS.iter().filter(|r| r.op != "L2Loss") {
        let (dtype, x) = if reduction.types == [Bool] { (Bool, "b0") } else { (F32, "x0") };
        for keeps in [false, true] {
            let dims = if keeps { vec![N, 1] } else { vec![N] };
            let before = builder.after(x, dtype, &WHOLE);
            let folded = builder.fold(reduction.op, &before, dtype, keeps);
            let after = builder.after(&folded, dtype, &dims);
            builder.fetch(&after, dtype, &dims, 1e-6);
            if keeps && dtype == F32 {
                let row = builder.node("Sub", &[&before, &folded], "T: float32", F32, &WHOLE);
                builder.fetch(&row, F32, &WHOLE, 1e-6);
            }
        }
    }
    let value = builder.after("x1", F32, &WHOLE);
    let loss = builder.node("L2Loss", &[&value], "T: float32", F32, &[]);
    builder.fetch(&loss, F32, &[], 1e-5);
    let graph = builder.check("reductions");
    assert!(ops(&graph).contains("_WgpuFusedReduce"));
}
