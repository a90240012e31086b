//! The values that a program accumulates: its reductions, their state between steps, and its WGSL.
//!
//! A [`State`](States) has one member for each reduction: an accumulated value, or the moments
//! (count, sum, squared differences). Between steps states lie in planes: each plane holds one
//! number of every state.

use std::fmt::Write;

use super::integers::every_row;
use super::table::{Identity, Reduction, bound_text};
use crate::dtype::DType;
use crate::error::Result;
use crate::{invalid, require};

/// The name of the reduction with two outputs, mean and variance.
pub const MOMENTS: &str = "Moments";

/// One reduction of a program, with the type of its values.
#[derive(Debug, Clone, Copy)]
enum Member {
    Row(&'static Reduction, DType),
    Moments(DType),
}

impl Member {
    const fn dtype(self) -> DType {
        match self {
            Self::Row(_, dtype) | Self::Moments(dtype) => dtype,
        }
    }

    const fn row(self) -> Option<&'static Reduction> {
        match self {
            Self::Row(row, _) => Some(row),
            Self::Moments(_) => None,
        }
    }

    /// Its numbers in a state: the suffixes of the state's member.
    const fn numbers(self) -> &'static [&'static str] {
        match self {
            Self::Row(..) => &[""],
            Self::Moments(_) => &[".count", ".sum", ".squares"],
        }
    }
}

/// The reductions of a program, which accumulate in one type.
#[derive(Debug, Clone)]
pub struct States {
    members: Vec<Member>,
    accumulator: DType,
    /// Names and types.
    text: String,
}

/// The components of a vec4, and the members of the struct `Four`.
const COMPONENTS: [(&str, &str); 4] = [("x", "a"), ("y", "b"), ("z", "c"), ("w", "d")];

impl States {
    /// The reductions `names`, separated by commas, of values of `dtypes`.
    ///
    /// # Errors
    /// `InvalidArgument` if a reduction is unknown or lacks the type, or where their
    /// accumulators differ in type.
    pub fn new(names: &str, dtypes: &[DType]) -> Result<Self> {
        let names: Vec<&str> = names.split(',').collect();
        require!(
            names.len() == dtypes.len(),
            "{} reductions of {} values",
            names.len(),
            dtypes.len()
        );
        let mut members: Vec<Member> = Vec::new();
        let mut accumulator = None;
        for (name, &dtype) in names.into_iter().zip(dtypes) {
            let row = every_row().find(|r| r.op == name && r.types.contains(&dtype));
            let (member, own) = match row {
                Some(row) => (Member::Row(row, dtype), row.accumulator(dtype)),
                None if name == MOMENTS && dtype.is_float() => {
                    (Member::Moments(dtype), dtype.accumulator())
                }
                None => invalid!("no reduction {name} of {dtype}"),
            };
            require!(
                *accumulator.get_or_insert(own) == own,
                "reductions of {} and {dtype} in one node accumulate in different types",
                dtypes[0]
            );
            members.push(member);
        }
        Ok(Self::of(members, accumulator.expect("there is a name")))
    }

    /// The reductions of some of the values.
    pub fn select(&self, which: &[usize]) -> Self {
        Self::of(which.iter().map(|k| self.members[*k]).collect(), self.accumulator)
    }

    fn of(members: Vec<Member>, accumulator: DType) -> Self {
        let one = |member: &Member| {
            format!("{}<{}>", member.row().map_or(MOMENTS, |row| row.op), member.dtype())
        };
        let text = members.iter().map(one).collect::<Vec<_>>().join(", ");
        Self { members, accumulator, text }
    }

    /// The type in which all accumulate.
    pub const fn accumulator(&self) -> DType {
        self.accumulator
    }

    /// Number of reductions.
    pub fn reductions(&self) -> usize {
        self.members.len()
    }

    /// Outputs of reduction `k`.
    pub fn outputs_of(&self, k: usize) -> usize {
        if self.members[k].row().is_some() { 1 } else { 2 }
    }

    /// Numbers in a state.
    pub fn planes(&self) -> usize {
        self.members.iter().map(|member| member.numbers().len()).sum()
    }

    /// Whether a result depends on the number of reduced elements.
    pub fn counts(&self) -> bool {
        self.members.iter().any(|member| member.row().is_none_or(|row| row.finish.counts()))
    }

    /// Names and types, for keys and labels.
    pub fn text(&self) -> &str {
        &self.text
    }

    fn rows(&self) -> impl Iterator<Item = &'static Reduction> {
        self.members.iter().filter_map(|member| member.row())
    }

    /// Names and values of the parameters behind the identities that are bounds of a type.
    pub fn parameters(&self) -> Vec<(&'static str, u32)> {
        let mut out = Vec::new();
        for (identity, names) in [
            (Identity::Lowest, ["lowest_low", "lowest_high"]),
            (Identity::Highest, ["highest_low", "highest_high"]),
        ] {
            let of = |m: &&Member| m.row().is_some_and(|row| row.identity == identity);
            if let Some(member) = self.members.iter().find(of) {
                out.extend(names.into_iter().zip(identity.bits(member.dtype())));
            }
        }
        out
    }

    /// WGSL of `State`, `identity`, `merge` and the rows' functions; with `has_four` also of
    /// `Four`, the states of four neighbours.
    pub fn wgsl(&self, has_four: bool) -> String {
        let mut text = format!("alias Accumulator = {};\n\n", self.accumulator.value());
        let mut functions = self.rows().map(|row| row.combine.functions(self.accumulator));
        if let Some(order) = functions.find(|text| !text.is_empty()) {
            text.push_str(order);
            text.push('\n');
        }
        if self.rows().count() < self.reductions() {
            text.push_str(include_str!("../../../shaders/reduce_moments.wgsl"));
            text.push('\n');
        }
        let (mut members, mut identities, mut merges) = (String::new(), Vec::new(), Vec::new());
        for (k, member) in self.members.iter().enumerate() {
            let Member::Row(row, dtype) = *member else {
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
                 {}(p.total);\n    return {};\n}}\n\n",
                row.mapped(),
                row.combine.wgsl(),
                self.accumulator.part().value(),
                row.finish.wgsl(dtype)
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
        if has_four {
            text.push_str(include_str!("../../../shaders/reduce_four.wgsl"));
        }
        text
    }

    fn identity(&self, identity: Identity) -> String {
        match identity {
            Identity::Zero => "Accumulator()".to_owned(),
            Identity::One if self.accumulator.is_complex() => {
                format!("Accumulator({0}(1), {0}(0))", self.accumulator.part().value())
            }
            Identity::One => "Accumulator(1)".to_owned(),
            Identity::Lowest => bound_text(self.accumulator, "p.lowest"),
            Identity::Highest => bound_text(self.accumulator, "p.highest"),
        }
    }

    /// WGSL of `lift`, the state of one element, from the values that a function named `function`
    /// returns.
    pub fn lift(&self, function: &str) -> String {
        let one = self.reductions() == 1;
        let argument = if one {
            self.members[0].dtype().value().to_owned()
        } else {
            format!("{function}_values")
        };
        let lifted = self.members.iter().enumerate().map(|(k, member)| {
            let value = if one { "v".to_owned() } else { format!("v.y{k}") };
            match member {
                Member::Row(..) => format!("map_{k}({value})"),
                Member::Moments(_) => format!("Moments(Accumulator(1), {value}, Accumulator(0))"),
            }
        });
        let lifted = lifted.collect::<Vec<_>>().join(", ");
        format!("fn lift(v: {argument}) -> State {{\n    return State({lifted});\n}}\n")
    }

    /// The state's numbers in the order of the planes.
    fn numbers(&self) -> impl Iterator<Item = String> {
        let of = |(k, member): (usize, &Member)| {
            member.numbers().iter().map(move |number| format!("r{k}{number}"))
        };
        self.members.iter().enumerate().flat_map(of)
    }

    /// WGSL of `load_state`, from the planes of the binding `before`, `p.before_plane` elements
    /// apart; of vec4s it is `load_four`, the states of four neighbours.
    pub fn load(&self, of_vec4s: bool) -> String {
        let mut loads = String::new();
        for (at, number) in self.numbers().enumerate() {
            let place = format!("{at}u * p.before_plane + i");
            if of_vec4s {
                let _ = writeln!(loads, "    let v{at} = read_before({place});");
                for (component, member) in COMPONENTS {
                    let _ = writeln!(loads, "    s.{member}.{number} = v{at}.{component};");
                }
            } else {
                let _ = writeln!(loads, "    s.{number} = load_before({place});");
            }
        }
        let (name, value) = if of_vec4s { ("four", "Four") } else { ("state", "State") };
        format!(
            "fn load_{name}(i: u32) -> {value} {{\n    var s: {value};\n{loads}    return s;\n}}\n"
        )
    }

    /// WGSL of `store_state`, to the planes of the binding `after`, `p.after_plane` elements apart;
    /// of vec4s it stores the states of four neighbours.
    pub fn store(&self, of_vec4s: bool) -> String {
        let mut stores = String::new();
        for (at, number) in self.numbers().enumerate() {
            let place = format!("{at}u * p.after_plane + i");
            let _ = if of_vec4s {
                let four = COMPONENTS.map(|(_, member)| format!("s.{member}.{number}")).join(", ");
                writeln!(stores, "    write_after({place}, vec4({four}), 4u);")
            } else {
                writeln!(stores, "    store_after({place}, s.{number});")
            };
        }
        let value = if of_vec4s { "Four" } else { "State" };
        format!("fn store_state(i: u32, s: {value}) {{\n{stores}}}\n")
    }

    /// Types of the results, in their order.
    pub fn types(&self) -> Vec<DType> {
        let of = |k: usize| std::iter::repeat_n(self.members[k].dtype(), self.outputs_of(k));
        (0..self.reductions()).flat_map(of).collect()
    }

    /// WGSL of the results, computed from the state `all`.
    pub fn results(&self, all: &str) -> Vec<String> {
        let of = |(k, member): (usize, &Member)| match member {
            Member::Row(..) => vec![format!("finish_{k}({all}.r{k})")],
            Member::Moments(_) => ["sum", "squares"]
                .map(|m| format!("{all}.r{k}.{m} / Accumulator(p.total)"))
                .to_vec(),
        };
        self.members.iter().enumerate().flat_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType::*;

    #[test]
    fn reductions_of_one_accumulator_go_together() {
        let states = States::new("Sum,Moments,Max", &[F32, BF16, F16]).unwrap();
        assert_eq!((states.planes(), states.types().len(), states.parameters().len()), (5, 4, 2));
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
