//! The shipped table of tuned choices, `shipped.tsv`: for a family of GPUs and a class of shapes,
//! the tile that was found better than the estimate's. `docs/TUNING.md` describes the file.
//!
//! A contraction's class has the next powers of two of its sizes, as a question to the tuner
//! has ([`super::tuned`]). A row whose tile the adapter does not offer is ignored, and the estimate
//! chooses.

use std::fmt;
use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use super::choice::{self, Choice, Demand};
use super::tile::{Tile, TileKind};
use super::{ALayout, Contraction, tables};
use crate::device::{Family, Schedule};
use crate::dtype::DType;

/// The file that is shipped.
#[cfg(not(test))]
const TEXT: &str = include_str!("shipped.tsv");
/// The same with a row more: tests do not depend on what is shipped.
#[cfg(test)]
const TEXT: &str = concat!(
    include_str!("shipped.tsv"),
    "turing\tproduct\tfloat32\tvector\tcolumns\t8\t8\t8\t1\t8x2 in 16x16 workgroup\t-\t-\t",
    "bound of a test\n",
);
/// Its first line that is no comment.
const COLUMNS: [&str; 13] = [
    "family",
    "operation",
    "type",
    "units",
    "order",
    "m",
    "n",
    "k",
    "batch",
    "tile",
    "parts",
    "schedule",
    "source",
];
/// The word for what the estimate decides.
const ESTIMATED: &str = "-";

/// What a contraction is part of: programs of these load their operands differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Products of matrices.
    Product,
    /// Products with quantized weights.
    Quantized,
    /// Convolutions.
    Convolution,
    /// Gradients of convolutions for their inputs.
    InputGradient,
    /// Gradients of convolutions for their filters.
    FilterGradient,
}

impl Operation {
    /// All operations.
    const ALL: [Self; 5] = [
        Self::Product,
        Self::Quantized,
        Self::Convolution,
        Self::InputGradient,
        Self::FilterGradient,
    ];

    /// The operation of a contraction.
    pub const fn of(c: &Contraction) -> Self {
        match c.a_layout {
            _ if c.weights.is_some() => Self::Quantized,
            ALayout::Dense { .. } | ALayout::Terms { .. } => Self::Product,
            ALayout::Patch(_) => Self::Convolution,
            ALayout::Spread(_) => Self::InputGradient,
            ALayout::Window(_) => Self::FilterGradient,
        }
    }

    /// Its name in the table.
    const fn name(self) -> &'static str {
        match self {
            Self::Product => "product",
            Self::Quantized => "quantized",
            Self::Convolution => "conv",
            Self::InputGradient => "conv-input",
            Self::FilterGradient => "conv-filter",
        }
    }
}

/// A class of contractions on an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Class {
    family: Family,
    operation: Operation,
    dtype: DType,
    /// Whether matrix units are used for the type.
    matrices: bool,
    by_depth: bool,
    /// The powers of two at or above rows, columns, the contracted length and the batch.
    sizes: [usize; 4],
}

impl Class {
    /// The class of a contraction, if its adapter is of a family.
    pub fn of(operation: Operation, dtype: DType, d: &Demand) -> Option<Self> {
        Some(Self {
            family: d.profile.family?,
            operation,
            dtype,
            matrices: d.cooperative.is_some(),
            by_depth: d.by_depth,
            sizes: [d.m, d.n, d.depth, d.batch].map(usize::next_power_of_two),
        })
    }
}

impl Class {
    /// Its columns of the table, with their names.
    pub fn columns(&self) -> Vec<(&'static str, String)> {
        let text = self.to_string();
        COLUMNS.iter().copied().zip(text.split('\t').map(ToOwned::to_owned)).collect()
    }
}

/// The columns of a row that are its class, with tabs between them.
impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { family, operation, dtype, matrices, by_depth, sizes: [m, n, k, batch] } = self;
        let units = if *matrices { MATRIX } else { VECTOR };
        let order = if *by_depth { BY_DEPTH } else { BY_COLUMNS };
        let (family, operation) = (family.name(), operation.name());
        write!(f, "{family}\t{operation}\t{dtype}\t{units}\t{order}\t{m}\t{n}\t{k}\t{batch}")
    }
}

const VECTOR: &str = "vector";
const MATRIX: &str = "matrix";
/// Neighbouring elements of the right operand lie along its columns, or along the contracted index.
const BY_COLUMNS: &str = "columns";
const BY_DEPTH: &str = "depth";

/// What a row advises.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Advice {
    tile: &'static Tile,
    parts: Option<usize>,
    schedule: Option<Schedule>,
}

/// The rows of a file.
#[derive(Debug, Default)]
pub struct Shipped(FxHashMap<Class, Advice>);

/// The shipped rows. A test reads the file too, so that it is right in any build.
static ROWS: LazyLock<Shipped> = LazyLock::new(|| {
    Shipped::parse(TEXT).unwrap_or_else(|e| {
        log::error!("the table of tuned choices is not used: {e}");
        Shipped::default()
    })
});

/// The table's choice for a contraction, if there is one that the adapter offers.
pub fn choice(operation: Operation, dtype: DType, d: &Demand) -> Option<Choice> {
    ROWS.choice(operation, dtype, d)
}

impl Shipped {
    /// The choice of a row for a contraction, if there is one that the adapter offers.
    pub fn choice(&self, operation: Operation, dtype: DType, d: &Demand) -> Option<Choice> {
        let advice = self.0.get(&Class::of(operation, dtype, d)?)?;
        choice::advised(d, advice.tile, advice.parts, advice.schedule)
    }

    /// The rows of a text, or what is wrong with its first wrong line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut rows = FxHashMap::default();
        let lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with('#'));
        let mut header = false;
        for (number, line) in lines {
            let wrong = |what: String| format!("line {}: {what}", number + 1);
            let fields: Vec<_> = line.split('\t').collect();
            let fields: [&str; COLUMNS.len()] = fields.try_into().map_err(|found: Vec<_>| {
                wrong(format!("{} columns, not {}", found.len(), COLUMNS.len()))
            })?;
            if !header {
                if fields != COLUMNS {
                    return Err(wrong(format!("the columns are {}", COLUMNS.join(", "))));
                }
                header = true;
                continue;
            }
            let (class, advice) = row(&fields).map_err(wrong)?;
            if rows.insert(class, advice).is_some() {
                return Err(wrong("its class has a row already".to_owned()));
            }
        }
        if header { Ok(Self(rows)) } else { Err("there are no columns".to_owned()) }
    }
}

/// The class and the advice of a line.
fn row(fields: &[&str; COLUMNS.len()]) -> Result<(Class, Advice), String> {
    let [family, operation, dtype, units, order, m, n, k, batch, tile, parts, schedule, source] =
        *fields;
    let size = |text: &str| match text.parse::<usize>() {
        Ok(size) if size.is_power_of_two() => Ok(size),
        _ => Err(format!("{text:?} is no power of two")),
    };
    let class = Class {
        family: found(family, "a family", Family::named)?,
        operation: found(operation, "an operation", |name| {
            Operation::ALL.into_iter().find(|o| o.name() == name)
        })?,
        dtype: found(dtype, "a type", |name| DType::ALL.into_iter().find(|t| t.name() == name))?,
        matrices: found(units, "a kind of units", |name| either(name, VECTOR, MATRIX))?,
        by_depth: found(order, "an order", |name| either(name, BY_COLUMNS, BY_DEPTH))?,
        sizes: [size(m)?, size(n)?, size(k)?, size(batch)?],
    };
    let advice = Advice {
        tile: found(tile, "a tile", named)?,
        parts: found(parts, "a number of parts", |text| match text {
            ESTIMATED => Some(None),
            _ => text.parse().ok().filter(|parts| *parts > 0).map(Some),
        })?,
        schedule: found(schedule, "a schedule", |text| match text {
            ESTIMATED => Some(None),
            _ => SCHEDULES.into_iter().find(|s| schedule_name(*s) == text).map(Some),
        })?,
    };
    if matches!(advice.tile.kind, TileKind::Cooperative { .. }) && !class.matrices {
        return Err(format!("{tile} needs matrix units"));
    }
    let is_known = ["bound ", "measured "].iter().any(|kind| source.starts_with(kind));
    is_known.then_some((class, advice)).ok_or_else(|| format!("{source:?} is no source"))
}

/// The value that `parse` finds in a text. The error says that the text is not `what`.
fn found<T>(text: &str, what: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<T, String> {
    parse(text).ok_or_else(|| format!("{text:?} is not {what}"))
}

/// Whether a text is the second of two words.
fn either(text: &str, no: &str, yes: &str) -> Option<bool> {
    (text == no || text == yes).then_some(text == yes)
}

const SCHEDULES: [Schedule; 3] = [Schedule::DataParallel, Schedule::Persistent, Schedule::StreamK];

/// The name of a schedule in the table.
pub const fn schedule_name(schedule: Schedule) -> &'static str {
    match schedule {
        Schedule::DataParallel => "tiles",
        Schedule::Persistent => "persistent",
        Schedule::StreamK => "stream-k",
    }
}

/// The tile of this name in a table.
fn named(name: &str) -> Option<&'static Tile> {
    tables::all().chain(&tables::COOPERATIVE).find(|tile| tile.to_string() == name)
}

#[cfg(test)]
mod tests {
    use super::super::choice::choose;
    use super::super::choices;
    use super::super::tables::MANY_REGISTERS;
    use super::*;
    use crate::HostTensor;
    use crate::device::{Cooperative, Profile};
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

    /// The preset that comes closest to a family.
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
        let all = ROWS.0.iter().map(|(class, advice)| (*class, *advice));
        all.filter(|(class, _)| class.operation == Operation::Product && !class.matrices).collect()
    }

    fn operands([m, n, k, batch]: [usize; 4], dtype: DType) -> [Tensor; 3] {
        let of = |dims: [usize; 3], at: u64| Tensor::new(dtype, &dims, at << 40);
        [of([batch, m, k], 1), of([batch, k, n], 2), of([batch, m, n], 3)]
    }

    #[test]
    fn a_contraction_follows_the_shipped_row_of_its_adapter() {
        let mut followed = 0;
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
                followed += 1;
            }
            let (choice, own) = of(Profile { family: None, ..preset(class.family) });
            let demand = Demand { profile: own, ..demand };
            assert_eq!(choice, choose(&demand), "{class}: without a family");
            assert_ne!(choice.tile, advice.tile, "{class}: the row matters");
        }
        assert!(followed > 0);
    }

    /// Sums of whole numbers are the same in any order.
    #[test]
    fn tiles_of_the_table_compute_what_the_estimates_do() {
        let mut seen = Vec::new();
        for (class, Advice { tile, .. }) in shipped_products() {
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
}
