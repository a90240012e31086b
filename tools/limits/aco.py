"""Listings of ACO, Mesa's compiler for AMD's GPUs."""

from __future__ import annotations

import re
from collections import Counter

from machine_code import Block, Counts, Instruction, Reader, follow_each_other

BLOCK = re.compile(r"(BB\d+):")
INSTRUCTION = re.compile(r"\s+(?P<name>[a-z]\w+)\s*(?P<operands>[^;]*)")
#: Bytes of an access, by the end of its name.
WIDTH = re.compile(r"_(?:[biuf](8|16|32|64|96|128)|(byte|short|dword)(?:x(\d))?)(?:_|$)")
WORDS = {"byte": 1, "short": 2, "dword": 4}
FMA = re.compile(r"v_(?:dual_)?(?:fma|fmac|fmamk|fmaak|mac|mad|madmk|madak|fma_mix)_f32")
FMA16 = re.compile(r"v_(?:pk_fma_f16|pk_fmac_f16|dot2)")
MATRIX = re.compile(r"v_s?wmma_\w+?_(\d+)x(\d+)x(\d+)")
#: Instructions of which RDNA3 and later issue two at once, for the halves of a subgroup of 64.
DUAL = re.compile(r"v_(?:fma|fmac|fmamk|fmaak|add|sub|subrev|mul|max|min|mov|cndmask)_(?:f32|b32)")
FLOAT = re.compile(r"v_(?:dual_)?(?:add|sub|subrev|mul|max|min|cmpx?_\w+|rndne|floor)_f32")
SPECIAL = re.compile(r"v_(?:exp|log|rcp|rsq|sqrt|sin|cos)_")
HINTS = ("s_nop", "s_clause", "s_delay_alu", "s_set_inst_prefetch", "s_inst_prefetch")
WAITS = ("s_waitcnt", "s_wait_", "s_sleep")


def blocks(text: str) -> list[Block]:
    """The blocks. A branch names its target; any other end of a block leads to the next one."""
    found: list[Block] = []
    ends = set()
    for line in text.splitlines():
        if begin := BLOCK.match(line):
            found.append(Block(begin[1]))
        elif found and (match := INSTRUCTION.match(line)):
            instruction = Instruction(match["name"], match["operands"].strip())
            found[-1].instructions.append(instruction)
            if "branch" in instruction.name:
                found[-1].successors += re.findall(r"BB\d+", instruction.operands)
            if instruction.name in ("s_branch", "s_endpgm"):
                ends.add(found[-1].name)
    follow_each_other(found, ends)
    return found


def count(instruction: Instruction) -> Counts:
    """What an instruction does. `dual` are those of which two are issued at once."""
    name = instruction.name
    if name.startswith("v_"):
        return vector(instruction)
    counts: Counts = Counter(issued=1)
    if name.startswith("ds_"):
        # Others exchange registers of lanes.
        kind = "lds_loads" if re.search("load|read", name) else "lds_stores"
        if re.search("load|read|store|write", name):
            counts += Counter({kind: 1, "lds_bytes": width(name)})
        else:
            counts["alu"] = 1
    elif name.startswith("scratch_"):
        counts["private"] = 1
    elif name.startswith(("buffer_", "global_", "flat_")):
        if not name.startswith(("buffer_gl", "global_inv", "global_wb", "buffer_inv")):
            kind = "loads" if "load" in name else "stores"
            counts += Counter({kind: 1, "memory_bytes": width(name)})
    elif name.startswith(WAITS):
        counts["waits"] = 1
    elif name.startswith("s_barrier"):
        counts["barriers"] = int("wait" not in name)
    elif "branch" in name:
        counts["branches"] = 1
    elif name.startswith(HINTS):
        return Counter()
    else:
        counts["scalar"] = 1
    return counts


def vector(instruction: Instruction) -> Counts:
    """What an instruction of the vector units does."""
    name = instruction.name
    counts: Counts = Counter(issued=1)
    # Two operations in one instruction are written with `::` between them.
    parts = [name, *re.findall(r"v_dual_\w+", instruction.operands)]
    if matrix := MATRIX.match(name):
        counts["matrix"] = 1
        counts["matrix_fma"] = int(matrix[1]) * int(matrix[2]) * int(matrix[3])
        return counts
    counts["vector"] = 1
    counts["dual"] = int(bool(DUAL.match(name)))
    for part in parts:
        if FMA.match(part):
            counts["fma"] += 1
        elif FMA16.match(part):
            counts["fma16"] += 2
        elif FLOAT.match(part):
            counts["float"] += 1
        elif SPECIAL.match(part):
            counts["special"] += 1
        else:
            counts["alu"] += 1
    return counts


def width(name: str) -> int:
    """The bytes that an access moves."""
    pair = 2 if "2addr" in name or "read2" in name or "write2" in name else 1
    found = WIDTH.search(name)
    if not found:
        return 4 * pair
    if found[1]:
        return int(found[1]) // 8 * pair
    return WORDS[found[2]] * int(found[3] or 1) * pair


READER = Reader(blocks, count)
