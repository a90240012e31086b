//! The values that a fused reduction accumulates: the reductions of a node, their state between
//! steps, and its WGSL.
//!
//! A [`State`](States) has one member for each reduction: an accumulated value, or the moments
//! (count, sum, squared differences). Between steps states lie in planes: each plane holds one
//! number of every state.

use std::fmt::Write;

use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::reduce::table::{Identity, REDUCTIONS, Reduction, identity_text};
use crate::{invalid, require};

/// The name of the reduction with two outputs, mean and variance.
pub const MOMENTS: &str = "Moments";

/// One reduction of a node.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Row(&'static Reduction),
    Moments,
}

/// The reductions of a node, which accumulate in one type.
#[derive(Debug, Clone)]
pub struct States {
    kinds: Vec<(Kind, DType)>,
    accumulator: DType,
}

/// How an output is computed from a state.
#[derive(Debug, Clone)]
pub struct Finish {
    /// WGSL of the value, computed from the state `all`.
    pub value: String,
    /// Element type.
    pub dtype: DType,
}

impl States {
    /// The reductions `names`, separated by commas, of values of `dtypes`.
    ///
    /// # Errors
    /// `InvalidArgument` if a reduction is unknown or lacks the type, or where their
    /// accumulators differ in type.
    pub fn new(names: &str, dtypes: &[DType]) -> Result<Self> {
        let mut kinds = Vec::new();
        let names: Vec<&str> = names.split(',').collect();
        require!(
            names.len() == dtypes.len(),
            "{} reductions of {} values",
            names.len(),
            dtypes.len()
        );
        let accumulator = dtypes[0].accumulator();
        for (name, &dtype) in names.into_iter().zip(dtypes) {
            let kind = match REDUCTIONS.iter().find(|r| r.op == name && r.types.contains(&dtype)) {
                Some(row) => Kind::Row(row),
                None if name == MOMENTS && dtype.is_float() => Kind::Moments,
                None => invalid!("no reduction {name} of {dtype}"),
            };
            require!(
                dtype.accumulator() == accumulator,
                "reductions of {} and {dtype} in one node accumulate in different types",
                dtypes[0]
            );
            kinds.push((kind, dtype));
        }
        Ok(Self { kinds, accumulator })
    }

    /// The reductions of some of the values.
    pub fn select(&self, which: &[usize]) -> Self {
        Self {
            kinds: which.iter().map(|k| self.kinds[*k]).collect(),
            accumulator: self.accumulator,
        }
    }

    /// The type in which all accumulate.
    pub const fn accumulator(&self) -> DType {
        self.accumulator
    }

    /// Number of reductions.
    pub fn reductions(&self) -> usize {
        self.kinds.len()
    }

    /// Outputs of reduction `k`.
    pub fn outputs_of(&self, k: usize) -> usize {
        if matches!(self.kinds[k].0, Kind::Moments) { 2 } else { 1 }
    }

    /// Numbers in a state.
    pub fn planes(&self) -> usize {
        self.kinds.iter().map(|(kind, _)| if matches!(kind, Kind::Moments) { 3 } else { 1 }).sum()
    }

    /// Names and types, for keys and labels.
    pub fn text(&self) -> String {
        let one = |(kind, dtype): &(Kind, DType)| match kind {
            Kind::Row(row) => format!("{}<{dtype}>", row.op),
            Kind::Moments => format!("{MOMENTS}<{dtype}>"),
        };
        self.kinds.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    /// Names and values of the parameters behind the identities.
    pub fn parameters(&self) -> Vec<(&'static str, u32)> {
        let wanted = |identity: Identity| {
            self.kinds
                .iter()
                .any(|(kind, _)| matches!(kind, Kind::Row(row) if row.identity == identity))
        };
        let mut out = Vec::new();
        for (identity, names) in [
            (Identity::Lowest, ["lowest_low", "lowest_high"]),
            (Identity::Highest, ["highest_low", "highest_high"]),
        ] {
            if wanted(identity) {
                out.extend(names.into_iter().zip(identity.bits(self.accumulator)));
            }
        }
        out
    }

    /// WGSL of `State`, `identity`, `merge` and the rows' functions.
    pub fn wgsl(&self) -> String {
        let mut text = format!("alias Accumulator = {};\n\n", self.accumulator.value());
        let rows = || {
            self.kinds
                .iter()
                .filter_map(|(kind, _)| if let Kind::Row(row) = kind { Some(*row) } else { None })
        };
        let functions = rows().map(|row| row.combine.functions(self.accumulator));
        if let Some(order) = functions.into_iter().find(|text| !text.is_empty()) {
            text.push_str(order);
            text.push('\n');
        }
        if rows().count() < self.reductions() {
            text.push_str(include_str!("../../../../shaders/fused/reduce_moments.wgsl"));
            text.push('\n');
        }
        let (mut members, mut identities, mut merges) = (String::new(), Vec::new(), Vec::new());
        for (k, (kind, dtype)) in self.kinds.iter().enumerate() {
            let Kind::Row(row) = kind else {
                let _ = writeln!(members, "    r{k}: Moments,");
                identities.push("Moments()".to_owned());
                merges.push(format!("merge_moments(a.r{k}, b.r{k})"));
                continue;
            };
            let _ = writeln!(members, "    r{k}: Accumulator,");
            identities.push(self.identity(row.identity));
            merges.push(format!("combine_{k}(a.r{k}, b.r{k})"));
            let value = dtype.value();
            let _ = write!(
                text,
                "fn map_{k}(x: {value}) -> Accumulator {{\n    return {};\n}}\n\nfn \
                 combine_{k}(a: Accumulator, b: Accumulator) -> Accumulator {{\n    return \
                 {};\n}}\n\nfn finish_{k}(a: Accumulator) -> {value} {{\n    let count = \
                 Accumulator(p.total);\n    return {};\n}}\n\n",
                row.mapped(),
                row.combine.wgsl(),
                row.finish.wgsl()
            );
        }
        let _ = write!(
            text,
            "struct State {{\n{members}}}\n\nfn identity() -> State {{\n    return \
             State({});\n}}\n\nfn merge(a: State, b: State) -> State {{\n    return \
             State({});\n}}\n",
            identities.join(", "),
            merges.join(", ")
        );
        text
    }

    fn identity(&self, identity: Identity) -> String {
        let text = |prefix: &str| {
            format!("({})", identity_text(self.accumulator).replace("p.identity_", prefix))
        };
        match identity {
            Identity::Zero => "Accumulator(0)".to_owned(),
            Identity::One => "Accumulator(1)".to_owned(),
            Identity::Lowest => text("p.lowest_"),
            Identity::Highest => text("p.highest_"),
        }
    }

    /// WGSL of `lift`, the state of one element, from the values that a function named `function`
    /// returns.
    pub fn lift(&self, function: &str) -> String {
        let one = self.reductions() == 1;
        let argument =
            if one { self.kinds[0].1.value().to_owned() } else { format!("{function}_values") };
        let lifted = self.kinds.iter().enumerate().map(|(k, (kind, _))| {
            let value = if one { "v".to_owned() } else { format!("v.y{k}") };
            match kind {
                Kind::Row(_) => format!("map_{k}({value})"),
                Kind::Moments => format!("Moments(Accumulator(1), {value}, Accumulator(0))"),
            }
        });
        let lifted = lifted.collect::<Vec<_>>().join(", ");
        format!("fn lift(v: {argument}) -> State {{\n    return State({lifted});\n}}\n")
    }

    /// The members in the order of the planes.
    fn members(&self) -> Vec<String> {
        let of = |(k, (kind, _)): (usize, &(Kind, DType))| match kind {
            Kind::Row(_) => vec![format!("r{k}")],
            Kind::Moments => ["count", "sum", "squares"].map(|m| format!("r{k}.{m}")).to_vec(),
        };
        self.kinds.iter().enumerate().flat_map(of).collect()
    }

    /// WGSL of `load_state`, from the planes of the binding `before`, `p.before_plane` elements
    /// apart.
    pub fn load(&self) -> String {
        let loads: String = (self.members().iter().enumerate())
            .map(|(at, member)| {
                format!("    s.{member} = load_before({at}u * p.before_plane + i);\n")
            })
            .collect();
        format!("fn load_state(i: u32) -> State {{\n    var s: State;\n{loads}    return s;\n}}\n")
    }

    /// WGSL of `store_state`, to the planes of the binding `after`, `p.after_plane` elements apart.
    pub fn store(&self) -> String {
        let stores: String = (self.members().iter().enumerate())
            .map(|(at, member)| {
                format!("    store_after({at}u * p.after_plane + i, s.{member});\n")
            })
            .collect();
        format!("fn store_state(i: u32, s: State) {{\n{stores}}}\n")
    }

    /// How the outputs are computed, in their order.
    pub fn finish(&self) -> Vec<Finish> {
        let of = |(k, (kind, dtype)): (usize, &(Kind, DType))| {
            let values = match kind {
                Kind::Row(_) => vec![format!("finish_{k}(all.r{k})")],
                Kind::Moments => ["sum", "squares"]
                    .map(|m| format!("all.r{k}.{m} / Accumulator(p.total)"))
                    .to_vec(),
            };
            values.into_iter().map(|value| Finish { value, dtype: *dtype }).collect::<Vec<_>>()
        };
        self.kinds.iter().enumerate().flat_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType::*;

    #[test]
    fn reductions_of_one_accumulator_go_together() {
        let states = States::new("Sum,Moments,Max", &[F32, BF16, F16]).unwrap();
        assert_eq!((states.planes(), states.finish().len(), states.parameters().len()), (5, 4, 2));
        assert_eq!(states.text(), "Sum<float32>, Moments<bfloat16>, Max<float16>");
        assert_eq!(states.select(&[1]).text(), "Moments<bfloat16>");
    }

    #[test]
    fn reductions_without_a_row_are_refused() {
        for (names, dtypes) in [
            ("Sum", vec![F32, F32]),
            ("Sum", vec![Bool]),
            ("Sum,Sum", vec![F32, F64]),
            ("Moments", vec![I64]),
            ("", vec![F32]),
        ] {
            assert!(States::new(names, &dtypes).is_err(), "{names} {dtypes:?}");
        }
    }
}
