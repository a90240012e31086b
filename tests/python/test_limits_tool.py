"""`tools/limits`: the readers of listings, loops, bounds and the comparison with a table."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

import aco
import agx
import bounds
import brw
import ir3
import limits_page
import nak
import pytest
import rows
from machine_code import Block, Instruction, Reader, hot_loops
from rows import Limits

NAK = """
block.u 0 L0 [] -> {
      ur0     = ldc.b32 c[0x0][+0x0]                        // delay=2 wr:2
      r4      = mov rZ                                      // delay=1
} -> [1]
block 1 L1 [0, 2] -> {
      r8..12  = ld.global.a64.constant.b128 [r10..12+rZ]    // delay=2 wr:0
      st.shared.strong.cta.b128 [r1] r8..12                 // delay=1
      bar.sync                                              // delay=1
      ur3     = mov 0x0                                     // delay=1
} -> [2]
block 2 L2 [1, 2] -> {
      r12     = ld.shared.strong.cta.b64 [r2+ur3]           // delay=1
      r13     = ffma.ftz r12 r14 r13                        // delay=4 wt=000001
      r15     = ffma.ftz r12 r16 r15                        // delay=4
      ur3     = iadd3 ur3 0x1 rZ                            // delay=1
      up0     = isetp.ge.u32 ur3 0x4                        // delay=13
                bra !up0 L2                                 // delay=1
} -> [3, 2]
block 3 L3 [2] -> {
@!p0            bra pT L1                                   // delay=1
} -> [4, 1]
block 4 L4 [3] -> {
                exit                                        // delay=1
} -> []
"""

ACO = """
BB0:
\ts_load_b128 s[12:15], s[12:13], null                        ; f4080306 f8000000
\tv_mov_b32_e32 v0, s6                                        ; 7e000206
BB1:
\tbuffer_load_b128 v[4:7], v6, s[12:15], 0 offen              ; e0500000 80430606
\ts_waitcnt vmcnt(0)                                          ; bf8903f7
\tds_store_b128 v1, v[4:7]                                    ; bf8903f7
\ts_barrier                                                   ; bfbd0000
\tds_load_2addr_b64 v[8:11], v2 offset1:2                     ; bf8903f7
\ts_delay_alu instid0(VALU_DEP_1)                             ; bf870001
\tv_fmac_f32_e32 v12, v8, v4                                  ; 02000f01
\tv_dual_fmac_f32 v13, v9, v4 :: v_dual_mul_f32 v14, v9, v5   ; 02000f01
\tv_lshlrev_b32_e32 v6, 2, v6                                 ; 300c0c82
\ts_cbranch_scc1 BB1                                          ; bfa2ffe4
BB2:
\ts_endpgm                                                    ; bfb00000
"""

IR3 = """
stc.u32 c[32], r48.w, 1
mad.f32 r0.x, r0.y, r0.z, r0.w
(sy)(ss)shpe
l10:
(jp)mov.u32u32 r49.w, 0
l20:
(rpt1)nop
br p0.x, #l30
isam.v.base7 (u32)(xyzw)r3.x, r2.w, s#0, t#0
(sy)stl.u32 l[r11.x], r3.x, 4
(sy)(ss)bar.g
ldl.u32 r4.y, l[r0.y], 4
(ss)(nop2)(rpt1)mad.f32 r13.y, r4.y, (r)r19.x, (r)(last)r13.y
(rpt1)add.u r0.x, (r)r0.x, 1
jump #l20
l30:
end
"""

BRW = """
(W)     mov (8)          r17           r0.1<0>
L3:
        cmp (8)        (ge)f0.0   null          r97           r31             {I@2}
(f0.0)  break (8)                        jip:L6              uip:L6
        send.ugm (8)     r50     r48    null:0  0x0  0x0   {$4}  // load.ugm.d32x4.a32.bti[0]
(W)     sync.nop (1)                     null                              {$4.dst}
        send.slm (8)     null    r58    r66:4   0x100  0x0   {$13}  // store.slm.d32x4.a32
(W)     send.slm (1)     r21     r102   null:0  0x0  0x0   {$0}  // load.slm.d32x16t.a32
        mad (8)          r30:f         r30<1>:f          r50<1>:f        r21<0>:f {$0.dst}
        add (8)          r97:d         r97:d             1:d             {Compacted}
        while (8)                        L3
L6:
        mov (8)          r17           r0.1<0>
"""

AGX = """
block0 {
   1 = ffma 2, 3, 4
}
    0: c508203d0c803000       mov      u97, r1
impl main {
}
block0 {
   1 = mov_imm #0x0
}
block0 {
   $r1 = mov_imm #0x0
} -> block1

block1 {
   r12...r15 = device_load r14:r15, r13.abs, xyzw, #0x0, slot 0
   wait slot 0
   local_store r12...r15, r29l, #0, xyzw, #0x0
   threadgroup_barrier
   r0h = local_load r29l, #0, x, #0x0
   r5 = ffma r12, r13, r5
   r1 = iadd r1, #1, #0x0
   jmp_exec_any #0x555564ba3190
} -> block1 block2  from block0 block1

block2 {
   stop
}
    0: c508203d0c803000       mov      u97, r1
block0 {
   uniform_store 1, #10, xy, #0x0
}
"""


#: A vector engine of 8 lanes takes two clocks for 16.
BRW_CLOCKS = {"clocks8": 2, "clocks16": 1}


def only_loop(reader: Reader, text: str) -> Counter[str]:
    """The counts of a listing's only hot loop."""
    blocks = reader.blocks(text)
    (loop,) = hot_loops(blocks, reader)
    return reader.total(loop)


@pytest.mark.parametrize(
    ("reader", "text", "expected"),
    [
        # The inner loop has four passes.
        (
            nak.READER,
            NAK,
            {"fma": 8, "lds_loads": 4, "lds_stores": 1, "lds_bytes": 48, "loads": 1,
             "memory_bytes": 16, "barriers": 1, "branches": 5, "alu": 9, "issued": 29},
        ),
        (
            aco.READER,
            ACO,
            {"fma": 2, "float": 1, "alu": 1, "vector": 3, "dual": 1, "lds_loads": 1,
             "lds_stores": 1, "lds_bytes": 32, "loads": 1, "memory_bytes": 16, "waits": 1,
             "barriers": 1, "branches": 1, "issued": 9},
        ),
        (
            ir3.READER,
            IR3,
            {"fma": 2, "alu": 2, "lds_loads": 1, "lds_stores": 1, "lds_bytes": 32, "loads": 1,
             "memory_bytes": 16, "waits": 3, "barriers": 1, "branches": 2, "idle": 4, "issued": 10},
        ),
        (
            brw.READER,
            BRW,
            {"fma": 1, "alu": 2, "lds_loads": 1, "lds_stores": 1, "lds_bytes": 20, "loads": 1,
             "memory_bytes": 16, "waits": 1, "branches": 2, "clocks8": 8, "clocks16": 8,
             "issued": 9},
        ),
        (
            agx.READER,
            AGX,
            {"fma": 1, "alu": 1, "lds_loads": 1, "lds_stores": 1, "lds_bytes": 18, "loads": 1,
             "memory_bytes": 16, "waits": 1, "barriers": 1, "branches": 1, "issued": 8},
        ),
    ],
    ids=["nak", "aco", "ir3", "brw", "agx"],
)  # fmt: skip
def test_readers_count_a_loop(reader: Reader, text: str, expected: dict[str, int]) -> None:
    assert {name: n for name, n in only_loop(reader, text).items() if n} == expected


@pytest.mark.parametrize(
    ("reader", "line", "expected"),
    [
        (nak.READER, "hmma.m16n8k16.f32", {"matrix": 1, "matrix_fma": 2048}),
        (nak.READER, "st.local.b32", {"private": 1}),
        (nak.READER, "mufu.ex2", {"special": 1}),
        (aco.READER, "v_wmma_f32_16x16x16_f16", {"matrix": 1, "matrix_fma": 4096}),
        (aco.READER, "v_exp_f32_e32", {"vector": 1, "special": 1}),
        (aco.READER, "v_pk_fma_f16", {"vector": 1, "fma16": 2}),
        (aco.READER, "buffer_load_dwordx4", {"loads": 1, "memory_bytes": 16}),
        (aco.READER, "scratch_load_b32", {"private": 1}),
        (brw.READER, "dpas.8x8(16)", {"matrix": 1, "matrix_fma": 4096} | BRW_CLOCKS),
        (agx.READER, "stack_store", {"private": 1}),
        (ir3.READER, "stp.u32", {"private": 1}),
    ],
)  # fmt: skip
def test_readers_know_an_instruction(reader: Reader, line: str, expected: dict[str, int]) -> None:
    counts = reader.count(Instruction(line))
    assert {name: n for name, n in counts.items() if n} == {"issued": 1, **expected}


def block(name: str, *successors: str) -> Block:
    return Block(name, successors=list(successors))


def test_a_loop_around_a_loop_without_a_fixed_number_is_not_hot() -> None:
    blocks = [
        block("entry", "outer"),
        block("outer", "inner"),
        block("inner", "inner", "end"),
        block("end", "outer", "exit"),
        block("exit"),
        block("unreached", "outer"),
    ]
    reader = Reader(lambda _: [], lambda _: Counter())
    assert [[b.name for b, _ in loop] for loop in hot_loops(blocks, reader)] == [["inner"]]
    fixed = Reader(lambda _: [], lambda _: Counter(), lambda loop: 3 if len(loop) == 1 else None)
    (loop,) = hot_loops(blocks, fixed)
    assert [(b.name, times) for b, times in loop] == [("outer", 1), ("inner", 3), ("end", 1)]


def test_a_counter_of_an_inner_loop_is_not_the_loops_own() -> None:
    blocks = [
        block("tiles", "steps"),
        block("steps", "inner"),
        block("inner", "inner", "end"),
        block("end", "steps", "next"),
        block("next", "tiles"),
    ]
    reader = Reader(
        lambda _: [],
        lambda _: Counter(),
        lambda loop: 3 if any(b.name == "inner" for b in loop) else None,
    )
    (loop,) = hot_loops(blocks, reader)
    assert [(b.name, times) for b, times in loop] == [("steps", 1), ("inner", 3), ("end", 1)]


def test_bounds_of_rdna() -> None:
    model = bounds.rdna(bounds.RDNA3_MATRIX)
    # 2 clocks for each instruction of 64 lanes; dual issue takes one for 80 of 100.
    bound = model(Counter(vector=100, dual=80, fma=60, lds_bytes=40), 64)
    assert (bound.single, bound.share, bound.by) == (0.6, 0.5, "instructions")
    bound = model(Counter(vector=100, dual=100, fma=100, lds_bytes=200), 64)
    assert (bound.share, bound.by) == (0.5, "LDS")
    # Half of the instructions are pairs of multiply-adds.
    bound = model(Counter(vector=100, fma=100), 32)
    assert bound.share == 0.5
    # 32 products of 32 clocks, and 140 instructions of two.
    bound = model(Counter(vector=140, matrix=32, matrix_fma=32 * 4096), 64)
    assert round(bound.share, 2) == 0.79


def test_bounds_of_others() -> None:
    assert bounds.nvidia(1)(Counter(issued=200, fma=150), 32).share == 0.75
    assert bounds.nvidia(2)(Counter(issued=150, fma=100, float=25), 32).share == 0.8
    matrix = bounds.nvidia(1)(Counter(issued=64, matrix=1, matrix_fma=2048), 32)
    assert (matrix.share, matrix.by) == (0.5, "instructions")
    bound = bounds.intel(8)(Counter(clocks8=256, fma=128, lds_bytes=512), 8)
    assert (bound.share, bound.by) == (0.25, "SLM and L1")
    assert bounds.intel(8)(Counter(clocks8=200, fma=80), 16).share == 0.8
    assert bounds.apple(Counter(issued=110, waits=10, fma=60), 32).share == 0.6
    assert bounds.adreno(Counter(issued=80, idle=20, fma=50), 64).share == 0.5
    assert bounds.apple(Counter(), 32).share == 0.0


OUTPUT = f"""@@ row matmul: MatMul float32 8×8×8
@@ pipeline (wgpu internal) something
@@ statistic Number of GPRs: 24
@@ listed
@@ pipeline contract it
@@ statistic Subgroup: 32
@@ statistic Number of GPRs: 168
@@ statistic Max warps/SM: 12
@@ statistic Spills to memory: 3
@@ listing NAK assembly
{NAK}
@@ listed
@@ done 1024 64 2
@@ row scalar: AddV2
@@ failed the driver refused it
@@ row scalar: Missing
@@ absent
"""


def read(output: str) -> list[Limits]:
    """What is read of a program's output on ada."""
    found = rows.enqueued(output.splitlines(keepends=True))
    return [rows.limits_of(row, "ada", "26.2") for row in found]


def test_listings_are_kept(tmp_path: Path) -> None:
    (row, _) = rows.enqueued(OUTPUT.splitlines(keepends=True))
    rows.keep(tmp_path / "listings", "ada", 7, row)
    text = (tmp_path / "listings/ada-7.txt").read_text()
    assert text.startswith("matmul: MatMul float32 8×8×8\n\ncontract it\n")
    assert NAK in text


def test_rows_are_read_with_their_loops() -> None:
    product, failed = read(OUTPUT)
    assert (product.row, product.kernel) == ("matmul: MatMul float32 8×8×8", "contract it")
    assert (product.registers, product.occupancy, product.spills) == (168, 12, 3)
    assert (product.dispatches, product.computes, product.loops) == (2, True, True)
    assert product.counts["fma"] == 8
    assert (product.lds_per_fma, product.memory_per_fma) == (6.0, 2.0)
    assert product.bound is not None
    assert round(product.bound, 3) == round(8 / 29, 3)
    assert (failed.row, failed.problem) == ("scalar: AddV2", "the driver refused it")


def test_the_hot_region_of_a_row_of_bandwidth_moves_most_bytes() -> None:
    text = OUTPUT.replace("@@ done 1024 64 2", "@@ done 0 64 2")
    found, _ = read(text)
    assert (found.computes, found.bound, found.issued_per_16_bytes) == (False, None, 29.0)


#: A program in place of `kernels`: its device is lost at the third row of a process, and at row b.
#: Row e crashes.
PROGRAM = """
import os, sys
rows = [f"family {name}" for name in "abcdef" if not sys.argv[1:] or f"family {name}" in sys.argv]
for number, row in enumerate(rows):
    print("@@ row", row.replace(" ", ": "), flush=True)
    if row == "family e":
        os.abort()
    lost = lost or number == 2 or row == "family b" if number else row == "family b"
    print("@@ failed the GPU was lost" if lost else "@@ done 1 2 3", flush=True)
"""


def test_a_lost_device_does_not_end_the_rows(tmp_path: Path) -> None:
    program = tmp_path / "kernels.py"
    program.write_text(PROGRAM)
    wanted = [f"family: {name}" for name in "abcdef"]
    core = min(os.sched_getaffinity(0))
    found = list(rows.run([sys.executable, program], dict(os.environ), wanted, core))
    problems = {
        "family: b": "the GPU was lost",
        "family: e": "the compiler ended the process",
    }
    assert [(row.row, row.problem) for row in found] == [
        (name, problems.get(name, "")) for name in wanted
    ]


def limits(**changes: object) -> Limits:
    known = {"chip": "ada", "row": "a", "mesa": "26", "computes": True, "bound": 0.5}
    return Limits(**{**known, **changes})


@pytest.mark.parametrize(
    ("before", "now", "worse"),
    [
        (limits(), limits(bound=0.495), ""),
        (limits(), limits(bound=0.48), "bound 48.0 %, before 50.0 %"),
        (limits(), limits(spills=2), "spills 2 registers, before 0"),
        (limits(), limits(problem="refused"), "refused"),
        (limits(), limits(bound=None), "bound 0.0 %, before 50.0 %"),
        (
            limits(computes=False, bound=None, issued_per_16_bytes=10.0),
            limits(computes=False, bound=None, issued_per_16_bytes=20.0),
            "20 instructions for 16 bytes, before 10",
        ),
    ],
)
def test_what_counts_as_worse(before: Limits, now: Limits, worse: str, tmp_path: Path) -> None:
    assert limits_page.worse(before, now) == worse
    table = tmp_path / "table.jsonl"
    limits_page.store(table, [before])
    told, bad = limits_page.compare(table, [now])
    assert (len(told), bad) == (int(bool(worse)), bool(worse))


def test_another_mesa_is_told_and_does_not_fail(tmp_path: Path) -> None:
    table = tmp_path / "table.jsonl"
    limits_page.store(table, [limits()])
    told, bad = limits_page.compare(table, [limits(bound=0.1, mesa="27")])
    assert told == ["ada: a: bound 10.0 %, before 50.0 % (Mesa 27, before 26)"]
    assert not bad


def test_tables_stand_between_the_markers(tmp_path: Path) -> None:
    page = tmp_path / "LIMITS.md"
    page.write_text(f"before\n{limits_page.BEGIN}\nold\n{limits_page.END}\nafter\n")
    found = [limits(), limits(row="b", computes=False, bound=None, issued_per_16_bytes=7.6)]
    limits_page.write(page, found)
    text = page.read_text()
    assert text.startswith(f"before\n{limits_page.BEGIN}\nMesa 26.\n")
    assert text.endswith(f"{limits_page.END}\nafter\n")
    assert "| a | 50 % |" in text
    assert "| b | 8 |" in text
    assert "old" not in text
