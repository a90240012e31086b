//! Checks that shaders keep to the lengths of their arrays.
//!
//! wgpu clamps indices of buffers alone (`src/sys/trusted_shader.rs`). If the variable
//! [`VARIABLE`] is `on`, modules are rewritten before the driver sees them: a shader notes an index
//! that is not less than the length of an array in workgroup memory, of a local array, of a vector
//! or of a matrix, takes index 0 instead, and tells the process at its end. The process then ends
//! at its next call of Vulkan that can fail, or at its exit, with a message.
//!
//! The shader writes to a variable of this process, so that no pipeline has another binding. On a
//! driver that runs shaders on the CPU, an address of the process is one of the device, too.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::spirv::{self, BOUND, HEADER, instructions, op};

/// The variable.
const VARIABLE: &str = "FAULT_LAYER_INDICES";

/// The words of a `Private` and of a `PhysicalStorageBuffer` pointer's class.
const PRIVATE: u32 = 6;
const PHYSICAL: u32 = 5349;
/// The capability and the addressing model of pointers that are made of addresses.
const PHYSICAL_ADDRESSES: u32 = 5347;
const PHYSICAL_ADDRESSING: u32 = 5348;
/// The scope `Device`.
const DEVICE: u32 = 1;
/// The first version, in which an entry point lists every variable that it uses.
const LISTS_ALL: u32 = 0x0001_0400;

/// An access whose index is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// The name of the array, or the part of its name that the module has.
    pub array: String,
    /// The number of elements, which the index must be less than.
    pub length: u32,
}

/// The latest access that broke its bound, counted from 1 in [`ACCESSES`]; 0 if none did.
static BROKEN: AtomicU32 = AtomicU32::new(0);
/// The checked accesses of all modules.
static ACCESSES: Mutex<Vec<Access>> = Mutex::new(Vec::new());

fn is_on() -> bool {
    static OF_PROCESS: OnceLock<bool> = OnceLock::new();
    *OF_PROCESS.get_or_init(|| std::env::var_os(VARIABLE).is_some_and(|value| value == "on"))
}

/// Ends the process if a shader has broken a bound.
pub extern "C" fn stop_if_broken() {
    let number = BROKEN.load(Ordering::SeqCst) as usize;
    if number == 0 {
        return;
    }
    let all = ACCESSES.lock().unwrap_or_else(PoisonError::into_inner);
    eprintln!("fault layer: an index is out of range: {:?}", all[number - 1]);
    std::process::abort();
}

/// A module whose accesses are being checked.
struct Rewriter {
    bound: u32,
    names: HashMap<u32, String>,
    /// The words of integer constants.
    constants: HashMap<u32, u32>,
    /// Types of which one element is chosen by an index: their element, and the number of elements.
    /// Arrays without a length have none.
    composites: HashMap<u32, (u32, Option<u32>)>,
    structs: HashMap<u32, Vec<u32>>,
    /// What pointer types point to.
    pointees: HashMap<u32, u32>,
    /// The types of pointers and of vectors.
    types: HashMap<u32, u32>,
    /// The declarations that go before the first function.
    declared: Vec<Vec<u32>>,
    /// Constants that were declared, by their words.
    made: HashMap<u32, u32>,
    uint: u32,
    boolean: u32,
    /// The variable that holds the number of the latest broken access.
    broken: u32,
    /// The number of accesses of earlier modules.
    before: u32,
    accesses: Vec<Access>,
}

fn instruction(opcode: u32, operands: &[u32]) -> Vec<u32> {
    [&[(operands.len() as u32 + 1) << 16 | opcode], operands].concat()
}

impl Rewriter {
    fn fresh(&mut self) -> u32 {
        self.bound += 1;
        self.bound - 1
    }

    /// Learns from an instruction before the functions.
    fn declaration(&mut self, words: &[u32]) {
        match (words[0] & 0xffff, &words[1..]) {
            (op::NAME, [id, name @ ..]) => drop(self.names.insert(*id, spirv::text(name))),
            (op::TYPE_INT, [id, 32, 0]) => self.uint = *id,
            (op::TYPE_BOOL, [id]) => self.boolean = *id,
            (op::TYPE_VECTOR | op::TYPE_MATRIX, [id, element, count]) => {
                self.composites.insert(*id, (*element, Some(*count)));
            }
            (op::TYPE_ARRAY, [id, element, length]) => {
                self.composites.insert(*id, (*element, Some(self.constants[length])));
            }
            (op::TYPE_RUNTIME_ARRAY, [id, element]) => {
                self.composites.insert(*id, (*element, None));
            }
            (op::TYPE_STRUCT, [id, members @ ..]) => {
                self.structs.insert(*id, members.to_vec());
            }
            (op::TYPE_POINTER, [id, _, pointee]) => drop(self.pointees.insert(*id, *pointee)),
            (op::CONSTANT, [_, id, word, ..]) => drop(self.constants.insert(*id, *word)),
            (op::CONSTANT_NULL, [_, id]) => drop(self.constants.insert(*id, 0)),
            (op::VARIABLE, [ty, id, ..]) => drop(self.types.insert(*id, *ty)),
            _ => {}
        }
    }

    /// Declares a type, a constant or a variable, whose id is the operand at `place`.
    fn declare(&mut self, opcode: u32, place: usize, mut operands: Vec<u32>) -> u32 {
        let id = self.fresh();
        operands.insert(place, id);
        self.declared.push(instruction(opcode, &operands));
        id
    }

    fn constant(&mut self, word: u32) -> u32 {
        if let Some(id) = self.made.get(&word) {
            return *id;
        }
        let id = self.declare(op::CONSTANT, 1, vec![self.uint, word]);
        self.made.insert(word, id);
        id
    }

    /// Declares what every check needs.
    fn prepare(&mut self) {
        if self.uint == 0 {
            self.uint = self.declare(op::TYPE_INT, 0, vec![32, 0]);
        }
        if self.boolean == 0 {
            self.boolean = self.declare(op::TYPE_BOOL, 0, Vec::new());
        }
        let pointer = self.declare(op::TYPE_POINTER, 0, vec![PRIVATE, self.uint]);
        let none = self.constant(0);
        self.broken = self.declare(op::VARIABLE, 1, vec![pointer, PRIVATE, none]);
    }

    /// Adds the check of an index into `base`. Returns the index that is taken.
    fn check(&mut self, base: u32, index: u32, length: u32, out: &mut Vec<Vec<u32>>) -> u32 {
        let array = self.names.get(&base).cloned().unwrap_or_default();
        self.accesses.push(Access { array, length });
        let limit = self.constant(length);
        let name = self.constant(self.before + self.accesses.len() as u32);
        let (zero, ones) = (self.constant(0), self.constant(u32::MAX));
        let [is_bad, old, new, mask, taken] = std::array::from_fn(|_| self.fresh());
        let (uint, boolean, broken) = (self.uint, self.boolean, self.broken);
        out.extend([
            instruction(op::UGREATER_THAN_EQUAL, &[boolean, is_bad, index, limit]),
            instruction(op::LOAD, &[uint, old, broken]),
            instruction(op::SELECT, &[uint, new, is_bad, name, old]),
            instruction(op::STORE, &[broken, new]),
            instruction(op::SELECT, &[uint, mask, is_bad, zero, ones]),
            instruction(op::BITWISE_AND, &[uint, taken, index, mask]),
        ]);
        taken
    }

    /// An instruction of a function, with the checks that it needs before it.
    fn instruction(&mut self, words: &[u32]) -> Vec<Vec<u32>> {
        let mut out = Vec::new();
        let mut own = words.to_vec();
        match (words[0] & 0xffff, &words[1..]) {
            (op::ACCESS_CHAIN | op::IN_BOUNDS_ACCESS_CHAIN, [pointer, id, base, indices @ ..]) => {
                self.types.insert(*id, *pointer);
                let mut ty = self.pointees[&self.types[base]];
                for (place, index) in indices.iter().enumerate() {
                    if let Some(members) = self.structs.get(&ty) {
                        ty = members[self.constants[index] as usize];
                        continue;
                    }
                    let (element, length) = self.composites[&ty];
                    ty = element;
                    let known = self.constants.get(index);
                    if let Some(length) = length
                        && known.is_none_or(|index| *index >= length)
                    {
                        own[4 + place] = self.check(*base, *index, length, &mut out);
                    }
                }
            }
            (op::VECTOR_EXTRACT_DYNAMIC, [_, _, vector, index]) => {
                let (_, length) = self.composites[&self.types[vector]];
                own[4] = self.check(*vector, *index, length.expect("a vector"), &mut out);
            }
            (op::STORE | op::RETURN_VALUE | op::LABEL, _) => {}
            (_, [ty, id, ..])
                if self.composites.contains_key(ty) || self.pointees.contains_key(ty) =>
            {
                self.types.insert(*id, *ty);
            }
            _ => {}
        }
        out.push(own);
        out
    }

    /// Tells the process of a broken access, before the entry point returns.
    fn report(&mut self, address: u64) -> Vec<Vec<u32>> {
        let pair = self.composites.iter().find(|(_, of)| **of == (self.uint, Some(2)));
        let pair = pair.map(|(id, _)| *id);
        let pair = pair.unwrap_or_else(|| self.declare(op::TYPE_VECTOR, 0, vec![self.uint, 2]));
        let pointer = self.declare(op::TYPE_POINTER, 0, vec![PHYSICAL, self.uint]);
        let halves = [address as u32, (address >> 32) as u32].map(|half| self.constant(half));
        let address = self.declare(op::CONSTANT_COMPOSITE, 1, [&[pair][..], &halves].concat());
        let (scope, relaxed) = (self.constant(DEVICE), self.constant(0));
        let [value, place, old] = std::array::from_fn(|_| self.fresh());
        vec![
            instruction(op::LOAD, &[self.uint, value, self.broken]),
            instruction(op::BITCAST, &[pointer, place, address]),
            instruction(op::ATOMIC_UMAX, &[self.uint, old, place, scope, relaxed, value]),
        ]
    }
}

/// The words of a module that checks its indices and writes to `address` the number of a broken
/// access behind `before` others; and the checked accesses. None if there is nothing to check.
pub fn checked(words: &[u32], before: u32, address: u64) -> Option<(Vec<u32>, Vec<Access>)> {
    let all = instructions(words);
    let first = all.iter().position(|i| i[0] & 0xffff == op::FUNCTION)?;
    let mut rewriter = Rewriter {
        bound: words[BOUND],
        names: HashMap::new(),
        constants: HashMap::new(),
        composites: HashMap::new(),
        structs: HashMap::new(),
        pointees: HashMap::new(),
        types: HashMap::new(),
        declared: Vec::new(),
        made: HashMap::new(),
        uint: 0,
        boolean: 0,
        broken: 0,
        before,
        accesses: Vec::new(),
    };
    all[..first].iter().for_each(|instruction| rewriter.declaration(instruction));
    rewriter.prepare();
    let entry = all.iter().find(|i| i[0] & 0xffff == op::ENTRY_POINT)?[2];
    let mut function = 0;
    let mut bodies = Vec::new();
    for words in &all[first..] {
        match words[0] & 0xffff {
            op::FUNCTION => function = words[2],
            op::RETURN if function == entry => {
                let report = rewriter.report(address);
                bodies.extend(report);
            }
            _ => {}
        }
        bodies.extend(rewriter.instruction(words));
    }
    if rewriter.accesses.is_empty() {
        return None;
    }
    let mut result = words[..HEADER].to_vec();
    result[BOUND] = rewriter.bound;
    result.extend(instruction(op::CAPABILITY, &[PHYSICAL_ADDRESSES]));
    let extension = instruction(op::EXTENSION, &spirv::string("SPV_KHR_physical_storage_buffer"));
    let capabilities = all.iter().take_while(|i| i[0] & 0xffff == op::CAPABILITY).count();
    for (place, words) in all[..first].iter().enumerate() {
        if place == capabilities {
            result.extend(&extension);
        }
        let mut own = words.to_vec();
        match words[0] & 0xffff {
            op::MEMORY_MODEL => own[1] = PHYSICAL_ADDRESSING,
            op::ENTRY_POINT if result[1] >= LISTS_ALL => {
                own.push(rewriter.broken);
                own[0] += 1 << 16;
            }
            _ => {}
        }
        result.extend(own);
    }
    result.extend(rewriter.declared.concat());
    result.extend(bodies.concat());
    Some((result, rewriter.accesses))
}

/// A module's code with checked indices.
pub fn rewritten(code: &[u8]) -> Option<Vec<u8>> {
    unsafe extern "C" {
        fn atexit(function: extern "C" fn()) -> i32;
    }
    if !is_on() {
        return None;
    }
    static AT_EXIT: OnceLock<i32> = OnceLock::new();
    // SAFETY: the function is one of a library that stays loaded.
    AT_EXIT.get_or_init(|| unsafe { atexit(stop_if_broken) });
    let mut all = ACCESSES.lock().unwrap_or_else(PoisonError::into_inner);
    let address = BROKEN.as_ptr() as u64;
    let (words, accesses) = checked(&spirv::words(code), all.len() as u32, address)?;
    all.extend(accesses);
    Some(spirv::bytes(&words))
}
