use super::*;
use crate::HostTensor;
use crate::device::{Cooperative, Profile};
use crate::kernels::contract::choice::choose;
use crate::kernels::contract::choices;
use crate::kernels::contract::tables::MANY_REGISTERS;
use crate::local::{Node, Session};
use crate::tensor::Tensor;

const ROW: &str = "ada\tproduct\tfloat32\tvector\tcolumns\t1024\t1024\t1024\t1\t\
                   8x2 in 16x16 workgroup\t-\t-\tbound chip=ada";

fn text(rows: &[&str]) -> String {
    format!("# a comment\n{}\n{}\n", COLUMNS.join("\t"), rows.join("\n"))
}

fn demand(profile: Profile, n: usize) -> Demand {
    let (words, depth, batch, by_depth, cooperative) = (1, n, 1, false, None);
    Demand { profile, words, m: n, n, depth, batch, by_depth, cooperative }
}

fn of(rows: &[&str], d: &Demand) -> Option<Choice> {
    let table = Shipped::parse(&text(rows)).unwrap();
    table.choice(Operation::Product, DType::F32, d)
}

#[test]
fn the_shipped_file_is_right_and_each_family_can_follow_its_rows() {
    let table = Shipped::parse(TEXT).unwrap();
    for (class, advice) in &table.0 {
        let kinds: Vec<_> = tables::kinds(advice.tile, class.dtype).collect();
        assert!(!kinds.is_empty(), "{class}: {}", advice.tile);
    }
}

/// A preset of a GPU like those of a family.
fn preset(family: Family) -> Profile {
    let like = match family {
        Family::Rdna3 | Family::Rdna4 => Profile::AMD,
        Family::Turing | Family::Ampere | Family::Ada | Family::Blackwell => Profile::NVIDIA,
        Family::Alchemist | Family::Battlemage => Profile::INTEL,
        Family::Apple | Family::Adreno740 => Profile::APPLE,
    };
    Profile { family: Some(family), ..like }
}

/// The rows for products on vector units, which any adapter can compute under a preset.
fn shipped_products() -> Vec<(Class, Advice)> {
    let all = Shipped::parse(TEXT).unwrap().0.into_iter();
    all.filter(|(class, _)| class.operation == Operation::Product && !class.matrices).collect()
}

fn operands([m, n, k, batch]: [usize; 4], dtype: DType) -> [Tensor; 3] {
    let of = |dims: [usize; 3], at: u64| Tensor::new(dtype, &dims, at << 40);
    [of([batch, m, k], 1), of([batch, k, n], 2), of([batch, m, n], 3)]
}

#[test]
fn a_contraction_follows_the_shipped_row_of_its_adapter() {
    for (class, advice) in shipped_products() {
        let [m, n, k, batch] = class.sizes;
        let [a, b, c] = operands(class.sizes, class.dtype);
        let product =
            Contraction::product([m, k, n], [&a, &b, &c]).transposed([false, class.by_depth]);
        let of = |profile| {
            let device = Session::under(profile).expect("a Vulkan driver").device;
            (choices::of(&device, &product, batch, None), device.profile())
        };
        let (choice, own) = of(preset(class.family));
        let mut demand = product.demand(own, None);
        demand.batch = batch;
        assert_eq!(Class::of(Operation::of(&product), class.dtype, &demand), Some(class));
        if choice::advised(&demand, advice.tile, advice.parts, advice.schedule).is_some() {
            assert_eq!(choice.tile, advice.tile, "{class}");
        }
        let (choice, own) = of(Profile { family: None, ..preset(class.family) });
        let demand = Demand { profile: own, ..demand };
        assert_eq!(choice, choose(&demand), "{class}: without a family");
    }
}

/// Sums of whole numbers are the same in any order.
#[test]
fn tiles_of_the_table_compute_what_the_estimates_do() {
    let (class, advice) = row(&ROW.split('\t').collect::<Vec<_>>().try_into().unwrap()).unwrap();
    let mut seen = Vec::new();
    for (class, Advice { tile, .. }) in [(class, advice)].into_iter().chain(shipped_products()) {
        let what = (preset(class.family).kind(), tile);
        if class.dtype != DType::F32 || seen.contains(&what) {
            continue;
        }
        seen.push(what);
        let [m, k, n] = [tile.m() + 4, 76, tile.n() + 4];
        let values = |count: usize| (0..count).map(|i| (i * 5 % 13) as f64 - 6.0).collect();
        let [a, b]: [Vec<f64>; 2] = [values(m * k), values(k * n)];
        let node = Node::new("MatMul")
            .attr("T", DType::F32)
            .attr("transpose_a", false)
            .attr("transpose_b", false);
        let run = |tile| {
            let profile = Profile { tile, ..preset(class.family) };
            let mut session = Session::under(profile).expect("a Vulkan driver");
            let inputs = [
                HostTensor::floats(DType::F32, &[m, k], &a).into(),
                HostTensor::floats(DType::F32, &[k, n], &b).into(),
            ];
            session.run(&node, &inputs).unwrap()[0].to_f64()
        };
        assert_eq!(run(tile.id()), run(0), "{tile}");
    }
}

#[test]
fn a_row_is_for_its_family_and_its_class() {
    let tile = named("8x2 in 16x16 workgroup").unwrap();
    for n in [513, 1000, 1024] {
        let choice = of(&[ROW], &demand(Profile::NVIDIA, n)).unwrap();
        assert_eq!(choice.tile, tile);
        assert_ne!(choose(&demand(Profile::NVIDIA, n)).tile, tile, "the estimate's is another");
    }
    let d = demand(Profile::NVIDIA, 1024);
    for other in [
        demand(Profile::AMD, 1024),
        demand(Profile::INTEL, 1024),
        demand(Profile { family: None, ..Profile::NVIDIA }, 1024),
        demand(Profile::NVIDIA, 512),
        demand(Profile::NVIDIA, 1025),
        Demand { by_depth: true, ..d },
        Demand { batch: 2, ..d },
        Demand { cooperative: Some(Cooperative::F16), ..d },
    ] {
        assert_eq!(of(&[ROW], &other), None, "{other:?}");
    }
    let table = Shipped::parse(&text(&[ROW])).unwrap();
    assert_eq!(table.choice(Operation::Convolution, DType::F32, &d), None);
    assert_eq!(table.choice(Operation::Product, DType::F16, &d), None);
}

#[test]
fn what_the_adapter_lacks_or_a_test_forces_is_ignored() {
    let d = demand(Profile::NVIDIA, 1024);
    let changed = |change: &dyn Fn(&mut Profile)| {
        let mut profile = d.profile;
        change(&mut profile);
        of(&[ROW], &Demand { profile, ..d })
    };
    assert!(changed(&|_| ()).is_some());
    assert_eq!(changed(&|p| p.capabilities.workgroup_memory = 8 << 10), None, "memory");
    assert_eq!(changed(&|p| p.registers = 128), None, "registers");
    assert_eq!(changed(&|p| p.tile = MANY_REGISTERS[0].id()), None, "a forced tile");
    assert_eq!(changed(&|p| p.schedule = Some(Schedule::StreamK)), None, "a forced schedule");
    assert_eq!(of(&[ROW], &Demand { words: 4, ..d }), None, "sums of four words");
}

#[test]
fn parts_and_schedules_are_carried_out() {
    let d = demand(Profile::NVIDIA, 1024);
    let with = |parts: &str, schedule: &str| {
        let row = ROW.replace("\t-\t-\t", &format!("\t{parts}\t{schedule}\t"));
        of(&[&row], &d).map(|choice| (choice.split_k, choice.schedule))
    };
    assert_eq!(with("4", "tiles"), Some((4, Schedule::DataParallel)));
    assert_eq!(with("-", "stream-k"), Some((1, Schedule::StreamK)));
    assert_eq!(with("-", "persistent").unwrap().1, Schedule::Persistent);
    let unknown = Profile { resident_workgroups: 0, ..d.profile };
    let row = ROW.replace("\t-\t-\t", "\t-\tstream-k\t");
    assert_eq!(of(&[&row], &Demand { profile: unknown, ..d }), None, "of unknown cores");
}

#[test]
fn a_wrong_line_is_told_with_its_number() {
    for (from, to, what) in [
        ("ada", "riva", "line 3: \"riva\" is not a family"),
        ("product", "sum", "line 3: \"sum\" is not an operation"),
        ("float32", "float33", "line 3: \"float33\" is not a type"),
        ("vector", "scalar", "line 3: \"scalar\" is not a kind of units"),
        ("columns", "rows", "line 3: \"rows\" is not an order"),
        ("\t1024\t1\t", "\t1000\t1\t", "line 3: \"1000\" is no power of two"),
        ("8x2 in 16x16", "9x2 in 16x16", "line 3: \"9x2 in 16x16 workgroup\" is not a tile"),
        ("\t-\t-\t", "\t0\t-\t", "line 3: \"0\" is not a number of parts"),
        ("\t-\t-\t", "\t-\tlater\t", "line 3: \"later\" is not a schedule"),
        ("bound chip", "guess", "line 3: \"guess=ada\" is no source"),
        ("\tbound", " bound", "line 3: 12 columns, not 13"),
        (
            "8x2 in 16x16 workgroup",
            "8x2 in 16x16 matrix 16x16x16 of 2",
            "line 3: 8x2 in 16x16 matrix 16x16x16 of 2 needs matrix units",
        ),
    ] {
        let wrong = ROW.replacen(from, to, 1);
        assert_ne!(wrong, ROW, "{from}");
        assert_eq!(Shipped::parse(&text(&[&wrong])).unwrap_err(), what);
    }
    let twice = Shipped::parse(&text(&[ROW, ROW])).unwrap_err();
    assert_eq!(twice, "line 4: its class has a row already");
    assert!(Shipped::parse("").is_err() && Shipped::parse(ROW).unwrap_err().contains("line 1"));
}

#[test]
fn a_class_and_every_tile_read_back_as_they_are_written() {
    let d = demand(Profile::NVIDIA, 1000);
    let class = Class::of(Operation::Product, DType::F32, &d).unwrap();
    assert!(ROW.starts_with(&format!("{class}\t")));
    for tile in tables::all().chain(&tables::COOPERATIVE) {
        assert_eq!(named(&tile.to_string()), Some(tile));
    }
}
