"""Listings of ir3, Mesa's compiler for Qualcomm's Adreno GPUs."""

from __future__ import annotations

import re
from collections import Counter

from machine_code import Block, Counts, Instruction, Reader, follow_each_other

BLOCK = re.compile(r"(l\d+):")
INSTRUCTION = re.compile(
    r"(?P<flags>(?:\([a-z]+\d*\)\s*)*)(?P<name>[a-z][\w.]*)\s*(?P<operands>.*)"
)
BRANCHES = ("br", "jump", "bkt", "getone", "shps", "predt", "predf", "prede", "end", "call", "ret")
#: Instructions of the memory units, by the beginning of their names, with what they are.
ACCESSES = {
    "ldl.": "lds_loads",
    "ldlw.": "lds_loads",
    "stl.": "lds_stores",
    "stlw.": "lds_stores",
    "isam": "loads",
    "ldib": "loads",
    "ldg": "loads",
    "stib": "stores",
    "stg": "stores",
    "atomic": "stores",
    "ldp": "private",
    "stp": "private",
}
FLOAT = re.compile(r"(?:add|mul|min|max|cmps|sign|absneg|floor|ceil|rndne|trunc)\.f")
SPECIAL = re.compile(r"(?:rcp|rsq|sqrt|log2|exp2|sin|cos)$")


def blocks(text: str) -> list[Block]:
    """The blocks. The code before `shpe`, which runs once for all invocations, is left out."""
    lines = text.splitlines()
    begin = next((i for i, line in enumerate(lines) if re.search(r"\bshpe$", line)), -1)
    found = [Block("entry")]
    ends = set()
    for line in lines[begin + 1 :]:
        if label := BLOCK.match(line):
            found.append(Block(label[1]))
            continue
        match = INSTRUCTION.fullmatch(line.strip())
        if not match or line.startswith(("Native code", ";", "@")):
            continue
        # Flags repeat an instruction, or let the unit wait.
        instruction = Instruction(
            match["flags"].replace(" ", "") + match["name"], match["operands"]
        )
        found[-1].instructions.append(instruction)
        name = match["name"]
        if target := re.search(r"#(l\d+)", match["operands"]):
            found[-1].successors.append(target[1])
            if name == "jump":
                ends.add(found[-1].name)
            # Code behind a conditional branch is a block of its own.
            found.append(Block(f"{found[-1].name}'"))
        elif name == "end":
            ends.add(found[-1].name)
    follow_each_other(found, ends)
    return found


def count(instruction: Instruction) -> Counts:
    """What an instruction does; `idle` are the clocks for which it makes the unit wait."""
    flags, name = re.fullmatch(r"((?:\([a-z]+\d*\))*)(.*)", instruction.name).groups()
    repeated = re.search(r"\(rpt(\d+)\)", flags)
    times = 1 + (int(repeated[1]) if repeated else 0)
    idle = re.search(r"\(nop(\d+)\)", flags)
    counts: Counts = Counter(issued=times, idle=int(idle[1]) if idle else 0)
    counts["waits"] = int("(sy)" in flags or "(ss)" in flags)
    access = next((kind for start, kind in ACCESSES.items() if name.startswith(start)), None)
    if access == "private":
        counts["private"] = 1
    elif access:
        counts[access] = 1
        space = "lds_bytes" if access.startswith("lds") else "memory_bytes"
        counts[space] = elements(name, instruction.operands) * bytes_of(name)
    elif name == "nop":
        counts["idle"] += times
        counts["issued"] = 0
    elif name == "mad.f32":
        counts["fma"] = times
    elif name == "mad.f16":
        counts["fma16"] = times
    elif name.startswith("bar"):
        counts["barriers"] = 1
    elif name.startswith(BRANCHES):
        counts["branches"] = 1
    elif name.startswith("fence"):
        counts["waits"] += 1
    elif SPECIAL.match(name):
        counts["special"] = times
    elif FLOAT.match(name):
        counts["float"] = times
    else:
        counts["alu"] = times
    return counts


def elements(name: str, operands: str) -> int:
    """How many elements an access moves."""
    if name.startswith("isam"):
        # `.v` fills the registers of the mask in front of the operands.
        mask = re.search(r"\(([xyzw]+)\)r", operands)
        return len(mask[1]) if mask else 1
    if name.startswith(("ldib", "stib")):
        typed = re.search(r"\.(\d)\.imm|\.(\d)\.", name)
        return int(typed[1] or typed[2]) if typed else 1
    last = operands.rsplit(",", 1)[-1].strip()
    return int(last) if last.isdigit() else 1


def bytes_of(name: str) -> int:
    """The bytes of an element."""
    typed = re.search(r"[usf](8|16|32)\b", name)
    return int(typed[1]) // 8 if typed else 4


READER = Reader(blocks, count)
