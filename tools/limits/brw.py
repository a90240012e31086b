"""Listings of brw, Mesa's compiler for Intel's GPUs."""

from __future__ import annotations

import re
from collections import Counter

from machine_code import Block, Counts, Instruction, Reader, follow_each_other

LABEL = re.compile(r"(L\d+):")
INSTRUCTION = re.compile(
    r"(?:\((?P<flags>[^)]*)\))?\s*(?P<name>[a-z][a-z0-9_.]*) \((?P<lanes>\d+)\)\s*(?P<operands>.*)"
)
#: Instructions that end a block: others may follow it than the next one.
CONTROL = ("if", "else", "endif", "while", "break", "cont", "halt", "goto", "join")
FLOAT_OPERAND = re.compile(r"r\d+(?:\.\d+)?(?:<[^>]*>)?:(?:f|hf)\b")
DPAS = re.compile(r"dpasw?\.(\d+)x(\d+)")
ACCESS = re.compile(r"(load|store|atomic)\w*\.(ugm|slm)\.(d\d+\w*)")


def blocks(text: str) -> list[Block]:
    """The blocks. Control flow is structured: `while` goes back to its label, others forward."""
    found = [Block("entry")]
    ends = set()
    for line in text.splitlines():
        if label := LABEL.match(line):
            found.append(Block(label[1]))
            continue
        match = INSTRUCTION.match(line.strip())
        if not match:
            continue
        block = found[-1]
        instruction = Instruction(f"{match['name']}({match['lanes']})", match["operands"])
        block.instructions.append(instruction)
        if match["name"] in CONTROL:
            block.successors += re.findall(r"\bL\d+", match["operands"])[:1]
            if match["name"] == "else":
                ends.add(block.name)
            found.append(Block(f"{block.name}'"))
    follow_each_other(found, ends)
    return found


def count(instruction: Instruction) -> Counts:
    """What an instruction does. `clocks8` and `clocks16` are how long units of 8 and of 16 lanes
    take for it.
    """
    name, lanes = re.fullmatch(r"([^(]*)\((\d+)\)", instruction.name).groups()
    width = int(lanes)
    counts: Counts = Counter(issued=1)
    counts["clocks8"], counts["clocks16"] = -(-width // 8), -(-width // 16)
    if name.startswith("send"):
        counts += access(instruction.operands)
    elif name in ("mad", "mac"):
        is_float = not re.search(r":(?:d|ud|w|uw|q|uq)\b", instruction.operands)
        counts["fma" if is_float else "alu"] = 1
    elif product := DPAS.match(name):
        # Each step of its depth multiplies a word of packed elements.
        packed = 2 if re.search(r":(?:hf|bf)\b", instruction.operands) else 4
        counts["matrix"] = 1
        counts["matrix_fma"] = int(product[1]) * int(product[2]) * packed * width
    elif name.startswith("sync"):
        counts["barriers"] = int(name == "sync.bar")
        counts["waits"] = int(name != "sync.bar")
        counts["clocks8"] = counts["clocks16"] = 0
    elif name in CONTROL:
        counts["branches"] = 1
    elif name.startswith("math"):
        counts["special"] = 1
    elif width == 1:
        counts["scalar"] = 1
    elif FLOAT_OPERAND.search(instruction.operands):
        counts["float"] = 1
    else:
        counts["alu"] = 1
    return counts


def access(operands: str) -> Counts:
    """What a message to the memory does: its end says, such as `load.slm.d32x4.a32`."""
    found = ACCESS.search(operands)
    if not found:
        return Counter(waits=1)
    bits, elements, transposed = re.fullmatch(r"d(\d+)(?:\D*x(\d+))?(t?).*", found[3]).groups()
    size = int(bits) // 8 * int(elements or 1)
    if transposed:
        # One address for the whole subgroup, of 16 lanes as most have.
        size //= 16
    space = "lds_bytes" if found[2] == "slm" else "memory_bytes"
    kind = "loads" if found[1] == "load" else "stores"
    return Counter({f"lds_{kind}" if found[2] == "slm" else kind: 1, space: size})


READER = Reader(blocks, count)
