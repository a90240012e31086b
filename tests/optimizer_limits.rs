//! Long chains and wide sums: the size of one fused node is bounded, so the text of all nodes grows
//! like the graph, and the numbers stay the same.

#[expect(dead_code, reason = "the products' tests use the rest")]
mod numeric;
#[expect(dead_code, reason = "the random graphs' tests use the rest")]
mod random_graphs;

use std::fmt::Write;

use numeric::Random;
use random_graphs::executor::run;
use random_graphs::generate::Case;
use random_graphs::run::{OnDevice, assert_same};
use tensorflow_wgpu::DType;
use tensorflow_wgpu::kernels::expression::Expression;
use tensorflow_wgpu::kernels::fused::cost::{self, BOUND};
use tensorflow_wgpu::kernels::fused::rowwise::program::RowProgram;
use tensorflow_wgpu::optimizer::graph::{Graph, Node};
use tensorflow_wgpu::optimizer::passes::{PASSES, run_all};

/// The numbers of steps of the chains. Each is twice the one before.
const CHAINS: [usize; 4] = [50, 100, 200, 400];
/// Tensors of sums.
const FANS: [usize; 3] = [25, 50, 100];

/// A graph under construction, of float32 tensors.
struct Builder {
    text: String,
    shape: &'static str,
    nodes: usize,
}

impl Builder {
    fn new(shape: &'static str) -> Self {
        let mut builder = Self { text: String::new(), shape, nodes: 0 };
        let rank = shape.split(',').count();
        let axes: Vec<String> = (0..rank).map(|axis| axis.to_string()).collect();
        let (last, all) = (rank - 1, axes.join(", "));
        let _ = writeln!(builder.text, "x = Placeholder {{dtype: float32}} -> float32[{shape}]");
        let _ = writeln!(
            builder.text,
            "last = Const {{dtype: int32, value: tensor int32[1] [{last}]}} -> int32[1]"
        );
        let _ = writeln!(
            builder.text,
            "all = Const {{dtype: int32, value: tensor int32[{rank}] [{all}]}} -> int32[{rank}]"
        );
        for (name, value) in [("epsilon", "0.001"), ("half", "0.5"), ("quarter", "0.25")] {
            let value = format!("tensor float32[] [{value}]");
            let _ = writeln!(
                builder.text,
                "{name} = Const {{dtype: float32, value: {value}}} -> float32[]"
            );
        }
        builder
    }

    fn add(&mut self, op: &str, inputs: &[&str], attrs: &str, shape: &str) -> String {
        self.nodes += 1;
        let (name, inputs) = (format!("n{}", self.nodes), inputs.join(", "));
        let _ = writeln!(
            self.text,
            "{name} = {op}({inputs}) {{T: float32{attrs}}} -> float32[{shape}]"
        );
        name
    }

    /// An elementwise node of the whole shape.
    fn call(&mut self, op: &str, inputs: &[&str]) -> String {
        self.add(op, inputs, "", self.shape)
    }

    /// A reduction of the last axis, which is kept.
    fn row(&mut self, op: &str, input: &str) -> String {
        let shape = self.row_shape();
        self.add(op, &[input, "last"], ", Tidx: int32, keep_dims: true", &shape)
    }

    fn row_shape(&self) -> String {
        self.shape.rsplit_once(',').map_or("1".to_owned(), |(outer, _)| format!("{outer}, 1"))
    }

    /// Half of the input and a quarter of `value`: chains of it converge, so that rounding errors
    /// do not grow.
    fn damped(&mut self, value: &str) -> String {
        let rest = self.call("Mul", &["x", "half"]);
        let part = self.call("Mul", &[value, "quarter"]);
        self.call("AddV2", &[&rest, &part])
    }

    fn graph(self, last: &str) -> String {
        let shape = self.shape;
        format!(
            "preserve y\n{}y = Identity({last}) {{T: float32}} -> float32[{shape}]\n",
            self.text
        )
    }
}

/// A chain of `n` steps.
fn chain(
    shape: &'static str,
    n: usize,
    step: impl Fn(&mut Builder, usize, &str) -> String,
) -> String {
    let mut builder = Builder::new(shape);
    let last = (0..n).fold("x".to_owned(), |x, k| step(&mut builder, k, &x));
    builder.graph(&last)
}

fn normalizations(n: usize) -> String {
    chain("16, 32", n, |b, _, x| {
        let mean = b.row("Mean", x);
        let squared = b.call("SquaredDifference", &[x, &mean]);
        let variance = b.row("Mean", &squared);
        let row = b.row_shape();
        let sum = b.add("AddV2", &[&variance, "epsilon"], "", &row);
        let scale = b.add("Rsqrt", &[&sum], "", &row);
        let centered = b.call("Sub", &[x, &mean]);
        let scaled = b.call("Mul", &[&centered, &scale]);
        let value = b.call("Sin", &[&scaled]);
        b.damped(&value)
    })
}

fn softmaxes(n: usize) -> String {
    chain("16, 32", n, |b, _, x| {
        let max = b.row("Max", x);
        let difference = b.call("Sub", &[x, &max]);
        let weights = b.call("Exp", &[&difference]);
        let sum = b.row("Sum", &weights);
        let value = b.call("RealDiv", &[&weights, &sum]);
        b.damped(&value)
    })
}

fn sines_and_means(n: usize) -> String {
    chain("8", n, |b, _, x| {
        let sine = b.call("Sin", &[x]);
        let part = b.call("Mul", &[&sine, "half"]);
        let mean = b.add("Mean", &[x, "all"], ", Tidx: int32, keep_dims: false", "");
        let offset = b.add("Mul", &[&mean, "quarter"], "", "");
        b.call("AddV2", &[&part, &offset])
    })
}

fn dear_functions(n: usize) -> String {
    const OPS: [&str; 8] = ["Tan", "Erf", "Sinh", "Digamma", "Expm1", "Atan", "Lgamma", "Cos"];
    chain("64", n, |b, k, x| {
        let value = b.call(OPS[k % OPS.len()], &[x]);
        let base = b.call("Abs", &[&value]);
        let power =
            if k % 3 == 0 { b.call("Pow", &[&base, "half"]) } else { b.call("Tanh", &[&base]) };
        b.damped(&power)
    })
}

fn cheap_functions(n: usize) -> String {
    chain("64", n, |b, k, x| {
        let value = b.call(["Neg", "Square", "Abs", "Relu"][k % 4], &[x]);
        b.damped(&value)
    })
}

fn diamonds(n: usize) -> String {
    chain("64", n, |b, _, x| {
        let (square, sine) = (b.call("Mul", &[x, x]), b.call("Sin", &[x]));
        let sum = b.call("AddV2", &[&square, &sine]);
        b.damped(&sum)
    })
}

/// A sum of `n` different tensors, each behind a function.
fn fan_in(n: usize) -> String {
    let mut b = Builder::new("64");
    let mut sum = "x".to_owned();
    for k in 0..n {
        let _ = writeln!(b.text, "x{k} = Placeholder {{dtype: float32}} -> float32[64]");
        let value = b.call(["Sin", "Relu"][k % 2], &[&format!("x{k}")]);
        sum = b.call("AddV2", &[&sum, &value]);
    }
    b.graph(&sum)
}

/// Many reductions of one tensor, each of another function of it.
fn fan_out(n: usize) -> String {
    let mut b = Builder::new("16, 32");
    let mut sum = "x".to_owned();
    for k in 0..n {
        let value = b.call(["Sin", "Exp", "Square"][k % 3], &["x"]);
        let mean = b.row("Mean", &value);
        let centered = b.call("Sub", &[&value, &mean]);
        sum = b.call("AddV2", &[&sum, &centered]);
    }
    b.graph(&sum)
}

fn optimized(text: &str) -> Graph {
    let mut graph = Graph::from_text(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let passes: Vec<_> = PASSES.iter().collect();
    run_all(&passes, &mut graph).unwrap();
    assert!(graph.order().is_some());
    graph
}

/// The estimated cost of a node.
fn cost(node: &Node) -> u32 {
    let text = |name: &str| node.attr(name).and_then(|a| a.string()).unwrap_or_default();
    let weight = |name: &str| match text(name) {
        "" => 0,
        text => cost::expression(&text.parse::<Expression>().unwrap()),
    };
    match node.op() {
        "_WgpuFusedElementwise" => cost::elementwise(weight("expression")),
        "_WgpuFusedReduce" => cost::reduce(weight("expression"), weight("epilogue")),
        "_WgpuFusedRowwise" => text("program").parse::<RowProgram>().unwrap().cost(),
        op if op.starts_with("_WgpuFused") => cost::contraction(weight("expression")),
        _ => 0,
    }
}

/// Every node's cost is within the bound, and the text of twice as long a graph is hardly more than
/// twice as long.
#[track_caller]
fn check_growth(graph: impl Fn(usize) -> String, least: usize, lengths: &[usize]) {
    let size = |n: usize| {
        let graph = optimized(&graph(n));
        let costs: Vec<u32> = graph.ids().map(|id| cost(graph.node(id))).collect();
        let (most, fused) = (costs.iter().max().unwrap(), costs.iter().filter(|c| **c > 0).count());
        assert!(*most <= BOUND, "a node costs {most}");
        assert!(fused * least <= n.max(least) * 2, "{fused} nodes for {n} steps");
        graph.to_text().len()
    };
    let sizes: Vec<usize> = lengths.iter().map(|n| size(*n)).collect();
    for pair in sizes.windows(2) {
        assert!(pair[1] as f64 <= 2.3 * pair[0] as f64, "{sizes:?}");
    }
}

/// The fused graph gives the same results as the separate nodes.
#[track_caller]
fn check_numbers(graph: impl Fn(usize) -> String, lengths: &[usize]) {
    for n in lengths {
        let text = graph(*n);
        let (before, after) = (Graph::from_text(&text).unwrap(), optimized(&text));
        let mut random = Random::new(*n as u64);
        let placeholders =
            before.ids().map(|id| before.node(id)).filter(|node| node.op() == "Placeholder");
        let shape = text
            .lines()
            .find_map(|l| l.strip_prefix("x = Placeholder {dtype: float32} -> float32["))
            .unwrap();
        let dims: Vec<usize> =
            shape.trim_end_matches(']').split(", ").map(|d| d.parse().unwrap()).collect();
        let feeds = placeholders
            .map(|node| (node.name().to_owned(), random.tensor(DType::F32, &dims).0))
            .collect();
        let fetches = vec![("y".to_owned(), 0.0)];
        let case = Case { text, feeds, variables: Vec::new(), fetches, tolerances: Vec::new() };
        let mut values = |graph: &Graph| {
            let mut device = OnDevice::new(numeric::session(), &case);
            run(graph, &case, &mut random, &mut |node, inputs| device.node(node, inputs)).remove(0)
        };
        let (want, got) = (values(&before), values(&after));
        assert!(want.to_f64().iter().all(|v| v.is_finite()));
        assert_same(&got, &want, 1e-4, &|| format!("{n} steps\n{}", after.to_text()));
    }
}

#[test]
fn chains_of_normalizations_grow_as_the_graph_does() {
    check_growth(normalizations, 1, &CHAINS);
}

#[test]
fn chains_of_softmaxes_grow_as_the_graph_does() {
    check_growth(softmaxes, 1, &CHAINS);
}

#[test]
fn chains_of_sines_and_means_grow_as_the_graph_does() {
    check_growth(sines_and_means, 1, &CHAINS);
}

#[test]
fn chains_of_functions_grow_as_the_graph_does() {
    check_growth(dear_functions, 1, &CHAINS);
    check_growth(cheap_functions, 8, &CHAINS);
    check_growth(diamonds, 1, &CHAINS);
}

#[test]
fn fans_grow_as_the_graph_does() {
    check_growth(fan_in, 1, &FANS);
    check_growth(fan_out, 1, &FANS);
}

#[test]
fn chains_of_reductions_give_the_same_numbers() {
    check_numbers(normalizations, &[1, 10, 40]);
    check_numbers(softmaxes, &[1, 10, 40]);
    check_numbers(sines_and_means, &[10, 40]);
}

#[test]
fn chains_of_functions_give_the_same_numbers() {
    check_numbers(dear_functions, &[10, 40]);
    check_numbers(cheap_functions, &[10, 100]);
    check_numbers(diamonds, &[10, 100]);
}

#[test]
fn fans_give_the_same_numbers() {
    check_numbers(fan_in, &[10, 60]);
    check_numbers(fan_out, &[10, 40]);
}
