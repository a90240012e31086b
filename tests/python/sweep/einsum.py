"""Einsum."""

from .core import case


@case("Einsum", gradient=True, tol={"float16": (1e-2, 2e-2), "bfloat16": (5e-2, 1e-1)})
def einsum(t):
    for equation, *shapes in [
        ("ab,bc->ac", (5, 7), (7, 3)),
        ("aecd,abcd->acbe", (2, 5, 3, 4), (2, 6, 3, 4)),
        ("...ij,...jk->...ik", (2, 1, 3, 4), (5, 4, 2)),
        ("abc->cb", (2, 3, 4)),
        ("iij->j", (3, 3, 2)),
        ("i->ii", (4,)),
        (",->", (), ()),
        ("ij,jk->ik", (2, 0), (0, 3)),
    ]:
        yield dict(inputs=[t.normal("T", shape) for shape in shapes], equation=equation)
