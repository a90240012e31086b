//! The part of SPIR-V that the layer reads and rewrites.

/// The number of words before the first instruction.
pub const HEADER: usize = 5;
/// The index of the bound of all ids.
pub const BOUND: usize = 3;

/// The numbers of instructions.
pub mod op {
    pub const NAME: u32 = 5;
    pub const EXTENSION: u32 = 10;
    pub const EXT_INST_IMPORT: u32 = 11;
    pub const EXT_INST: u32 = 12;
    pub const MEMORY_MODEL: u32 = 14;
    pub const ENTRY_POINT: u32 = 15;
    pub const CAPABILITY: u32 = 17;
    pub const TYPE_BOOL: u32 = 20;
    pub const TYPE_INT: u32 = 21;
    pub const TYPE_FLOAT: u32 = 22;
    pub const TYPE_VECTOR: u32 = 23;
    pub const TYPE_MATRIX: u32 = 24;
    pub const TYPE_ARRAY: u32 = 28;
    pub const TYPE_RUNTIME_ARRAY: u32 = 29;
    pub const TYPE_STRUCT: u32 = 30;
    pub const TYPE_POINTER: u32 = 32;
    pub const CONSTANT_TRUE: u32 = 41;
    pub const CONSTANT_FALSE: u32 = 42;
    pub const CONSTANT: u32 = 43;
    pub const CONSTANT_COMPOSITE: u32 = 44;
    pub const CONSTANT_NULL: u32 = 46;
    pub const FUNCTION: u32 = 54;
    pub const FUNCTION_CALL: u32 = 57;
    pub const VARIABLE: u32 = 59;
    pub const LOAD: u32 = 61;
    pub const STORE: u32 = 62;
    pub const ACCESS_CHAIN: u32 = 65;
    pub const IN_BOUNDS_ACCESS_CHAIN: u32 = 66;
    pub const VECTOR_EXTRACT_DYNAMIC: u32 = 77;
    pub const COPY_OBJECT: u32 = 83;
    pub const BITCAST: u32 = 124;
    pub const FNEGATE: u32 = 127;
    pub const FADD: u32 = 129;
    pub const FSUB: u32 = 131;
    pub const FMUL: u32 = 133;
    pub const FDIV: u32 = 136;
    pub const IS_NAN: u32 = 156;
    pub const IS_INF: u32 = 157;
    pub const SELECT: u32 = 169;
    pub const UGREATER_THAN_EQUAL: u32 = 174;
    pub const FORD_EQUAL: u32 = 180;
    pub const FUNORD_EQUAL: u32 = 181;
    pub const FORD_NOT_EQUAL: u32 = 182;
    pub const FUNORD_NOT_EQUAL: u32 = 183;
    pub const FORD_LESS: u32 = 184;
    pub const FUNORD_LESS: u32 = 185;
    pub const FORD_GREATER: u32 = 186;
    pub const FUNORD_GREATER: u32 = 187;
    pub const FORD_LESS_EQUAL: u32 = 188;
    pub const FUNORD_LESS_EQUAL: u32 = 189;
    pub const FORD_GREATER_EQUAL: u32 = 190;
    pub const FUNORD_GREATER_EQUAL: u32 = 191;
    pub const BITWISE_AND: u32 = 199;
    pub const ATOMIC_UMAX: u32 = 239;
    pub const LABEL: u32 = 248;
    pub const BRANCH: u32 = 249;
    pub const BRANCH_CONDITIONAL: u32 = 250;
    pub const SWITCH: u32 = 251;
    pub const RETURN: u32 = 253;
    pub const RETURN_VALUE: u32 = 254;
}

/// The numbers of GLSL's functions.
pub mod glsl {
    pub const FMIN: u32 = 37;
    pub const FMAX: u32 = 40;
    pub const FMA: u32 = 50;
}

/// The words of a module's code.
pub fn words(code: &[u8]) -> Vec<u32> {
    code.chunks_exact(size_of::<u32>())
        .map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")))
        .collect()
}

/// The code of a module's words.
pub fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A string as words: it ends with a zero byte, and zeros fill the last word.
pub fn string(text: &str) -> Vec<u32> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(text.len() / size_of::<u32>() * size_of::<u32>() + size_of::<u32>(), 0);
    words(&bytes)
}

/// The string that words begin with.
pub fn text(words: &[u32]) -> String {
    let bytes = bytes(words);
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// The blocks to which an instruction can jump.
pub fn targets(instruction: &[u32]) -> Vec<u32> {
    match (instruction[0] & 0xffff, &instruction[1..]) {
        (op::BRANCH, [target]) => vec![*target],
        (op::BRANCH_CONDITIONAL, [_, yes, no, ..]) => vec![*yes, *no],
        (op::SWITCH, [_, default, cases @ ..]) => {
            std::iter::once(*default).chain(cases.chunks(2).map(|case| case[1])).collect()
        }
        _ => Vec::new(),
    }
}

/// The instructions of a module: each is its first word, with opcode and length, and its operands.
pub fn instructions(words: &[u32]) -> Vec<&[u32]> {
    let (mut all, mut at) = (Vec::new(), HEADER);
    while at < words.len() {
        let length = (words[at] >> 16).max(1) as usize;
        all.push(&words[at..at + length]);
        at += length;
    }
    all
}
