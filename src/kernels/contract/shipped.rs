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
const TEXT: &str = include_str!("shipped.tsv");
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

/// What `parse` makes of a text, or that it is none of `what`.
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
mod tests;
