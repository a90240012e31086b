"""Matrix products."""

from .core import case

HALVES = {"float16": (1e-2, 2e-2), "bfloat16": (5e-2, 1e-1)}


def transposed(shape, yes):
    return (*shape[:-2], shape[-1], shape[-2]) if yes else shape


@case("MatMul:int64")
@case("MatMul", gradient=True, tol=HALVES)
def matmul(t):
    for m, k, n, a, b in [
        (3, 5, 7, False, False),
        (4, 8, 4, True, False),
        (1, 9, 5, False, True),
        (2, 3, 5, True, True),
        (3, 0, 2, False, False),
    ]:
        yield dict(
            a=t.values("T", transposed((m, k), a)),
            b=t.values("T", transposed((k, n), b)),
            transpose_a=a,
            transpose_b=b,
        )


@case("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", tol=HALVES, cpu_as={"float16": "float32"})
def batch_matmul(t):
    x_type, y_type = ("Ta", "Tb") if t.op == "BatchMatMulV3" else ("T", "T")
    cases = [
        ((2, 3, 5), (2, 5, 4), False, False),
        ((2, 2, 4, 3), (2, 2, 5, 4), True, True),
        ((2, 3, 5), (2, 4, 5), False, True),
        ((0, 3, 2), (0, 2, 5), False, False),
    ]
    if t.op != "BatchMatMul":
        cases += [((2, 1, 3, 4), (5, 4, 2), False, False), ((4, 3), (3, 4, 2), True, False)]
    for x, y, adj_x, adj_y in cases:
        more = {"Tout": t["Tout"]} if t.op == "BatchMatMulV3" else {}
        yield dict(x=t.values(x_type, x), y=t.values(y_type, y), adj_x=adj_x, adj_y=adj_y, **more)
