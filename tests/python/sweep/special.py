"""Bessel functions, gamma functions and their kin."""

from .core import case

HALF = {"float16": (2e-3, 2e-3)}


@case("BesselI0", "BesselI0e", "BesselI1", "BesselI1e", "BesselJ0", "BesselJ1", gradient=True, rtol=1e-5, tol=HALF)
def even_and_odd(t):
    yield dict(x=t.uniform("T", (3, 7), -9, 9))
    yield dict(x=t.uniform("T", (5,), 4, 30) if "e" in t.op[-1] or "J" in t.op else t.uniform("T", (5,), -4, 4))
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
