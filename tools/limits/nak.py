"""Listings of NAK, Mesa's compiler for NVIDIA's GPUs."""

from __future__ import annotations

import re
from collections import Counter

from machine_code import Block, Counts, Instruction, Reader

BLOCK = re.compile(r"block(?:\.u)? (\d+) \S+ \[[^\]]*\] -> \{")
END = re.compile(r"\} -> \[([\d, ]*)\]")
INSTRUCTION = re.compile(
    r"(?:@!?u?p\d+)?\s*(?:(?P<result>[\w. ]+?)\s+= )?\s*(?P<name>[a-z][\w.\[\]]*)"
    r"\s*(?P<operands>.*)"
)
#: The bytes of an access, by the part of its name.
WIDTHS = {"b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "b32": 4, "b64": 8, "b128": 16}
FLOAT = {"fadd", "fmul", "fmnmx", "fsetp", "fset", "fswzadd", "frnd"}
CONTROL = {"bra", "bsync", "bssy", "bclear", "bmov", "break", "exit", "warpsync"}


def blocks(text: str) -> list[Block]:
    """The blocks, which name their successors themselves."""
    found: list[Block] = []
    for line in text.splitlines():
        line = line.split("//")[0].strip()
        if begin := BLOCK.match(line):
            found.append(Block(begin[1]))
        elif end := END.match(line):
            found[-1].successors = re.findall(r"\d+", end[1])
        elif found and (instruction := INSTRUCTION.fullmatch(line)):
            found[-1].instructions.append(Instruction(**instruction.groupdict("")))
    return found


def count(instruction: Instruction) -> Counts:
    """What an instruction does."""
    parts = instruction.name.split(".")
    name = parts[0]
    counts: Counts = Counter(issued=1)
    if name == "ffma":
        counts["fma"] = 1
    elif name == "hfma2":
        counts["fma16"] = 2
    elif name in ("hmma", "imma"):
        counts["matrix"] = 1
        counts["matrix_fma"] = matrix_fma(parts)
    elif name in ("ld", "st", "atom", "red", "ldsm"):
        counts += access(name, parts)
    elif name in FLOAT:
        counts["float"] = 1
    elif name == "mufu":
        counts["special"] = 1
    elif name == "ldc" or name.startswith("s2") or name == "cs2r":
        counts["scalar"] = 1
    elif name in ("bar", "membar"):
        counts["barriers"] = int(name == "bar")
        counts["waits"] = int(name == "membar")
    elif name in CONTROL:
        counts["branches"] = 1
    elif name == "nop":
        counts["waits"] = 1
    else:
        counts["alu"] = 1
    return counts


def matrix_fma(parts: list[str]) -> int:
    """The multiply-adds of a product of matrices, by its shape, such as `m16n8k16`."""
    for part in parts:
        if shape := re.fullmatch(r"m(\d+)n(\d+)k(\d+)", part):
            return int(shape[1]) * int(shape[2]) * int(shape[3])
    return 0


def access(name: str, parts: list[str]) -> Counts:
    """What a load or a store does."""
    width = next((WIDTHS[part] for part in parts if part in WIDTHS), 4)
    load = name.startswith("ld")
    if "local" in parts:
        return Counter(private=1)
    if "shared" in parts or name == "ldsm":
        return Counter({"lds_loads" if load else "lds_stores": 1, "lds_bytes": width})
    return Counter({"loads" if load else "stores": 1, "memory_bytes": width})


def passes(loop: list[Block]) -> int | None:
    """How often a loop runs that counts a register from zero to a constant."""
    steps, ends = {}, {}
    for instruction in (i for block in loop for i in block.instructions):
        operands = instruction.operands.split()
        if instruction.name == "iadd3" and operands[0] == instruction.result:
            steps[operands[0]] = operands[1]
        elif instruction.name.startswith("isetp.ge."):
            ends[operands[0]] = operands[1]
    for register, end in ends.items():
        step = steps.get(register, "")
        if step.startswith("0x") and end.startswith("0x"):
            return -(-int(end, 16) // int(step, 16))
    return None


READER = Reader(blocks, count, passes)
