//! Tests of the program itself, on two small rows, and of the inputs of its figures.

use std::collections::HashSet;

use serde_json::Value;
use tensorflow_wgpu::device::{Device, Selection};
use tensorflow_wgpu::kernels::op::Attrs;
use tensorflow_wgpu::local::Session;

use crate::barriers::{self, Pattern};
use crate::case::Sizes;
use crate::device::{Peaks, Rates};
use crate::families;
use crate::measure::Budget;
use crate::options::Options;
use crate::run::run;
use crate::serve::serve;

const SIZES: Sizes = Sizes::new(8, false);

fn options(arguments: &[&str]) -> Options {
    Options::parse(arguments.iter().map(Into::into).collect()).expect("valid arguments")
}

#[test]
fn rows_have_names_of_their_own() {
    for sizes in [SIZES, Sizes::new(64, true)] {
        let mut seen = HashSet::new();
        for case in families::all(sizes) {
            assert!(
                seen.insert((case.family, case.name.clone())),
                "two rows are {}: {}",
                case.family,
                case.name
            );
        }
    }
}

/// A kernel reads its attributes when it is made: this test finds a row whose node lacks a new one.
#[test]
fn every_row_is_a_node_that_its_kernel_takes() {
    let session = Session::shared().expect("an adapter");
    for case in families::all(SIZES) {
        let node = &case.node;
        // Types that the adapter lacks are not registered.
        if let Some(row) = session.registry().find(node.op(), |attr| node.dtype(attr).ok()) {
            assert_eq!((row.create)(node).map(drop), Ok(()), "{}", case.name);
        }
    }
    let known = |op: &str| session.registry().rows().iter().any(|row| row.op == op);
    let unknown: Vec<_> =
        families::all(SIZES).into_iter().filter(|c| !known(c.node.op())).map(|c| c.name).collect();
    assert_eq!(unknown, [""; 0]);
}

#[test]
fn filters_choose_rows() {
    let chosen = |arguments: &[&str]| {
        let options = options(arguments);
        families::all(SIZES).iter().filter(|c| options.wants(c.family, &c.name)).count()
    };
    let (all, softmax) = (chosen(&["--quick"]), chosen(&["SOFTMAX "]));
    assert!(0 < softmax && softmax < all);
    assert_eq!(chosen(&["softmax ", "conv conv3d"]), softmax + 3);
    assert!(Options::parse(vec!["--colour".into()]).is_err());
    assert!(Options::parse(vec!["--batch".into(), "many".into()]).is_err());
    assert!(run(&options(&["no such row"])).is_err());
}

/// Sixty-four dispatches in one buffer, in a buffer each, and one after the other. They run on a
/// separate device: the shared one also counts the dispatches of other tests.
#[test]
fn barriers_are_counted_as_wgpu_puts_them() {
    let selection = Selection::enumerate(&|name| std::env::var(name).ok());
    let adapter = &selection.adapters[0];
    let device = Device::open(adapter).expect("a device");
    let rows = barriers::both(adapter, &device, &Budget::QUICK);
    let rows = rows.expect("times");
    assert!(rows.iter().any(|row| !row.own_barriers), "{rows:?}");
    assert!(rows.iter().all(|row| row.microseconds > 0.0 && row.best > 0.0), "{rows:?}");
    for row in &rows {
        let counted = (row.barriers, row.needed);
        // One less for each time that an idle device got its work early: only barriers within
        // passes are counted.
        let each = 56..=63;
        match row.pattern {
            Pattern::Buffers => assert_eq!(counted, (0, 0), "{row:?}"),
            Pattern::Parts if row.own_barriers => assert_eq!(counted, (0, 0), "{row:?}"),
            Pattern::Parts => assert!(each.contains(&row.barriers) && row.needed == 0, "{row:?}"),
            Pattern::Chain => {
                assert!(each.contains(&row.barriers) && row.needed == row.barriers, "{row:?}");
            }
        }
    }
    let json = barriers::json(&device, "a test", &rows);
    assert_eq!(json["kind"], "barriers");
    assert_eq!(json["rows"].as_array().map(Vec::len), Some(rows.len()));
    assert_eq!(barriers::table(&rows).lines().count(), rows.len() + 2);
}

#[test]
fn rows_are_enqueued_once() {
    let mut options = options(&["MatMul float32 32×256×1024", "Softmax float32 16×", "--once"]);
    assert_eq!(run(&options), Ok(0));
    options.filters.clear();
    options.filters.push("no such row".to_owned());
    assert!(run(&options).is_err());
}

#[test]
fn rows_are_measured_on_demand() {
    let session = Session::shared().expect("an adapter");
    let (device, cases) = (&session.device, families::all(SIZES));
    let rates = Rates { copy: 1e9, flops: 1e10, dispatches: 1e5 };
    let peaks = Peaks { wall: rates, cpu: rates };
    let mut answers = Vec::new();
    let questions = &b"MatMul float32 32\xc3\x97256\xc3\x971024\nno such row\n"[..];
    let told = (&Value::from("about"), &peaks);
    serve(device, session.registry(), &cases, &Budget::QUICK, told, questions, &mut answers)
        .expect("answers");
    let lines: Vec<Value> = answers
        .split_inclusive(|b| *b == b'\n')
        .map(|l| serde_json::from_slice(l).expect("JSON"))
        .collect();
    let [about, product, none] = &lines[..] else { panic!("three lines, not {lines:?}") };
    assert_eq!(about, "about");
    assert_eq!(product["name"], "MatMul float32 32×256×1024");
    assert!(
        product["ms"].as_f64().is_some_and(|ms| ms > 0.0)
            && product["cpu_s"].as_f64().is_some_and(|s| s > 0.0)
    );
    assert_eq!(none["error"], "no such row");
}

#[test]
fn the_floor_is_the_largest_of_three() {
    let rates = Rates { copy: 1e9, flops: 1e10, dispatches: 1e5 };
    assert_eq!(rates.floor(1e9, 1e9, 1), (1.0, "memory"));
    assert_eq!(rates.floor(1e6, 1e10, 1), (1.0, "arithmetic"));
    assert_eq!(rates.floor(10.0, 10.0, 100_000), (1.0, "dispatch"));
}

#[test]
fn two_rows_are_measured_and_written() {
    let path = std::env::temp_dir().join(format!("kernels-{}.json", std::process::id()));
    let path = path.to_str().expect("a path");
    let rows = ["addv2 float32 64,", "matmul float32 32×256×1024"];
    let failed = run(&options(&["--quick", "--note", "a test", "--json", path, rows[0], rows[1]]))
        .expect("an adapter");
    assert_eq!(failed, 0);
    let text = std::fs::read_to_string(path).expect("the file");
    std::fs::remove_file(path).expect("the file");
    let all: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(
        (&all["kind"], &all["schema"], &all["note"]),
        (&"kernels".into(), &1.into(), &"a test".into())
    );
    assert_eq!(all["versions"]["wgpu"].as_str().map(|v| v.split('.').count()), Some(3));
    assert!(all["date"].as_str().is_some_and(|d| d.starts_with("20") && d.len() == 20));
    for peaks in ["peaks", "peaks_cpu"] {
        for name in ["copy_gb_s", "gflop_s", "dispatch_us"] {
            assert!(
                all[peaks][name].as_f64().is_some_and(|v| v > 0.0 && v < 1e6),
                "{name} is {}",
                all[peaks][name]
            );
        }
    }
    let [product, sum] = &all["rows"].as_array().expect("rows")[..] else {
        panic!("two rows, not {}", all["rows"])
    };
    assert_eq!((&product["dispatches"], &sum["dispatches"]), (&1.into(), &1000.into()));
    assert_eq!(product["flops"], 2.0 * 32.0 * 256.0 * 1024.0);
    assert_eq!(product["necessary_bytes"], 4.0 * (32.0 * 256.0 + 256.0 * 1024.0 + 32.0 * 1024.0));
    assert_eq!(sum["necessary_bytes"], 1000.0 * 3.0 * 64.0 * 4.0);
    for row in [product, sum] {
        let figure = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{name} of {row}"));
        assert!(
            figure("ms") > 0.0
                && figure("first_ms") > 0.0
                && figure("host_us") > 0.0
                && figure("units") >= 1.0
        );
        let ratio = figure("ms") / figure("floor_ms");
        assert!((figure("ratio") / ratio - 1.0).abs() < 1e-9 && ratio > 0.0);
    }
}
