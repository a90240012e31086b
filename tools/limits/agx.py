"""Listings of AGX, Mesa's compiler for Apple's GPUs. The driver gives them to no one who asks, so
they come from its debug output: several states of the program, then machine code without blocks.
"""

from __future__ import annotations

import re
from collections import Counter

from machine_code import Block, Counts, Instruction, Reader

BLOCK = re.compile(r"(block\d+) \{")
END = re.compile(r"\}( -> (?P<after>(?:block\d+ ?)*))?")
INSTRUCTION = re.compile(r"\s+(?:(?P<result>[^=]*?) = )?(?P<name>[a-z]\w*)\s*(?P<operands>.*)")
MACHINE_CODE = re.compile(r"\s*[0-9a-f]+: [0-9a-f]{4,} ")
FLOAT = ("fadd", "fmul", "fcmpsel", "fcmp", "fmin", "fmax", "floor", "roundeven", "trunc")
SPECIAL = ("rcp", "rsqrt", "rsqrt_special", "exp2", "log2", "sin_pt_1", "sin_pt_2", "srsqrt")
BRANCHES = (
    "if_",
    "else_",
    "while_",
    "pop_exec",
    "begin_cf",
    "break",
    "jmp_exec",
    "stop",
    "logical",
)


def blocks(text: str) -> list[Block]:
    """The blocks of the last program's last state before its machine code. Behind that comes code
    that runs once for all invocations.
    """
    lines = text[max(text.rfind("\nimpl main {"), 0) :].splitlines()
    end = next((i for i, line in enumerate(lines) if MACHINE_CODE.match(line)), len(lines))
    begin = max(
        (i for i, line in enumerate(lines[:end]) if line.startswith("block0 {")), default=end
    )
    found: list[Block] = []
    for line in lines[begin:end]:
        if block := BLOCK.match(line):
            found.append(Block(block[1]))
        elif found and (after := END.match(line)):
            found[-1].successors = (after["after"] or "").split()
        elif found and (match := INSTRUCTION.match(line)):
            found[-1].instructions.append(Instruction(**match.groupdict("")))
    return found


def count(instruction: Instruction) -> Counts:
    """What an instruction does."""
    name = instruction.name
    # A load has its registers in front, a store behind.
    operands = f"{instruction.result} {instruction.operands}"
    counts: Counts = Counter(issued=1)
    if name in ("ffma", "fma"):
        half = re.match(r"\$?r\d+[lh]\b", operands)
        counts["fma16" if half else "fma"] = 1
    elif name.startswith(("local_load", "local_store")):
        kind = "lds_loads" if "load" in name else "lds_stores"
        counts += Counter({kind: 1, "lds_bytes": width(operands)})
    elif name.startswith(("device_load", "device_store", "atomic")):
        kind = "loads" if "load" in name else "stores"
        counts += Counter({kind: 1, "memory_bytes": width(operands)})
    elif name.startswith(("stack_load", "stack_store")):
        counts["private"] = 1
    elif name.startswith("simd_matrix") or name.startswith("simd_fma"):
        counts["matrix"] = 1
    elif name == "wait":
        counts["waits"] = 1
    elif name == "threadgroup_barrier":
        counts["barriers"] = 1
    elif name.startswith(BRANCHES):
        counts["branches"] = 1
    elif name.startswith(SPECIAL):
        counts["special"] = 1
    elif name.startswith(FLOAT):
        counts["float"] = 1
    else:
        counts["alu"] = 1
    return counts


def width(operands: str) -> int:
    """The bytes that an access moves: its mask's components, which fill whole or half registers."""
    mask = re.search(r"\b([xyzw]{1,4})(?:,|$)", operands)
    register = re.search(r"\br\d+([lh]?)", operands)
    return (len(mask[1]) if mask else 1) * (2 if register and register[1] else 4)


READER = Reader(blocks, count)
