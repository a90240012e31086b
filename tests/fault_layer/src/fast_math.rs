//! A compiler with fast mathematics, which Metal's has by default: it assumes that there are no
//! NaNs and no infinities, that zeros have no sign, that sums may be taken in any order, that a
//! quotient is a product with a reciprocal, and that products and sums may be rounded once.
//!
//! Modules are rewritten before the driver sees them, if the variable [`VARIABLE`] is `on`. All
//! changes that such a compiler may make to one function are made wherever they are possible.

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::spirv::{self, BOUND, HEADER, glsl, instructions, op, targets};

/// The variable.
const VARIABLE: &str = "FAULT_LAYER_FAST_MATH";

fn is_on() -> bool {
    static OF_PROCESS: OnceLock<bool> = OnceLock::new();
    *OF_PROCESS.get_or_init(|| std::env::var_os(VARIABLE).is_some_and(|value| value == "on"))
}

/// A constant of floats, by its value.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Constant {
    Finite(f64),
    Infinite { is_negative: bool },
}

/// The operation that computes an id.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Computed {
    op: u32,
    ty: u32,
    operands: Vec<u32>,
}

/// The knowledge at the beginning or the end of a block.
#[derive(Debug, Clone, Default)]
struct State {
    /// The values of a function's variables.
    held: HashMap<u32, u32>,
    /// The ids of earlier results.
    known: HashMap<Computed, u32>,
}

impl State {
    fn keep_common(&mut self, other: &Self) {
        self.held.retain(|variable, value| other.held.get(variable) == Some(value));
        self.known.retain(|computed, id| other.known.get(computed) == Some(id));
    }
}

/// The replacement of an instruction with a result.
enum Made {
    Same,
    /// An existing value.
    Value(u32),
    /// Other instructions, the last of which has the result.
    Instructions(Vec<Vec<u32>>),
}

struct Rewriter {
    bound: u32,
    /// Types of floats of 16 and 32 bits and of their vectors, with the bits and the elements.
    floats: HashMap<u32, (u32, u32)>,
    /// The type of one element of a vector.
    elements: HashMap<u32, u32>,
    booleans: HashMap<u32, u32>,
    glsl: Option<u32>,
    constants: HashMap<u32, Constant>,
    /// The words of constants of one word, and those of composites.
    words: HashMap<u32, u32>,
    /// The declarations that go before the first function.
    declared: Vec<Vec<u32>>,
    /// Constants that were declared, by their type and the bits of their value.
    made: HashMap<(u32, u64), u32>,
    /// Ids that are equal to others.
    same: HashMap<u32, u32>,
    computed: HashMap<u32, Computed>,
    state: State,
}

/// The value of a float of 16 or 32 bits.
fn constant(bits: u32, word: u32) -> Option<Constant> {
    let (mantissa, bias) = if bits == 16 { (10, 15) } else { (23, 127) };
    let sign = if word >> (bits - 1) & 1 == 1 { -1.0 } else { 1.0 };
    let magnitude = word & ((1 << (bits - 1)) - 1);
    let (exponent, fraction) = (magnitude >> mantissa, magnitude & ((1 << mantissa) - 1));
    let highest = (1 << (bits - 1 - mantissa)) - 1;
    if exponent == highest {
        return (fraction == 0).then_some(Constant::Infinite { is_negative: sign < 0.0 });
    }
    let scale = 2.0f64.powi(exponent.max(1) as i32 - bias - mantissa as i32);
    let whole = if exponent == 0 { fraction } else { fraction | 1 << mantissa };
    Some(Constant::Finite(sign * f64::from(whole) * scale))
}

impl Rewriter {
    fn fresh(&mut self) -> u32 {
        self.bound += 1;
        self.bound - 1
    }

    fn same(&self, id: u32) -> u32 {
        self.same.get(&id).copied().unwrap_or(id)
    }

    fn is(&self, id: u32, value: f64) -> bool {
        self.constants.get(&id) == Some(&Constant::Finite(value))
    }

    /// Whether an id is an infinity, and whether it is the negative one.
    fn infinity(&self, id: u32) -> Option<bool> {
        match self.constants.get(&id)? {
            Constant::Infinite { is_negative } => Some(*is_negative),
            Constant::Finite(_) => None,
        }
    }

    /// The id of a constant: a 32-bit float, 0 or 1 of 16 bits, a boolean, or a vector of them.
    fn value(&mut self, ty: u32, value: f64) -> u32 {
        if let Some(id) = self.made.get(&(ty, value.to_bits())) {
            return *id;
        }
        let id = if let Some(element) = self.elements.get(&ty).copied() {
            let count = self.floats.get(&ty).map_or_else(|| self.booleans[&ty], |float| float.1);
            let one = self.value(element, value);
            let words = [vec![ty, 0], vec![one; count as usize]].concat();
            self.declare(op::CONSTANT_COMPOSITE, words)
        } else if self.booleans.contains_key(&ty) {
            let opcode = if value == 0.0 { op::CONSTANT_FALSE } else { op::CONSTANT_TRUE };
            self.declare(opcode, vec![ty, 0])
        } else {
            let word = match (self.floats[&ty].0, value) {
                (32, _) => (value as f32).to_bits(),
                (_, 0.0) => 0,
                _ => 0x3c00,
            };
            self.declare(op::CONSTANT, vec![ty, 0, word])
        };
        self.made.insert((ty, value.to_bits()), id);
        id
    }

    /// Declares a constant of these words, the second of which is its id.
    fn declare(&mut self, opcode: u32, mut words: Vec<u32>) -> u32 {
        words[1] = self.fresh();
        let id = words[1];
        self.declared.push([vec![(words.len() as u32 + 1) << 16 | opcode], words].concat());
        id
    }

    /// Learns from an instruction before the functions.
    fn declaration(&mut self, instruction: &[u32]) {
        match (instruction[0] & 0xffff, &instruction[1..]) {
            (op::EXT_INST_IMPORT, [id, name, ..]) if *name == u32::from_le_bytes(*b"GLSL") => {
                self.glsl = Some(*id);
            }
            (op::TYPE_BOOL, [id]) => drop(self.booleans.insert(*id, 1)),
            (op::TYPE_FLOAT, [id, bits @ (16 | 32), ..]) => {
                self.floats.insert(*id, (*bits, 1));
            }
            (op::TYPE_VECTOR, [id, element, count]) => {
                if let Some((bits, _)) = self.floats.get(element).copied() {
                    self.floats.insert(*id, (bits, *count));
                    self.elements.insert(*id, *element);
                } else if self.booleans.contains_key(element) {
                    self.booleans.insert(*id, *count);
                    self.elements.insert(*id, *element);
                }
            }
            (op::CONSTANT, [ty, id, word]) => {
                self.words.insert(*id, *word);
                self.float(*ty, *id, *word);
            }
            (op::CONSTANT_NULL, [ty, id]) => {
                self.words.insert(*id, 0);
                self.float(*ty, *id, 0);
            }
            (op::CONSTANT_COMPOSITE, [ty, id, first, rest @ ..])
                if rest.iter().all(|other| other == first) =>
            {
                if let Some(word) = self.words.get(first).copied() {
                    self.words.insert(*id, word);
                    self.float(*ty, *id, word);
                }
            }
            _ => {}
        }
    }

    /// Notes the value of an id, if it is of floats.
    fn float(&mut self, ty: u32, id: u32, word: u32) {
        if let Some(value) = self.floats.get(&ty).and_then(|(bits, _)| constant(*bits, word)) {
            self.constants.insert(id, value);
        }
    }

    /// The replacement of an instruction of a function.
    fn instruction(&mut self, instruction: &[u32]) -> Vec<Vec<u32>> {
        let (opcode, words) = (instruction[0] & 0xffff, &instruction[1..]);
        let kept = || vec![instruction.to_vec()];
        match (opcode, words) {
            (op::STORE, [pointer, value, ..]) => {
                let pointer = self.base(*pointer);
                // A store to a part of a variable makes its value unknown.
                if pointer == words[0] {
                    self.state.held.insert(pointer, self.same(*value));
                } else {
                    self.state.held.remove(&pointer);
                }
                return kept();
            }
            (op::LOAD, [_, id, pointer, ..]) => {
                if let Some(value) = self.state.held.get(pointer) {
                    self.same.insert(*id, *value);
                } else if self.computed.get(pointer).is_some_and(|c| c.op == op::VARIABLE) {
                    self.state.held.insert(*pointer, *id);
                }
                return kept();
            }
            (op::VARIABLE | op::ACCESS_CHAIN, [ty, id, operands @ ..]) => {
                let operands = operands.to_vec();
                self.computed.insert(*id, Computed { op: opcode, ty: *ty, operands });
                return kept();
            }
            (op::FUNCTION_CALL, [_, _, _, operands @ ..]) => {
                for operand in operands {
                    let base = self.base(*operand);
                    self.state.held.remove(&base);
                }
                return kept();
            }
            (op::BITCAST, [ty, id, operand]) => {
                if let Some(word) = self.words.get(&self.same(*operand)).copied() {
                    self.float(*ty, *id, word);
                }
                return kept();
            }
            _ => {}
        }
        let is_known = matches!(
            opcode,
            op::FNEGATE | op::FADD | op::FSUB | op::FMUL | op::FDIV | op::EXT_INST
        ) || (op::IS_NAN..=op::FUNORD_GREATER_EQUAL).contains(&opcode);
        let (true, [ty, id, operands @ ..]) = (is_known, words) else { return kept() };
        let ty = *ty;
        let operands: Vec<u32> = operands.iter().map(|operand| self.same(*operand)).collect();
        let computed = Computed { op: opcode, ty, operands };
        if let Some(known) = self.state.known.get(&computed).copied() {
            self.same.insert(*id, known);
        }
        let made = self.rewrite(&computed, *id);
        self.state.known.entry(computed.clone()).or_insert(*id);
        self.computed.insert(*id, computed);
        match made {
            Made::Same => kept(),
            Made::Value(value) => {
                self.same.insert(*id, self.same(value));
                vec![vec![4 << 16 | op::COPY_OBJECT, ty, *id, value]]
            }
            Made::Instructions(all) => all,
        }
    }

    /// The variable that a pointer points into.
    fn base(&self, pointer: u32) -> u32 {
        match self.computed.get(&pointer) {
            Some(Computed { op: op::ACCESS_CHAIN, operands, .. }) => self.base(operands[0]),
            _ => pointer,
        }
    }

    /// The operands of the operation that computes an id, if it has this opcode.
    fn by(&self, opcode: u32, id: u32) -> Option<[u32; 2]> {
        let computed = self.computed.get(&id).filter(|computed| computed.op == opcode)?;
        computed.operands.first_chunk().copied()
    }

    fn rewrite(&mut self, computed: &Computed, id: u32) -> Made {
        let Computed { op: opcode, ty, operands } = computed;
        let (opcode, ty) = (*opcode, *ty);
        if self.booleans.contains_key(&ty) {
            let answer = self.comparison(opcode, operands);
            return answer.map_or(Made::Same, |answer| {
                Made::Value(self.value(ty, f64::from(u8::from(answer))))
            });
        }
        if !self.floats.contains_key(&ty) {
            return Made::Same;
        }
        let negated = |value| Made::Instructions(vec![vec![4 << 16 | op::FNEGATE, ty, id, value]]);
        let zero = |this: &mut Self| Made::Value(this.value(ty, 0.0));
        match (opcode, &operands[..]) {
            (op::FADD | op::FSUB | op::FMUL | op::FDIV, [a, b])
                if self.infinity(*a).or(self.infinity(*b)).is_some() =>
            {
                zero(self)
            }
            (op::FSUB, [a, b]) if a == b => zero(self),
            (op::FSUB, [a, b]) if self.is(*b, 0.0) => Made::Value(*a),
            (op::FADD | op::FSUB, [a, b]) if self.factored(opcode, *a, *b).is_some() => {
                let (rest, first, factor, by) = self.factored(opcode, *a, *b).expect("it is");
                let (by, product) = (self.value(ty, by), self.fresh());
                Made::Instructions(vec![
                    vec![5 << 16 | op::FMUL, ty, product, factor, by],
                    vec![5 << 16 | first, ty, id, rest, product],
                ])
            }
            (op::FSUB, [a, b]) => {
                let (sum, difference) = (self.by(op::FADD, *a), self.by(op::FSUB, *a));
                let (of_sum, of_difference) = (self.by(op::FADD, *b), self.by(op::FSUB, *b));
                match (sum, difference, of_sum, of_difference) {
                    (Some([x, y]), ..) if x == *b => Made::Value(y),
                    (Some([x, y]), ..) if y == *b => Made::Value(x),
                    (_, Some([x, y]), ..) if x == *b => negated(y),
                    (_, _, Some([x, y]), _) if x == *a => negated(y),
                    (_, _, Some([x, y]), _) if y == *a => negated(x),
                    (.., Some([x, y])) if x == *a => Made::Value(y),
                    _ => Made::Same,
                }
            }
            (op::FADD, [a, b]) if self.is(*b, 0.0) => Made::Value(*a),
            (op::FADD, [a, b]) if self.is(*a, 0.0) => Made::Value(*b),
            (op::FADD, [a, b]) => match (self.by(op::FSUB, *a), self.by(op::FSUB, *b)) {
                (Some([x, y]), _) if y == *b => Made::Value(x),
                (_, Some([x, y])) if y == *a => Made::Value(x),
                _ => self.contracted(ty, id, *a, *b),
            },
            (op::FMUL, [a, b]) if self.is(*a, 0.0) || self.is(*b, 0.0) => zero(self),
            (op::FMUL, [a, b]) => match (self.by(op::FDIV, *a), self.by(op::FDIV, *b)) {
                (Some([x, y]), _) if y == *b => Made::Value(x),
                (_, Some([x, y])) if y == *a => Made::Value(x),
                _ => self.by(op::FMUL, *a).map_or(Made::Same, |[x, y]| {
                    let product = self.fresh();
                    Made::Instructions(vec![
                        vec![5 << 16 | op::FMUL, ty, product, y, *b],
                        vec![5 << 16 | op::FMUL, ty, id, x, product],
                    ])
                }),
            },
            (op::FDIV, [a, b]) if a == b => Made::Value(self.value(ty, 1.0)),
            (op::FDIV, [a, _]) if self.is(*a, 0.0) => zero(self),
            (op::FDIV, [a, b]) => {
                let (one, reciprocal) = (self.value(ty, 1.0), self.fresh());
                Made::Instructions(vec![
                    vec![5 << 16 | op::FDIV, ty, reciprocal, one, *b],
                    vec![5 << 16 | op::FMUL, ty, id, *a, reciprocal],
                ])
            }
            (op::EXT_INST, [set, glsl::FMIN | glsl::FMAX, a, b]) if Some(*set) == self.glsl => {
                match (self.infinity(*a), self.infinity(*b)) {
                    (_, Some(_)) => Made::Value(*a),
                    (Some(_), _) => Made::Value(*b),
                    _ => Made::Same,
                }
            }
            _ => Made::Same,
        }
    }

    /// For (x + k c) + k d with constants c and d, where each + may be a -: x, the first operation,
    /// k, and the factor of k.
    fn factored(&self, second: u32, a: u32, b: u32) -> Option<(u32, u32, u32, f64)> {
        let constant = |id| match self.constants.get(&id) {
            Some(Constant::Finite(value)) => Some(*value),
            _ => None,
        };
        let product = |id| {
            let [k, c] = self.by(op::FMUL, id)?;
            constant(c).map(|c| (k, c)).or_else(|| constant(k).map(|k| (c, k)))
        };
        let (k, d) = product(b).filter(|_| self.floats[&self.computed[&b].ty].0 == 32)?;
        let (first, [x, inner]) = [op::FADD, op::FSUB]
            .into_iter()
            .find_map(|opcode| Some((opcode, self.by(opcode, a)?)))?;
        let (_, c) = product(inner).filter(|(other, _)| *other == k)?;
        Some((x, first, k, if first == second { c + d } else { c - d }))
    }

    /// A sum with a product in it, rounded once.
    fn contracted(&self, ty: u32, id: u32, a: u32, b: u32) -> Made {
        let (product, other) = match (self.by(op::FMUL, a), self.by(op::FMUL, b)) {
            (Some(product), _) => (product, b),
            (_, Some(product)) => (product, a),
            _ => return Made::Same,
        };
        let Some(set) = self.glsl else { return Made::Same };
        let [x, y] = product;
        Made::Instructions(vec![vec![8 << 16 | op::EXT_INST, ty, id, set, glsl::FMA, x, y, other]])
    }

    /// The result of a comparison, if it is always the same.
    fn comparison(&self, opcode: u32, operands: &[u32]) -> Option<bool> {
        if matches!(opcode, op::IS_NAN | op::IS_INF) {
            return Some(false);
        }
        let [a, b] = operands else { return None };
        match opcode {
            op::FORD_EQUAL | op::FUNORD_EQUAL if a == b => return Some(true),
            op::FORD_NOT_EQUAL | op::FUNORD_NOT_EQUAL if a == b => return Some(false),
            _ => {}
        }
        // The larger one of the two, if the other one is finite.
        let is_less = match (self.infinity(*a), self.infinity(*b)) {
            (Some(_), Some(_)) | (None, None) => return None,
            (Some(is_negative), None) => is_negative,
            (None, Some(is_negative)) => !is_negative,
        };
        match opcode {
            op::FORD_EQUAL | op::FUNORD_EQUAL => Some(false),
            op::FORD_NOT_EQUAL | op::FUNORD_NOT_EQUAL => Some(true),
            op::FORD_LESS | op::FUNORD_LESS | op::FORD_LESS_EQUAL | op::FUNORD_LESS_EQUAL => {
                Some(is_less)
            }
            op::FORD_GREATER
            | op::FUNORD_GREATER
            | op::FORD_GREATER_EQUAL
            | op::FUNORD_GREATER_EQUAL => Some(!is_less),
            _ => None,
        }
    }
}

/// The words of a module in the form that a fast-math compiler makes of it.
pub fn with_fast_math(words: &[u32]) -> Vec<u32> {
    let all = instructions(words);
    let mut rewriter = Rewriter {
        bound: words[BOUND],
        floats: HashMap::new(),
        elements: HashMap::new(),
        booleans: HashMap::new(),
        glsl: None,
        constants: HashMap::new(),
        words: HashMap::new(),
        declared: Vec::new(),
        made: HashMap::new(),
        same: HashMap::new(),
        computed: HashMap::new(),
        state: State::default(),
    };
    let first = all.iter().position(|i| i[0] & 0xffff == op::FUNCTION).unwrap_or(all.len());
    all[..first].iter().for_each(|instruction| rewriter.declaration(instruction));
    // The blocks before each block, by places.
    let mut before: HashMap<u32, Vec<u32>> = HashMap::new();
    let mut places = HashMap::new();
    let mut block = 0;
    for (place, instruction) in all.iter().enumerate().skip(first) {
        if instruction[0] & 0xffff == op::LABEL {
            block = instruction[1];
            places.insert(block, place);
        }
        for target in targets(instruction) {
            before.entry(target).or_default().push(block);
        }
    }
    let mut ends: HashMap<u32, State> = HashMap::new();
    let mut bodies = Vec::new();
    block = 0;
    for (place, instruction) in all.iter().enumerate().skip(first) {
        let opcode = instruction[0] & 0xffff;
        if opcode == op::LABEL {
            block = instruction[1];
            let from = before.get(&block).cloned().unwrap_or_default();
            let is_loop = from.iter().any(|source| places[source] >= place);
            let mut states = from.iter().filter_map(|source| ends.get(source));
            rewriter.state = states.next().cloned().unwrap_or_default();
            states.for_each(|other| rewriter.state.keep_common(other));
            if is_loop {
                // The loop may store to any variable behind this point.
                rewriter.state.held.clear();
            }
        }
        if !targets(instruction).is_empty() {
            ends.insert(block, rewriter.state.clone());
        }
        bodies.extend(rewriter.instruction(instruction).concat());
    }
    let mut result = words[..HEADER].to_vec();
    result[BOUND] = rewriter.bound;
    result.extend(all[..first].concat());
    result.extend(rewriter.declared.concat());
    result.extend(bodies);
    result
}

/// A fast-math compiler's translation of a module's code.
pub fn rewritten(code: &[u8]) -> Option<Vec<u8>> {
    if !is_on() {
        return None;
    }
    Some(spirv::bytes(&with_fast_math(&spirv::words(code))))
}
