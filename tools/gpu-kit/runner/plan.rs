//! The steps, in the order of the questions that they answer: whether the kernels' tests pass, how
//! far kernels are from the adapter's limits, what matrix units and tuning gain, and what barriers
//! cost.

/// The suites of `bin/suites`, the most used kernels first. Suites that take a device to its limits
/// come last.
pub const SUITES: &[&str] = &[
    "matmul",
    "conv",
    "reduce",
    "arg_reduction",
    "norm",
    "softmax",
    "movement",
    "gather",
    "pool",
    "fused_contraction",
    "fused_joined",
    "fused_products",
    "fused_quantized",
    "fused_cross_entropy",
    "fused_elementwise",
    "fused_rowwise",
    "fused_reduce",
    "fused_reduce_epilogue",
    "fused_argument",
    "fused_attention",
    "fused_attention_grad",
    "fused_concat",
    "fused_update",
    "variable",
    "region",
    "inplace",
    "random",
    "segment",
    "sort",
    "scan",
    "einsum",
    "image",
    "linalg",
    "fft",
    "spectral",
    "complex",
    "quantize",
    "rnn",
    "sparse",
    "patches",
    "debug_summary",
    "items",
    "training",
    "optimizer_loops",
    "optimizer_meaning",
    "optimizer_random",
    "autotune",
    "barriers",
    "trace",
    "pipelines",
    "checkup",
    "device",
    "paging",
    "float16",
    "unstaged",
    "failures",
];

/// The suites of a short run: a family of each kind of kernel, and suites that show that the kit
/// works in separate processes.
const SHORT_SUITES: &[&str] = &[
    "norm",
    "softmax",
    "gather",
    "scan",
    "einsum",
    "checkup",
    "fused_update",
    "inplace",
    "autotune",
];

/// Suites whose kernels use matrix units.
const MATRIX_SUITES: &[&str] =
    &["matmul", "einsum", "conv", "fused_contraction", "fused_attention", "fused_attention_grad"];

/// Rows of `kernels` that matrix units and tuning affect.
const PRODUCTS: &[&str] = &["matmul", "conv", "einsum", "attention"];
/// Rows of a short run, and the same with a few others.
const SHORT_PRODUCTS: &[&str] = &["32×256×1024"];
const SHORT_ROWS: &[&str] = &["32×256×1024", "softmax"];

const MATRIX: &str = "TF_WGPU_COOPERATIVE_MATRIX";
const TUNING: &str = "TF_WGPU_AUTOTUNE";

/// The kind of a step's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Text to keep.
    Text,
    /// Tests.
    Tests {
        /// The suite's name in the results.
        name: String,
        /// The prefix of the names of its tests, if the executable has other tests too.
        prefix: Option<String>,
    },
    /// Rows of `kernels --json`, with the name of the run in the results.
    Rows(&'static str),
}

/// A program of the kit, its arguments and its limit.
#[derive(Debug, Clone)]
pub struct Step {
    /// Its name in the results.
    pub name: String,
    /// The executable in `bin/`.
    pub program: &'static str,
    /// Its arguments; a step with rows also gets the file for their JSON.
    pub arguments: Vec<String>,
    /// Additional environment variables.
    pub environment: Vec<(&'static str, &'static str)>,
    /// The directory of compiled shaders and of the answers of tuning: steps with the same name
    /// share it.
    pub cache: &'static str,
    /// The most seconds that it may take.
    pub limit: u64,
    /// The kind of its output.
    pub kind: Kind,
    /// An option that `program --help` must list; otherwise the step is left out.
    pub needs: Option<&'static str>,
}

/// Steps that share their time: the time that one group leaves goes to the next.
#[derive(Debug)]
pub struct Group {
    /// Its name.
    pub name: &'static str,
    /// Its share of the whole time, in thousandths.
    pub share: u64,
    /// The steps in their order.
    pub steps: Vec<Step>,
}

/// All groups.
pub fn groups(short: bool) -> Vec<Group> {
    let suites = if short { SHORT_SUITES } else { SUITES };
    let mut tests: Vec<Step> = suites.iter().map(|suite| suite_step(suite, "", &[])).collect();
    tests.insert(4, scalar(short));
    let matrix: &[&str] = if short { &["einsum"] } else { MATRIX_SUITES };
    let mut units: Vec<Step> = matrix
        .iter()
        .map(|suite| suite_step(suite, " with matrix units", &[(MATRIX, "1")]))
        .collect();
    let products = if short { SHORT_PRODUCTS } else { PRODUCTS };
    units.push(rows("matrix units off", products, &[(MATRIX, "0")], "off", short));
    units.push(rows("matrix units on", products, &[(MATRIX, "1")], "on", short));
    vec![
        Group { name: "adapters", share: 40, steps: vec![text("adapters", &["--adapters"], 20)] },
        Group { name: "tests", share: 350, steps: tests },
        Group {
            name: "kernels",
            share: 270,
            steps: vec![
                rows("default", if short { SHORT_ROWS } else { &[] }, &[], "default", short),
                text("host", if short { &["--host", "--quick"] } else { &["--host"] }, 30),
            ],
        },
        Group { name: "matrix units", share: 170, steps: units },
        Group {
            name: "tuning",
            share: 130,
            steps: vec![
                // It tunes while it runs; the next step finds the answers in the cache.
                rows("tuning", products, &[(TUNING, "1")], "tuned", short),
                rows("tuned", products, &[(TUNING, "1")], "tuned", short),
            ],
        },
        Group {
            name: "barriers",
            share: 40,
            steps: vec![Step {
                needs: Some("--barriers"),
                ..text("barriers", &["--barriers"], 30)
            }],
        },
    ]
}

fn suite_step(suite: &str, how: &str, environment: &[(&'static str, &'static str)]) -> Step {
    let name = format!("{suite}{how}");
    Step {
        program: "suites",
        arguments: Vec::new(),
        environment: environment.to_vec(),
        cache: "tests",
        limit: 60,
        kind: Kind::Tests { name: name.clone(), prefix: Some(format!("{suite}::")) },
        needs: None,
        name: format!("test {name}"),
    }
}

fn scalar(short: bool) -> Step {
    Step {
        program: "scalar",
        arguments: if short { vec!["Tan".to_owned()] } else { Vec::new() },
        limit: 100,
        kind: Kind::Tests { name: "scalar".to_owned(), prefix: None },
        name: "test scalar".to_owned(),
        ..suite_step("scalar", "", &[])
    }
}

fn rows(
    run: &'static str,
    filters: &[&str],
    environment: &[(&'static str, &'static str)],
    cache: &'static str,
    short: bool,
) -> Step {
    let quick = short.then_some("--quick");
    Step {
        name: format!("kernels, {run}"),
        program: "kernels",
        arguments: quick.iter().chain(filters).map(|a| (*a).to_owned()).collect(),
        environment: environment.to_vec(),
        cache,
        limit: 200,
        kind: Kind::Rows(run),
        needs: None,
    }
}

fn text(name: &str, arguments: &[&str], limit: u64) -> Step {
    Step {
        name: name.to_owned(),
        program: "kernels",
        arguments: arguments.iter().map(|a| (*a).to_owned()).collect(),
        environment: Vec::new(),
        cache: "default",
        limit,
        kind: Kind::Text,
        needs: None,
    }
}
