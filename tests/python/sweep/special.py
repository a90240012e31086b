"""Bessel functions, gamma functions and their kin."""

from .core import case

HALF = {"float16": (2e-3, 2e-3)}


@case(
    "BesselI0",
    "BesselI0e",
    "BesselI1",
    "BesselI1e",
    "BesselJ0",
    "BesselJ1",
    gradient=True,
    rtol=1e-5,
    tol=HALF,
)
def even_and_odd(t):
    yield dict(x=t.uniform("T", (3, 7), -9, 9))
    yield dict(
        x=t.uniform("T", (5,), 4, 30)
        if "e" in t.op[-1] or "J" in t.op
        else t.uniform("T", (5,), -4, 4)
    )
    yield dict(x=t.uniform("T", (), -3, 3))
    yield dict(x=t.uniform("T", (0, 3), -3, 3))


@case("BesselK0", "BesselK0e", "BesselK1", "BesselK1e", "BesselY0", "BesselY1", rtol=2e-5, tol=HALF)
def of_positive_numbers(t):
    yield dict(x=t.uniform("T", (3, 7), 0.1, 9))
    yield dict(x=t.uniform("T", (), 0.5, 3))
    yield dict(x=t.uniform("T", (2, 0), 0.5, 3))


@case("Dawsn", "FresnelCos", "FresnelSin", gradient=True, rtol=1e-5)
def odd_integrals(t):
    yield dict(x=t.uniform("T", (3, 9), -7, 7))
    yield dict(x=t.uniform("T", (), -1, 1))
    yield dict(x=t.uniform("T", (0,), -1, 1))


@case("Expint", "Spence", gradient=True, rtol=1e-5)
def integrals(t):
    yield dict(x=t.uniform("T", (3, 9), 0.1, 20))
    yield dict(x=t.uniform("T", (), 0.5, 2))
    yield dict(x=t.uniform("T", (0,), 1, 2))


@case("Igamma", "Igammac", gradient=True, rtol=5e-5, atol=1e-5)
def incomplete_gamma(t):
    yield dict(a=t.uniform("T", (3, 7), 0.3, 9), x=t.uniform("T", (3, 7), 0.3, 9))
    yield dict(a=t.uniform("T", (4, 1), 0.3, 40), x=t.uniform("T", (1, 5), 1, 40))
    yield dict(a=t.uniform("T", (), 0.3, 2), x=t.uniform("T", (3,), 0.1, 4))
    yield dict(a=t.uniform("T", (0, 3), 1, 2), x=t.uniform("T", (), 1, 2))


@case("IgammaGradA", "RandomGammaGrad", rtol=1e-4, atol=1e-5)
def gamma_slopes(t):
    first, second = ("a", "x") if t.op == "IgammaGradA" else ("alpha", "sample")
    for shapes in [((3, 7), (3, 7)), ((4, 1), (5,)), ((), (3,)), ((0, 2), (2,))]:
        yield {first: t.uniform("T", shapes[0], 0.5, 9), second: t.uniform("T", shapes[1], 0.5, 9)}


@case("Zeta", rtol=2e-5)
def zeta(t):
    for shapes in [((3, 7), (3, 7)), ((4, 1), (5,)), ((), (3,)), ((0, 2), (2,))]:
        yield dict(x=t.uniform("T", shapes[0], 1.2, 9), q=t.uniform("T", shapes[1], 0.5, 9))
    yield dict(x=t.integers("T", (3, 5), 2, 9), q=t.uniform("T", (3, 5), -3, -0.1))


@case("Polygamma", rtol=2e-5)
def polygamma(t):
    for shapes in [((3, 7), (3, 7)), ((4, 1), (5,)), ((), (3,)), ((0, 2), (2,))]:
        yield dict(a=t.integers("T", shapes[0], 0, 6), x=t.uniform("T", shapes[1], 0.5, 9))


@case("Betainc", rtol=5e-5, atol=1e-5)
def betainc(t):
    for shapes in [
        ((3, 7), (3, 7), (3, 7)),
        ((), (5,), (5,)),
        ((4,), (), ()),
        ((), (), ()),
        ((0, 2), (), (0, 2)),
    ]:
        yield dict(
            a=t.uniform("T", shapes[0], 0.3, 12),
            b=t.uniform("T", shapes[1], 0.3, 12),
            x=t.uniform("T", shapes[2], 0.01, 0.99),
        )
