//! The choices that were made, by shape, so that an eager product does not choose again.
//!
//! A choice depends on its shape, on the device's profile and on the matrix units that are used,
//! and all of them are in the key. So no choice is ever out of date: a probe's verdict, a refused
//! program or a wish for determinism changes the matrix units, and with them the key. A tuner keeps
//! its own answers ([`crate::device::tuning`]), which come before these choices. The shipped table
//! comes before the estimate.

use parking_lot::RwLock;
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::Contraction;
use super::choice::{Choice, Demand, Estimated, by_tile, choose};
use super::shipped::{self, Class, Operation};
use crate::device::{Cooperative, Device, Family, Profile};
use crate::dtype::DType;

/// The most choices that are kept. When there are more shapes, all are forgotten.
const MOST: usize = 4096;

/// What a choice depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Question {
    /// The device, by its number.
    device: u32,
    operation: Operation,
    dtype: DType,
    /// Rows, columns, the length of the contracted index, and the number of results.
    extents: [usize; 4],
    by_depth: bool,
    /// The id of the cooperative matrices, if they are used.
    cooperative: Option<u32>,
}

/// The choices of all devices. Threads that find theirs share the lock.
static CHOICES: RwLock<FxHashMap<Question, Choice>> =
    RwLock::new(FxHashMap::with_hasher(FxBuildHasher));

/// The table's choice, or else the estimate's, for `results` contractions like `c`.
pub(super) fn of(
    device: &Device,
    c: &Contraction,
    results: usize,
    cooperative: Option<Cooperative>,
) -> Choice {
    let question = Question {
        device: device.number(),
        operation: Operation::of(c),
        dtype: c.a.dtype,
        extents: [c.m, c.n, c.depth(), results],
        by_depth: c.is_by_depth(),
        cooperative: cooperative.map(Cooperative::id),
    };
    let known = CHOICES.read().get(&question).copied();
    known.unwrap_or_else(|| {
        let mut demand = c.demand(device.profile(), cooperative);
        demand.batch = results;
        let tuned = shipped::choice(question.operation, question.dtype, &demand);
        keep(&CHOICES, question, tuned.unwrap_or_else(|| choose(&demand)))
    })
}

/// A question that was asked for a device, for tools that compare what may be chosen.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Its class, if a family is known.
    pub class: Option<Class>,
    /// The answer.
    pub choice: Choice,
    /// What the estimate takes with each tile that the adapter offers, the best first.
    pub candidates: Vec<Estimated>,
}

/// The questions that were asked for a device so far, with classes of `family`.
pub fn asked(device: &Device, family: Option<Family>) -> Vec<Asked> {
    let choices = CHOICES.read();
    let own = choices.iter().filter(|(question, _)| question.device == device.number());
    own.map(|(question, choice)| question.asked(device, family, *choice)).collect()
}

impl Question {
    fn asked(&self, device: &Device, family: Option<Family>, choice: Choice) -> Asked {
        let profile = Profile { family, tile: 0, ..device.profile() };
        let matrices = profile.capabilities.matrices.get(self.dtype);
        let cooperative = matrices.filter(|offered| self.cooperative == Some(offered.id()));
        let demand = Demand::of(profile, self.dtype, self.extents, self.by_depth, cooperative);
        Asked {
            class: Class::of(self.operation, self.dtype, &demand),
            choice,
            candidates: by_tile(&demand),
        }
    }
}

fn keep(
    choices: &RwLock<FxHashMap<Question, Choice>>,
    question: Question,
    choice: Choice,
) -> Choice {
    let mut choices = choices.write();
    if choices.len() >= MOST {
        choices.clear();
    }
    choices.insert(question, choice);
    choice
}

#[cfg(test)]
mod tests {
    use super::super::tables::MANY_REGISTERS;
    use super::*;
    use crate::local::Session;
    use crate::tensor::Tensor;

    #[test]
    fn the_number_of_kept_choices_is_bounded() {
        let choices = RwLock::default();
        let choice = Choice::of_tiles(&MANY_REGISTERS[0], 1);
        for device in 0..2 * MOST as u32 + 1 {
            let question = Question {
                device,
                operation: Operation::Product,
                dtype: DType::F32,
                extents: [1; 4],
                by_depth: false,
                cooperative: None,
            };
            assert_eq!(keep(&choices, question, choice), choice);
            let kept = choices.read();
            assert!(kept.len() <= MOST && kept.contains_key(&question));
        }
    }

    /// Matrix units that become unusable change the question, and so the choice.
    #[test]
    fn a_choice_with_matrix_units_is_not_one_without_them() {
        // A profile of no family follows no row of the table.
        let profile = Profile { family: None, ..Profile::NVIDIA };
        let device = Session::under(profile).expect("a Vulkan driver").device;
        let of = |address| Tensor::new(DType::F16, &[2048, 2048], address);
        let c = Contraction::product([2048; 3], [&of(0), &of(1 << 40), &of(2 << 40)]);
        for cooperative in [None, Some(Cooperative::F16), None, Some(Cooperative::F16)] {
            let choice = super::of(&device, &c, 1, cooperative);
            assert_eq!(choice, choose(&c.demand(device.profile(), cooperative)));
        }
    }
}
